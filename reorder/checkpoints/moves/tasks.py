"""Tasks: pieces with the places of their tensors, small values that any thread or machine runs.

A task reads places in files and writes others. It may run again with the same result, and no two
tasks of a conversion write the same bytes, unless they write the same values. Files are not mapped
into memory, so a file that somebody shortens is an error, not a signal.
"""

from __future__ import annotations

import ctypes
import os
import pickle
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from threading import Condition, Lock, Thread, get_ident
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memdesc import MemdescError, __version__
from memdesc.errors import about, short_repr
from memdesc.tuples import NamedTuple
from reorder.checkpoints.formats.entry import FileState, Place
from reorder.checkpoints.moves.changes import Bytes, scratch
from reorder.checkpoints.moves.losses import FinalError, Lost, check_factors, lost_by
from reorder.checkpoints.moves.pieces import Piece, Runs, cut
from reorder.disk import NO_LINK, errors_of, open_file, read_at, write_at
from reorder.forks import at_fork
from reorder.records.record import first_index
from reorder.system import system_function

if TYPE_CHECKING:
    from distributed import Client

# How much of a piece is compared with the definition: numpy takes some 10 ms for each MiB.
_SAMPLE = 1 << 16
# The most bytes that one call writes. Linux allocates page cache in blocks of the length of the
# call. It finds small blocks in memory that was used before, while large ones may be new even to
# the host of a virtual machine, where they took 6 times as long.
_MOST_WRITTEN = 256 << 10
# what Linux calls SYNC_FILE_RANGE_WRITE
_START_WRITING, _PAGE = 2, 4096
# Runs shorter than this are read or written by one thread at a time. Each call releases the GIL and
# waits for it again: 16 threads that did so at once took twice as long as one after another.
_SHORT_RUN = 64 << 10
_turn = Lock()
at_fork(_turn.acquire, _turn.release, _turn.release)


