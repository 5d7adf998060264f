"""Tasks on threads: how much memory they take together, how they end, and quantised pieces."""

from __future__ import annotations

from threading import Event, Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from memdesc import memory_desc
from memdesc.record import record_desc
from reorder.checkpoints.formats.entry import Place
from reorder.checkpoints.moves.changes import ONLY, Quantize
from reorder.checkpoints.moves.losses import Losses, Lost, OverflowedError
from reorder.checkpoints.moves.pieces import Bound, cut
from reorder.checkpoints.moves.tasks import DifferentError, Task, run_tasks

if TYPE_CHECKING:
    from pathlib import Path


class _Sized(NamedTuple):
    """What `run_tasks` asks of a task."""

    nbytes: int


def test_running_tasks_take_no_more_memory_than_allowed() -> None:
    lock, running, most = Lock(), list[int](), list[int]()
    two = Event()

    def work(task: _Sized) -> int:
        with lock:
            running.append(task.nbytes)
            most.append(sum(running))
            if len(running) > 1:
                two.set()
        if task.nbytes <= 40:
            two.wait(5)  # two of them fit, so another thread takes one too
        with lock:
            running.remove(task.nbytes)
        return task.nbytes

    done: list[int] = []
    tasks: Any = [_Sized(40), _Sized(40), _Sized(40), _Sized(500), _Sized(40), _Sized(100)]
    run_tasks(tasks, 4, 100, lambda _, found: done.append(found), work)  # type: ignore[arg-type] # sizes alone
    assert sorted(done) == sorted(task.nbytes for task in tasks)
    assert two.is_set()
    # one that needs more runs alone
    assert all(total <= 100 or total == 500 for total in most)


def test_the_first_error_ends_all_tasks() -> None:
    begun: list[int] = []

    def work(task: _Sized) -> None:
        begun.append(task.nbytes)
        if task.nbytes == 3:
            raise OSError(5, "mine")

    with pytest.raises(OSError, match="mine"):
        run_tasks(map(_Sized, range(1000)), 1, 10**6, lambda *_: None, work)  # type: ignore[arg-type] # sizes alone
    assert begun == [0, 1, 2, 3]

    def broken() -> Any:
        yield _Sized(1)
        raise OSError(5, "the next one")

    with pytest.raises(OSError, match="the next one"):
        run_tasks(broken(), 2, 10, lambda *_: None, lambda _: None)


@pytest.mark.parametrize("dst", ["u4", "fp8_block(block=32)"])
def test_quantised_pieces_are_checked_with_the_scales_that_they_wrote(
    tmp_path: Path, dst: str
) -> None:
    x = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    src = memory_desc(x.shape, "f32")
    if dst == "u4":
        change = Quantize(src, memory_desc(x.shape, "u4"), (0, 1), (1, 32))
    else:
        change = Quantize.into(src, record_desc(x.shape, "fp8_block", block=32))
    (tmp_path / "x").write_bytes(x.tobytes())
    places = {}
    for role, operand in change.writes.items():
        path = tmp_path / f"made{role}"
        path.write_bytes(bytes(operand.nbytes))
        places[role] = Place(path, 0, operand.nbytes)
    read = ((ONLY, Place(tmp_path / "x", 0, x.nbytes)),)
    pieces = [*cut(change, Bound(1 << 18, 1 << 18))]
    assert len(pieces) > 1
    for piece in pieces:
        task = Task("x", piece, read, tuple(places.items()))
        task.run()
        task.check()
    codes = places[change.roles[0]].path
    codes.write_bytes(bytes([codes.read_bytes()[0] ^ 1]) + codes.read_bytes()[1:])
    with pytest.raises(DifferentError, match="x: what was written differs"):
        Task("x", pieces[0], read, tuple(places.items())).check()


def test_what_regions_lose_is_judged_on_the_whole_tensor() -> None:
    losses = Losses()
    for largest in (1e-30, 3e-30, 2e-30):
        losses.add("x", Lost("f16", 10, 4, largest))
    losses.add("y", Lost("s8", 10, 10, None))
    losses.add("y", Lost("s8", 10, 9, None))
    losses.check(["y", "z"])
    assert losses.warnings[1].startswith("y: 19 of 20 numbers are beyond s8 at this scale")
    with pytest.raises(OverflowedError, match="would become 0 in f16: the largest is 3e-30"):
        losses.check(["x"])
    losses.add("x", Lost("f16", 1, 0, None))  # a number that stayed
    losses.check(["x"])
