"""Jobs cut into tasks: pieces with their places in files, small values that run on any machine.

A task reads places in files and writes others. It may run again with the same result, and no two
tasks of a conversion write the same bytes. `run` does the work; `check` reads back what `run` wrote
and compares it with the definition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memdesc import MemdescError, MemoryDesc, RecordDesc, memory_desc
from reorder.memory.memory import Memory
from reorder.memory.reference import execute_reference
from reorder.quantize import quantize
from reorder.records.convert_numbers import is_rounded
from reorder.records.fields import dequantize_reference
from reorder.records.record import Record
from reorder.storage.pieces.files import Place, open_to_read, open_to_write, read_runs, write_runs
from reorder.storage.pieces.move import copy_run, move_piece
from reorder.storage.pieces.move_record import move_record, read_tensors
from reorder.storage.pieces.pieces import Piece, RecordPiece, cut, cut_record, permutation
from reorder.storage.pieces.regions import Cut
from reorder.storage.pieces.runs import FieldLayout, Region, Runs, compact
from reorder.values.attr import Attr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from reorder.storage.convert.jobs import Job
    from reorder.storage.pieces.regions import Bound

__all__ = [
    "CopyTask",
    "DifferentError",
    "MoveTask",
    "QuantizeTask",
    "RecordTask",
    "Task",
    "Where",
    "cut_bytes",
    "cut_job",
    "tasks_of",
]

# the place of a tensor that is written, by its name
Where = Callable[[str], Place]


class DifferentError(MemdescError):
    """The bytes in a file differ from those that a task writes."""


class CopyTask(NamedTuple):
    """Bytes that are copied unchanged."""

    name: str
    runs: Runs
    src: Place
    dst: Place

    @property
    def nbytes(self) -> int:
        """Bytes that it needs in memory."""
        return self.runs.nbytes

    @property
    def written(self) -> int:
        """Bytes that it writes."""
        return self.runs.nbytes

    def run(self) -> None:
        """Copy the bytes."""
        copy_run(self.runs, self.src, self.dst)

    def check(self) -> None:
        """Compare the two copies."""
        old, new = (np.empty(self.runs.nbytes, np.uint8) for _ in range(2))
        _read(self.src, self.runs, old)
        _read(self.dst, self.runs, new)
        _compare(self.name, old, new)


class MoveTask(NamedTuple):
    """A piece of a reorder."""

    name: str
    piece: Piece
    src: Place
    dst: Place

    @property
    def nbytes(self) -> int:
        """Bytes that it needs in memory."""
        return self.piece.nbytes

    @property
    def written(self) -> int:
        """Bytes that it writes."""
        return self.piece.writes.nbytes

    def run(self) -> None:
        """Read, reorder, write."""
        move_piece(self.piece, self.src, self.dst, threads=1)

    def check(self) -> None:
        """Reorder by definition what `run` read, and compare."""
        piece = self.piece
        source = np.zeros(max(piece.reads.nbytes, piece.src.min_nbytes), np.uint8)
        _read(self.src, piece.reads, source)
        wanted = np.zeros(max(piece.writes.nbytes, piece.dst.min_nbytes), np.uint8)
        execute_reference(piece.src, piece.dst, source, wanted, piece.attr)
        _compare_runs(self.name, self.dst, piece.writes, wanted)


class RecordTask(NamedTuple):
    """A piece of a record that becomes another record, or plain numbers."""

    name: str
    piece: RecordPiece
    src: tuple[tuple[str, Place], ...]
    dst: tuple[tuple[str, Place], ...]

    @property
    def nbytes(self) -> int:
        """Bytes that it needs in memory."""
        return self.piece.nbytes

    @property
    def written(self) -> int:
        """Bytes that it writes."""
        return sum(runs.nbytes for _, runs in self.piece.writes)

    def run(self) -> None:
        """Read, convert, write."""
        move_record(self.piece, dict(self.src), dict(self.dst), self.name, threads=1)

    def check(self) -> None:
        """Decode both by definition, and compare."""
        piece, places = self.piece, dict(self.dst)
        values = dequantize_reference(Record(piece.src, read_tensors(piece, dict(self.src))))
        if isinstance(piece.dst, RecordDesc):
            back = RecordPiece(piece.dst, piece.dst, piece.writes, piece.writes)
            new = dequantize_reference(Record(piece.dst, read_tensors(back, places)))
            order = np.argsort(permutation(piece.src, piece.dst))
            same = values.transpose(order) + 0.0
            if is_rounded(piece.src, piece.dst):
                new = _rounded_alike(same, new)
            _compare(self.name, same, new + 0.0)
            return
        wanted = np.zeros(max(piece.dst.nbytes, piece.writes[0][1].nbytes), np.uint8)
        plain = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        execute_reference(memory_desc(piece.dst.dims, "f32"), piece.dst, plain, wanted)
        _compare_runs(self.name, places[""], piece.writes[0][1], wanted)


class QuantizeTask(NamedTuple):
    """A piece of a tensor of floats whose scales are chosen from the data.

    `scales` are the places of scales and zero points; a piece holds all elements that share one.
    """

    name: str
    piece: Piece
    src: Place
    dst: Place
    axes: tuple[int, ...]
    groups: tuple[int, ...]
    scales: tuple[tuple[Runs, Place], ...]

    @property
    def nbytes(self) -> int:
        """Bytes that it needs in memory: numpy finds the largest values in f32."""
        return 4 * self.piece.nbytes

    @property
    def written(self) -> int:
        """Bytes that it writes."""
        return self.piece.writes.nbytes + sum(runs.nbytes for runs, _ in self.scales)

    def run(self) -> None:
        """Choose scales, convert, write all."""
        piece = self.piece
        source = _source(self.src, piece.reads, piece.src)
        made = quantize(
            source, piece.dst.dtype, self.axes, piece.dst, groups=self.groups, threads=1
        )
        data = np.zeros(max(piece.writes.nbytes, made.memory.data.nbytes), np.uint8)
        data[: made.memory.data.nbytes] = made.memory.data
        _write(self.dst, piece.writes, data)
        for values, (runs, place) in zip(
            (made.scales, made.zero_points), self.scales, strict=False
        ):
            _write(place, runs, np.ascontiguousarray(values).reshape(-1).view(np.uint8))

    def check(self) -> None:
        """Convert by definition with the scales that were written, and compare."""
        piece = self.piece
        source = _source(self.src, piece.reads, piece.src)
        mask = sum(1 << dim for dim in self.axes)
        given: dict[str, object] = {"saturate": True}
        kinds = (("dst_scale", np.float32), ("dst_zero_point", np.int32))
        for (role, kind), (runs, place) in zip(kinds, self.scales, strict=False):
            data = np.empty(runs.nbytes, np.uint8)
            _read(place, runs, data)
            given |= {role: data.view(kind), f"{role}_mask": mask, f"{role}_groups": self.groups}
        wanted = np.zeros(max(piece.writes.nbytes, piece.dst.min_nbytes), np.uint8)
        execute_reference(piece.src, piece.dst, source.data, wanted, Attr(**given))  # type: ignore[arg-type] # by role
        _compare_runs(self.name, self.dst, piece.writes, wanted)


Task = CopyTask | MoveTask | RecordTask | QuantizeTask


def cut_job(job: Job, bound: Bound) -> Cut[Any]:
    """Cut a job into pieces: of a reorder, of a record, or runs of bytes that are copied.

    Raises
    ------
    MemdescError
        If the blocks are too large for any piece to fit; with the tensor.
    """
    try:
        if isinstance(job.src, RecordDesc) and job.dst is not None:
            return cut_record(job.src, job.dst, bound)
        if job.plan is None:
            (entry,) = job.sources.values()
            return cut_bytes(entry.nbytes, bound)
        if not job.scales:
            return cut(job.plan, bound)
        src, dst = job.plan.src, job.plan.dst
        if 0 in src.dims and job.scales[0].nbytes:  # scales of no elements are 1
            runs = Runs(0, src.nbytes), Runs(0, dst.nbytes)
            return Cut((), (), lambda _: Piece(src, dst, *runs, None, (0,) * src.ndims))
        # all elements that share a scale are in one piece
        groups = _groups(job)
        units = (
            groups[dim] if dim in job.axes else max(size, 1) for dim, size in enumerate(src.dims)
        )
        return cut(job.plan, bound, tuple(units))
    except MemdescError as error:
        msg = f"{job.name}: {error}"
        raise MemdescError(msg) from None


def cut_bytes(nbytes: int, bound: Bound) -> Cut[Runs]:
    """Cut bytes that are copied into runs."""
    step = max(bound.wanted // 2, 1)
    return Cut((nbytes,), (step,), lambda region: Runs(region.offsets[0], region.sizes[0]))


def tasks_of(job: Job, pieces: Cut[Any], where: Where) -> Iterator[Task]:
    """Return the tasks of a job, one for each of the pieces that `cut_job` made of it."""
    sources = {key: Place(each.file, each.offset, each.nbytes) for key, each in job.sources.items()}
    targets = {key: where(tensor.name) for key, tensor in job.targets.items()}
    if isinstance(job.src, RecordDesc):
        places = tuple(sources.items()), tuple(targets.items())
        return (RecordTask(job.name, piece, *places) for piece in pieces)
    (src,), (dst,) = sources.values(), targets.values()
    if job.is_copy:
        return (CopyTask(job.name, runs, src, dst) for runs in pieces)
    if not job.scales:
        return (MoveTask(job.name, piece, src, dst) for piece in pieces)
    beside = [where(tensor.name) for tensor in job.scales]
    return (
        QuantizeTask(
            job.name,
            piece,
            src,
            dst,
            job.axes,
            job.groups,
            tuple((runs, place) for runs in [_runs_of_scales(job, piece)] for place in beside),
        )
        for piece in pieces
    )


def _groups(job: Job) -> tuple[int, ...]:
    """Return how many adjacent elements along each dim share a scale."""
    return (*(1,) * (len(job.dims) - len(job.groups)), *job.groups)


def _runs_of_scales(job: Job, piece: Piece) -> Runs:
    """Return where a piece's scales are among those of the tensor; likewise its zero points."""
    groups = _groups(job)

    def count(sizes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sizes[dim] // groups[dim] for dim in job.axes)

    region = Region(count(piece.src.dims) or (1,), count(piece.offsets) or (0,))
    whole = memory_desc(count(job.dims) or (1,), "f32")
    found = compact((FieldLayout.of(whole),), region, is_written=True)
    return Runs(0, whole.nbytes) if found is None else found[0]


def _source(place: Place, runs: Runs, desc: MemoryDesc) -> Memory:
    data = np.zeros(max(runs.nbytes, desc.nbytes), np.uint8)
    _read(place, runs, data)
    return Memory(desc, data, zero_pad=False)


def _read(place: Place, runs: Runs, into: NDArray[np.uint8]) -> None:
    with open_to_read(place.path) as file:
        read_runs(file, runs, place, into)


def _write(place: Place, runs: Runs, data: NDArray[np.uint8]) -> None:
    with open_to_write(place.path) as file:
        write_runs(file, runs, place, data)


def _compare_runs(name: str, place: Place, runs: Runs, wanted: NDArray[np.uint8]) -> None:
    found = np.empty(runs.nbytes, np.uint8)
    _read(place, runs, found)
    _compare(name, wanted[: runs.nbytes], found)


def _rounded_alike(wanted: NDArray[np.float32], found: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return numbers, those that differ by two roundings to f32 as they are wanted."""
    with np.errstate(all="ignore"):
        wide = wanted.astype(np.float64), found.astype(np.float64)
        is_close = abs(wide[0] - wide[1]) <= 2.0**-22 * abs(wide[0])
    return np.where(is_close, wanted, found)


def _compare(name: str, wanted: NDArray[np.generic], found: NDArray[np.generic]) -> None:
    """Refuse arrays that differ in a bit; NaN equals NaN."""
    if np.array_equal(wanted, found, equal_nan=wanted.dtype.kind == "f"):
        return
    differ = np.argwhere(wanted != found)
    at = tuple(int(i) for i in differ[0])
    msg = (
        f"{name}: what was written differs from the definition, in {len(differ)} places of a "
        f"piece, first at {at}: {found[at]} instead of {wanted[at]}"
    )
    raise DifferentError(msg)