class Task(NamedTuple):
    """A piece, what it belongs to, and the places of the tensors that it reads and writes."""

    name: str
    piece: Piece
    src: Mapping[str, Place]
    dst: Mapping[str, Place]
    # what asks for it, for messages
    rule: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes that it needs in memory."""
        return self.piece.nbytes

    def run(self) -> Lost | None:
        """Read the tensors, change them, and write the result; return what is lost."""
        made, lost = self.made()
        for role, runs in self.piece.writes.items():
            with errors_of(self.dst[role].path, "written"):
                _write_runs(runs, self.dst[role], made[role])
        return lost

    def made(self) -> tuple[Bytes, Lost | None]:
        """Read the tensors and change them; return the bytes to write, and what is lost."""
        change, offsets = self.piece.change, self.piece.offsets
        read, lost = _read("read", self.src, self.piece.reads), None
        made = read
        if not change.is_copy:
            try:
                check_factors(change, read, offsets)
                # these messages count from the start of the piece
                with about(f"in the part that begins at {offsets}") if offsets else nullcontext():
                    made = change.apply(read)
                lost = lost_by(change, read, made, offsets)
            except MemdescError as error:
                by = f"rule {self.rule!r}: " if self.rule else ""
                raise FinalError(f"{by}{self.name}: {error}") from None
        return made, lost

    def check(self) -> None:
        """Compare what `run` wrote with what it makes now, and a part with the definition too."""
        read = _read("read", self.src, self.piece.reads)
        written = _read("written", self.dst, self.piece.writes)
        change = self.piece.change
        made = read if change.is_copy else change.apply(read)
        for role, runs in self.piece.writes.items():
            wanted = made[role][: runs.nbytes]
            self._compare(wanted, written[role][: len(wanted)])
        change, written = change.with_chosen(written)
        for piece in islice(cut(change, 1 << 62, wanted=_SAMPLE).pieces(), 1):
            given, kept = _extract_runs(piece.reads, read), _extract_runs(piece.writes, written)
            self._compare(*piece.change.definition(given, kept))

    def _compare(self, wanted: NDArray[np.generic], found: NDArray[np.generic]) -> None:
        """Refuse arrays that differ in a bit; NaN equals NaN."""
        if not np.array_equal(wanted, found, equal_nan=wanted.dtype.kind == "f"):
            differ = wanted != found
            at = first_index(differ)
            raise FinalError(
                f"{self.name}: what was written differs from the definition, in {differ.sum()} "
                f"places of a piece, first at {at}: {found[at]} instead of {wanted[at]}"
            )


def _read(what: str, places: Mapping[str, Place], parts: Mapping[str, Runs]) -> Bytes:
    """Read the runs of each tensor into a buffer of the thread."""
    buffers = {}
    for role, runs in parts.items():
        buffers[role] = scratch.take(f"{what} {role}", runs.nbytes)
        _read_runs(runs, places[role], buffers[role])
    return buffers


def _extract_runs(parts: Mapping[str, Runs], data: Bytes) -> Bytes:
    """Return runs of bytes of each tensor, back to back."""
    return {
        role: np.concatenate([data[role][at : at + runs.length] for at in runs.starts()])
        for role, runs in parts.items()
    }


class _Taken:
    """Tasks that threads take in order, each once its bytes fit into memory."""

    def __init__(self, tasks: Iterable[Task], max_bytes: int) -> None:
        self._tasks, self._max_bytes, self._state = iter(tasks), max_bytes, Condition()
        self._next = next(self._tasks, None)
        # the bytes of the task of each thread that runs one
        self._held: dict[int, int] = {}

    def take(self) -> Task | None:
        """Return the next task, once there is room for it; None at the end. The last is done."""
        with self._state:
            self._held.pop(get_ident(), None)
            self._state.notify_all()
            while (task := self._next) is not None:
                if not self._held or sum(self._held.values()) + task.nbytes <= self._max_bytes:
                    self._next = next(self._tasks, None)
                    self._held[get_ident()] = task.nbytes
                    break
                scratch.held.clear()  # a thread that goes on keeps its buffers
                self._state.wait()
            return task

    def stop(self) -> None:
        """Let no thread take another task; one that calls has ended."""
        with self._state:
            self._next, self._tasks = None, iter(())
            self._held.pop(get_ident(), None)
            self._state.notify_all()

    def wait(self) -> None:
        """Wait until no task runs."""
        with self._state:
            while self._held:
                self._state.wait()


def run_tasks(
    tasks: Iterable[Task], threads: int, max_bytes: int, work: Callable[[Task], Any]
) -> Generator[tuple[Task, Any], None, None]:
    """Run tasks on several threads; yield each with what `work` returned, as it is done.

    The first error ends all. Tasks that run together take at most `max_bytes` of memory; one that
    needs more runs alone. None runs any more once the generator ends or is closed.
    """
    taken, done = _Taken(tasks, max_bytes), SimpleQueue[tuple[Task | None, Any]]()

    def run() -> None:
        error = None
        try:
            for task in iter(taken.take, None):
                done.put((task, work(task)))
        except BaseException as failure:  # noqa: BLE001 - the caller raises it
            error = failure
        taken.stop()
        done.put((None, error))

    try:
        for k in range(threads):
            Thread(target=run, name=f"memdesc-convert-{k}").start()
        errors = list[BaseException | None]()
        while len(errors) < threads:
            task, outcome = done.get()
            if task is None:
                errors.append(outcome)
            else:
                yield task, outcome
        for error in filter(None, errors):
            raise error
    finally:
        # No task may write after this returns: another conversion may use the same names. So a
        # second Ctrl-C does not end the wait for the tasks that run (as it ends `Thread.join`).
        while True:
            with suppress(KeyboardInterrupt):
                taken.stop()
                taken.wait()
                break


# --- the workers of a Dask cluster, which see the same files under the same paths ---


def check_workers(client: Any, states: Mapping[Path, FileState]) -> None:
    """Refuse a cluster without workers, or with one that does not see the files that are read."""
    sizes = {str(path): state.nbytes for path, state in states.items()}
    answers = client.run(_look, sizes) if getattr(client, "status", "") == "running" else {}
    if not answers:
        raise MemdescError(
            f"{short_repr(client)} is not a synchronous distributed.Client that has workers"
        )
    for worker, (version, missing) in answers.items():
        if version != __version__ or missing:
            what = f"does not see {missing[0]!r} as it is here" if missing else f"has {version}"
            raise MemdescError(
                f"worker {worker} {what}; all machines must have memdesc {__version__}, and the "
                "same files under the same path"
            )


def _look(sizes: dict[str, int]) -> tuple[str, list[str]]:
    """Return a worker's version of memdesc, and the files that it does not see as they are."""
    paths = {path: Path(path) for path in sizes}
    seen = {name: path.stat().st_size for name, path in paths.items() if path.exists()}
    return __version__, [name for name, nbytes in sizes.items() if seen.get(name) != nbytes]


