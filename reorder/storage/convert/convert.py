"""A checkpoint converted: planned, checked, cut into tasks, run, read back, and given its name."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError, __version__
from memdesc.disk import as_path, reason_of
from reorder.storage.containers.entry import FileState
from reorder.storage.containers.partial import is_in_use, partial_folder, remove_left
from reorder.storage.containers.table import read_container
from reorder.storage.containers.writer import Writer, check_target
from reorder.storage.convert.config import loader_warnings
from reorder.storage.convert.cutting import copies, tasks_of
from reorder.storage.convert.engine import run_tasks
from reorder.storage.convert.finished import Finished
from reorder.storage.convert.journal import Journal, facts_left
from reorder.storage.convert.numbers import check_numbers
from reorder.storage.convert.outputs import check_paths, grown, output_format, plan_output
from reorder.storage.convert.plan import plan_conversion
from reorder.storage.convert.tasks import check_task, run_task
from reorder.storage.pieces.boxes import PIECE_NBYTES, Bound
from reorder.storage.pieces.files import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
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
# what a user has changed where facts of two conversions differ
_CHANGES = {
    "version": "it ran with another version of memdesc",
    "source": "the input has changed since: {}",
    "rules": "its rules differ",
    "files": "its files differ (--shard-size, or files beside the tensors)",
    "pieces": "its --max-bytes or --threads differ",
}
# files that a message names
_SHOWN = 3


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
    journal_seconds, journal_bytes : float, int
        How often what is done is written down, so that it can be resumed: after so long, or when
        so much has been written.
    """

    max_bytes: int = 1 << 30
    threads: int = 1
    shard_bytes: int | None = None
    verify: bool = False
    resume: bool = False
    overwrite: bool = False
    allow_partial: bool = False
    journal_seconds: float = 5.0
    journal_bytes: int = 256 << 20


class Conversion(NamedTuple):
    """A conversion that can be run: all that a rule may get wrong has been checked."""

    source: Path
    target: Path
    container: Container
    jobs: tuple[Job, ...]
    output: Output
    warnings: tuple[str, ...]
    settings: Settings
    # all files that are read, as they were when their headers were
    states: Mapping[Path, FileState]

    @property
    def bound(self) -> Bound:
        """What a task may hold."""
        share = self.settings.max_bytes // max(self.settings.threads, 1)
        return Bound(max(min(PIECE_NBYTES, share), 1), self.settings.max_bytes)

    @property
    def is_finished(self) -> bool:
        """Whether the output is to be resumed, and is whole."""
        return _is_finished(self.target, self.settings)

    @property
    def finished(self) -> Finished:
        """What is known of an output that is whole; pieces of any size write the same bytes."""
        facts = {key: value for key, value in self.facts.items() if key != "pieces"}
        return Finished(self.target, self.output, json.dumps(facts))

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
    def facts(self) -> dict[str, Any]:
        """What differs between conversions that write other bytes, or cut them in other ways.

        Of a file that is read, size and time of the last write count, as in `Entry.state`, but not
        where the input lies: it may be moved, or copied with its times.
        """
        home = self.source if self.source.is_dir() else self.source.parent
        rules = [
            (
                [(_under(home, e.file), e.offset, e.nbytes) for e in job.sources.values()],
                [each[:4] for each in job.tensors],
                repr((job.src, job.dst, job.attr, job.axes, job.groups)),
            )
            for job in self.jobs
        ]
        files = [
            (file.name, file.nbytes, [(at, sha256(data).hexdigest()) for at, data in file.pieces])
            for file in self.output.files
        ]
        return {
            "version": __version__,
            "source": {_under(home, path): [*state] for path, state in self.states.items()},
            "rules": _digest(rules),
            "files": _digest(files),
            "pieces": [*self.bound],
        }


def _under(home: Path, path: Path) -> str:
    return os.path.relpath(path, home)


def _digest(facts: object) -> str:
    return sha256(json.dumps(facts).encode()).hexdigest()


def _is_finished(target: Path, settings: Settings) -> bool:
    return settings.resume and not settings.overwrite and target.exists() and not grown(target)


