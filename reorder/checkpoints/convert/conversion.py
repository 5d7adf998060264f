"""The conversion of a checkpoint: planned, checked, cut into pieces, run, read back, and named.

`rules` say which tensors become what; `plan` applies them and makes steps, one for each tensor or
record; `outputs` lays out the files. Each step is cut into pieces. A piece with its places in the
files is a task, which threads or the workers of a cluster run. A file is finished when its last
task has run.
"""

from __future__ import annotations

from collections import Counter, deque
from contextlib import closing, contextmanager
from functools import cache, partial
from hashlib import sha256
from os.path import relpath
from typing import TYPE_CHECKING, Any

from memdesc import MemdescError, __version__
from memdesc.errors import short_repr
from memdesc.immutable import immutable, value_class
from memdesc.int64 import checked_flag
from memdesc.record import RecordDesc
from memdesc.tuples import NamedTuple
from reorder.checkpoints.convert.outputs import check_paths, is_folder, output_format, plan_output
from reorder.checkpoints.convert.plan import Plan
from reorder.checkpoints.convert.rules import read_rules
from reorder.checkpoints.convert.targets import Decided, decide_target
from reorder.checkpoints.formats.entry import Place
from reorder.checkpoints.formats.safetensors import index_of
from reorder.checkpoints.formats.table import check_sums, read_container
from reorder.checkpoints.moves.changes import Repack
from reorder.checkpoints.moves.losses import FinalError, Lost, check_lost, saturation_warnings
from reorder.checkpoints.moves.tasks import Task, check_workers, run_on_cluster, run_tasks
from reorder.checkpoints.weights import Model
from reorder.checkpoints.writer import Writer
from reorder.disk import as_path, reason_of
from reorder.system import count_cores
from reorder.threads import checked_count

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from distributed import Client

    from reorder.checkpoints.convert.plan import Step
    from reorder.checkpoints.formats.entry import FileState, PlannedFile

    # runs tasks by a function given as `work`, and yields each with what that returned
    Execute = Callable[..., Generator[tuple[Task, Any], None, None]]
    Progress = Callable[["ConvertProgress"], None]


# more threads are not faster on any machine, and take longer to start
_MAX_THREADS = 256


@immutable
class ConvertOptions(NamedTuple):
    """How `convert` runs.

    Attributes
    ----------
    max_bytes : int
        The most memory that all pieces together take; on a cluster, that is per worker.
    threads : int
        How many pieces run at a time; None means one per core of the process. The workers of a
        cluster have their own threads.
    shard_bytes : int
        The most bytes of tensors in a file of a folder; None keeps the files of the source.
    verify : bool
        Whether the output is read back and compared with what the rules make of the input: all
        bytes with compiled code, and a part of each piece with the definition in numpy. It is not
        checked whether the model needs these rules.
    resume : bool
        Whether to keep the files that an interrupted call finished, if their sources, the rules
        that apply to them and the version are the same; other files start again.
    overwrite : bool
        Whether an output that exists is replaced; a folder only if no other files are lost.
    dry_run : bool
        Whether to write nothing, and to check everything but the numbers in tensors and the
        checksums of a .npz.

    Examples
    --------
    >>> reorder.checkpoints.ConvertOptions(verify=True).max_bytes
    1073741824
    """

    max_bytes: int = 1 << 30
    threads: int | None = None
    shard_bytes: int | None = None
    verify: bool = False
    resume: bool = False
    overwrite: bool = False
    dry_run: bool = False

    @property
    def thread_count(self) -> int:
        """How many pieces run at a time."""
        return min(count_cores() if self.threads is None else self.threads, _MAX_THREADS)

    def checked(self) -> ConvertOptions:
        """Return the options with plain integers. Fails if one has the wrong type or range."""
        given: dict[str, Any] = self._asdict()
        for name, value in given.items():
            if self._field_defaults[name] is False:
                given[name] = checked_flag(name, value)
            elif value is not None or name == "max_bytes":
                given[name] = checked_count(name, value)
        return self._replace(**given)


