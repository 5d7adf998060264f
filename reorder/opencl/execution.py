"""Transfers between memories that callers pass: prepared once, then looked up in a cache.

Each context caches its prepared reorders. The key is everything that checks, plans and kernels
depend on: the device, the descriptors, the attributes, and the facts of both memories. No check
depends on anything outside these facts. Every call queries them, except for memory that this
library allocated, which does not change until its release is recorded. If a query fails, the cache
has no answer, and the checks say why.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pyopencl as cl
import pyopencl.array
from pyopencl.tools import first_arg_dependent_memoize

from reorder.opencl.allocation import AllocatedBuffer, AllocatedImage, allocate_buffer
from reorder.opencl.kernel.access import VECTOR
from reorder.opencl.kernel.launch import DeviceTraits
from reorder.opencl.kernel.transfers import Transfer, plan_transfers
from reorder.opencl.operands import (
    ON_HOST,
    DeviceOperand,
    Unallocated,
    check_desc,
    check_operands,
    device_operand,
    is_allocated_svm,
    place_of,
    shared_distance,
)
from reorder.opencl.programs import PreparedLaunch, floats_of, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from memdesc import ImageDesc, MemoryDesc
    from reorder.values.attr import Attr

    Descs = tuple[MemoryDesc | ImageDesc, MemoryDesc | ImageDesc]
    # What a reorder depends on besides the descriptors, for each memory: what kernels get, its
    # place (None: not allocated yet), its bytes, and what is compared. A NamedTuple is slower.
    Facts = tuple[Any, tuple[int, int] | None, int, tuple[Any, ...]]

# the most keys that a context keeps, about two for each prepared reorder
_MAX_KEYS = 1024
# the fields of an operand before this one do not depend on where its memory is
_MEMORY_FIELD = DeviceOperand._fields.index("memory")


class PreparedTransfer(NamedTuple):
    """A transfer with the kernels of its stages, and its scales and zero points on the device."""

    transfer: Transfer
    stages: tuple[tuple[PreparedLaunch, ...], ...]
    constants: tuple[cl.Buffer, ...] = ()


Prepared = tuple[PreparedTransfer, ...]


def transfers_between(
    queue: cl.CommandQueue,
    memory: tuple[Any, Any],
    descs: Descs,
    attr: Attr | None,
    names: tuple[str, str],
) -> tuple[Prepared, tuple[Any, Any]]:
    """Check two memories; return the transfers between them, and the memory that kernels get.

    `memory` is what callers pass to read and to write, under these names, or `Unallocated`. They
    must fit each other, their descriptors and the device.
    """
    found, kernel_memory, key = find_known(queue, memory, descs, attr)
    if found is not None:
        return found, kernel_memory
    for desc, side in zip(descs, ("src", "dst"), strict=True):
        check_desc(desc, side)
    operands = (
        device_operand(queue, memory[0], descs[0], names[0], "read"),
        device_operand(queue, memory[1], descs[1], names[1], "write"),
    )
    found = prepare_transfers(queue, *operands, attr)
    if key is not None:
        _keep(queue.context, key, attr, found)
    return found, (operands[0].memory, operands[1].memory)


def find_known(
    queue: cl.CommandQueue, memory: tuple[Any, Any], descs: Descs, attr: Attr | None
) -> tuple[Prepared | None, tuple[Any, Any], tuple[Any, ...] | None]:
    """Return the cached transfers of a reorder, the memory that kernels get, and the cache key.

    The key is None if something cannot be part of one, or if the checks would refuse it. The
    look-up takes no lock, so it does not wait for a thread that builds a kernel.
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
    except (cl.Error, LookupError, TypeError, ValueError):  # also if a key has no hash
        return None, memory, None


def prepare_transfers(
    queue: cl.CommandQueue, src: DeviceOperand, dst: DeviceOperand, attr: Attr | None = None
) -> Prepared:
    """Check two operands against each other, plan their transfers and build the kernels.

    Only arrays of scales and zero points are allocated. Operands in other memory may have the same
    transfers, so these are kept under a second key.
    """
    check_operands(src, dst, attr)
    key = (queue.device, src[:_MEMORY_FIELD], dst[:_MEMORY_FIELD], attr)
    found = _known_in(queue.context).get(key)
    if found is not None:
        return found
    transfers = plan_transfers(
        src.spec(dst),
        dst.spec(src),
        device_traits(queue.device),
        attr,
        is_aligned=src.is_aligned and dst.is_aligned,
    )
    found = build_transfers(queue.context, queue.device, transfers)
    _keep(queue.context, key, attr, found)
    return found


def _keep(context: cl.Context, key: tuple[Any, ...], attr: Attr | None, found: Prepared) -> None:
    """Keep the transfers of a reorder, unless its attributes are large."""
    if attr is not None and attr.is_large:
        return
    known = _known_in(context)
    if len(known) >= _MAX_KEYS:
        known.clear()
    known[key] = found