@contextmanager
def _system_errors_named() -> Iterator[None]:
    """Raise what the system says of a path as a `MemdescError`."""
    try:
        yield
    except OSError as error:
        named = f"{str(error.filename)!r} cannot be used: " if error.filename else ""
        msg = f"{named}{reason_of(error)}"
        raise MemdescError(msg) from None


@_system_errors_named()
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
    jobs = planned.jobs
    is_kept = _is_finished(wanted, settings)
    output = plan_output(given, container, wanted, planned, settings.shard_bytes, is_kept=is_kept)
    warnings = (*planned.warnings, *loader_warnings(jobs), *output.warnings)
    states = {
        path: FileState.at(path) for path in (*container.files, *dict(output.copied).values())
    }
    states |= {entry.file: entry.state for entry in container.entries.values()}
    made = Conversion(given, wanted, container, jobs, output, warnings, settings, states)
    if is_kept:
        made.finished.check(tensor for job in jobs for tensor in job.tensors)
    else:
        check_target(
            wanted,
            output.files,
            is_folder=output.is_folder,
            overwrite=settings.overwrite,
            resume=settings.resume,
        )
    made = made._replace(warnings=(*warnings, *_check_left(made)))
    sizes = {tensor.name: tensor.nbytes for job in jobs for tensor in job.tensors}
    for job in jobs:
        tasks_of(job, lambda tensor: Place(wanted, 0, sizes[tensor]), made.bound)
    for job in jobs:
        check_numbers(job, made.bound, settings.threads)
    return made


def _check_left(made: Conversion) -> list[str]:
    """Refuse to resume another conversion; return warnings of what is discarded or takes long."""
    target, settings = made.target, made.settings
    if made.is_finished:
        if settings.verify or made.finished.is_marked:
            return []
        msg = (
            f"nothing shows that {str(target)!r}, which is complete, was written by this "
            "conversion of the input as it is now: all of it is compared"
        )
        return [msg]
    if not grown(target) or is_in_use(partial_folder(target)):
        return []
    left = str(partial_folder(target))
    if not settings.resume:
        return [f"what an interrupted conversion left in {left!r} is discarded"]
    found = facts_left(target)
    changes = _changes(found, made.facts) if isinstance(found, dict) else []
    if changes:
        msg = (
            f"{left!r} is what another conversion left, which cannot be resumed: "
            f"{'; '.join(changes)}. Without --resume it is discarded"
        )
        raise MemdescError(msg)
    return []


def _changes(left: dict[str, Any], facts: dict[str, Any]) -> list[str]:
    """Return how what is planned differs from what another conversion planned."""
    old, new = left.get("source"), facts["source"]
    known = old if isinstance(old, dict) else {}
    names = sorted(name for name in {*known, *new} if known.get(name) != new.get(name))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    named = ", ".join(names[:_SHOWN]) + more
    return [text.format(named) for key, text in _CHANGES.items() if left.get(key) != facts[key]]


@_system_errors_named()
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
        finished = conversion.finished
        if settings.verify or not finished.is_marked:
            with finished.refusing():
                finished.check_pieces()
                verify(finished.places().__getitem__)
            finished.mark(finished.folder)
        remove_left(target)
        return {"tasks": 0, "resumed": 0, "complete": True}
    facts = conversion.facts
    # bytes of another conversion may lie where this one writes none
    is_known = settings.resume and facts_left(target) == facts
    writer = Writer(
        target,
        conversion.output.files,
        is_folder=conversion.output.is_folder,
        resume=is_known,
        overwrite=settings.overwrite,
    )
    with writer:
        where = partial(_place, writer)
        often = settings.journal_seconds, settings.journal_bytes
        with Journal(writer.open, facts, writer.sync, *often) as journal:
            done = frozenset(journal.done)

            def finish(number: int, task: Task) -> None:
                journal.add(number, task.written)
                told("converting", task.written)

            tasks = enumerate(conversion.tasks(where))
            left = ((number, task) for number, task in tasks if number not in done)
            execute(left, finish, run_task)
            _check_sources(conversion)
        if settings.verify:
            verify(where)
        writer.finish(conversion.finished.mark)
    for path in conversion.output.stale:
        path.unlink(missing_ok=True)
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
    for path, state in conversion.states.items():
        if FileState.at(path) != state:
            msg = f"{str(path)!r} has changed while it was converted; convert it again"
            raise MemdescError(msg)
