"""Pieces and the tasks that move them: where they are cut, how they run, end and are checked."""

import os
import pickle
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Barrier, Event, Lock, Thread
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc import MemdescError, MemoryDesc, memory_desc
from memdesc.record import known_records, record_desc
from reorder.checkpoints.formats.entry import Place
from reorder.checkpoints.moves.changes import ONLY, Quantize, Reorder, Repack
from reorder.checkpoints.moves.losses import FinalError, Lost, check_lost, saturation_warnings
from reorder.checkpoints.moves.pieces import Piece, cut
from reorder.checkpoints.moves.tasks import Task, run_tasks


def pieces_of(
    dims: tuple[int, ...], dtype: str, tags: tuple[str, str], max_bytes: int
) -> list[Piece]:
    src, dst = (memory_desc(dims, dtype, tag) for tag in tags)
    return list(cut(Reorder(src, dst), max_bytes).pieces())


def run(piece: Piece, src: Place, dst: Place) -> None:
    Task("x", piece, {ONLY: src}, {ONLY: dst}).run()


def test_odd_rows_of_packed_elements_are_cut_in_pairs() -> None:
    pieces = pieces_of((10, 5), "u4", ("ab", "ab"), 20)
    assert [piece.change.dims for piece in pieces] == [(4, 5), (4, 5), (2, 5)]


def test_pieces_share_their_plan_and_travel() -> None:
    (first, *others) = pieces_of((4096, 64), "bf16", ("ab", "Ab16a"), 1 << 16)
    assert {piece.change for piece in others} == {first.change}
    assert pickle.loads(pickle.dumps(first)) == first


def test_a_negative_stride_is_refused_before_the_first_piece() -> None:
    desc = memory_desc((2, 2), "f32", "ab")
    turned = memory_desc((2, 2), "f32", strides=(-2, 1), padded_dims=(3, 2), offset0=4)
    for pair in ((turned, desc), (desc, turned)):
        with pytest.raises(MemdescError, match=r"has the negative stride -2; .* as a whole"):
            cut(Reorder(*pair), 1000)


def on_files(
    folder: Path, data: np.ndarray, src: MemoryDesc, dst: MemoryDesc
) -> tuple[Place, Place]:
    given, made = folder / "in", folder / "out"
    given.write_bytes(data.tobytes())
    made.write_bytes(bytes(dst.nbytes))
    return Place(given, 0, src.nbytes), Place(made, 0, dst.nbytes)


