"""A conversion whose tasks run on the workers of a Dask cluster, which see the same files.

A task is a small value that may run again with the same result, so the scheduler can give the tasks
of a lost worker to another one.
"""

from __future__ import annotations

import gc
import json
import pickle
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from itertools import islice
from math import inf
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from memdesc import MemdescError, __version__
from memdesc.disk import open_file
from memdesc.errors import short_repr
from reorder.storage.containers.entry import FileState
from reorder.storage.containers.partial import FILES, partial_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from distributed import Client, Future

    from reorder.storage.convert.conversion import Conversion, Execute

    _Batch = list[tuple[int, Any]]

_INSTALL = "distributed is not installed: pip install distributed, or memdesc[dask]"
# how long to wait for a scheduler or its first worker, and for new workers after all have left
_CONNECT_SECONDS, _NO_WORKER_SECONDS = 10, 60
_POLL_SECONDS = 1
# batches of tasks for each thread of the workers, so that no thread waits for its next one
_AHEAD = 2
# the most bytes and tasks in a batch; Dask takes some milliseconds for each batch
_BATCH, _MAX_BATCH = 64 << 20, 256
# the most bytes of the file that a scheduler writes
_MAX_FILE = 1 << 24


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """Connect to a scheduler: its address, or the file that `dask scheduler` wrote.

    Fails if there is no scheduler, or it has no workers.
    """
    try:
        from distributed import Client  # optional
    except ImportError:
        raise MemdescError(_INSTALL) from None
    where = _address_in(Path(address)) if address.endswith(".json") else address
    reason, client = "", None
    try:
        client = Client(where, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        reason = type(error).__name__
    if client is None:
        # the client that failed closes when it is collected, and blocks one that starts before then
        gc.collect()
        msg = (
            f"there is no Dask scheduler at {short_repr(address)} ({reason}); start one with `dask "
            "scheduler`, and name the address that it prints, such as tcp://host:8786, or its "
            "--scheduler-file"
        )
        raise MemdescError(msg)
    with client:
        with suppress(TimeoutError):
            client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
        if not client.nthreads():
            msg = (
                f"the Dask scheduler at {short_repr(address)} has no workers; start some with "
                f"`dask worker {address}`"
            )
            raise MemdescError(msg)
        yield client


def _address_in(path: Path) -> str:
    """Return the address in the file that a scheduler wrote."""
    with open_file(path) as file:
        text = file.read(_MAX_FILE)
    try:
        return str(json.loads(text)["address"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        msg = f"{str(path)!r} is not a --scheduler-file of `dask scheduler`: {error!r}"
        raise MemdescError(msg) from None


def worker_threads(client: object) -> int:
    """Return the most threads of any worker: that many tasks hold memory there at a time.

    Fails if it is not a client, is asynchronous, or is closed.
    """
    try:
        from distributed import Client  # optional
    except ImportError:
        raise MemdescError(_INSTALL) from None
    if not isinstance(client, Client) or client.asynchronous:
        msg = f"client must be a synchronous distributed.Client, not {short_repr(client)}"
        raise MemdescError(msg)
    with _explaining_errors(client):
        return int(max(client.nthreads().values(), default=1))


@contextmanager
def _explaining_errors(client: Client) -> Iterator[None]:
    """Explain errors of a request to the scheduler: a closed client, a lost scheduler."""
    if client.status in ("closing", "closed"):
        msg = f"the Dask client is {client.status}; give one that is connected to a scheduler"
        raise MemdescError(msg)
    try:
        yield
    except CancelledError:
        msg = "the Dask scheduler has ended, or cancelled a task; start the cluster again"
        raise MemdescError(msg) from None
    except (OSError, TimeoutError) as error:
        msg = (
            f"the Dask scheduler no longer answers ({type(error).__name__}); start the cluster "
            "again"
        )
        raise MemdescError(msg) from None


def on_cluster(client: Client, conversion: Conversion) -> Execute:
    """Return the function that runs the tasks of a conversion on the workers of a cluster.

    *Law*: the bytes are those that a conversion on this machine writes.

    Its paths are absolute. Fails if a worker does not see the files that are read; while tasks run,
    also if a worker does not see the files that are written, or all workers end.
    """
    check_workers(client, list(conversion.container.files))
    # the files of a complete output have their final names
    folder = conversion.finished.folder
    if not conversion.is_finished:
        folder = partial_folder(conversion.target) / FILES
    outputs = [folder / file.name for file in conversion.output.files]

    def run(
        tasks: Iterator[tuple[int, Any]],
        finished: Callable[[int, Any, Any], None],
        work: Callable[[Any], Any],
    ) -> None:
        check_workers(client, outputs)
        run_on_cluster(client, tasks, finished, work, min(conversion.options.max_bytes, _BATCH))

    return run


def check_workers(client: Client, paths: Sequence[Path]) -> None:
    """Refuse workers of another version, and those that do not see the files."""
    sizes = tuple(FileState.at(path).nbytes for path in paths)
    with _explaining_errors(client):
        found = client.run(_look, tuple(map(str, paths)), on_error="return")
    for worker, seen in found.items():
        if isinstance(seen, BaseException):
            msg = f"worker {worker} cannot run tasks: {short_repr(seen)}; install memdesc there"
            raise MemdescError(msg)
        version, found_sizes = seen
        if version != __version__:
            msg = f"worker {worker} has memdesc {version}, and this is {__version__}"
            raise MemdescError(msg)
        for path, wanted, size in zip(paths, sizes, found_sizes, strict=True):
            if size != wanted:
                what = "does not see it" if size is None else f"sees {size}"
                msg = (
                    f"{str(path)!r} has {wanted} bytes here, and worker {worker} {what}; all "
                    "machines must have the same files under the same path"
                )
                raise MemdescError(msg)


def _look(paths: tuple[str, ...]) -> tuple[str, tuple[int | None, ...]]:
    """Return a worker's version of memdesc, and the sizes of the files that it sees."""
    import os  # this function runs on another machine

    def size_of(path: str) -> int | None:
        try:
            return os.stat(path).st_size  # noqa: PTH116 - a path of another machine
        except OSError:
            return None

    return __version__, tuple(map(size_of, paths))


def run_on_cluster(
    client: Client,
    tasks: Iterator[tuple[int, Any]],
    finished: Callable[[int, Any, Any], None],
    work: Callable[[Any], Any],
    max_bytes: int,
) -> None:
    """Run numbered tasks on the workers; the first error ends the run.

    About `_AHEAD` batches of tasks per thread of the workers are in memory; a batch has about
    `max_bytes`. `work` is called with each task on a worker, so it can be pickled, and `finished`
    with each task that has run, and what `work` returned.

    Fails if a task fails, several workers died while running it, or no workers are left.
    """
    held: dict[Future, _Batch] = {}
    done: SimpleQueue[Future] = SimpleQueue()
    workers, name = _Workers(client), uuid4().hex
    batches = _batches(tasks, max_bytes)
    try:
        while True:
            # without workers one batch waits for them at the scheduler
            room = workers.threads * _AHEAD - len(held)
            for batch in islice(batches, max(room, 0 if held else 1)):
                data = pickle.dumps((work, [task for _, task in batch]))
                key = f"memdesc-{name}-{batch[0][0]}"
                with _explaining_errors(client):
                    future = client.submit(_run, data, key=key, pure=False)
                held[future] = batch
                future.add_done_callback(done.put)
            if not held:
                return
            with suppress(Empty):
                future = done.get(timeout=_POLL_SECONDS)
                with _explaining_errors(client):
                    results = _results(future)
                if results is None:
                    future.add_done_callback(done.put)
                else:
                    for (number, task), result in zip(held.pop(future), results, strict=True):
                        finished(number, task, result)
            workers.count()
    finally:
        # no task may write after this returns: another conversion may use the same names
        _drain(workers, list(held))


def _batches(tasks: Iterator[tuple[int, Any]], max_bytes: int) -> Iterator[_Batch]:
    """Return tasks in batches of about `max_bytes`."""
    batch: _Batch = []
    nbytes = 0
    for number, task in tasks:
        batch.append((number, task))
        nbytes += task.nbytes
        if nbytes >= max_bytes or len(batch) == _MAX_BATCH:
            yield batch
            batch, nbytes = [], 0
    if batch:
        yield batch


class _Workers:
    """Count the threads of a cluster, at most once a second: asking the scheduler takes time.

    Raises a MemdescError if there have been none for a minute, or the scheduler has ended.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._counted = self._seen = -inf
        self.threads = 0
        self.count()

    def count(self) -> None:
        """Ask the scheduler for the number of threads, unless that was just done."""
        now = monotonic()
        if now - self._counted < _POLL_SECONDS:
            return
        with _explaining_errors(self.client):
            self.threads = sum(self.client.nthreads().values())
        self._counted = monotonic()
        if self.threads or self._seen == -inf:
            self._seen = self._counted
        if self._counted - self._seen > _NO_WORKER_SECONDS:
            msg = (
                f"the Dask cluster has had no workers for {_NO_WORKER_SECONDS} seconds; start some"
            )
            raise MemdescError(msg)


def _run(data: bytes) -> list[Any]:
    """Run tasks on a worker. They come pickled, because Dask looks for its own tasks in tuples."""
    work, tasks = pickle.loads(data)  # noqa: S301 - of the client, which runs functions here
    return [work(task) for task in tasks]


def _drain(workers: _Workers, futures: list[Future]) -> None:
    """Wait until the tasks that were submitted have run, if there is a worker to run them."""
    from distributed import wait  # optional

    if futures and workers.threads and workers.client.status == "running":
        with workers.client.as_current(), suppress(TimeoutError, OSError, CancelledError):
            wait(futures, timeout=_NO_WORKER_SECONDS)


def _results(future: Future) -> list[Any] | None:
    """Return the results of a batch, or None if its worker ended and another one runs it again."""
    with suppress(TimeoutError):
        _check(future)
        found: list[Any] = future.result(timeout=_NO_WORKER_SECONDS)
        return found
    return None


def _check(future: Future) -> None:
    """Raise the error of a task, if it has one."""
    error = future.exception(timeout=_NO_WORKER_SECONDS)
    if error is None:
        return
    if isinstance(error, MemdescError):
        raise error
    if type(error).__name__ == "KilledWorker":
        msg = (
            f"a task ended several workers, the last one {error.last_worker.address}; they may "
            "have too little memory: pass a smaller max_bytes, or give workers fewer threads"
        )
        raise MemdescError(msg)
    msg = f"a worker failed: {short_repr(error)}"
    raise MemdescError(msg) from error
