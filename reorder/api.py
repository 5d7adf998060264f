"""reorder(), prepare() and execute(): look at the arguments, pick a backend."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import FormatTag, MemdescError, MemoryDesc, array_desc, data_type, memory_desc
from memdesc.errors import shown
from memdesc.names import resolve
from reorder.dlpack import from_dlpack, is_exporter
from reorder.forks import importing
from reorder.limits import current_limit
from reorder.memory import Memory
from reorder.plan import plan_reorder
from reorder.reach import check_plan
from reorder.tables import pack

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from reorder.attr import Attr
    from reorder.dlpack import Exporter
    from reorder.plan import ReorderPlan

__all__ = ["execute", "prepare", "reorder"]


def reorder(  # noqa: PLR0913 - what it takes is named by keyword
    x: Memory | NDArray[Any] | Exporter,
    dst: str | FormatTag | MemoryDesc | None = None,
    *,
    src: str | FormatTag | MemoryDesc | None = None,
    dtype: Any = None,
    attr: Attr | None = None,
    out: Memory | None = None,
    threads: int | None = None,
) -> Memory:
    """Move a tensor into another layout, or data type, or both.

    Parameters
    ----------
    x : Memory, ndarray, or tensor with DLPack
        The tensor. The axes of an ndarray are its logical dims, with any strides; so
        are those of a tensor of torch, JAX and others, of all types, bf16 too.
    dst : str, FormatTag or MemoryDesc, optional
        The layout to move into; by default that of `out`.
    src : str, FormatTag or MemoryDesc, optional
        For an ndarray whose axes are in memory order: the layout they spell, such as
        ``"nhwc"``. With a MemoryDesc, x is a raw buffer that it describes.
    dtype : DataType, str or numpy dtype, optional
        What to convert to; by default that of dst or `out`, else that of x.
    attr : Attr, optional
        Scales, zero points, accumulation into `out`.
    out : Memory, optional
        Where the result goes; by default new memory.
    threads : int, optional
        At most so many threads; by default the limit of `use_threads`, or all that
        numba may use.

    Returns
    -------
    Memory
        `out`, or new memory. Its padding is zero.

    Raises
    ------
    MemdescError
        If the layouts do not fit each other or the buffers; nothing is written then.

    Examples
    --------
    >>> import numpy as np, reorder
    >>> x = np.random.default_rng(0).random((2, 17, 5, 4), np.float32)
    >>> m = reorder.reorder(x, "nChw8c")
    >>> m.desc.padded_dims, m.nbytes
    ((2, 24, 5, 4), 3840)
    >>> bool((reorder.reorder(m, "nhwc").numpy() == x).all())
    True
    >>> reorder.reorder(m, "nhwc", dtype="s8", attr=reorder.Attr(dst_scale=1 / 127)).desc.dtype
    data_type('s8')
    """
    source = _source(x, src)
    if out is not None and not isinstance(out, Memory):
        msg = f"out must be a Memory, not {type(out).__name__}; wrap a buffer: Memory(desc, buffer)"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    if dst is None:
        if out is None:
            msg = "give dst, the layout to move into, or out, the memory to write"
            raise MemdescError(msg)
        dst = out.desc
    if isinstance(dst, MemoryDesc):
        desc = dst if dtype is None else dst.with_dtype(dtype)
    else:
        wanted = (source if out is None else out).desc.dtype if dtype is None else dtype
        desc = memory_desc(source.desc.dims, wanted, dst)
    if out is not None and out.desc != desc:
        msg = f"out is {out.desc!r}, but dst asks for {desc!r}"
        raise MemdescError(msg)
    plan = plan_reorder(source.desc, desc, attr)
    if out is None:
        if attr is not None and attr.beta:
            msg = f"beta {attr.beta} adds to what dst holds; give out, the memory that holds it"
            raise MemdescError(msg)
        out = Memory(desc)
    execute(plan, source.data, out.data, threads)
    return out


def execute(plan: ReorderPlan, src: Any, dst: Any, threads: int | None = None) -> None:
    """Run a plan on two buffers.

    Parameters
    ----------
    plan : ReorderPlan
        From `plan_reorder`.
    src, dst : ndarray or object with the buffer protocol
        C-contiguous arrays of the dtype or of its bits, or raw bytes (uint8), of at
        least `min_nbytes` bytes. Padding of dst becomes zero; gaps of a strided dst
        keep what they hold.
    threads : int, optional
        At most so many threads; by default the limit of `use_threads`, or all that
        numba may use.

    Raises
    ------
    MemdescError
        If a buffer does not fit, or the two overlap; nothing is written then.

    Examples
    --------
    >>> import numpy as np, memdesc, reorder
    >>> plan = reorder.plan_reorder(memdesc.memory_desc((2, 3), "s8", "ab"), memdesc.memory_desc((2, 3), "s8", "ba"))
    >>> dst = np.zeros(6, np.int8)
    >>> reorder.execute(plan, np.arange(6, dtype=np.int8), dst)
    >>> dst
    array([0, 3, 1, 4, 2, 5], dtype=int8)
    """
    prepare(plan, threads)(src, dst)


def prepare(plan: ReorderPlan, threads: int | None = None) -> Callable[[Any, Any], None]:
    """Return a callable that runs a plan many times; equal calls give the same one.

    Parameters
    ----------
    plan : ReorderPlan
        From `plan_reorder`.
    threads : int, optional
        As for `execute`.

    Returns
    -------
    callable
        `run(src, dst)`, which takes what `execute` takes and may be called from
        several threads at once.
    """
    threads = current_limit() if threads is None else threads
    try:
        return _prepare(plan, threads)
    except TypeError:
        # no value that a cache can keep, so no plan; this says so
        return _prepare.__wrapped__(plan, threads)


@lru_cache(maxsize=512, typed=True)
def _prepare(plan: ReorderPlan, threads: int | None) -> Callable[[Any, Any], None]:
    check_plan(plan)
    with importing:
        from reorder.cpu import PreparedReorder  # noqa: PLC0415 - numba is slow to load, and describing needs none
        from reorder.cpu.convert.execute import ConvertingReorder, needs_tiles  # noqa: PLC0415 - likewise

        if needs_tiles(plan):
            return ConvertingReorder(plan, threads)

    return PreparedReorder(plan, threads)


def _source(x: Any, src: str | FormatTag | MemoryDesc | None) -> Memory:
    """Return a tensor as memory, without copying but for unpacked 4-bit elements."""
    if isinstance(x, Memory):
        if src is not None:
            msg = "src describes an ndarray; a Memory has its own descriptor"
            raise MemdescError(msg)
        return x
    if isinstance(src, MemoryDesc):
        return Memory(src, x, zero_pad=False)
    if not isinstance(x, np.ndarray) and is_exporter(x):
        x = from_dlpack(x, "x")
    if not isinstance(x, np.ndarray):
        msg = f"x must be a Memory, a numpy array or a tensor with DLPack, not {type(x).__name__}; for raw bytes give src=, a MemoryDesc"
        raise MemdescError(msg)
    x = np.asarray(x)  # a matrix has two axes whatever is asked of it
    if src is not None:
        x = _logical(x, src)
    if data_type(x.dtype).is_packed:
        packed = Memory(memory_desc(x.shape, x.dtype))
        bits = np.zeros(2 * packed.nbytes, np.uint8)
        bits[: x.size] = np.ascontiguousarray(x).view(np.uint8).reshape(-1) & 15
        pack(bits, packed.data, packed.desc)
        return packed
    desc = array_desc(x)
    x = x.view(desc.dtype.bits_dtype)  # numpy does not know all types of ml_dtypes by their letters
    # the memory from the lowest address that x touches; its bytes in between are not read
    lowest = x[tuple(slice(-1 if step < 0 else 0, None) if size else slice(None) for size, step in zip(x.shape, x.strides, strict=True))]
    count = desc.layout.last + 1 if desc.nelems else 0
    return Memory(desc, np.lib.stride_tricks.as_strided(lowest, (count,), (x.itemsize,), writeable=False), zero_pad=False)


def _logical(x: NDArray[Any], src: str | FormatTag) -> NDArray[Any]:
    """Return a view, or for blocked layouts a copy, whose axes are the logical dims."""
    if not isinstance(src, str | FormatTag):
        msg = f"src must be a name, a FormatTag or a MemoryDesc, not {shown(src)}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    tag = src if isinstance(src, FormatTag) else resolve(src, (), data_type(x.dtype).bits)
    if x.ndim != len(tag.digits):
        msg = (
            f"src '{src}' spells {len(tag.digits)} axes in memory order, but x has {x.ndim}: {x.shape}; "
            f"for a flat buffer give src=memory_desc(dims, dtype, '{src}')"
        )
        raise MemdescError(msg)
    for digit, size in zip(tag.digits, x.shape, strict=True):
        if digit.extent and digit.extent != size:
            msg = f"src '{src}' has a block of {digit.extent}, but that axis of x has {size}: {x.shape}"
            raise MemdescError(msg)
    if any(len(dims) > 1 for dims in tag.axes):
        msg = f"src '{src}' cuts several dims as one index, whose sizes x does not tell; give src=, a MemoryDesc"
        raise MemdescError(msg)
    order = sorted(range(x.ndim), key=lambda k: (tag.digits[k].axis, -tag.digits[k].step))
    sizes = [1] * len(tag.axes)
    for digit, size in zip(tag.digits, x.shape, strict=True):
        sizes[digit.axis] *= size
    return x.transpose(order).reshape(sizes)
