"""Reorders between whole buffers that were enqueued before: found at once, without planning.

What is found passes all checks of `reorder.opencl.operands` and `reorder.opencl.pairs`: the
descriptors did before, and of the memory all that can differ is asked again. Where anything is
not as it should be nothing is found, and these checks say what it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyopencl as cl
from pyopencl.tools import first_arg_dependent_memoize

from reorder.opencl.allocation import AllocatedBuffer

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from reorder.opencl.execution import PreparedTransfer
    from reorder.opencl.operands import DeviceOperand
    from reorder.values.attr import Attr

__all__ = ["KnownReorder", "find_known", "keep_known"]

# reorders that are kept for a context
_KEPT = 512
_BUFFERS = frozenset({cl.Buffer, AllocatedBuffer})
# kernels may not read or not write such buffers, or memory of the host may start anywhere
_HOST = cl.mem_flags.USE_HOST_PTR
_NO_SRC, _NO_DST = _HOST | cl.mem_flags.WRITE_ONLY, _HOST | cl.mem_flags.READ_ONLY


class KnownReorder(NamedTuple):
    """Prepared transfers, and the bytes that src and dst must have."""

    transfers: tuple[PreparedTransfer, ...]
    src_nbytes: int
    dst_nbytes: int


@first_arg_dependent_memoize
def _known_in(context: cl.Context) -> dict[Any, KnownReorder]:  # noqa: ARG001 - one for each
    return {}


def find_known(
    queue: cl.CommandQueue,
    memory: tuple[Any, Any],
    descs: tuple[Any, Any],
    attr: Attr | None,
) -> tuple[PreparedTransfer, ...] | None:
    """Return the transfers of a known reorder from one memory to another, where all is well."""
    src, dst = memory
    if type(src) not in _BUFFERS or type(dst) not in _BUFFERS:
        return None
    try:
        context = queue.context
        known = _known_in(context).get((queue.device, *descs, attr))
        if known is None or src.int_ptr == dst.int_ptr:
            return None
        pointer = context.int_ptr
        # beta reads dst
        no_dst = _NO_DST if attr is None or not attr.beta else _NO_DST | cl.mem_flags.WRITE_ONLY
        is_usable = _is_usable(src, pointer, _NO_SRC, known.src_nbytes) and _is_usable(
            dst, pointer, no_dst, known.dst_nbytes
        )
    except (cl.Error, TypeError):
        return None
    return known.transfers if is_usable else None


def _is_usable(memory: Any, context: int, refused: int, nbytes: int) -> bool:
    """Whether a buffer is a whole one of a context, with these bytes at least."""
    return (
        # first: some runtimes crash when they are asked about released memory
        not getattr(memory, "is_released", False)
        and memory.context.int_ptr == context
        and not memory.flags & refused
        and memory.size >= nbytes
        and memory.associated_memobject is None
    )


def keep_known(
    queue: cl.CommandQueue,
    operands: tuple[DeviceOperand, DeviceOperand],
    descs: tuple[MemoryDesc, MemoryDesc],
    attr: Attr | None,
    transfers: tuple[PreparedTransfer, ...],
) -> None:
    """Keep the transfers of a reorder that passed all checks, if they suit any two buffers."""
    is_large = attr is not None and attr.is_large
    if is_large or not all(
        type(operand.memory) in _BUFFERS and operand.is_aligned for operand in operands
    ):
        return
    known = _known_in(queue.context)
    if len(known) >= _KEPT:
        known.clear()
    src, dst = descs
    reorder = KnownReorder(transfers, src.min_nbytes, dst.min_nbytes)
    known[queue.device, src, dst, attr] = reorder
