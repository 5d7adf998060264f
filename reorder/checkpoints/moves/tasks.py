"""Tasks: pieces with the places of their tensors, small values that any thread or machine runs.

A task reads places in files and writes others. It may run again with the same result, and no two
tasks of a conversion write the same bytes, unless they write the same values.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from threading import Condition, Thread, get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memdesc import MemdescError
from memdesc.errors import about
from memdesc.record import RecordDesc
from reorder.checkpoints.formats.entry import Place
from reorder.checkpoints.moves.changes import ONLY, permutation, sizes_of
from reorder.checkpoints.moves.files import read_runs, scratch, write_runs
from reorder.checkpoints.moves.losses import Lost, Made, OverflowedError, check_scales
from reorder.checkpoints.moves.pieces import Bound, Piece, cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from reorder.checkpoints.moves.changes import Bytes
    from reorder.checkpoints.moves.runs import Runs

    _RunsByRole = tuple[tuple[str, Runs], ...]

Places = tuple[tuple[str, Place], ...]
# How much of a piece is compared with the definition: numpy takes some 10 ms for each MiB.
_SAMPLE = Bound(1 << 16, 1 << 62)
# how often a waiting caller looks for Ctrl-C
_POLL_SECONDS = 0.2


class DifferentError(MemdescError):
    """The bytes in a file differ from those that a task writes."""


class Task(NamedTuple):
    """A piece, what it belongs to, and the places of the tensors that it reads and writes."""

    name: str
    piece: Piece
    src: Places
    dst: Places = ()

    @property
    def nbytes(self) -> int:
        """Bytes that it needs in memory."""
        return self.piece.nbytes

    @property
    def written(self) -> int:
        """Bytes that it writes."""
        return self.piece.written

    def run(self) -> Lost | None:
        """Read the tensors, change them, and write the result; return what is lost.

        Fails if a file cannot be read or written, or the target cannot hold a number.
        """
        read = self.read()
        (made, lost), places = self._make_checked(read), dict(self.dst)
        for role, runs in self.piece.writes:
            write_runs(runs, places[role], made[role])
        return lost

    def compute(self) -> Bytes:
        """Return what is written, without writing it. Fails where `run` does."""
        return self._make_checked(self.read())[0]

    def check(self) -> None:
        """Read back what `run` wrote, and compare all of it with what the task makes now.

        A part of some 64 KiB is compared with the definition too. Fails where `run` does, and with
        a `DifferentError` if a byte differs.
        """
        read = self.read()
        made, written = self._apply(read), self._written()
        for role, runs in self.piece.writes:
            wanted = made[role][: runs.nbytes]
            self._compare(wanted, written[role][: len(wanted)])
        change = self.piece.change.with_chosen(written)
        for part in islice(cut(change, _SAMPLE), 1):
            given, kept = _extract_runs(part.reads, read), _extract_runs(part.writes, written)
            self._compare(*part.change.definition(given, kept))

    def read(self) -> Bytes:
        """Return the bytes of each tensor; buffers may be larger than what is read into them."""
        return _read("read", self.src, self.piece.reads, sizes_of(self.piece.change.src))

    def _written(self) -> Bytes:
        """Return the bytes of each tensor where `run` writes them; buffers may be larger."""
        return _read("written", self.dst, self.piece.writes, sizes_of(self.piece.change.dst))

    def _make_checked(self, read: Bytes) -> tuple[Bytes, Lost | None]:
        """Return the bytes to write, and what is lost. Fails if a number has no place."""
        made = self._apply(read)
        if self.piece.change.is_copy:
            return made, None
        try:
            if ONLY in made:
                return made, Made.by(self.piece.change, read, made[ONLY], self.piece.offsets).lost()
            self._check_blocks(read)
        except OverflowedError as error:
            msg = f"{self.name}: {error}"
            raise OverflowedError(msg) from None
        return made, None

    def _check_blocks(self, read: Bytes) -> None:
        """Refuse bad scales that share a tensor with codes, since nothing has read these before."""
        src, dst, at = self.piece.change.src, self.piece.change.dst, self.piece.offsets
        if isinstance(src, RecordDesc):
            codes = {src.field(name).tensor for name, _ in src.rule.code.parts}
            starts = tuple(at[dim] for dim in permutation(src, dst)) if at else ()
            check_scales(src, codes, read.__getitem__, starts)

    def _apply(self, read: Bytes) -> Bytes:
        change = self.piece.change
        if change.is_copy:
            return read
        with about(self.name):
            return change.apply(read)

    def _compare(self, wanted: NDArray[np.generic], found: NDArray[np.generic]) -> None:
        """Refuse arrays that differ in a bit; NaN equals NaN."""
        if _are_equal(wanted, found):
            return
        differ = np.argwhere(wanted != found)
        at = tuple(int(i) for i in differ[0])
        msg = (
            f"{self.name}: what was written differs from the definition, in {len(differ)} places "
            f"of a piece, first at {at}: {found[at]} instead of {wanted[at]}"
        )
        raise DifferentError(msg)


def _read(what: str, places: Places, pairs: _RunsByRole, sizes: Mapping[str, int]) -> Bytes:
    """Read the runs of each tensor into a buffer that is at least as large as its descriptor."""
    held, found = dict(places), {}
    for role, runs in pairs:
        found[role] = scratch.take(f"{what} {role}", max(runs.nbytes, sizes.get(role, 0)))
        read_runs(runs, held[role], found[role])
    return found


def _are_equal(one: NDArray[np.generic], other: NDArray[np.generic]) -> bool:
    if one.dtype != np.uint8:
        return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    whole = len(one) // 8 * 8  # words of 8 bytes are compared several times as fast
    words, others = (each[:whole].view(np.uint64) for each in (one, other))
    return np.array_equal(words, others) and np.array_equal(one[whole:], other[whole:])


def _extract_runs(each: _RunsByRole, data: Bytes) -> Bytes:
    """Return runs of bytes of each tensor, back to back."""
    return {
        role: np.concatenate([data[role][at : at + runs.length] for at in runs.starts()])
        for role, runs in each
    }


class _Queue:
    """Tasks that threads take in order, each once its bytes fit into memory."""

    def __init__(self, tasks: Iterable[Task], max_bytes: int) -> None:
        self._tasks, self._max_bytes = iter(tasks), max_bytes
        self._next = next(self._tasks, None)
        # the bytes of the task of each thread that runs one
        self._held: dict[int, int] = {}
        self._state = Condition()
        self.error: BaseException | None = None

    def take(self) -> Task | None:
        """Return the next task, once there is room for it; None at the end.

        The task that the thread had before is done. If the next one fits, the same thread goes on
        with its buffers; a thread that has to wait frees its own.
        """
        with self._state:
            self._leave()
            while (found := self._next) is not None:
                if not self._held or sum(self._held.values()) + found.nbytes <= self._max_bytes:
                    self._held[get_ident()] = found.nbytes
                    self._next = next(self._tasks, None)
                    break
                scratch.clear()
                self._state.wait()
            return found

    def stop(self, error: BaseException | None) -> None:
        """Let no thread take another task; the one that calls has ended."""
        with self._state:
            self._next, self._tasks = None, iter(())
            self.error = self.error or error
            self._leave()

    def _leave(self) -> None:
        self._held.pop(get_ident(), None)
        self._state.notify_all()

    def wait(self) -> None:
        """Wait until no task runs and none is left."""
        with self._state:
            while self._held or self._next is not None:
                self._state.wait(_POLL_SECONDS)


def run_tasks(
    tasks: Iterable[Task],
    threads: int,
    max_bytes: int,
    finished: Callable[[Task, Any], None],
    work: Callable[[Task], Any],
) -> None:
    """Run tasks on several threads; the first error ends all.

    All running tasks together take at most `max_bytes` of memory; a task that needs more runs
    alone. `finished` is called with each task and what `work` returned, by the thread that ran it.
    """
    queue = _Queue(tasks, max_bytes)

    def loop() -> None:
        try:
            while (task := queue.take()) is not None:
                finished(task, work(task))
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            queue.stop(error)

    try:
        for k in range(threads):
            Thread(target=loop, name=f"memdesc-convert-{k}").start()
        queue.wait()
    except BaseException:
        queue.stop(None)
        # No task may write after this returns: another conversion may use the same names. So a
        # second Ctrl-C does not end the wait for the tasks that run.
        while True:
            with suppress(KeyboardInterrupt):
                queue.wait()
                break
        raise
    if queue.error is not None:
        raise queue.error