def test_scales_and_zero_points_go_with_their_elements(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((48, 64)).astype(np.float32)
    attr = reorder.Attr(
        dst_scale=rng.random((48, 4)).astype(np.float32) + 0.5,
        dst_scale_mask=3,
        dst_scale_groups=(1, 16),
        dst_zero_point=rng.integers(-3, 3, 48),
        dst_zero_point_mask=1,
        src_scale=2.0,
        saturate=True,
    )
    src, dst = memory_desc(x.shape, "f32"), memory_desc(x.shape, "s8", "BA16a16b")
    places = on_files(tmp_path, x, src, dst)
    pieces = list(cut(Reorder(src, dst, attr), 2048).pieces())
    assert len(pieces) > 4
    for piece in pieces:
        run(piece, *places)
    wanted = reorder.reorder(x, dst, attr=attr).data
    assert (tmp_path / "out").read_bytes() == wanted.tobytes()


def test_files_that_cannot_be_opened_are_named(tmp_path: Path) -> None:
    x = np.zeros((4, 4), np.float32)
    desc = memory_desc(x.shape, "f32")
    source, target = on_files(tmp_path, x, desc, desc)
    (piece,) = cut(Reorder(desc, desc), 1 << 20).pieces()
    with pytest.raises(MemdescError, match=r"none' cannot be read: No such file"):
        run(piece, source._replace(path=tmp_path / "none"), target)
    with pytest.raises(MemdescError, match=r"none' cannot be written: No such file"):
        run(piece, source, target._replace(path=tmp_path / "none"))


class _Wrong(Reorder):
    """A reorder whose code has a fault, the same in each call."""

    def apply(self, read: Mapping[str, NDArray[np.uint8]]) -> Mapping[str, NDArray[np.uint8]]:
        made = super().apply(read)
        made[ONLY][-1] ^= 1
        return made


@pytest.mark.parametrize(("dtype", "tag"), [("s8", "ba"), ("f16", "AB16b16a")])
def test_code_that_is_wrong_each_time_differs_from_the_definition(
    tmp_path: Path, dtype: str, tag: str
) -> None:
    x = np.arange(64 * 48, dtype=np.float32).reshape(64, 48) / 64
    src, dst = memory_desc(x.shape, "f32"), memory_desc(x.shape, dtype, tag)
    places = on_files(tmp_path, x, src, dst)
    for kind, is_right in ((Reorder, True), (_Wrong, False)):
        (piece,) = cut(kind(src, dst), 1 << 20).pieces()
        task = Task("x", piece, {ONLY: places[0]}, {ONLY: places[1]})
        task.run()
        if is_right:
            task.check()
        else:
            with pytest.raises(FinalError, match="x: what was written differs"):
                task.check()


@pytest.mark.parametrize("attr", [None, reorder.Attr(dst_scale=2.0)])
def test_a_byte_that_is_damaged_anywhere_is_found(
    tmp_path: Path, attr: reorder.Attr | None
) -> None:
    x = np.arange(512 * 512, dtype=np.float32).reshape(512, 512)
    desc = memory_desc(x.shape, "f32")
    places = on_files(tmp_path, x, desc, desc)
    (piece,) = cut(Reorder(desc, desc, attr), 1 << 24).pieces()
    task = Task("x", piece, {ONLY: places[0]}, {ONLY: places[1]})
    task.run()
    task.check()
    with places[1].path.open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        file.write(b"\1")
    with pytest.raises(FinalError, match="in 1 places of a piece"):
        task.check()


@pytest.mark.parametrize("name", known_records())
def test_every_record_is_decoded_in_pieces(name: str) -> None:
    for dims in ((512, 1024), (8, 256, 512)):
        try:
            src = record_desc(dims, name)
        except MemdescError:  # has other dims
            continue
        change = Repack(src.bare, memory_desc(dims, "bf16"))
        sizes = [piece.nbytes for piece in cut(change, 1 << 20, wanted=1 << 16).pieces()]
        assert len(sizes) > 1, dims
        assert max(sizes) <= 1 << 20, dims


class _Sized(NamedTuple):
    """What `run_tasks` asks of a task."""

    nbytes: int


def test_running_tasks_take_no_more_memory_than_allowed() -> None:
    lock, running, most = Lock(), list[int](), list[int]()
    # two of these fit, before and after one that runs alone, so another thread takes one too
    two = {40: Barrier(2), 41: Barrier(2)}

    def work(task: _Sized) -> int:
        with lock:
            running.append(task.nbytes)
            most.append(sum(running))
        if task.nbytes in two:
            two[task.nbytes].wait(20)
        elif task.nbytes == 500:
            time.sleep(0.05)  # the other threads begin, and wait for room
        with lock:
            running.remove(task.nbytes)
        return task.nbytes

    tasks: Any = [_Sized(nbytes) for nbytes in (40, 40, 500, 41, 41, 100)]
    done = [found for _, found in run_tasks(tasks, 4, 100, work)]  # type: ignore[arg-type] # sizes alone
    assert sorted(done) == sorted(task.nbytes for task in tasks)
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


@pytest.mark.parametrize("is_between", [False, True])
def test_no_task_runs_after_an_interrupted_run_has_ended(
    request: pytest.FixtureRequest,
    is_between: bool,
) -> None:
    """A second Ctrl-C does not end it either while a thread writes, or takes its next task."""
    # shells start commands in the background with SIGINT ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    begun, may_go_on, ended = Event(), Event(), list[bool]()

    def hold() -> None:
        begun.set()
        ended.append(may_go_on.wait(20))

    def tasks() -> Iterator[_Sized]:
        for k in range(9):
            yield _Sized(k)
            if is_between and k == 1:
                hold()

    def interrupt() -> None:
        begun.wait(20)
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
        may_go_on.set()

    thread = Thread(target=interrupt)
    thread.start()
    work = (lambda _: None) if is_between else (lambda _: hold())
    with pytest.raises(KeyboardInterrupt):
        [*run_tasks(tasks(), 1, 10, work)]  # type: ignore[arg-type] # sizes alone
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
        record = record_desc(x.shape, "fp8_block", block=32)
        change = Quantize(src, record, (0, 1), (32, 32))
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
    tiny = Lost("f16", 10, 4, 0, 1e-30).joined(None)
    for largest in (3e-30, 2e-30):
        tiny = Lost("f16", 10, 4, 0, largest).joined(tiny)
    losses = {"x": tiny, "y": Lost("s8", 10, 9, 0, None).joined(Lost("s8", 10, 10, 0, None))}
    check_lost(losses, "y")
    check_lost(losses, "z")
    assert saturation_warnings(losses)[1].startswith("y: 19 of 20 numbers are beyond s8 at this")
    with pytest.raises(FinalError, match="would become 0 in f16: the largest is 3e-30"):
        check_lost(losses, "x")
    # a number that stayed
    check_lost({"x": Lost("f16", 1, 0, 0, None).joined(tiny)}, "x")
