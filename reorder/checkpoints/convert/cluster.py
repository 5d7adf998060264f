"""A conversion on the workers of a Dask cluster, which see the same files: a task for each file."""

from __future__ import annotations

import gc
import json
import pickle
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memdesc import MemdescError, __version__
from memdesc.disk import read_small
from memdesc.errors import short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from distributed import Client

    from reorder.checkpoints.formats.entry import FileState
    from reorder.checkpoints.moves.tasks import Task

# how long to wait for a scheduler, and for its first worker
_SECONDS = 10
# the most bytes of the file that a scheduler writes
_MAX_FILE = 1 << 24


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """Connect to a scheduler: its address, or the file that `dask scheduler` wrote."""
    try:
        from distributed import Client  # optional
    except ImportError:
        msg = "distributed is not installed: pip install distributed, or memdesc[dask]"
        raise MemdescError(msg) from None
    problem, client = "", None
    try:
        is_file = address.endswith(".json")
        text = read_small(Path(address), _MAX_FILE) if is_file else json.dumps({"address": address})
        client = Client(str(json.loads(text)["address"]), timeout=_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        problem = short_repr(error)
    if client is None:
        # the client that failed closes when it is collected, and blocks one that starts before then
        gc.collect()
        msg = (
            f"there is no Dask scheduler at {short_repr(address)} ({problem}); start one with "
            "`dask scheduler`, and name the address that it prints, as tcp://host:8786, or its "
            "--scheduler-file"
        )
        raise MemdescError(msg)
    with client:
        with suppress(TimeoutError):
            client.wait_for_workers(1, timeout=_SECONDS)
        yield client


def check_workers(client: Any, states: Mapping[Path, FileState]) -> None:
    """Refuse a cluster without workers, or with one that does not see the files that are read."""
    sizes = {str(path): state.nbytes for path, state in states.items()}
    found = client.run(_look, [*sizes]) if getattr(client, "status", "") == "running" else {}
    if not found:
        msg = f"{short_repr(client)} is not a synchronous distributed.Client that has workers"
        raise MemdescError(msg)
    for worker, (version, seen) in found.items():
        missing = [path for path, nbytes in sizes.items() if seen.get(path) != nbytes]
        if version != __version__ or missing:
            what = f"does not see {missing[0]!r} as it is here" if missing else f"has {version}"
            msg = (
                f"worker {worker} {what}; all machines must have memdesc {__version__}, and the "
                "same files under the same path"
            )
            raise MemdescError(msg)


def _look(paths: list[str]) -> tuple[str, dict[str, int]]:
    """Return a worker's version of memdesc, and the sizes of the files that it sees."""
    return __version__, {path: Path(path).stat().st_size for path in paths if Path(path).exists()}


def run_on_cluster(
    client: Client,
    tasks: Iterator[Task],
    finished: Callable[[Task, Any], None],
    work: Callable[[Task], Any],
) -> None:
    """Run the tasks of each file on a worker, one after another; the first error ends the run.

    *Law*: the bytes are those that a conversion on this machine writes. A worker that is lost costs
    nothing: another one writes its files.
    """
    from distributed import as_completed  # optional

    files: dict[Path, list[Task]] = {}
    for task in tasks:
        files.setdefault(task.dst[0][1].path, []).append(task)
    # pickled, because Dask looks for its own tasks in tuples
    futures = client.map(_run, [pickle.dumps((work, each)) for each in files.values()], pure=False)
    parts = dict(zip(futures, files.values(), strict=True))
    try:
        for future in as_completed(futures, loop=client.loop):
            error = future.exception()
            if isinstance(error, MemdescError):
                raise error
            if error is not None:
                msg = f"a worker, or the Dask scheduler, failed: {short_repr(error)}"
                raise MemdescError(msg) from error
            for task, result in zip(parts[future], future.result(), strict=True):
                finished(task, result)
    finally:
        with suppress(Exception):  # the scheduler may be gone
            client.cancel(futures)


def _run(data: bytes) -> list[Any]:
    work, tasks = pickle.loads(data)  # noqa: S301 - of the client, which runs functions here
    return [work(task) for task in tasks]