def build_transfers(
    context: cl.Context, device: cl.Device, transfers: Sequence[Transfer]
) -> tuple[PreparedTransfer, ...]:
    """Build the kernels of planned transfers for a device."""
    return tuple(
        PreparedTransfer(
            transfer,
            tuple(
                tuple(prepare(context, device, launch) for launch in stage)
                for stage in transfer.stages
            ),
            tuple(_constant(context, values) for values in transfer.buffers),
        )
        for transfer in transfers
    )


@first_arg_dependent_memoize
def _known_in(context: cl.Context) -> dict[Any, Prepared]:  # noqa: ARG001 - one for each
    return {}


def _allocated(memory: Any, context: int) -> Facts:
    """Return the facts of memory that this library allocated; they are queried once.

    They are kept without the memory itself, which would otherwise never be freed.
    """
    # checked first, since some runtimes crash when they are asked about released memory
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
    # tells whether vectors may start there
    start = place[1] % VECTOR if place[0] == ON_HOST else 0
    return memory, place, nbytes, (flags, nbytes, start)


def _image(memory: Any, context: int) -> Facts:
    _, place, nbytes, compared = _linear(memory, context)
    form = memory.format
    channels = form.channel_order, form.channel_data_type
    size = memory.width, memory.height
    return memory, place, nbytes, (*compared, memory.type, *channels, *size)


def _shared(memory: cl.SVMPointer, context: int) -> Facts:  # noqa: ARG001 - it belongs to none
    """Return the facts of shared virtual memory."""
    # 0 once it was released
    if not memory.svm_ptr:
        raise LookupError
    place, nbytes = place_of(memory), int(memory.size or 0)
    return memory, place, nbytes, (nbytes, place[1] % VECTOR, is_allocated_svm(memory))


def _array(memory: Any, context: int) -> Facts:
    """Return the facts of an array: those of its memory, and which bytes of it the array has."""
    data, place, nbytes, compared = _FACTS[type(memory.base_data)](memory.base_data, context)
    return data, place, nbytes, (*compared, memory.offset, memory.strides, memory.shape)


def _unallocated(memory: Unallocated, context: int) -> Facts:  # noqa: ARG001 - it has no context yet
    form = memory.form
    channels = () if form is None else (form.channel_order, form.channel_data_type)
    return memory, None, 0, channels


# By the type itself: a subclass may do something else.
_FACTS: dict[type, Callable[[Any, int], Facts]] = {
    cl.Buffer: _linear,
    AllocatedBuffer: _allocated,
    cl.Image: _image,
    AllocatedImage: _allocated,
    cl.SVM: _shared,
    cl.SVMAllocation: _shared,
    cl.array.Array: _array,
    Unallocated: _unallocated,
}


def enqueue_transfers(
    queue: cl.CommandQueue,
    transfers: Sequence[PreparedTransfer],
    memory: tuple[Any, Any],
    wait_for: Sequence[cl.Event] | None,
    commands: list[cl.Event] | None = None,
) -> cl.Event:
    """Enqueue prepared transfers from the first memory to the second.

    `commands` gets the event of each command that moves data. The event that is returned may belong
    to a marker, whose times say nothing.
    """
    if len(transfers) == 1:
        # the general case below costs several us, as much as such a kernel
        _, stages, constants = transfers[0]
        if len(stages) == 1 and len(stages[0]) == 1:
            event = stages[0][0].enqueue(queue, memory, wait_for, constants)
            if commands is not None:
                commands.append(event)
            return event
    # all buffers are allocated before the first transfer starts; the runtime keeps them until
    # the kernels that use them have finished
    between = [
        allocate_buffer(queue.context, transfer.dst.desc.nbytes) for transfer, *_ in transfers[:-1]
    ]
    waiting = None if wait_for is None else list(wait_for)
    events: list[cl.Event] = []
    commands = [] if commands is None else commands
    operands = pairwise([memory[0], *between, memory[1]])
    for (transfer, stages, constants), pair in zip(transfers, operands, strict=True):
        for stage in stages:
            events = waiting = [launch.enqueue(queue, pair, waiting, constants) for launch in stage]
            commands += events
        if transfer.region is not None:
            events = waiting = [_copy_pixels(queue, pair, transfer.region, waiting)]
            commands += events
    return events[0] if len(events) == 1 else cl.enqueue_marker(queue, wait_for=waiting)


def _constant(context: cl.Context, values: NDArray[Any]) -> cl.Buffer:
    """Return a buffer of numbers; the runtime keeps it until no kernel uses it any more."""
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    return cl.Buffer(context, flags, hostbuf=values)


@cache
def device_traits(device: cl.Device) -> DeviceTraits:
    """Return what plans depend on."""
    return DeviceTraits(device.max_work_group_size, floats_of(device))


def _copy_pixels(
    queue: cl.CommandQueue,
    memory: tuple[Any, Any],
    region: tuple[int, int, int],
    wait_for: Sequence[cl.Event] | None,
) -> cl.Event:
    """Copy pixels between an image and a linear buffer, without conversion."""
    copy: Any = cl.enqueue_copy  # pyopencl's type stubs lack the parameter offset
    src, dst = memory
    event: cl.Event = copy(
        queue, dst, src, offset=0, origin=(0, 0, 0), region=region, wait_for=wait_for
    )
    return event
