"""A conversion by the workers of a Dask cluster, each of which writes whole files.

They see the same files under the same paths.
"""

from __future__ import annotations

import pickle
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memdesc import MemdescError, __version__
from memdesc.errors import short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from distributed import Client

    from reorder.checkpoints.formats.entry import FileState
    from reorder.checkpoints.moves.tasks import Task


def check_workers(client: Any, states: Mapping[Path, FileState]) -> None:
    """Refuse a cluster without workers, or with one that does not see the files that are read."""
    sizes = {str(path): state.nbytes for path, state in states.items()}
    found = client.run(_look, sizes) if getattr(client, "status", "") == "running" else {}
    if not found:
        raise MemdescError(
            f"{short_repr(client)} is not a synchronous distributed.Client that has workers"
        )
    for worker, (version, missing) in found.items():
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
    futures = client.map(_run, [pickle.dumps((work, each)) for each in files.values()], pure=False)
    parts = dict(zip(futures, files.values(), strict=True))
    try:
        for future in as_completed(futures, loop=client.loop):
            error = future.exception()
            if error is not None and not isinstance(error, MemdescError):
                raise MemdescError(
                    f"a worker, or the Dask scheduler, failed: {short_repr(error)}"
                ) from error
            yield from zip(parts[future], future.result(), strict=True)
    finally:
        with suppress(Exception):  # the scheduler may be gone
            client.cancel(futures)


def _run(data: bytes) -> list[Any]:
    work, tasks = pickle.loads(data)  # noqa: S301 - of the client, which runs functions here
    return [work(task) for task in tasks]
