"""The conversion of a checkpoint: planned, checked, cut into pieces, run, read back, and named.

`rules` say which tensors become what; `plan` applies them and makes `steps`, one for each tensor or
record; `outputs` lays out the files. Each step is cut into pieces. A piece with its places in the
files is a task, which threads or the workers of a `cluster` run, while the `journal` lists those
that are done.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from hashlib import sha256
from operator import methodcaller
from os.path import relpath
from threading import Lock
from typing import TYPE_CHECKING, Any

from memdesc import MemdescError, MemoryDesc, RecordDesc, __version__
from memdesc.disk import as_path, reason_of
from memdesc.errors import short_repr
from reorder.storage.containers.entry import Container, FileState, Place
from reorder.storage.containers.partial import remove_left
from reorder.storage.containers.table import read_container
from reorder.storage.containers.writer import Writer
from reorder.storage.convert.config import loader_warnings
from reorder.storage.convert.journal import Journal, facts_left
from reorder.storage.convert.numbers import check_numbers, rounding_warnings
from reorder.storage.convert.options import ConvertOptions, ConvertProgress, ConvertReport
from reorder.storage.convert.outputs import Output, check_paths, output_format, plan_output
from reorder.storage.convert.plan import plan_steps
from reorder.storage.convert.resume import Finished, bound_left, check_left, has_grown
from reorder.storage.convert.rules import Rule, read_rules
from reorder.storage.convert.sections import section_warnings, sections_in
from reorder.storage.convert.targets import TargetRules, may_round, target_rules
from reorder.storage.pieces.losses import Largest, OverflowedError
from reorder.storage.pieces.pieces import Bound
from reorder.storage.pieces.tasks import Outcome, Task, run_tasks
from reorder.values.scales import NotFiniteError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from distributed import Client

    from reorder.storage.convert.steps import CutStep, Step

    Numbered = Iterator[tuple[int, Task]]
    # runs tasks by a function, and calls back with each that has finished
    Execute = Callable[[Numbered, Callable[[int, Task, Any], None], Callable[[Task], Any]], None]

__all__ = [
    "Conversion",
    "ConvertOptions",
    "ConvertProgress",
    "ConvertReport",
    "convert",
    "plan_conversion",
]


@dataclass(frozen=True)
class Conversion:
    """A conversion that is ready to run: everything that a rule can get wrong has been checked."""

    source: Path
    target: Path
    container: Container
    # what happens to each tensor or record
    steps: tuple[Step, ...]
    # these steps and then those that copy the files beside the tensors, with their pieces
    cut_steps: tuple[CutStep, ...]
    output: Output
    warnings: tuple[str, ...]
    options: ConvertOptions
    # how many bytes a piece may take
    bound: Bound
    # all files that are read, as they were when their headers were read
    states: Mapping[Path, FileState]
    # what writes the output; None if the one that is to be resumed is complete already
    writer: Writer | None

    @property
    def is_finished(self) -> bool:
        """Whether the output that is to be resumed is complete already."""
        return self.writer is None

    @property
    def finished(self) -> Finished:
        """The complete output. Its facts leave out the pieces: their size changes no byte."""
        facts = {key: value for key, value in self.facts.items() if key != "pieces"}
        return Finished(self.target, self.output, json.dumps(facts))

    @property
    def passes(self) -> int:
        """How many times all bytes are written or compared.

        0 if the output is complete and marked as written by this conversion.
        """
        if self.is_finished:
            return 1 if self.options.verify or not self.finished.is_marked else 0
        return 2 if self.options.verify else 1

    @property
    def report(self) -> ConvertReport:
        """What is planned."""
        entries = [entry for step in self.steps for entry in step.sources.values()]
        moved = [step for step in self.steps if not step.is_copy]
        return ConvertReport(
            tensors=len(entries),
            converted=len(moved),
            copied=len(self.steps) - len(moved),
            bytes_in=sum(entry.nbytes for entry in entries),
            bytes_out=sum(file.nbytes for file in self.output.files),
            files=len(self.output.files),
            warnings=self.warnings,
            would=tuple(f"{step.name}: {step}" for step in moved) if self.options.dry_run else (),
        )

    @property
    def rounded(self) -> tuple[CutStep, ...]:
        """The steps whose largest rounding is reported."""
        return tuple(each for each in self.cut_steps if each.step.is_rounded)

    @property
    def nbytes(self) -> int:
        """Bytes that all tasks write."""
        return sum(each.step.nbytes for each in self.cut_steps)

    @property
    def task_count(self) -> int:
        """How many tasks there are."""
        return sum(len(each.pieces) for each in self.cut_steps)

    def tasks(self, where: Callable[[str], Place]) -> Iterator[Task]:
        """Return all tasks, always in the same order; `where` gives the place of a tensor."""
        for each in self.cut_steps:
            yield from each.tasks(where)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What identifies a conversion: with equal facts, bytes and pieces are equal.

        A file that is read is identified by its size and modification time, but not by its folder:
        the input may be moved, or copied with its times.
        """
        home = self.source if self.source.is_dir() else self.source.parent
        text = cache(repr)  # layers of a model change alike
        rules = [
            (
                [(relpath(e.file, home), e.offset, e.nbytes) for e in step.sources.values()],
                [each[:4] for each in step.tensors],
                text(step.change),
            )
            for step in self.steps
        ]
        files = [
            (file.name, file.nbytes, [(at, sha256(data).hexdigest()) for at, data in file.headers])
            for file in self.output.files
        ]
        return {
            "version": __version__,
            "source": {relpath(path, home): [*state.shared] for path, state in self.states.items()},
            "rules": _digest(rules),
            "files": _digest(files),
            "pieces": [*self.bound],
        }

    def run(
        self,
        progress: Callable[[ConvertProgress], None] | None = None,
        execute: Execute | None = None,
    ) -> ConvertReport:
        """Write the output and give it its name; return what was done.

        Without `execute`, tasks run on threads of this process. `progress` is that of `convert`,
        without the first call. If something fails, the output does not have its name and can be
        resumed.
        """
        counter = _Counter(progress, self)
        run_all = execute or self._on_threads
        report, largest = self.report, Largest()
        if self.writer is None:
            self._check_finished(counter, run_all)
            self._measure(counter, run_all, largest)
        else:
            resumed = self._write(self.writer, counter, run_all, largest)
            report = report._replace(tasks=self.task_count, resumed=resumed)
        return report._replace(rounding=largest.found)

    def _measure(self, counter: _Counter, execute: Execute, largest: Largest) -> None:
        """Find the largest rounding in an output that an earlier call has written."""
        places = self.finished.places()

        def finish(_: int, task: Task, outcome: Outcome) -> None:
            largest.add(outcome.rounding)
            counter.add("measuring", task.written)

        tasks = (task for each in self.rounded for task in each.tasks(places.__getitem__))
        execute(enumerate(tasks), finish, methodcaller("outcome"))

    def _on_threads(
        self,
        tasks: Numbered,
        finished: Callable[[int, Task, Any], None],
        work: Callable[[Task], Any],
    ) -> None:
        options = self.options
        run_tasks(tasks, options.thread_count, options.max_bytes, finished, work)

    def _check_finished(self, counter: _Counter, execute: Execute) -> None:
        """Compare a complete output with the planned one unless its mark shows it, then mark it."""
        finished = self.finished
        if self.passes:
            with finished.refusing():
                finished.check_headers()
                self._verify(finished.places().__getitem__, counter, execute)
            finished.mark(finished.folder)
        remove_left(self.target)

    def _write(self, writer: Writer, counter: _Counter, execute: Execute, largest: Largest) -> int:
        """Write the output; return how many tasks an earlier process had done."""
        options, facts = self.options, self.facts
        # another conversion may have left bytes where this one does not write any
        writer.resume = options.resume and facts_left(self.target) == facts
        with self._discarding_overflow(), writer:
            with Journal(writer.open, facts, writer.sync) as journal:
                done = self._unchanged(journal.done, writer.where, largest)

                def finish(number: int, task: Task, outcome: Outcome) -> None:
                    journal.add(number, task.written, outcome.checksum)
                    largest.add(outcome.rounding)
                    counter.add("converting", task.written)

                execute(
                    counter.without(self.tasks(writer.where), done), finish, methodcaller("run")
                )
                for path, state in self.states.items():
                    if not state.is_at(path):
                        msg = f"{str(path)!r} has changed while it was converted; convert it again"
                        raise MemdescError(msg)
            if options.verify:
                self._verify(writer.where, counter, execute)
            writer.finish(self.finished.mark)
        return len(done)

    def _unchanged(
        self, done: Mapping[int, int], where: Callable[[str], Place], largest: Largest
    ) -> frozenset[int]:
        """Return the tasks that are done, and whose bytes are still those that were written."""
        tasks = ((k, task) for k, task in enumerate(self.tasks(where)) if k in done)
        found: set[int] = set()

        def keep(number: int, _: Task, outcome: Outcome) -> None:
            if outcome.checksum == done[number]:
                found.add(number)
                largest.add(outcome.rounding)

        if done:
            self._on_threads(tasks, keep, methodcaller("outcome"))
        return frozenset(found)

    @contextmanager
    def _discarding_overflow(self) -> Iterator[None]:
        """Remove what was written if numbers overflow or are not finite, as they would again."""
        try:
            yield
        except (OverflowedError, NotFiniteError):
            remove_left(self.target)
            raise

    def _verify(self, where: Callable[[str], Place], counter: _Counter, execute: Execute) -> None:
        """Read back what was written, and compare it."""
        execute(
            enumerate(self.tasks(where)),
            lambda _, task, __: counter.add("verifying", task.written),
            methodcaller("check"),
        )


