"""The options and the report of `convert`."""

from __future__ import annotations

from typing import Any

from memdesc.immutable import immutable
from memdesc.int64 import checked_flag
from memdesc.tuples import NamedTuple
from reorder.system import count_cores
from reorder.threads import checked_count

# more threads are not faster anywhere, and take longer to start
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
        bytes with compiled code, and a part of each piece with the definition in numpy. Whether
        the rules are what the model needs is not checked.
    resume : bool
        Whether to keep the files that an interrupted call finished, if their sources, the rules
        that apply to them and the version are the same; other files start again.
    overwrite : bool
        Whether an output that exists is replaced; a folder only if no other files are lost.
    dry_run : bool
        Whether to write nothing, and check everything but the numbers in tensors.

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
        flags = ("verify", "resume", "overwrite", "dry_run")
        counts = ("max_bytes", "threads", "shard_bytes")
        given: dict[str, Any] = {name: checked_flag(name, getattr(self, name)) for name in flags}
        for name in counts:
            count = getattr(self, name)
            is_left_out = count is None and name != "max_bytes"
            given[name] = None if is_left_out else checked_count(name, count)
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
