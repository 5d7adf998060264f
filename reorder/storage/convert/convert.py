"""A checkpoint converted: planned, checked, cut into tasks, run, read back, and given its name."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError, __version__
from memdesc.disk import as_path
from reorder.storage.containers.entry import FileState
from reorder.storage.containers.table import read_container
from reorder.storage.containers.writer import Writer, check_target, partial_folder
from reorder.storage.convert.config import loader_warnings
from reorder.storage.convert.cutting import copies, tasks_of
from reorder.storage.convert.engine import run_tasks
from reorder.storage.convert.finished import check_finished, finished_places
from reorder.storage.convert.journal import Journal, is_journal_of
from reorder.storage.convert.numbers import check_numbers
from reorder.storage.convert.outputs import check_paths, grown, output_format, plan_output
from reorder.storage.convert.plan import plan_conversion
from reorder.storage.convert.tasks import check_task, run_task
from reorder.storage.pieces.boxes import PIECE_NBYTES, Bound
from reorder.storage.pieces.files import Place

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from reorder.storage.containers.entry import Container
    from reorder.storage.convert.jobs import Job
    from reorder.storage.convert.outputs import Output
    from reorder.storage.convert.rules import Rule
    from reorder.storage.convert.tasks import Task

    Run = Callable[
        [Iterator[tuple[int, Task]], Callable[[int, Task], None], Callable[[Task], object]], None
    ]
    Step = Callable[[str, int], None]

__all__ = ["Conversion", "Settings", "convert", "plan"]

# A task that is checked by definition: numpy takes some 40 bytes for each element.
_CHECKED = 1 << 20


class Settings(NamedTuple):
    """How a conversion runs.

    Attributes
    ----------
    max_bytes : int
        What pieces may hold in memory, all together.
    threads : int
        How many run at a time.
    shard_bytes : int, optional
        The most bytes of tensors in a file, for folders.
    verify : bool
        Whether all is read back and compared with the definition.
    resume, overwrite : bool
        As of `containers.writer.Writer`.
    allow_partial : bool
        Whether codes may change without what turns them into numbers.
    journal_seconds : float
        How often what is done is written down, so that it can be resumed.
    """

    max_bytes: int = 1 << 30
    threads: int = 1
    shard_bytes: int | None = None
    verify: bool = False
    resume: bool = False
    overwrite: bool = False
    allow_partial: bool = False
    journal_seconds: float = 5.0


class Conversion(NamedTuple):
    """A conversion that can be run: all that a rule may get wrong has been checked."""

    source: Path
    target: Path
    container: Container
    jobs: tuple[Job, ...]
    output: Output
    warnings: tuple[str, ...]
    settings: Settings

    @property
    def bound(self) -> Bound:
        """What a task may hold."""
        share = self.settings.max_bytes // max(self.settings.threads, 1)
        return Bound(max(min(PIECE_NBYTES, share), 1), self.settings.max_bytes)

    @property
    def is_finished(self) -> bool:
        """Whether the output is to be resumed, and is whole."""
        settings, target = self.settings, self.target
        is_kept = settings.resume and not settings.overwrite
        return is_kept and target.exists() and not grown(target)

    @property
    def nbytes(self) -> int:
        """Bytes of all files that are written."""
        return sum(file.nbytes for file in self.output.files)

    def tasks(self, where: Callable[[str], Place], bound: Bound | None = None) -> Iterator[Task]:
        """Return all tasks, in the same order each time."""
        for job in self.jobs:
            yield from tasks_of(job, where, bound or self.bound)
        for key, path in self.output.copied:
            place = where(key)
            yield from copies(path.name, Place(path, 0, place.nbytes), place, bound or self.bound)

    @property
    def fingerprint(self) -> str:
        """What differs between conversions that write other bytes, or cut them in other ways."""
        facts = [
            __version__,
            self.bound,
            [
                (
                    [(str(e.file), e.offset, e.nbytes, *e.state) for e in job.sources.values()],
                    [each[:4] for each in job.tensors],
                    repr((job.src, job.dst, job.attr, job.axes, job.groups)),
                )
                for job in self.jobs
            ],
            [(str(path), path.stat().st_mtime_ns) for _, path in self.output.copied],
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def plan(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    rules: Sequence[Rule],
    settings: Settings,
) -> Conversion:
    """Decide all that a conversion does, and check it; nothing is written.

    Raises
    ------
    MemdescError
        If a path, a rule or a tensor does not fit; with the rule, the tensor and the way out.
    """
    given, wanted = as_path(source), as_path(target)
    container = read_container(given)
    check_paths(given, container, wanted)
    name = output_format(wanted)
    planned = plan_conversion(given, container, rules, name, allow_partial=settings.allow_partial)
    output = plan_output(given, container, wanted, planned, settings.shard_bytes)
    jobs = planned.jobs
    warnings = (*planned.warnings, *loader_warnings(jobs), *output.warnings)
    made = Conversion(given, wanted, container, jobs, output, warnings, settings)
    if made.is_finished:
        check_finished(wanted, output, (tensor for job in jobs for tensor in job.tensors))
    else:
        has_folder, may = output.is_folder, settings.overwrite
        check_target(wanted, output.files, is_folder=has_folder, overwrite=may)
    sizes = {tensor.name: tensor.nbytes for job in jobs for tensor in job.tensors}
    for job in jobs:
        tasks_of(job, lambda tensor: Place(wanted, 0, sizes[tensor]), made.bound)
    for job in jobs:
        check_numbers(job, made.bound, settings.threads)
    return made


def convert(
    conversion: Conversion, step: Step | None = None, run: Run | None = None
) -> dict[str, Any]:
    """Write the output, and give it its name.

    Parameters
    ----------
    conversion : Conversion
        From `plan`.
    step : callable, optional
        Called with what is done and the bytes that have been written since.
    run : callable, optional
        Runs tasks by a function, and calls back with each that has finished; by default on threads
        of this process.

    Returns
    -------
    dict
        How many tasks there were, and how many an earlier process had done.

    Raises
    ------
    MemdescError
        If something fails; the output has not got its name then, and can be resumed.
    """
    settings, target = conversion.settings, conversion.target
    told = step or (lambda _, __: None)
    execute = run or partial(_on_threads, settings=settings)

    def verify(where: Callable[[str], Place]) -> None:
        checks = enumerate(conversion.tasks(where, Bound(_CHECKED, settings.max_bytes)))
        execute(checks, lambda _, task: told("verifying", task.written), check_task)

    if conversion.is_finished:
        if settings.verify:
            verify(finished_places(target, conversion.output).__getitem__)
        return {"tasks": 0, "resumed": 0, "complete": True}
    journal_path = partial_folder(target) / "journal"
    # bytes of another conversion may lie where this one writes none
    is_known = settings.resume and is_journal_of(journal_path, conversion.fingerprint)
    writer = Writer(
        target,
        conversion.output.files,
        is_folder=conversion.output.is_folder,
        resume=is_known,
        overwrite=settings.overwrite,
    )
    with writer:
        where = partial(_place, writer)
        seconds = settings.journal_seconds
        with Journal(journal_path, conversion.fingerprint, writer.sync, seconds) as journal:
            if not writer.is_resumed:
                journal.done.clear()
            done = frozenset(journal.done)

            def finished(number: int, task: Task) -> None:
                journal.add(number)
                told("converting", task.written)

            tasks = enumerate(conversion.tasks(where))
            left = ((number, task) for number, task in tasks if number not in done)
            execute(left, finished, run_task)
            _check_sources(conversion)
        if settings.verify:
            verify(where)
        writer.finish()
    count = sum(1 for _ in conversion.tasks(where))
    return {"tasks": count, "resumed": len(done), "complete": True}


def _place(writer: Writer, name: str) -> Place:
    path, span = writer.where(name)
    return Place(path, span.offset, span.nbytes)


def _on_threads(
    tasks: Iterator[tuple[int, Task]],
    finished: Callable[[int, Task], None],
    do: Callable[[Task], object],
    *,
    settings: Settings,
) -> None:
    run_tasks(tasks, settings.threads, settings.max_bytes, finished, do)


def _check_sources(conversion: Conversion) -> None:
    """Refuse an output of files that have changed while they were read."""
    states = {entry.file: entry.state for entry in conversion.container.entries.values()}
    for path, state in states.items():
        status = path.stat()
        if FileState(status.st_size, status.st_mtime_ns) != state:
            msg = f"{str(path)!r} has changed while it was converted; convert it again"
            raise MemdescError(msg)