def run_on_cluster(
    client: Client, tasks: Iterator[Task], work: Callable[[Task], Any]
) -> Generator[tuple[Task, Any], None, None]:
    """Run the tasks of each file on a worker, one after another; the first error ends the run.

    *Law*: the bytes are those that a conversion on this machine writes. A worker that is lost costs
    nothing: another one writes its files.
    """
    from distributed import as_completed  # optional

    files: dict[Path, list[Task]] = {}
    for task in tasks:
        files.setdefault(next(iter(task.dst.values())).path, []).append(task)
    # pickled, because Dask looks for its own tasks in tuples
    futures = client.map(_run, [pickle.dumps((work, jobs)) for jobs in files.values()], pure=False)
    batches = dict(zip(futures, files.values(), strict=True))
    try:
        for future in as_completed(futures, loop=client.loop):
            error = future.exception()
            if error is not None and not isinstance(error, MemdescError):
                raise MemdescError(
                    f"a worker, or the Dask scheduler, failed: {short_repr(error)}"
                ) from error
            yield from zip(batches[future], future.result(), strict=True)
    finally:
        with suppress(Exception):  # the scheduler may be gone
            client.cancel(futures)


def _run(data: bytes) -> list[Any]:
    work, tasks = pickle.loads(data)  # noqa: S301 - of the client, which runs functions here
    return [work(task) for task in tasks]


# --- the bytes of tensors in files ---


def _turn_for(runs: Runs) -> AbstractContextManager[object]:
    return _turn if runs.length < _SHORT_RUN and runs.number > 1 else nullcontext()


def _read_runs(runs: Runs, place: Place, into: NDArray[np.uint8]) -> None:
    """Read runs of bytes of a tensor, and store them back to back; refuse a file that is short."""
    with open_file(place.path) as file, _turn_for(runs):
        handle = file.fileno()
        for k, start in enumerate(runs.starts()):
            # the last run may be counted beyond the last element of the tensor
            target = into.data[k * runs.length :][: min(runs.length, place.nbytes - start)]
            for at, size in place.spans(start, len(target)):
                done = 0
                while done < size:
                    count = read_at(handle, target[done:size], at + done)
                    if not count:
                        raise MemdescError(
                            f"{str(place.path)!r} has {os.fstat(handle).st_size} bytes, but a "
                            f"tensor in it ends at byte {place.start + place.nbytes}; it was "
                            "shortened after it was opened"
                        )
                    done += count
                target = target[size:]


def _write_runs(runs: Runs, place: Place, data: NDArray[np.uint8]) -> None:
    """Write bytes that are back to back to runs of a tensor; its file exists."""
    view, size, opened = data.data, runs.length, os.open(place.path, os.O_WRONLY | NO_LINK)
    with os.fdopen(opened, "wb", 0) as file, _turn_for(runs):
        for k, start in enumerate(runs.starts()):
            at = place.start + start
            write_at(file.fileno(), view[k * size :][:size], at, _MOST_WRITTEN)
            start_writing = _sync_file_range() if size >= _MOST_WRITTEN else None
            if start_writing is not None:
                # starts writing whole pages, so that a later fsync, which reports errors, is short
                first, last = -(-at // _PAGE) * _PAGE, (at + size) // _PAGE * _PAGE
                start_writing(file.fileno(), first, last - first, _START_WRITING)


@cache
def _sync_file_range() -> Any:
    """Return the function `sync_file_range` of Linux; None on other systems."""
    offset = ctypes.c_int64
    return system_function("sync_file_range", ctypes.c_int, offset, offset, ctypes.c_uint)
