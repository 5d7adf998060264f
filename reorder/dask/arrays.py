"""`reorder`: a graph of Dask with a task for each chunk."""

from __future__ import annotations

from itertools import accumulate
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memdesc import FormatTag, MemdescError, MemoryDesc, memory_desc
from memdesc.errors import short_repr
from reorder.api import reorder as reorder_memory
from reorder.dask.axes import axes_of, chunk_desc, dims_of, kind_of
from reorder.dask.cuts import check_blocks, check_cuts, check_single, check_whole, chunk_sizes
from reorder.memory.memory import Memory

if TYPE_CHECKING:
    from dask.array import Array
    from numpy.typing import NDArray

    from reorder.dask.axes import ArrayAxis

__all__ = ["reorder"]

_INSTALL = "dask is not installed: pip install dask[array], or memdesc[dask]"


def reorder(
    x: Array,
    dst: str | FormatTag | MemoryDesc,
    *,
    src: MemoryDesc | None = None,
    dtype: Any = None,
    threads: int = 1,
) -> Array:
    """Move an array of Dask into another layout: an array of its physical blocks, chunk by chunk.

    Blocks are what `Memory.blocks` returns: one axis for each, in memory order. Of types of 4 bits
    they are bytes, with two elements along the last axis in each.

    *Law*: computed, it is the array of blocks of the reorder of the whole array.

    Parameters
    ----------
    x : dask.array.Array
        The array. Its axes are the logical dims; with `src`, it is the blocks of that layout.
    dst : str, FormatTag or MemoryDesc
        The layout to move into; ``"plain"`` gives the array over the logical dims.
    src : MemoryDesc, optional
        What x holds, with the logical dims of the whole array.
    dtype : DataType, str or numpy dtype, optional
        What to convert to; by default that of a MemoryDesc as dst, else that of x.
    threads : int
        For each chunk. Dask runs a chunk on each core, so more than one rarely helps.

    Returns
    -------
    dask.array.Array
        Nothing is computed yet. A chunk of x is one chunk of it.

    Raises
    ------
    MemdescError
        If chunks cut blocks of either layout, with the `rechunk` that does not; if the layout does
        not fit, or dask is not installed.

    Examples
    --------
    >>> import dask.array as da, memdesc, reorder.dask
    >>> x = da.ones((8, 40, 14, 14), chunks=(4, 16, 14, 14), dtype="float32")
    >>> blocks = reorder.dask.reorder(x, "nChw16c")
    >>> blocks.shape, blocks.numblocks
    ((8, 3, 14, 14, 16), (2, 3, 1, 1, 1))
    >>> desc = memdesc.memory_desc(x.shape, "f32", "nChw16c")
    >>> reorder.dask.reorder(blocks, "plain", src=desc).shape
    (8, 40, 14, 14)
    """
    try:
        import dask.array as da  # optional
    except ImportError:
        raise MemdescError(_INSTALL) from None
    if not isinstance(x, da.Array):
        msg = f"x must be an array of Dask, not {type(x).__name__}; see dask.array.from_array"
        raise MemdescError(msg)
    if any(isnan(size) for size in x.shape):
        msg = "x has chunks of unknown sizes; call x.compute_chunk_sizes() first"
        raise MemdescError(msg)
    if src is not None and not isinstance(src, MemoryDesc):
        msg = f"src must be the MemoryDesc of the whole array, not {short_repr(src)}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    source = memory_desc(x.shape, x.dtype) if src is None else src
    if isinstance(dst, MemoryDesc):
        target = dst if dtype is None else dst.with_dtype(dtype)
    else:
        target = memory_desc(source.dims, source.dtype if dtype is None else dtype, dst)
    if source.dims != target.dims:
        msg = f"src has dims {source.dims}, but dst {target.dims}"
        raise MemdescError(msg)
    for desc in (source, target):
        check_whole(desc)
    # an array over the dims has an element of 4 bits in each byte
    given = dims_of(source) if src is None else axes_of(source)
    if src is not None:
        check_blocks(x, source, given)
    sizes = chunk_sizes(x, source, given)
    axes = axes_of(target)
    for axis in axes:
        check_cuts(x, given, sizes, axis, target)
    carried = [dim for dim in range(source.ndims) if _carries(given, axes, dim)]
    check_single(x, given, carried, target)
    return _blockwise(x, _Job(source, target, src is None, threads), given, axes, carried, sizes)


class _Job(NamedTuple):
    """What all chunks have in common."""

    src: MemoryDesc
    dst: MemoryDesc
    is_logical: bool
    threads: int


def _carries(given: list[ArrayAxis], axes: list[ArrayAxis], dim: int) -> bool:
    """Whether chunks along a dim of the source are chunks of the target."""
    return all(any(axis.dim == dim for axis in side) for side in (given, axes))


def _blockwise(
    x: Array,
    job: _Job,
    given: list[ArrayAxis],
    axes: list[ArrayAxis],
    carried: list[int],
    sizes: dict[int, tuple[int, ...]],
) -> Array:
    import dask.array as da  # optional

    # indices of blockwise: those of the dims that are carried, and one for each other axis
    first = job.dst.ndims
    new: dict[int, int] = {}
    out, chunks = [], {}
    for k, axis in enumerate(axes, first):
        label = axis.dim if axis.dim is not None and axis.dim in carried else k
        out.append(label)
        if label == k:
            new[k] = axis.extent
            continue
        starts = [start // axis.step for start in (0, *accumulate(sizes[label][:-1]))]
        chunks[label] = tuple(
            end - start for start, end in zip(starts, (*starts[1:], axis.extent), strict=True)
        )
    first += len(axes)
    labels = [axis.dim if axis.dim in carried else k for k, axis in enumerate(given, first)]
    cut = tuple(dim for dim in carried if len(sizes[dim]) > 1)
    places: list[Any] = []
    for dim in cut:
        ends = list(accumulate(sizes[dim]))
        pairs = np.array(list(zip([0, *ends[:-1]], sizes[dim], strict=True)), np.int64)
        pair = first + len(given)  # an index of its own
        places += [da.from_array(pairs, chunks=(1, 2)), (dim, pair)]
    return da.blockwise(
        _reorder_chunk,
        tuple(out),
        x,
        tuple(labels),
        *places,
        job=job,
        cut=cut,
        new_axes=new,
        adjust_chunks=chunks,
        align_arrays=False,
        concatenate=True,
        meta=np.empty((0,) * len(out), kind_of(job.dst)),
    )


def _reorder_chunk(
    array: NDArray[Any], *places: NDArray[np.int64], job: _Job, cut: tuple[int, ...]
) -> NDArray[Any]:
    """Reorder one chunk: `places` has its start and size along each dim that is cut."""
    at = tuple(
        (dim, int(pair[0, 0]), int(pair[0, 1])) for dim, pair in zip(cut, places, strict=True)
    )
    src, _ = chunk_desc(job.src, at)
    dst, shape = chunk_desc(job.dst, at)
    if job.is_logical:
        done = reorder_memory(array, dst, threads=job.threads)
    else:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        done = reorder_memory(Memory(src, data, zero_pad=False), dst, threads=job.threads)
    return done.data.view(kind_of(dst)).reshape(shape)
