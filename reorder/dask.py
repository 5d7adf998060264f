"""Reorder Dask arrays chunk by chunk: from logical arrays to physical blocks, and back.

A chunk of whole blocks is itself a tensor, and its blocks are some of those of the whole tensor. So
each chunk is one task, and nothing moves between chunks. Chunks that would cut a block are
refused; the message has the `rechunk` that helps.
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate, pairwise
from math import isnan, lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import Axis, Layout, MemdescError, MemoryDesc, memory_desc
from memdesc.desc import desc_of
from memdesc.errors import NotBlockedError, short_repr
from memdesc.layout import memory_order
from memdesc.tuples import NamedTuple
from reorder.api import reorder as reorder_memory
from reorder.memory.memory import Memory

if TYPE_CHECKING:
    from dask.array import Array
    from numpy.typing import NDArray

    from memdesc.tags import FormatTag

__all__ = ["reorder"]

_INSTALL = "dask is not installed: pip install dask[array], or memdesc[dask]"
# elements of a packed type in a byte
_PACKED = 2


def reorder(
    x: Array,
    dst: str | FormatTag | MemoryDesc,
    *,
    src: MemoryDesc | None = None,
    dtype: Any = None,
    threads: int = 1,
) -> Array:
    """Move a Dask array into another layout: an array of its physical blocks, chunk by chunk.

    The blocks are what `Memory.blocks` returns: one axis for each, in memory order. For 4-bit
    types they are bytes, which hold two elements along the last axis.

    *Law*: once computed, the result equals the blocks of the whole array, reordered.

    Parameters
    ----------
    x : dask.array.Array
        The array. Its axes are the logical dims; with `src`, it holds the blocks of that layout.
    dst : str, FormatTag or MemoryDesc
        The layout to move into; ``"plain"`` gives the array over the logical dims.
    src : MemoryDesc, optional
        The layout whose blocks x holds, with the logical dims of the whole array.
    dtype : DataType, str or numpy dtype, optional
        What to convert to; by default that of a MemoryDesc as dst, else that of x.
    threads : int
        Threads for each chunk. Dask runs a chunk on each core, so more than one rarely helps.

    Returns
    -------
    dask.array.Array
        With a chunk for each chunk of x. Nothing is computed yet.

    Raises
    ------
    MemdescError
        If chunks cut blocks of either layout (the message has a `rechunk` that does not), the
        layout does not fit, or dask is not installed.

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
        raise MemdescError(
            f"x must be a Dask array, not {type(x).__name__}; see dask.array.from_array"
        )
    if any(isnan(size) for size in x.shape):
        raise MemdescError("x has chunks of unknown sizes; call x.compute_chunk_sizes() first")
    if src is not None and not isinstance(src, MemoryDesc):
        raise MemdescError(f"src must be the MemoryDesc of the whole array, not {short_repr(src)}")
    source = memory_desc(x.shape, x.dtype) if src is None else src
    if isinstance(dst, MemoryDesc):
        target = dst if dtype is None else dst.with_dtype(dtype)
    else:
        target = memory_desc(source.dims, source.dtype if dtype is None else dtype, dst)
    if source.dims != target.dims:
        raise MemdescError(f"src has dims {source.dims}, but dst {target.dims}")
    for desc in (source, target):
        if desc.layout.has_partial_blocks:
            raise NotBlockedError(
                f"{desc!r} ends inside a block, so its blocks are not an n-d array"
            )
        if desc.extra is not None:
            raise MemdescError(
                f"{desc!r} has compensation, which sums over all chunks; leave it out"
            )
    # in an array over the dims, a 4-bit element has a byte of its own
    src_axes = [_ArrayAxis(dim, 1, size) for dim, size in enumerate(source.dims)]
    if src is not None:
        src_axes = _block_axes(src)
        kind, shape = _array_dtype(src), tuple(axis.extent for axis in src_axes)
        if x.shape != shape or x.dtype != kind:
            raise MemdescError(
                f"x is an array of {x.dtype} and shape {x.shape}, but the blocks of {src!r} are "
                f"an array of {kind} and shape {shape}"
            )
    dst_axes = _block_axes(target)
    parts = _parts_of(x, (source, target), src_axes, dst_axes)
    return _by_chunks(x, (source, target, src is None, threads), src_axes, dst_axes, parts)