@immutable
class ConvertReport(NamedTuple):
    """What `convert` did, or with `dry_run` would do.

    Attributes
    ----------
    weights : int
        Plain tensors and quantised weights that are read; the tensors of a weight count as one.
    converted, copied : int
        How many of them a rule changes, and how many stay unchanged.
    bytes_in, bytes_out : int
        Bytes of the tensors that are read, and of all files that are written.
    files : int
        Files that are written.
    warnings : tuple of str
        What a user might not expect.
    resumed : int
        How many of the files an earlier call had finished.
    would : tuple of str
        In a dry run, what each tensor or record that a rule changes would become.

    Examples
    --------
    >>> import tempfile
    >>> options = reorder.checkpoints.ConvertOptions(dry_run=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source, target = f"{folder}/x.npz", f"{folder}/y.npz"
    ...     np.savez(source, w=np.ones((4, 8), np.float32), b=np.ones(4, np.float32))
    ...     report = reorder.convert(source, target, map=["w: ba"], options=options)
    >>> report.weights, report.converted, report.copied, report.bytes_in
    (2, 1, 1, 144)
    >>> report.would
    ("w: memory_desc((4, 8), 'f32', 'ab') -> memory_desc((4, 8), 'f32', 'ba')",)
    """

    weights: int
    converted: int
    copied: int
    bytes_in: int
    bytes_out: int
    files: int
    warnings: tuple[str, ...]
    resumed: int = 0
    would: tuple[str, ...] = ()


@immutable
class ConvertProgress(NamedTuple):
    """How far a call of `convert` is.

    Attributes
    ----------
    stage : str
        ``"planned"`` before anything is written, then ``"converting"`` and ``"verifying"``.
    done, total : int
        Bytes of tensors and copied files that this call has written or verified, and how many
        there are in all.
    report : ConvertReport
        What is planned, with its warnings.

    Examples
    --------
    >>> import tempfile
    >>> def show(now: reorder.checkpoints.ConvertProgress) -> None:
    ...     print(now.stage, now.done, "of", now.total)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/x.npz", w=np.ones((4, 8), np.float32))
    ...     report = reorder.convert(f"{folder}/x.npz", f"{folder}/y.npz", progress=show)
    planned 0 of 128
    converting 128 of 128
    """

    stage: str
    done: int
    total: int
    report: ConvertReport


