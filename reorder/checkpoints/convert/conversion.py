"""The conversion of a checkpoint: planned, checked, cut into pieces, run, read back, and named.

`rules` say which tensors become what; `plan` applies them and makes `steps`, one for each tensor or
record; `outputs` lays out the files. Each step is cut into pieces. A piece with its places in the
files is a task, which threads or the workers of a `cluster` run. A file is finished when its last
task has run.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from operator import methodcaller
from os.path import relpath
from threading import Lock
from typing import TYPE_CHECKING, Any

from memdesc import MemdescError, __version__
from memdesc.errors import short_repr
from memdesc.immutable import immutable
from reorder.checkpoints.convert.config import loader_warnings
from reorder.checkpoints.convert.numbers import check_numbers, rounding_warnings
from reorder.checkpoints.convert.options import ConvertOptions, ConvertProgress, ConvertReport
from reorder.checkpoints.convert.outputs import Output, check_paths, output_format, plan_output
from reorder.checkpoints.convert.plan import plan_steps
from reorder.checkpoints.convert.rules import read_rules
from reorder.checkpoints.convert.targets import TargetRules, target_rules
from reorder.checkpoints.formats.entry import Container, FileState
from reorder.checkpoints.formats.table import read_container
from reorder.checkpoints.moves.losses import Losses, OverflowedError
from reorder.checkpoints.moves.tasks import Task, run_tasks
from reorder.checkpoints.weights import Model
from reorder.checkpoints.writer import Writer, has_finished, partial_folder
from reorder.disk import as_path, reason_of
from reorder.values.scales import NotFiniteError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from distributed import Client

    from reorder.checkpoints.convert.steps import CutStep, Step

    # runs tasks by a function, and calls back with each that has finished
    Execute = Callable[[Iterator[Task], Callable[[Task, Any], None], Callable[[Task], Any]], None]

__all__ = [
    "Conversion",
    "ConvertOptions",
    "ConvertProgress",
    "ConvertReport",
    "convert",
    "plan_conversion",
]

_RUN = methodcaller("run")


@immutable
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
    # all files that are read, as they were when their headers were read
    states: Mapping[Path, FileState]
    writer: Writer

    @property
    def report(self) -> ConvertReport:
        """What is planned."""
        entries = [entry for step in self.steps for entry in step.sources.values()]
        moved = [step for step in self.steps if not step.is_copy]
        return ConvertReport(
            weights=len(self.steps),
            converted=len(moved),
            copied=len(self.steps) - len(moved),
            bytes_in=sum(entry.nbytes for entry in entries),
            bytes_out=sum(file.nbytes for file in self.output.files),
            files=len(self.output.files),
            warnings=self.warnings,
            would=tuple(f"{step.name}: {step}" for step in moved) if self.options.dry_run else (),
        )

    def run(
        self,
        progress: Callable[[ConvertProgress], None] | None = None,
        execute: Execute | None = None,
    ) -> ConvertReport:
        """Write the output and give it its name; return what was done.

        Without `execute`, tasks run on threads of this process. `progress` is that of `convert`,
        without the first call. If something fails, the output does not have its name, and its
        finished files can be kept by a later call.
        """
        run_all = execute or self._on_threads
        with self.writer as writer, self._discarding_useless():
            kept = len(writer.finished)
            counter = _Counter(progress, self)
            losses = self._write(writer, counter, run_all)
            for path, state in self.states.items():
                if not state.is_at(path):
                    msg = f"{str(path)!r} has changed while it was converted; convert it again"
                    raise MemdescError(msg)
            if self.options.verify:
                every = (task for each in self.cut_steps for task in each.tasks(writer.where))
                run_all(every, counter.counting("verifying"), methodcaller("check"))
            writer.finish()
        return self.report._replace(resumed=kept, warnings=(*self.warnings, *losses.warnings))

    def unfinished(self) -> list[CutStep]:
        """Return the steps that write a file that is not finished."""
        return [each for each in self.cut_steps if self._files_of(each) - self.writer.finished]

    def _write(self, writer: Writer, counter: _Counter, run_all: Execute) -> Losses:
        """Write all files that are not finished; each is finished as its last task has run.

        Returns what its tensors lost. Fails if that is all of a tensor.
        """
        steps, lock, losses = self.unfinished(), Lock(), Losses()
        left: Counter[str] = Counter()
        names: dict[str, list[str]] = {}
        # a step may also write into a file that was kept: the bytes that it already holds
        for each in steps:
            for file in self._files_of(each) - writer.finished:
                left[file] += len(each.pieces)
                names.setdefault(file, []).append(each.step.name)
        by_path = {writer.where(name).path: writer.home_of(name) for name in writer.names}
        count = counter.counting("converting")

        def finish(task: Task, lost: Any) -> None:
            losses.add(task.name, lost)
            files = {by_path[place.path] for _, place in task.dst} & names.keys()
            with lock:
                left.subtract(files)
                done = [file for file in files if not left[file]]
            for file in done:
                losses.check(names[file])
                writer.complete(file)
            count(task)

        run_all((task for each in steps for task in each.tasks(writer.where)), finish, _RUN)
        return losses

    def _files_of(self, step: CutStep) -> set[str]:
        return {self.writer.home_of(tensor.name) for tensor in step.step.tensors}

    def _on_threads(
        self,
        tasks: Iterator[Task],
        finished: Callable[[Task, Any], None],
        work: Callable[[Task], Any],
    ) -> None:
        options = self.options
        run_tasks(tasks, options.thread_count, options.max_bytes, finished, work)

    @contextmanager
    def _discarding_useless(self) -> Iterator[None]:
        """Remove what was written if it ends in an error, and no later call can keep any of it.

        Numbers that overflow or are not finite would do so again, and so would those that the
        format of a rule does not hold; the message has the rule.
        """
        try:
            yield
        except BaseException as error:
            is_final = isinstance(error, OverflowedError | NotFiniteError)
            name = str(error).partition(": ")[0]
            rules = (each.rule for each in self.steps if each.name == name and each.rule)
            if not is_final and isinstance(error, MemdescError) and (rule := next(rules, None)):
                is_final, error.args = True, (f"rule {rule.text!r}: {error}",)
            if is_final or not self.writer.finished:
                self.writer.discard()
            raise


class _Counter:
    """Counts bytes for the progress callback; threads add to it at the same time."""

    def __init__(
        self, progress: Callable[[ConvertProgress], None] | None, conversion: Conversion
    ) -> None:
        self._progress, self._report = progress, conversion.report
        self._lock, self._done = Lock(), 0
        verified = conversion.cut_steps if conversion.options.verify else ()
        steps = (*conversion.unfinished(), *verified)
        self._total = sum(each.step.nbytes for each in steps)

    def add(self, stage: str, nbytes: int) -> None:
        """Count bytes, and call the callback."""
        if self._progress is None:
            return
        with self._lock:
            self._done += nbytes
            self._progress(ConvertProgress(stage, self._done, self._total, self._report))

    def counting(self, stage: str) -> Callable[..., None]:
        """Return a function that counts the bytes of a task."""
        return lambda task, *_: self.add(stage, task.written)


def convert(  # noqa: PLR0913 - public: what is read, what is written, and how
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    to: str | None = None,
    *,
    map: Sequence[str | os.PathLike[str]] | None = None,  # noqa: A002 - as the command calls it
    options: ConvertOptions = ConvertOptions(),  # noqa: B008 - it never changes
    progress: Callable[[ConvertProgress], None] | None = None,
    client: Client | None = None,
) -> ConvertReport:
    """Move a checkpoint into other layouts, packings and types, as `memdesc convert` does.

    Memory is bounded, however large the tensors are. The output gets its name when it is whole; a
    call with `resume` keeps the finished files that an interrupted one left beside it.

    *Law*: the output has the tensors that `reorder` and `repack` make of those of the source.

    Parameters
    ----------
    source : path
        A checkpoint: a file, an index of shards, or the folder of a model.
    target : path
        What to write: its ending names the container; without an ending it is a folder of
        safetensors with all other files of the source.
    to : str, optional
        What all quantised weights of a model become: ``bf16``, ``f16``, ``fp8-block``, ``gptq``,
        ``awq`` or ``compressed-tensors``. ``fp8-block`` also quantises the layers of a
        model of floats. Norms, embeddings and other layers are copied, and config.json declares the
        new weights.
    map : list of str or path, optional
        Rules that come after `to`: strings, ``"PATTERN: [SRC ->] DST[, DTYPE][, KEY=VALUE ...]"``,
        and paths of files with a rule in each line. The last rule that matches a tensor applies;
        tensors without one are copied.
    options : ConvertOptions, optional
        Bounds, and what the conversion may do.
    progress : callable, optional
        Called with a `ConvertProgress`: once when everything is planned, then after each piece, by
        the thread that finished it, one at a time. What it raises ends the conversion.
    client : distributed.Client, optional
        Its workers write the files of the output, one file at a time each; they see the same files
        under the same paths.

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
    >>> report = reorder.convert(
    ...     source, target, map=["weight: AB16b16a, bf16"], progress=seen.append)
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
    options = options.checked()
    rules = () if map is None else map
    execute: Execute | None = None
    if client is None:
        made = plan_conversion(source, target, rules, options, to)
    else:
        from reorder.checkpoints.convert.cluster import check_workers, run_on_cluster

        if options.threads is not None:
            msg = (
                "threads are those of this machine; workers of Dask are given theirs as they start"
            )
            raise MemdescError(msg)
        check_workers(client, {})
        options = options._replace(threads=max(client.nthreads().values()))
        made = plan_conversion(source, target, rules, options, to, on_workers=True)
        check_workers(client, made.states)
        execute = partial(run_on_cluster, client)
    _Counter(progress, made).add("planned", 0)
    return made.report if options.dry_run else made.run(progress, execute)


