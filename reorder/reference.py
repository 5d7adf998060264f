"""The definition of a reorder, in numpy: slow, but the tests compare everything else with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memdesc.errors import allocates
from reorder.memory.arrays import bits_of, write_back
from reorder.memory.buffers import BufferCheck
from reorder.memory.compensation import compensate
from reorder.plan.plan import check_pair, check_types
from reorder.values.binding import bind
from reorder.values.convert import convert

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from reorder.values.attr import Attr


@allocates
def execute_reference(
    src_desc: MemoryDesc, dst_desc: MemoryDesc, src: Any, dst: Any, attr: Attr | None = None
) -> None:
    """Reorder by definition: write zeros to all described elements of dst, then convert each one.

    `reorder.values.convert` defines the conversion of an element.

    Parameters
    ----------
    src_desc, dst_desc : MemoryDesc
        With the same dims.
    src, dst : buffer
        As for `execute`.
    attr : Attr, optional
        Scales, zero points, accumulation.

    Raises
    ------
    MemdescError
        If no such reorder is possible, or a buffer does not fit; nothing is written then.

    Examples
    --------
    >>> src, dst = (memdesc.memory_desc((2, 3), "s8", tag) for tag in ("ab", "ba"))
    >>> moved = np.empty(6, np.int8)
    >>> reorder.reference.execute_reference(src, dst, np.arange(6, dtype=np.int8), moved)
    >>> moved
    array([0, 3, 1, 4, 2, 5], dtype=int8)
    """
    src_desc, dst_desc = check_types(src_desc, dst_desc, attr)
    check_pair(src_desc, dst_desc)
    bound = bind(attr, src_desc, dst_desc)
    data = BufferCheck(dst_desc, "dst", write=True)(dst)
    values = bits_of(BufferCheck(src_desc, "src", write=False)(src), src_desc)
    out = bits_of(data, dst_desc)
    at = dst_desc.layout.offsets()
    moved = convert(
        values[src_desc.layout.offsets()],
        src_desc.dtype,
        dst_desc.dtype,
        bound,
        out[at] if bound.beta else None,
    )
    out[dst_desc.layout.offsets(padded=True)] = 0
    out[at] = moved
    write_back(out, data, dst_desc)
    compensate(data, dst_desc)