@value_class
class Conversion:
    """A conversion that is ready to run: everything that a rule may get wrong has been checked."""

    # what happens to each tensor or record, and to the files beside them, in pieces
    steps: tuple[Step, ...]
    copied: tuple[Step, ...]
    writer: Writer
    options: ConvertOptions
    warnings: tuple[str, ...] = ()

    @property
    def report(self) -> ConvertReport:
        """What is planned."""
        moved = [step for step in self.steps if not step.change.is_copy]
        is_dry = self.options.dry_run
        return ConvertReport(
            weights=len(self.steps),
            converted=len(moved),
            copied=len(self.steps) - len(moved),
            bytes_in=sum(
                entry.stored_nbytes for step in self.steps for entry in step.sources.values()
            ),
            bytes_out=sum(file.nbytes for file in self.writer.files.values()),
            files=len(self.writer.files),
            warnings=self.warnings,
            would=tuple(f"{step.name}: {step.change}" for step in moved if is_dry),
        )

    @property
    def states(self) -> dict[Path, FileState]:
        """All files that are read, as they were when their headers were read."""
        steps = (*self.steps, *self.copied)
        read = [entry for step in steps for entry in (*step.sources.values(), *step.dropped)]
        return {entry.file: entry.state for entry in read}

    @property
    def stages(self) -> dict[str, tuple[Callable[[Task], Lost | None], list[Step]]]:
        """The stages by name: what is done with the tasks of which steps."""
        finished, homes = self.writer.finished, self.writer.homes
        every = [*self.steps, *self.copied]
        new = [x for x in every if not finished.issuperset(homes[each.name] for each in x.tensors)]
        verified = {"verifying": (Task.check, every)} if self.options.verify else {}
        return {"converting": (Task.run, new), **verified}

    @property
    def total(self) -> int:
        """How many bytes are written to files that are not finished, and verified."""
        return sum(step.nbytes for _, steps in self.stages.values() for step in steps)

    def run(
        self, progress: Progress | None = None, execute: Execute | None = None
    ) -> ConvertReport:
        """Write the output and give it its name; return what was done.

        Without `execute`, tasks run on threads. After a failure, a later call can keep the finished
        files, unless the failure is that numbers are lost, which would happen again.
        """
        count, most = self.options.thread_count, self.options.max_bytes
        run_all = execute or partial(run_tasks, threads=count, max_bytes=most)
        losses = dict[str, Lost]()
        for path in {entry.file for step in self.steps for entry in step.sources.values()}:
            check_sums(path)  # pieces are read in another order than a checksum needs
        with self.writer as writer:
            kept, stages, report = len(writer.finished), self.stages, self.report
            left, done, total = self._left(stages["converting"][1]), 0, self.total
            try:
                for stage, (work, steps) in stages.items():
                    tasks = (task for step in steps for task in step.tasks(writer.where))
                    with closing(run_all(tasks, work=work)) as outcomes:
                        for task, lost in outcomes:
                            if lost is not None:
                                losses[task.name] = lost.joined(losses.get(task.name))
                            self._end(task, left, losses)
                            done += task.piece.written
                            if progress is not None:
                                progress(ConvertProgress(stage, done, total, report))
                    self._check_states()
                writer.finish()
            except BaseException as error:
                if isinstance(error, FinalError) or not writer.is_resumable:
                    writer.discard()
                raise
        told = saturation_warnings(losses)
        return report._replace(resumed=kept, warnings=(*self.warnings, *told))

    def _left(self, steps: Iterable[Step]) -> Counter[str | Path]:
        """Return how many tasks are left, by the names of steps and the paths of files."""
        left: Counter[str | Path] = Counter()
        for step in steps:
            paths = {self.writer.where(tensor.name).path for tensor in step.tensors}
            left.update(dict.fromkeys((step.name, *paths), step.pieces.number))
        return left

    def _end(self, task: Task, left: Counter[str | Path], losses: Mapping[str, Lost]) -> None:
        """Finish the files that are whole with a task. Fails if a whole tensor is lost."""
        paths, growing = {place.path for place in task.dst.values()}, self.writer.growing
        left.subtract((task.name, *paths))
        if not left[task.name]:
            check_lost(losses, task.name)
        for path in paths:
            # a file that was kept is not growing: it already holds what was written again
            if not left[path] and path.is_relative_to(growing):
                self.writer.complete(path.relative_to(growing).as_posix())

    def _check_states(self) -> None:
        for path, state in self.states.items():
            if not state.is_at(path):
                raise MemdescError(
                    f"{str(path)!r} has changed while it was converted; convert it again"
                )


def convert(  # noqa: PLR0913 - public: what is read, what is written, and how
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    to: str | None = None,
    *,
    map: Sequence[str | os.PathLike[str]] | None = None,  # noqa: A002 - as the command calls it
    options: ConvertOptions = ConvertOptions(),  # noqa: B008 - it never changes
    progress: Progress | None = None,
    client: Client | None = None,
) -> ConvertReport:
    """Convert a checkpoint to other layouts, packings and types, as `memdesc convert` does.

    Memory is bounded, however large the tensors are. The output gets its name when it is complete;
    a call with `resume` keeps the finished files that an interrupted one left beside it.

    *Law*: the output has the tensors that `reorder` and `repack` make of those of the source.

    Parameters
    ----------
    source : path
        A checkpoint: a file, an index of shards, or the folder of a model. One of several shards
        is only copied.
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
        and paths of files with one rule per line. The last rule that matches a tensor applies;
        tensors without one are copied.
    options : ConvertOptions, optional
        Bounds, and what the conversion may do.
    progress : callable, optional
        Called with a `ConvertProgress`: once when everything is planned, then after each piece.
        What it raises ends the conversion.
    client : distributed.Client, optional
        Its workers write the files of the output, each of them one file at a time; they see the
        same files under the same paths.

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
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> source, target = f"{folder.name}/model.npz", f"{folder.name}/model.safetensors"
    >>> np.savez(source, weight=np.ones((32, 20), np.float32), bias=np.ones(32, np.float32))
    >>> report = reorder.convert(source, target, map=["weight: AB16b16a, bf16"])
    >>> report.converted, report.copied, report.bytes_in
    (1, 1, 2688)
    >>> with reorder.open_checkpoint(target) as converted:
    ...     print(converted["weight"].desc)
    memory_desc((32, 20), 'bf16', 'AB16b16a')
    >>> folder.cleanup()
    """
    if progress is not None and not callable(progress):
        raise MemdescError(f"progress must be a function, not {short_repr(progress)}")
    if not isinstance(options, ConvertOptions):
        raise MemdescError(f"options must be ConvertOptions, not {short_repr(options)}")
    options = options.checked()
    execute: Execute | None = None
    if client is not None:
        if options.threads is not None:
            raise MemdescError(
                "threads are those of this machine; workers of Dask are given theirs as they start"
            )
        check_workers(client, {})
        options = options._replace(threads=max(client.nthreads().values()))
        execute = partial(run_on_cluster, client)
    made = plan_conversion(source, target, () if map is None else map, options, to)
    if client is not None:
        check_workers(client, made.states)
    if progress is not None:
        progress(ConvertProgress("planned", 0, made.total, made.report))
    return made.report if options.dry_run else made.run(progress, execute)