def plan_conversion(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    rules: Sequence[str | os.PathLike[str]],
    options: ConvertOptions = ConvertOptions(),  # noqa: B008 - it never changes
    to: str | None = None,
    *,
    on_workers: bool = False,
) -> Conversion:
    """Decide and check everything that a conversion does; nothing is written.

    The parameters are those of `convert`, which has checked the options. With `on_workers` no
    pieces are wide, because threads of workers do not wait until there is memory for a wide one.

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
        model = Model(given, container)
        whole = TargetRules(model) if to is None else target_rules(to, model)
        container, every = whole.model.container, [*whole.rules, *found]
        plan = plan_steps(whole.model, every, name)._replace(target=whole.target)
        if plan.moved:
            model.configs.refuse_changed()
        output = plan_output(given, container, wanted, plan, options.shard_bytes)
        bound = options.bound._replace(wide=0) if on_workers else options.bound
        cut_steps = tuple(step.cut(bound) for step in (*plan.steps, *output.copied))
        states = _states(container, output)
        facts = _facts(given, plan.steps, output, states)
        writer = Writer(
            wanted,
            output.files,
            is_folder=output.is_folder,
            overwrite=options.overwrite,
            resume=options.resume,
            facts=facts,
        )
        checked = check_numbers(plan.steps, options)
        warnings = (
            *whole.warnings,
            *plan.warnings,
            *loader_warnings(plan.steps, is_folder=output.is_folder),
            *output.warnings,
            *(() if options.resume else _discarded_warnings(wanted)),
            *rounding_warnings(checked),
        )
        return Conversion(
            source=given,
            target=wanted,
            container=container,
            steps=plan.steps,
            cut_steps=cut_steps,
            output=output,
            warnings=warnings,
            options=options,
            states=states,
            writer=writer,
        )


def _facts(
    source: Path, steps: Iterable[Step], output: Output, states: Mapping[Path, FileState]
) -> dict[str, str]:
    """Return a digest for each file of an output; with equal digests, its bytes are equal.

    A file that is read is identified by its size and modification time, but not by its folder: the
    input may be moved, or copied with its times.
    """
    home = source if source.is_dir() else source.parent
    text = cache(repr)  # layers of a model change alike
    homes = {name: file.name for file in output.files for name in file.spans}
    made: dict[str, list[Any]] = {file.name: [] for file in output.files}
    for step in (*steps, *output.copied):
        read = [
            (relpath(each.file, home), each.offset, each.nbytes, states[each.file].shared)
            for each in step.sources.values()
        ]
        written = [each[:4] for each in step.tensors]
        for name in {homes[each.name] for each in step.tensors}:
            made[name].append((read, written, text(step.change)))
    return {
        file.name: _digest(
            __version__,
            file.nbytes,
            [(at, sha256(data).hexdigest()) for at, data in file.headers],
            made[file.name],
        )
        for file in output.files
    }


def _discarded_warnings(target: Path) -> Iterator[str]:
    """Warn about finished files of an interrupted conversion, which are removed."""
    if has_finished(target):
        yield (
            f"what an interrupted conversion left in {str(partial_folder(target))!r} is discarded; "
            "--resume keeps its finished files"
        )


def _states(container: Container, output: Output) -> dict[Path, FileState]:
    """Return all files that are read, as they were when their headers were read."""
    read = (entry for step in output.copied for entry in step.sources.values())
    entries = (*container.entries.values(), *read)
    states = {path: FileState.at(path) for path in container.files}
    return states | {entry.file: entry.state for entry in entries}


@contextmanager
def _system_errors_named() -> Iterator[None]:
    """Turn errors of the system into a `MemdescError` that names the path."""
    try:
        yield
    except OSError as error:
        named = f"{str(error.filename)!r} cannot be used: " if error.filename else ""
        msg = f"{named}{reason_of(error)}"
        raise MemdescError(msg) from None


def _digest(*facts: object) -> str:
    return sha256(json.dumps(facts).encode()).hexdigest()