def _by_chunks(
    x: Array,
    job: tuple[MemoryDesc, MemoryDesc, bool, int],
    src_axes: list[_ArrayAxis],
    dst_axes: list[_ArrayAxis],
    parts: dict[int | None, tuple[_Part, ...]],
) -> Array:
    """Return the array of blocks with a task for each chunk; `job` is what tasks have in common."""
    import dask.array as da  # optional
    from dask.base import tokenize
    from dask.highlevelgraph import HighLevelGraph

    extents: list[tuple[int, ...]] = []
    for axis in dst_axes:
        cuts = [part.start // axis.step for part in parts.get(axis.dim, ())[1:]]
        extents.append(tuple(end - start for start, end in pairwise((0, *cuts, axis.extent))))
    name = f"reorder-{tokenize(x, job)}"
    graph: dict[Any, Any] = {}
    for index in np.ndindex(*map(len, extents)):
        number = {axis.dim: k for axis, k in zip(dst_axes, index, strict=True)}
        at = tuple(pieces[number[dim]] for dim, pieces in parts.items())
        key = (x.name, *(number[axis.dim] if axis.dim in parts else 0 for axis in src_axes))
        graph[name, *index] = (_reorder_chunk, key, at, *job)
    graphs = HighLevelGraph.from_collections(name, graph, [x])
    return da.Array(graphs, name, tuple(extents), _array_dtype(job[1]))


def _reorder_chunk(
    array: NDArray[Any],
    at: tuple[_Part, ...],
    source: MemoryDesc,
    target: MemoryDesc,
    is_logical: bool,  # noqa: FBT001 - arguments of a task have no names
    threads: int,
) -> NDArray[Any]:
    """Reorder one chunk; `at` has its part of each dim that has several chunks."""
    # workers of dask.distributed receive arrays at any address
    array = np.require(array, requirements="A")
    src, _ = _chunk_desc(source, at)
    dst, shape = _chunk_desc(target, at)
    if not is_logical:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        done = reorder_memory(Memory(src, data, zero_pad=False), dst, threads=threads)
    else:
        done = reorder_memory(array, dst, threads=threads)
    return done.data.view(_array_dtype(dst)).reshape(shape)


class _ArrayAxis(NamedTuple):
    """An axis of an array: the dim that its chunks divide, and how many elements a step spans."""

    # None if the axis must be a single chunk
    dim: int | None
    step: int
    extent: int


class _Part(NamedTuple):
    dim: int
    start: int
    size: int


def _block_axes(desc: MemoryDesc) -> list[_ArrayAxis]:
    axes = []
    for block in sorted(desc.blocks, key=memory_order):
        dims = desc.axes[block.axis].dims
        is_outer = block.step == desc.layout.outer(block.axis).step and len(dims) == 1
        axes.append(_ArrayAxis(dims[0] if is_outer else None, block.step, block.extent))
    if desc.dtype.is_packed:
        dim, step, extent = axes[-1]
        if extent % _PACKED:
            raise MemdescError(
                f"{desc!r} has {extent} elements along its innermost block, and two {desc.dtype} "
                "share a byte; use a layout with an even number, or dtype='u8'"
            )
        axes[-1] = _ArrayAxis(dim, step * _PACKED, extent // _PACKED)
    return axes


def _array_dtype(desc: MemoryDesc) -> np.dtype[Any]:
    """Return the dtype of the array of blocks: bytes of two elements for packed types."""
    return np.dtype(np.uint8) if desc.dtype.is_packed else desc.dtype.numpy


def _chunk_desc(desc: MemoryDesc, at: tuple[_Part, ...]) -> tuple[MemoryDesc, tuple[int, ...]]:
    """Return the descriptor and the shape of a chunk, with its blocks in the order of the whole."""
    whole = desc.layout
    dims, axes, blocks = list(whole.dims), list(whole.axes), list(whole.blocks)
    for dim, start, size in at:
        k = next(k for k, axis in enumerate(axes) if dim in axis.dims)
        padded = axes[k].padded - start if start + size == dims[dim] else size
        dims[dim], axes[k], outer = size, Axis((dim,), padded), whole.outer(k)
        blocks[whole.blocks.index(outer)] = outer._replace(extent=-(-padded // outer.step))
    order = sorted(range(len(blocks)), key=lambda k: memory_order(whole.blocks[k]))
    stride = 1
    for k in reversed(order):
        blocks[k] = blocks[k]._replace(stride=stride)
        stride *= max(blocks[k].extent, 1)
    shape = tuple(blocks[k].extent for k in order)
    if desc.dtype.is_packed:
        shape = (*shape[:-1], shape[-1] // _PACKED)
    return desc_of(desc.dtype, Layout(tuple(dims), tuple(axes), tuple(blocks))), shape


def _parts_of(
    x: Array,
    descs: tuple[MemoryDesc, MemoryDesc],
    src_axes: list[_ArrayAxis],
    dst_axes: list[_ArrayAxis],
) -> dict[int | None, tuple[_Part, ...]]:
    """Return the parts of each dim that several chunks divide. Fails if they cut blocks of dst."""
    src, dst = descs
    by_dim = {axis.dim: axis for axis in dst_axes if axis.dim is not None}
    parts: dict[int | None, tuple[_Part, ...]] = {}
    for k, (axis, chunks) in enumerate(zip(src_axes, x.chunks, strict=True)):
        if len(chunks) == 1:
            continue
        if axis.dim is None or axis.dim not in by_dim:
            raise MemdescError(
                f"x has {len(chunks)} chunks along axis {k}, but {dst!r} or the layout of x "
                f"joins this axis with others; x.rechunk({{{k}: -1}}) makes it one chunk"
            )
        size, block = src.dims[axis.dim], by_dim[axis.dim].step
        ends = [end * axis.step for end in accumulate(chunks)]
        starts = [0, *ends[:-1]]
        if starts[-1] >= size:
            kept = max(sum(start < size for start in starts) - 1, 0)
            raise MemdescError(
                f"the last chunk of x along axis {k} has only padding, or nothing; join it with "
                f"others: x.rechunk({{{k}: (*x.chunks[{k}][:{kept}], {sum(chunks[kept:])})}})"
            )
        sizes = [min(end, size) - start for start, end in zip(starts, ends, strict=True)]
        if any(size % block for size in sizes[:-1]):
            wanted = lcm(block, axis.step)
            fitting = -(-max(sizes) // wanted) * wanted // axis.step
            raise MemdescError(
                f"x has chunks of {short_repr(chunks)} along axis {k}, which cut blocks of "
                f"{dst!r}: a block spans {block} of dim {axis.dim}; x.rechunk({{{k}: {fitting}}}) "
                "keeps them whole"
            )
        parts[axis.dim] = tuple(map(partial(_Part, axis.dim), starts, sizes))
    return parts