class _Counter:
    """Counts bytes for the progress callback; threads add to it at the same time."""

    def __init__(
        self, progress: Callable[[ConvertProgress], None] | None, conversion: Conversion
    ) -> None:
        self._progress, self._report = progress, conversion.report
        self._lock, self._done = Lock(), 0
        measured = conversion.rounded if conversion.is_finished else ()
        self._total = conversion.nbytes * conversion.passes + sum(
            each.step.nbytes for each in measured
        )

    def add(self, stage: str, nbytes: int) -> None:
        """Count bytes, and call the callback."""
        if self._progress is None:
            return
        with self._lock:
            self._done += nbytes
            self._progress(ConvertProgress(stage, self._done, self._total, self._report))

    def without(self, tasks: Iterable[Task], done: frozenset[int]) -> Numbered:
        """Return tasks with their numbers, except those done, whose bytes are no longer counted."""
        for number, task in enumerate(tasks):
            if number not in done:
                yield number, task
                continue
            with self._lock:
                self._total -= task.written


def convert(  # noqa: PLR0913 - public: what is read, what is written, and how
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    rules: Collection[str | os.PathLike[str]] = (),
    options: ConvertOptions = ConvertOptions(),  # noqa: B008 - it never changes
    progress: Callable[[ConvertProgress], None] | None = None,
    client: Client | None = None,
    *,
    to: str | None = None,
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
    rules : list of str or path, optional
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
    to : str, optional
        What all quantised weights of a model become: ``bf16``, ``f16``, ``fp8-block``, ``gptq``,
        ``awq``, ``compressed-tensors`` or ``mlx``. ``fp8-block`` also quantises the layers of a
        model of floats. Norms, embeddings and other layers are copied, and config.json declares the
        new weights. `rules` come after it.

    Returns
    -------
    ConvertReport
        Counts, bytes and warnings.

    Raises
    ------
    MemdescError
        If a path, a rule or a tensor does not fit; this is checked before anything is written, and
        the message has the rule, the tensor and the way out. Or if a file cannot be read or
        written. A flag of the command in a message, such as ``--overwrite``, is an option here.

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
    if progress is not None and not callable(progress):
        msg = f"progress must be a function, not {short_repr(progress)}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    if not isinstance(options, ConvertOptions):
        msg = f"options must be ConvertOptions, not {short_repr(options)}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    options, execute = options.checked(), None
    if client is None:
        made = plan_conversion(source, target, rules, options, to)
    else:
        from reorder.storage.convert.cluster import on_cluster, worker_threads

        if options.threads is not None:
            msg = (
                "threads are those of this machine; workers of Dask are given theirs as they start"
            )
            raise MemdescError(msg)
        options = options._replace(threads=worker_threads(client))
        made = plan_conversion(source, target, rules, options, to, on_workers=True)
        execute = on_cluster(client, made)
    _Counter(progress, made).add("planned", 0)
    return made.report if options.dry_run else made.run(progress, execute)


def plan_conversion(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    rules: Collection[str | os.PathLike[str]],
    options: ConvertOptions = ConvertOptions(),  # noqa: B008 - it never changes
    to: str | None = None,
    *,
    on_workers: bool = False,
) -> Conversion:
    """Decide and check everything that a conversion does; nothing is written.

    The parameters are those of `convert`, which has checked the options. With `on_workers` no
    pieces are wide, because threads of workers do not wait until there is memory for a wide one.
    What workers left may be resumed without them.

    Fails if a path, a rule or a tensor does not fit; the message has the rule, the tensor and the
    way out.
    """
    found = read_rules(rules)
    with _system_errors_named():
        # a callback may change the working folder, and workers have others
        given, wanted = as_path(source).absolute(), as_path(target).absolute()
        container = read_container(given)
        check_paths(given, container, wanted)
        is_named_folder = str(target).endswith("/")
        name = output_format(wanted, may_be_folder=given.is_dir(), is_named_folder=is_named_folder)
        whole = TargetRules(container) if to is None else target_rules(to, given, container)
        container, every = whole.container, [*whole.rules, *found]
        plan = plan_steps(given, container, every, name, allow_partial=options.allow_partial)
        steps = (replace(each, is_rounded=_is_rounded(each, whole.rules)) for each in plan.steps)
        plan = plan._replace(steps=tuple(steps), target=whole.target)
        may_be_kept = options.resume and not options.overwrite
        is_kept = may_be_kept and wanted.exists() and not has_grown(wanted)
        output = plan_output(given, container, wanted, plan, options.shard_bytes)
        warnings = (
            *whole.warnings,
            *plan.warnings,
            *(section_warnings(sections_in(given)) if plan.moved else ()),
            *loader_warnings(plan.steps),
            *output.warnings,
        )
        writer = None if is_kept else _writer(wanted, output, options)
        bound = _bound(wanted, options, on_workers=on_workers)
        made = Conversion(
            source=given,
            target=wanted,
            container=container,
            steps=plan.steps,
            cut_steps=tuple(step.cut(bound) for step in (*plan.steps, *output.copied)),
            output=output,
            warnings=warnings,
            options=options,
            bound=bound,
            states=_states(container, output),
            writer=writer,
        )
        if is_kept:
            made.finished.check(output.tensors)
        warnings += tuple(check_left(made))
        checked = check_numbers(made.cut_steps, options)
        return replace(made, warnings=(*warnings, *rounding_warnings(checked)))


def _writer(target: Path, output: Output, options: ConvertOptions) -> Writer:
    return Writer(
        target,
        output.files,
        is_folder=output.is_folder,
        overwrite=options.overwrite,
        resume=options.resume,
    )


def _bound(target: Path, options: ConvertOptions, *, on_workers: bool) -> Bound:
    """Return how much memory a piece may take; pieces that were left are resumed if they fit.

    Threads of this process wait until there is memory for a piece; those of workers do not.
    """
    usual = options.bound._replace(wide=0) if on_workers else options.bound
    within = usual if on_workers else Bound(*[options.max_bytes] * len(usual))
    return (options.resume and bound_left(target, within)) or usual


def _states(container: Container, output: Output) -> dict[Path, FileState]:
    """Return all files that are read, as they were when their headers were read."""
    read = (entry for step in output.copied for entry in step.sources.values())
    entries = (*container.entries.values(), *read)
    states = {path: FileState.at(path) for path in container.files}
    return states | {entry.file: entry.state for entry in entries}


def _is_rounded(step: Step, rules: Sequence[Rule]) -> bool:
    """Whether a step rounds numbers for a target: it quantises or decodes them."""
    if step.rule not in rules:
        return False
    if isinstance(step.src, RecordDesc) and isinstance(step.dst, MemoryDesc):
        return may_round(step.src, step.dst.dtype.name)
    return isinstance(step.src, MemoryDesc) and isinstance(step.dst, RecordDesc)


@contextmanager
def _system_errors_named() -> Iterator[None]:
    """Turn errors of the system into a `MemdescError` that names the path."""
    try:
        yield
    except OSError as error:
        named = f"{str(error.filename)!r} cannot be used: " if error.filename else ""
        msg = f"{named}{reason_of(error)}"
        raise MemdescError(msg) from None


def _digest(facts: object) -> str:
    return sha256(json.dumps(facts).encode()).hexdigest()