def plan_conversion(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    rules: Sequence[str | os.PathLike[str]],
    options: ConvertOptions = ConvertOptions(),  # noqa: B008 - it never changes
    to: str | None = None,
) -> Conversion:
    """Decide and check everything that a conversion does, as `convert` does; nothing is written."""
    parsed = read_rules(rules)
    with _system_errors_named():
        # a callback may change the working folder, and workers have others
        given, wanted = as_path(source).absolute(), as_path(target).absolute()
        container = read_container(given)
        check_paths(given, container, wanted)
        if (parsed or to) and (index := index_of(given)):
            raise MemdescError(
                f"{str(given)!r} may hold codes whose scales are in other files of the model: name "
                f"{str(index)!r}, or its folder; the file alone is only copied"
            )
        name = output_format(wanted, may_be_folder=given.is_dir())
        model = Model(given, container)
        plan = Plan(Decided(model) if to is None else decide_target(to, model), parsed, name)
        if plan.is_redeclared:
            model.configs.refuse_changed()
        files = plan_output(wanted, plan, options.shard_bytes)
        steps, copied = (
            tuple(step.in_pieces(options) for step in part) for part in (plan.steps, plan.copied)
        )
        writer = Writer(
            wanted,
            files,
            is_folder=is_folder(wanted),
            overwrite=options.overwrite,
            resume=options.resume,
            facts=_facts(given, (*steps, *copied), files),
        )
        # any piece of a record shows whether it can become another one
        between = (x for x in reversed(steps) if isinstance(x.change.dst, RecordDesc))
        repacks = {x.change: x for x in between if isinstance(x.change, Repack)}
        none = Place(wanted, 0, 0)
        first = (next(step.tasks(lambda _: none), None) for step in repacks.values())
        deque(run_tasks(filter(None, first), 1, options.max_bytes, Task.made), 0)
        return Conversion(steps, copied, writer, options, tuple(plan.warnings))


def _facts(source: Path, steps: Iterable[Step], files: Iterable[PlannedFile]) -> dict[str, str]:
    """Return a digest for each file of an output; with equal digests, its bytes are equal.

    A file that is read is identified by its size and time, because the input may be moved to
    another folder.
    """
    home = source if source.is_dir() else source.parent
    text = cache(repr)  # the layers of a model change in the same way
    homes = {name: file.name for file in files for name in file.spans}
    made = {file.name: [f"{__version__} {file.nbytes}"] for file in files}
    for file in files:
        made[file.name] += (f"{at} {sha256(data).hexdigest()}" for at, data in file.headers)
    for step in steps:
        read = [
            (relpath(entry.file, home), entry.offset, entry.nbytes, entry.state[:2])
            for entry in step.sources.values()
        ]
        told = repr((read, [tensor[:4] for tensor in step.tensors], text(step.change)))
        for name in {homes[tensor.name] for tensor in step.tensors}:
            made[name].append(told)
    return {name: sha256("\0".join(told).encode()).hexdigest() for name, told in made.items()}


@contextmanager
def _system_errors_named() -> Iterator[None]:
    """Turn errors of the system into a `MemdescError` that names the path."""
    try:
        yield
    except OSError as error:
        named = f"{str(error.filename)!r} cannot be used: " if error.filename else ""
        raise MemdescError(f"{named}{reason_of(error)}") from None
