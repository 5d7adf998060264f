"""Jobs cut into tasks: pieces of bounded size, of tensors at their places."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memdesc import MemdescError, MemoryDesc, RecordDesc, memory_desc
from reorder.storage.convert.tasks import CopyTask, MoveTask, QuantizeTask, RecordTask
from reorder.storage.pieces.files import Place
from reorder.storage.pieces.pieces import Piece, cut
from reorder.storage.pieces.records import cut_record
from reorder.storage.pieces.runs import Part, Runs, compact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reorder.storage.convert.jobs import Job
    from reorder.storage.convert.tasks import Task
    from reorder.storage.pieces.boxes import Bound

    Where = Callable[[str], Place]

__all__ = ["copies", "tasks_of"]


def tasks_of(job: Job, where: Where, bound: Bound) -> Iterator[Task]:
    """Cut a job into tasks.

    Parameters
    ----------
    job : Job
        What to do.
    where : callable
        Returns the place of a tensor that is written, by its name.
    bound : Bound
        What a task may hold in memory, and what is wanted.

    Raises
    ------
    MemdescError
        If blocks are so large that no piece fits; before the first task, with the tensor.
    """
    src = {key: Place(entry.file, entry.offset, entry.nbytes) for key, entry in job.sources.items()}
    dst = {key: where(tensor.name) for key, tensor in job.targets.items()}
    try:
        if isinstance(job.src, RecordDesc) and job.dst is not None:
            pieces = cut_record(job.src, job.dst, bound)
            places = tuple(src.items()), tuple(dst.items())
            return (RecordTask(job.name, piece, *places) for piece in pieces)
        if isinstance(job.src, MemoryDesc) and isinstance(job.dst, MemoryDesc):
            units = _units(job, job.src.dims) if job.scales else ()
            moved = cut(job.src, job.dst, job.attr, bound=bound, units=units)
            if job.scales:
                if 0 in job.src.dims and job.scales[0].nbytes:  # scales of no elements are 1
                    runs = (Runs(0, job.src.nbytes), Runs(0, job.dst.nbytes))
                    moved = iter((Piece(job.src, job.dst, *runs, None, (0,) * job.src.ndims),))
                return _quantized(job, moved, job.src.dims, where, (src[""], dst[""]))
            return (MoveTask(job.name, piece, src[""], dst[""]) for piece in moved)
    except MemdescError as error:
        msg = f"{job.name}: {error}"
        raise MemdescError(msg) from None
    ((key, place),) = src.items()
    return copies(job.name, place, dst[key], bound)


def copies(name: str, src: Place, dst: Place, bound: Bound) -> Iterator[Task]:
    """Return tasks that copy the bytes of a place."""
    step = max(bound.wanted // 2, 1)
    for at in range(0, src.nbytes, step):
        yield CopyTask(name, Runs(at, min(step, src.nbytes - at)), src, dst)


def _units(job: Job, dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return what boxes are multiples of: whole dims, but groups of those that have scales."""
    return tuple(
        group if dim in job.axes else max(size, 1)
        for dim, (size, group) in enumerate(zip(dims, _groups(job, dims), strict=True))
    )


def _groups(job: Job, dims: tuple[int, ...]) -> tuple[int, ...]:
    return (*(1,) * (len(dims) - len(job.groups)), *job.groups)


def _quantized(
    job: Job,
    pieces: Iterator[Piece],
    dims: tuple[int, ...],
    where: Where,
    places: tuple[Place, Place],
) -> Iterator[Task]:
    """Return the tasks of a tensor whose scales are chosen from the data."""
    groups = _groups(job, dims)
    shape = tuple(dims[dim] // groups[dim] for dim in job.axes) or (1,)
    part = Part(memory_desc(shape, "f32").layout, 32, (1,) * len(shape))
    beside = [where(tensor.name) for tensor in job.scales]
    for piece in pieces:
        sizes = tuple(piece.src.dims[dim] // groups[dim] for dim in job.axes) or (1,)
        offsets = tuple(piece.offsets[dim] // groups[dim] for dim in job.axes) or (0,)
        found = compact((part,), (sizes, offsets), is_written=True)
        runs = Runs(0, 4 * prod(shape)) if found is None else found[0]
        scales = tuple((runs, place) for place in beside)
        yield QuantizeTask(job.name, piece, *places, job.axes, job.groups, scales)
