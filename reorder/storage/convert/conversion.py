"""The conversion of a checkpoint: planned, checked, cut into pieces, run, read back, and named.

`rules` say which tensors become what; `plan` applies them and makes `jobs`, one for each tensor or
record; `outputs` lays out the files. Each job is cut into pieces once. A piece with its places in
the files is one of the `tasks`, which `engine` runs on threads and `cluster` on other machines,
while the `journal` lists those that are done.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from hashlib import sha256
from operator import index, methodcaller
from os.path import relpath
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError, __version__
from memdesc.disk import as_path, reason_of
from memdesc.errors import short_repr
from reorder.cores import count_cores
from reorder.storage.containers.entry import FileState
from reorder.storage.containers.partial import remove_left
from reorder.storage.containers.table import read_container
from reorder.storage.containers.writer import Writer, check_target
from reorder.storage.convert.config import loader_warnings
from reorder.storage.convert.engine import run_tasks
from reorder.storage.convert.journal import Journal, facts_left
from reorder.storage.convert.numbers import check_numbers, rounding_warnings
from reorder.storage.convert.outputs import check_paths, output_format, plan_output
from reorder.storage.convert.plan import plan_jobs
from reorder.storage.convert.resume import Finished, check_left, has_grown
from reorder.storage.convert.rules import read_rules
from reorder.storage.convert.tasks import CopyTask, cut_bytes, cut_job, tasks_of
from reorder.storage.pieces.files import Place
from reorder.storage.pieces.regions import PIECE_NBYTES, Bound
from reorder.threads import checked_threads

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from distributed import Client

    from reorder.storage.containers.entry import Container
    from reorder.storage.convert.jobs import Job
    from reorder.storage.convert.outputs import Output
    from reorder.storage.convert.tasks import Task, Where
    from reorder.storage.pieces.regions import Cut

    Numbered = Iterator[tuple[int, Task]]
    # runs tasks by a function, and calls back with each that has finished
    Execute = Callable[[Numbered, Callable[[int, Task], None], Callable[[Task], None]], None]

__all__ = [
    "Conversion",
    "ConvertOptions",
    "ConvertProgress",
    "ConvertReport",
    "convert",
    "plan_conversion",
]

# Of a task that is verified against the definition: numpy takes some 40 bytes for each element.
_CHECKED = 1 << 20
# more threads are no faster anywhere, and take longer to start
_MAX_THREADS = 256


class ConvertOptions(NamedTuple):
    """How `convert` runs.

    Attributes
    ----------
    max_bytes : int
        What all pieces together may hold in memory; on a cluster, on each worker.
    threads : int
        How many pieces run at a time; None stands for one for each core of the process. The workers
        of a cluster have their own threads.
    shard_bytes : int
        The most bytes of tensors in a file of a folder; None keeps the files of the source.
    verify : bool
        Whether the output is read back and each tensor compared with its input put through its
        rule. Whether the rules are what the model needs is not checked.
    resume : bool
        Whether to continue where the same conversion was interrupted.
    overwrite : bool
        Whether an output that exists is replaced; a folder only if no other files are lost.
    allow_partial : bool
        Whether codes of quantised weights may change without their scales, or scales without
        their codes.
    dry_run : bool
        Whether to check everything and write nothing.

    Examples
    --------
    >>> import reorder
    >>> reorder.ConvertOptions(threads=2, dry_run=True).threads
    2
    """

    max_bytes: int = 1 << 30
    threads: int | None = None
    shard_bytes: int | None = None
    verify: bool = False
    resume: bool = False
    overwrite: bool = False
    allow_partial: bool = False
    dry_run: bool = False

    @property
    def thread_count(self) -> int:
        """How many pieces run at a time."""
        return min(count_cores() if self.threads is None else self.threads, _MAX_THREADS)

    @property
    def bound(self) -> Bound:
        """What a piece may hold."""
        share = self.max_bytes // self.thread_count
        return Bound(max(min(PIECE_NBYTES, share), 1), self.max_bytes)

    def checked(self) -> ConvertOptions:
        """Return the options with plain integers in range.

        Raises
        ------
        MemdescError
            If an option has the wrong type or is out of range; with its name.
        """
        for name in ("verify", "resume", "overwrite", "allow_partial", "dry_run"):
            if not isinstance(getattr(self, name), bool):
                msg = f"{name} must be True or False, not {short_repr(getattr(self, name))}"
                raise MemdescError(msg)
        return self._replace(
            max_bytes=_count("max_bytes", self.max_bytes),
            threads=None if self.threads is None else checked_threads(self.threads),
            shard_bytes=None
            if self.shard_bytes is None
            else _count("shard_bytes", self.shard_bytes),
        )


def _count(name: str, value: Any) -> int:
    """Return an option as an int of 1 or more."""
    with suppress(TypeError):
        if index(value) >= 1 and not isinstance(value, bool):
            return index(value)
    msg = f"{name} must be an integer of 1 or more, not {short_repr(value)}"
    raise MemdescError(msg)


class ConvertReport(NamedTuple):
    """What `convert` did, or with `dry_run` would do.

    Attributes
    ----------
    tensors : int
        Tensors that are read.
    converted, copied : int
        Tensors and records that a rule changes, and those that stay unchanged.
    bytes_in, bytes_out : int
        Bytes of the tensors that are read, and of all files that are written.
    files : int
        Files that are written.
    warnings : tuple of str
        What a user may not expect.
    tasks, resumed : int
        Pieces, and how many of them an earlier call had written; 0 if it had written all.
    would : tuple of str
        In a dry run, what each tensor or record that a rule changes would become.

    Examples
    --------
    >>> import numpy as np, pathlib, reorder, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> reorder.save(folder / "a.safetensors", {"w": np.zeros((3, 4), np.float32)})
    >>> report = reorder.convert(folder / "a.safetensors", folder / "b.safetensors", ["w: ba"])
    >>> report.tensors, report.converted, report.copied
    (1, 1, 0)
    """

    tensors: int
    converted: int
    copied: int
    bytes_in: int
    bytes_out: int
    files: int
    warnings: tuple[str, ...]
    tasks: int = 0
    resumed: int = 0
    would: tuple[str, ...] = ()


class ConvertProgress(NamedTuple):
    """How far a call of `convert` is.

    Attributes
    ----------
    stage : str
        ``"planned"`` before anything is written, then ``"converting"`` and ``"verifying"``.
    done, total : int
        Bytes of tensors and copied files that this call has written or verified, and all that it
        has to.
    report : ConvertReport
        What is planned, with its warnings.

    Examples
    --------
    >>> import numpy as np, pathlib, reorder, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> reorder.save(folder / "a.safetensors", {"w": np.zeros((3, 4), np.float32)})
    >>> seen = []
    >>> report = reorder.convert(
    ...     folder / "a.safetensors", folder / "b.safetensors", ["w: ba"], progress=seen.append
    ... )
    >>> seen[0].stage, seen[0].done
    ('planned', 0)
    """

    stage: str
    done: int
    total: int
    report: ConvertReport


class Conversion(NamedTuple):
    """A conversion that is ready to run: everything a rule can get wrong has been checked."""

    source: Path
    target: Path
    container: Container
    # what happens to each tensor or record, and the pieces of that
    work: tuple[tuple[Job, Cut[Any]], ...]
    output: Output
    warnings: tuple[str, ...]
    options: ConvertOptions
    # all files that are read, as they were when their headers were
    states: Mapping[Path, FileState]
    # whether the output is to be resumed, and is whole
    is_finished: bool

    @property
    def jobs(self) -> tuple[Job, ...]:
        """What happens to each tensor or record."""
        return tuple(job for job, _ in self.work)

    @property
    def finished(self) -> Finished:
        """The output as a whole one would be; pieces of any size write the same bytes."""
        facts = {key: value for key, value in self.facts.items() if key != "pieces"}
        return Finished(self.target, self.output, json.dumps(facts))

    @property
    def passes(self) -> int:
        """How many times all bytes are written or compared.

        None if the output is whole and marked as written by this conversion.
        """
        if self.is_finished:
            return 1 if self.options.verify or not self.finished.is_marked else 0
        return 2 if self.options.verify else 1

    @property
    def report(self) -> ConvertReport:
        """What is planned."""
        entries = [entry for job in self.jobs for entry in job.sources.values()]
        moved = [job for job in self.jobs if not job.is_copy]
        return ConvertReport(
            tensors=len(entries),
            converted=len(moved),
            copied=len(self.jobs) - len(moved),
            bytes_in=sum(entry.nbytes for entry in entries),
            bytes_out=sum(file.nbytes for file in self.output.files),
            files=len(self.output.files),
            warnings=self.warnings,
            would=tuple(f"{job.name}: {job}" for job in moved) if self.options.dry_run else (),
        )

    @property
    def nbytes(self) -> int:
        """Bytes that all tasks write."""
        tensors = sum(tensor.nbytes for job in self.jobs for tensor in job.tensors)
        return tensors + sum(nbytes for _, _, nbytes in self.output.copied)

    @property
    def task_count(self) -> int:
        """How many tasks there are."""
        bound = self.options.bound
        copies = (cut_bytes(nbytes, bound) for _, _, nbytes in self.output.copied)
        return sum(map(len, (*(pieces for _, pieces in self.work), *copies)))

    def tasks(self, where: Where, bound: Bound | None = None) -> Iterator[Task]:
        """Return all tasks, always in the same order; another bound gives other sizes."""
        for job, pieces in self.work:
            yield from tasks_of(job, cut_job(job, bound) if bound else pieces, where)
        for key, path, nbytes in self.output.copied:
            places = Place(path, 0, nbytes), where(key)
            for runs in cut_bytes(nbytes, bound or self.options.bound):
                yield CopyTask(path.name, runs, *places)

    @property
    def facts(self) -> dict[str, Any]:
        """What tells apart conversions that write different bytes or cut them differently.

        A file that is read counts with its size and modification time, as in `Entry.state`, but not
        with its folder: the input may be moved, or copied with its times.
        """
        home = self.source if self.source.is_dir() else self.source.parent
        rules = [
            (
                [(relpath(e.file, home), e.offset, e.nbytes) for e in job.sources.values()],
                [each[:4] for each in job.tensors],
                repr((job.src, job.dst, job.plan and job.plan.attr, job.axes, job.groups)),
            )
            for job in self.jobs
        ]
        files = [
            (file.name, file.nbytes, [(at, sha256(data).hexdigest()) for at, data in file.pieces])
            for file in self.output.files
        ]
        return {
            "version": __version__,
            "source": {relpath(path, home): [*state] for path, state in self.states.items()},
            "rules": _digest(rules),
            "files": _digest(files),
            "pieces": [*self.options.bound],
        }

    def run(
        self,
        progress: Callable[[ConvertProgress], None] | None = None,
        execute: Execute | None = None,
    ) -> ConvertReport:
        """Write the output and give it its name.

        Parameters
        ----------
        progress : callable, optional
            As for `convert`, without the first call.
        execute : callable, optional
            Runs tasks by a function, and calls back with each that has finished; by default on
            threads of this process.

        Returns
        -------
        ConvertReport
            What was done.

        Raises
        ------
        MemdescError
            If something fails; the output does not have its name then and can be resumed.
        """
        counter = _Counter(progress, self)
        run_all = execute or self._on_threads
        if self.is_finished:
            self._check_finished(counter, run_all)
            return self.report
        resumed = self._write(counter, run_all)
        return self.report._replace(tasks=self.task_count, resumed=resumed)

    def _on_threads(
        self,
        tasks: Numbered,
        finished: Callable[[int, Task], None],
        work: Callable[[Task], None],
    ) -> None:
        options = self.options
        run_tasks(tasks, options.thread_count, options.max_bytes, finished, work)

    def _check_finished(self, counter: _Counter, execute: Execute) -> None:
        """Make sure that a whole output is the planned one."""
        finished = self.finished
        if self.passes:
            with finished.refusing():
                finished.check_pieces()
                self._verify(finished.places().__getitem__, counter, execute)
            finished.mark(finished.folder)
        remove_left(self.target)

    def _write(self, counter: _Counter, execute: Execute) -> int:
        """Write the output; return how many tasks an earlier process had done."""
        options, facts = self.options, self.facts
        writer = Writer(
            self.target,
            self.output.files,
            is_folder=self.output.is_folder,
            # another conversion may have left bytes where this one writes none
            resume=options.resume and facts_left(self.target) == facts,
            overwrite=options.overwrite,
        )

        def where(name: str) -> Place:
            path, span = writer.where(name)
            return Place(path, span.offset, span.nbytes)

        with writer:
            with Journal(writer.open, facts, writer.sync) as journal:
                done = frozenset(journal.done)

                def finish(number: int, task: Task) -> None:
                    journal.add(number, task.written)
                    counter.add("converting", task.written)

                execute(counter.without(self.tasks(where), done), finish, methodcaller("run"))
                for path, state in self.states.items():
                    if FileState.at(path) != state:
                        msg = f"{str(path)!r} has changed while it was converted; convert it again"
                        raise MemdescError(msg)
            if options.verify:
                self._verify(where, counter, execute)
            writer.finish(self.finished.mark)
        with _system_errors_named():
            for path in self.output.stale:
                path.unlink(missing_ok=True)
        return len(done)

    def _verify(self, where: Where, counter: _Counter, execute: Execute) -> None:
        """Compare what was written with the definition."""
        tasks = self.tasks(where, Bound(_CHECKED, self.options.max_bytes))
        execute(
            enumerate(tasks),
            lambda _, task: counter.add("verifying", task.written),
            methodcaller("check"),
        )


class _Counter:
    """Counts bytes for the progress callback; threads add to it at the same time."""

    def __init__(
        self, progress: Callable[[ConvertProgress], None] | None, conversion: Conversion
    ) -> None:
        self._progress, self._report = progress, conversion.report
        self._lock, self._done = Lock(), 0
        self._total = conversion.nbytes * conversion.passes

    def add(self, stage: str, nbytes: int) -> None:
        """Count bytes, and call the callback."""
        if self._progress is None:
            return
        with self._lock:
            self._done += nbytes
            self._progress(ConvertProgress(stage, self._done, self._total, self._report))

    def without(self, tasks: Iterable[Task], done: frozenset[int]) -> Numbered:
        """Return tasks with their numbers, leaving out those that are done already."""
        for number, task in enumerate(tasks):
            if number not in done:
                yield number, task
                continue
            with self._lock:
                self._total -= task.written


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    rules: Iterable[str | os.PathLike[str]] = (),
    options: ConvertOptions = ConvertOptions(),  # noqa: B008 - it never changes
    progress: Callable[[ConvertProgress], None] | None = None,
    client: Client | None = None,
) -> ConvertReport:
    """Move a checkpoint into other layouts, packings and types, as `memdesc convert` does.

    Memory is bounded, however large the tensors are. The output gets its name when it is whole; a
    call with `resume` continues from what an interrupted one left beside it.

    *Law*: the output has the tensors that `reorder` and `repack` make of those of the source.

    Parameters
    ----------
    source : path
        A checkpoint: a file, an index of shards, or the folder of a model.
    target : path
        What to write: its ending names the container; without an ending it is a folder of
        safetensors with all other files of the source.
    rules : iterable of str or path, optional
        Strings are rules, ``"PATTERN: [SRC ->] DST[, DTYPE][, KEY=VALUE ...]"``, and paths are
        TOML files of rules. The last rule that matches a tensor applies; tensors without one are
        copied.
    options : ConvertOptions, optional
        Bounds, and what the conversion may do.
    progress : callable, optional
        Called with a `ConvertProgress`: once when everything is planned, then after each piece, by
        the thread that finished it, one at a time. What it raises ends the conversion.
    client : distributed.Client, optional
        Runs the pieces on the workers of a Dask cluster, which see the same files under the same
        paths.

    Returns
    -------
    ConvertReport
        Counts, bytes and warnings.

    Raises
    ------
    MemdescError
        If a path, a rule or a tensor does not fit: before anything is written, and with the rule,
        the tensor and the way out. Or if a file cannot be read or written. A flag of the command
        in a message, such as ``--overwrite``, is an option here.

    Examples
    --------
    >>> import tempfile, numpy as np, reorder
    >>> folder = tempfile.TemporaryDirectory()
    >>> source, target = f"{folder.name}/model.npz", f"{folder.name}/model.safetensors"
    >>> np.savez(source, weight=np.ones((32, 20), np.float32), bias=np.ones(32, np.float32))
    >>> seen = []
    >>> report = reorder.convert(source, target, ["weight: AB16b16a, bf16"], progress=seen.append)
    >>> report.converted, report.copied, report.bytes_in
    (1, 1, 2688)
    >>> seen[0].stage, seen[-1].done == seen[-1].total
    ('planned', True)
    >>> with reorder.open_checkpoint(target) as found:
    ...     print(found["weight"].desc)
    memory_desc((32, 20), 'bf16', 'AB16b16a')
    >>> folder.cleanup()
    """
    given, wanted = as_path(source), as_path(target)
    if progress is not None and not callable(progress):
        msg = f"progress must be a function, not {short_repr(progress)}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    if client is None:
        made = plan_conversion(given, wanted, rules, options)
        execute = None
    else:
        from reorder.storage.convert.cluster import on_cluster, worker_threads

        if options.threads is not None:
            msg = (
                "threads are those of this machine; workers of Dask are given theirs as they start"
            )
            raise MemdescError(msg)
        options = options._replace(threads=worker_threads(client))
        # workers have other working folders
        made = plan_conversion(given.absolute(), wanted.absolute(), rules, options)
        execute = on_cluster(client, made)
    _Counter(progress, made).add("planned", 0)
    return made.report if options.dry_run else made.run(progress, execute)


def plan_conversion(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    rules: Iterable[str | os.PathLike[str]],
    options: ConvertOptions = ConvertOptions(),  # noqa: B008 - it never changes
) -> Conversion:
    """Decide and check everything that a conversion does; nothing is written.

    The parameters are those of `convert`.

    Raises
    ------
    MemdescError
        If a path, a rule or a tensor does not fit; with the rule, the tensor and the way out.
    """
    if not isinstance(options, ConvertOptions):
        msg = f"options must be ConvertOptions, not {short_repr(options)}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    options, found = options.checked(), read_rules(rules)
    with _system_errors_named():
        given, wanted = as_path(source), as_path(target)
        container = read_container(given)
        check_paths(given, container, wanted)
        name = output_format(wanted)
        plan = plan_jobs(given, container, found, name, allow_partial=options.allow_partial)
        may_be_kept = options.resume and not options.overwrite
        is_kept = may_be_kept and wanted.exists() and not has_grown(wanted)
        output = plan_output(given, container, wanted, plan, options.shard_bytes, is_kept=is_kept)
        copied = (path for _, path, _ in output.copied)
        states = {path: FileState.at(path) for path in (*container.files, *copied)}
        states |= {entry.file: entry.state for entry in container.entries.values()}
        warnings = (*plan.warnings, *loader_warnings(plan.jobs), *output.warnings)
        work = tuple((job, cut_job(job, options.bound)) for job in plan.jobs)
        made = Conversion(
            given, wanted, container, work, output, warnings, options, states, is_kept
        )
        if is_kept:
            made.finished.check(tensor for job in plan.jobs for tensor in job.tensors)
        else:
            check_target(
                wanted,
                output.files,
                is_folder=output.is_folder,
                overwrite=options.overwrite,
                resume=options.resume,
            )
        warnings += tuple(check_left(made))
        checked = [check_numbers(job, pieces, options.thread_count) for job, pieces in work]
        return made._replace(warnings=(*warnings, *rounding_warnings(checked)))


@contextmanager
def _system_errors_named() -> Iterator[None]:
    """Raise what the system says of a path as a `MemdescError`."""
    try:
        yield
    except OSError as error:
        named = f"{str(error.filename)!r} cannot be used: " if error.filename else ""
        msg = f"{named}{reason_of(error)}"
        raise MemdescError(msg) from None


def _digest(facts: object) -> str:
    return sha256(json.dumps(facts).encode()).hexdigest()
