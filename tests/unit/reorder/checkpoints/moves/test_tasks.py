"""Tasks on threads: how much memory they take together, how they end, and quantised pieces."""

import os
import signal
import time
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

import numpy as np
import pytest

from memdesc import memory_desc
from memdesc.record import record_desc
from reorder.checkpoints.formats.entry import Place
from reorder.checkpoints.moves.changes import ONLY, Quantize
from reorder.checkpoints.moves.losses import FinalError, Lost, check_lost, saturation_warnings
from reorder.checkpoints.moves.pieces import cut
from reorder.checkpoints.moves.tasks import Task, run_tasks


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

    tasks: Any = [_Sized(40), _Sized(40), _Sized(40), _Sized(500), _Sized(40), _Sized(100)]
    done = [found for _, found in run_tasks(tasks, 4, 100, work)]  # type: ignore[arg-type] # sizes alone
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
        [*run_tasks(map(_Sized, range(1000)), 1, 10**6, work)]  # type: ignore[arg-type] # sizes alone
    assert begun == [0, 1, 2, 3]

    def broken() -> Any:
        yield _Sized(1)
        raise OSError(5, "the next one")

    with pytest.raises(OSError, match="the next one"):
        [*run_tasks(broken(), 2, 10, lambda _: None)]


def test_no_task_runs_after_an_interrupted_run_has_ended(request: pytest.FixtureRequest) -> None:
    """A second Ctrl-C does not end it while a thread still writes either."""
    # shells start commands in the background with SIGINT ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    begun, may_go_on, ended = Event(), Event(), list[bool]()

    def hold(_: _Sized) -> None:
        begun.set()
        ended.append(may_go_on.wait(20))

    def interrupt() -> None:
        begun.wait(20)
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
        may_go_on.set()

    thread = Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        [*run_tasks(map(_Sized, range(9)), 1, 10, hold)]  # type: ignore[arg-type] # sizes alone
    assert ended == [True]
    thread.join()


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
    read = {ONLY: Place(tmp_path / "x", 0, x.nbytes)}
    pieces = [*cut(change, 1 << 18).pieces()]
    assert len(pieces) > 1
    for piece in pieces:
        task = Task("x", piece, read, places)
        task.run()
        task.check()
    codes = places[change.roles[0]].path
    codes.write_bytes(bytes([codes.read_bytes()[0] ^ 1]) + codes.read_bytes()[1:])
    with pytest.raises(FinalError, match="x: what was written differs"):
        Task("x", pieces[0], read, places).check()


def test_what_regions_lose_is_judged_on_the_whole_tensor() -> None:
    tiny = Lost("f16", 10, 4, 1e-30).joined(None)
    for largest in (3e-30, 2e-30):
        tiny = Lost("f16", 10, 4, largest).joined(tiny)
    losses = {"x": tiny, "y": Lost("s8", 10, 9, None).joined(Lost("s8", 10, 10, None))}
    check_lost(losses, "y")
    check_lost(losses, "z")
    assert saturation_warnings(losses)[1].startswith("y: 19 of 20 numbers are beyond s8 at this")
    with pytest.raises(FinalError, match="would become 0 in f16: the largest is 3e-30"):
        check_lost(losses, "x")
    # a number that stayed
    check_lost({"x": Lost("f16", 1, 0, None).joined(tiny)}, "x")
