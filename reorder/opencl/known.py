"""Transfers between memories that callers pass, found at once where the reorder is known.

All that checks, plans and kernels depend on is in the key of what is kept: the device, the
descriptors, the attributes, and the facts of both memories. These are asked again in each call, but
for memory that this library allocated, which never changes until it is released, and records that.
What differs between memories with equal facts, no check depends on. Where facts cannot be asked,
nothing is found, and the checks say why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyopencl as cl
import pyopencl.array
from pyopencl.tools import first_arg_dependent_memoize

from memdesc import MemdescError
from reorder.opencl.addresses import ON_HOST, place_of
from reorder.opencl.allocation import AllocatedBuffer, AllocatedImage
from reorder.opencl.execution import prepare_transfers
from reorder.opencl.operands import VECTOR_NBYTES, Unallocated, device_operand
from reorder.opencl.pairs import shared_distance

if TYPE_CHECKING:
    from collections.abc import Callable

    from memdesc import ImageDesc, MemoryDesc
    from reorder.opencl.execution import PreparedTransfer
    from reorder.values.attr import Attr

    Descs = tuple[MemoryDesc | ImageDesc, MemoryDesc | ImageDesc]
    Found = tuple[PreparedTransfer, ...]
    # All that a reorder depends on in a memory, beside its descriptor: what kernels get, where it
    # lies (None: not allocated yet), its bytes, and what is compared. A NamedTuple takes longer.
    Facts = tuple[Any, tuple[int, int] | None, int, tuple[Any, ...]]

__all__ = ["find_known", "transfers_between"]

# reorders that are kept for a context
_KEPT = 512


def transfers_between(
    queue: cl.CommandQueue, memory: tuple[Any, Any], descs: Descs, attr: Attr | None
) -> tuple[Found, tuple[Any, Any]]:
    """Check two memories; return the transfers between them, and the memory that kernels get.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where they will run.
    memory : tuple
        src and dst, as callers pass them, or `Unallocated`.
    descs : tuple of MemoryDesc or ImageDesc
        What they hold.
    attr : Attr or None
        Scales, zero points, accumulation.

    Raises
    ------
    MemdescError
        If they do not fit each other, their descriptors or the device.
    """
    found, kernel_memory, key = find_known(queue, memory, descs, attr)
    if found is not None:
        return found, kernel_memory
    operands = (
        device_operand(queue, memory[0], descs[0], "src"),
        device_operand(queue, memory[1], descs[1], "dst"),
    )
    found = prepare_transfers(queue, *operands, attr)
    if key is not None and not (attr is not None and attr.is_large):
        known = _known_in(queue.context)
        if len(known) >= _KEPT:
            known.clear()
        known[key] = found
    return found, (operands[0].memory, operands[1].memory)


def find_known(
    queue: cl.CommandQueue, memory: tuple[Any, Any], descs: Descs, attr: Attr | None
) -> tuple[Found | None, tuple[Any, Any], tuple[Any, ...] | None]:
    """Return the transfers of a known reorder, what kernels get, and the key to keep it by.

    Without a key there is something that no key can say, or that checks refuse.
    """
    try:
        context = queue.context
        pointer = context.int_ptr
        src, dst = memory
        src, src_place, src_nbytes, src_facts = _FACTS[type(src)](src, pointer)
        dst, dst_place, dst_nbytes, dst_facts = _FACTS[type(dst)](dst, pointer)
        distance = shared_distance(src_place, src_nbytes, dst_place, dst_nbytes)
        key = (queue.device, *descs, attr, src_facts, dst_facts, distance)
        return _known_in(context).get(key), (src, dst), key
    except (cl.Error, LookupError, MemdescError, TypeError):
        return None, memory, None


@first_arg_dependent_memoize
def _known_in(context: cl.Context) -> dict[Any, Found]:  # noqa: ARG001 - one for each
    return {}


def _allocated(memory: Any, context: int) -> Facts:
    """Return the facts of memory that this library allocated: they are asked once.

    Without the memory itself, which would keep itself alive.
    """
    # first: some runtimes crash when they are asked about released memory
    if memory.is_released:
        raise LookupError
    kept = memory.facts
    if kept is None:
        _, *facts = (_image if isinstance(memory, cl.Image) else _linear)(memory, context)
        kept = memory.facts = context, *facts
    if kept[0] != context:
        raise LookupError
    return memory, kept[1], kept[2], kept[3]


def _linear(memory: Any, context: int) -> Facts:
    """Return the facts of a buffer, or a part of one."""
    if memory.context.int_ptr != context:
        raise LookupError
    flags, nbytes = memory.flags, memory.size
    if memory.associated_memobject is None and not flags & cl.mem_flags.USE_HOST_PTR:
        return memory, (memory.int_ptr, 0), nbytes, (flags, nbytes, 0)
    place = place_of(memory)
    # whether vectors start there
    start = place[1] % VECTOR_NBYTES if place[0] == ON_HOST else 0
    return memory, place, nbytes, (flags, nbytes, start)


def _image(memory: Any, context: int) -> Facts:
    _, place, nbytes, others = _linear(memory, context)
    form = memory.format
    channels = form.channel_order, form.channel_data_type
    others = *others, memory.type, *channels, memory.width, memory.height
    return memory, place, nbytes, others


def _array(memory: Any, context: int) -> Facts:
    """Return the facts of an array: those of its memory, and which bytes of it are meant."""
    data, place, nbytes, others = _FACTS[type(memory.base_data)](memory.base_data, context)
    return data, place, nbytes, (*others, memory.offset, memory.strides, memory.shape)


def _unallocated(memory: Unallocated, context: int) -> Facts:  # noqa: ARG001 - of no context yet
    form = memory.form
    channels = () if form is None else (form.channel_order, form.channel_data_type)
    return memory, None, 0, channels


# By the type itself: a subclass may do something else. All checks run for shared virtual memory.
_FACTS: dict[type, Callable[[Any, int], Facts]] = {
    cl.Buffer: _linear,
    AllocatedBuffer: _allocated,
    cl.Image: _image,
    AllocatedImage: _allocated,
    cl.array.Array: _array,
    Unallocated: _unallocated,
}
