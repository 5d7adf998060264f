"""Calls that were made before, found by what a call says: one look-up, then one launch.

This is for devices what `reorder.calls` is for the CPU. A call says its named arguments and, of
each memory, what kernels depend on. The long way checks everything, raises all errors, and then
leaves here what it has found; a call that fits nothing goes the long way.

What a runtime says about a Buffer or an Image never changes, so each is asked once, and the object
carries the answers. A query of the size shows whether it was released since. Objects in a key stand
for themselves, by `id`: what is found keeps descriptors and attributes alive, but no memory.
"""

from __future__ import annotations

from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pyopencl.array

from memdesc.tuples import NamedTuple
from reorder.opencl.device_memory import DeviceMemory
from reorder.opencl.memory_objects import ALLOCATED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from memdesc import ImageDesc, MemoryDesc
    from reorder.opencl.execution import Prepared

    # the memory that kernels get, its allocation, what a key has of it, the events it carries
    Side = tuple[Any, int, tuple[Any, ...], Sequence[cl.Event]]

# the most calls that a queue knows; then it forgets all
MAX_CALLS = 512
# Host arrays of at most this many bytes become buffers with their content, without a queue: a
# reorder of 16 KiB takes 45 us instead of 255 on a CPU. 512 MB take 7 times as long this way on an
# H200.
SMALL = 1 << 16
# the allocation of memory that a call makes; no memory object has this pointer
UNKNOWN = 0
_NO_EVENTS: tuple[cl.Event, ...] = ()


class _Queue(NamedTuple):
    """What a queue carries: its context, which Intel's queues do not keep, and known calls."""

    context: cl.Context
    pointer: int
    calls: dict[Any, KnownCall]


class _Facts(NamedTuple):
    """What a Buffer or an Image carries: its context and allocation, its size, what keys have."""

    context: int
    allocation: int
    nbytes: int
    compared: tuple[Any, ...]


class KnownCall:
    """What runs equal calls, and what is allocated for their results.

    `owners` are what the ids in its key belong to.
    """

    __slots__ = ("desc", "form", "launch", "owners", "transfers")

    def __init__(
        self,
        transfers: Prepared,
        desc: MemoryDesc | ImageDesc,
        form: cl.ImageFormat | None,
        owners: tuple[object, ...],
    ) -> None:
        self.transfers, self.desc, self.form, self.owners = transfers, desc, form, owners
        launches = [launch for _, stages in transfers for stage in stages for launch in stage]
        is_single = len(launches) == len(transfers) == 1 and launches[0].reads
        # it is enqueued without further calls
        self.launch = launches[0] if is_single else None


def note_call(
    queue: cl.CommandQueue, operands: tuple[Any, Any], names: tuple[object, ...], known: KnownCall
) -> None:
    """Keep what a call has run, which was given x and `out`, and these `names`."""
    is_large = any(getattr(owner, "is_large", False) for owner in known.owners)
    if is_large or type(queue) is not cl.CommandQueue:
        return
    carrier: Any = queue
    # objects of older versions of pyopencl carry nothing
    with suppress(AttributeError, LookupError, TypeError, cl.Error):
        if not hasattr(carrier, "memdesc_known"):
            context = queue.context
            carrier.memdesc_known = _Queue(context, context.int_ptr, {})
        held: _Queue = carrier.memdesc_known
        says = tuple(SIDES[type(of)](of, queue, held)[2] for of in operands)
        known.owners += tuple(of.desc for of in operands if type(of) is DeviceMemory)
        if len(held.calls) >= MAX_CALLS:
            held.calls.clear()
        held.calls[(names, *says)] = known


def _facts_of(memory: Any) -> _Facts:
    """Ask what never changes; parts of buffers and memory of the host are always checked."""
    flags, nbytes = memory.flags, memory.size
    if memory.associated_memobject is not None or flags & cl.mem_flags.USE_HOST_PTR:
        raise LookupError
    compared: tuple[Any, ...] = flags, nbytes
    if isinstance(memory, cl.Image):
        form, size = memory.format, (memory.width, memory.height)
        compared += (memory.type, form.channel_order, form.channel_data_type, *size)
    facts = _Facts(memory.context.int_ptr, memory.int_ptr, nbytes, compared)
    memory.memdesc_facts = facts
    return facts


def _plain(memory: Any, queue: Any, held: _Queue) -> Side:  # noqa: ARG001 - as the others
    """Return a Buffer or an Image; its size shows whether a caller released it."""
    try:
        facts: _Facts = memory.memdesc_facts
    except AttributeError:
        facts = _facts_of(memory)
    if memory.size != facts.nbytes or facts.context != held.pointer:
        raise LookupError
    return memory, facts.allocation, facts.compared, _NO_EVENTS


def _allocated(memory: Any, queue: Any, held: _Queue) -> Side:  # noqa: ARG001 - as the others
    """Return memory that this library allocated; nothing is asked of it if it was released."""
    if memory.is_released:
        raise LookupError
    try:
        facts: _Facts = memory.memdesc_facts
    except AttributeError:
        facts = _facts_of(memory)
    if facts.context != held.pointer:
        raise LookupError
    return memory, facts.allocation, facts.compared, _NO_EVENTS


def _array(array: cl.array.Array, queue: Any, held: _Queue) -> Side:
    """Return the memory of an array; all else that it says may have changed."""
    memory = array.base_data
    # an array without elements has no memory
    if memory is None or array.queue is not queue:
        raise LookupError
    data, allocation, compared, _ = SIDES[type(memory)](memory, queue, held)
    says = compared, array.dtype, array.offset, array.strides, array.shape
    event: Any
    for event in array.events:
        # PoCL would wait for an event of another context for ever
        if event.context.int_ptr != held.pointer:
            raise LookupError
    return data, allocation, says, array.events


def _device_memory(memory: DeviceMemory, queue: Any, held: _Queue) -> Side:
    """Return the memory of a DeviceMemory, and the event that fills it."""
    data, allocation, says, events = SIDES[type(memory.data)](memory.data, queue, held)
    if memory.queue is not queue or events is not _NO_EVENTS:
        raise LookupError
    says = id(memory.desc), says
    event: Any = memory.event
    if event is None:
        return data, allocation, says, _NO_EVENTS
    if event is not memory.known_event:
        # as above
        if event.context.int_ptr != held.pointer:
            raise LookupError
        memory.known_event = event
    return data, allocation, says, (event,)


def _host(array: NDArray[Any], queue: Any, held: _Queue) -> Side:  # noqa: ARG001 - as the others
    """Return a small array whose bytes go into a buffer as they are."""
    dtype = array.dtype
    is_moved = dtype.kind in "fiu" and dtype.isnative and array.flags.c_contiguous
    if not is_moved or not 0 < array.nbytes <= SMALL:
        raise LookupError
    return None, UNKNOWN, (array.shape, dtype), _NO_EVENTS


def _new(out: None, queue: Any, held: _Queue) -> Side:  # noqa: ARG001 - as the others
    """Return a result that is allocated."""
    return None, UNKNOWN, (), _NO_EVENTS


SIDES: Mapping[type, Callable[[Any, Any, _Queue], Side]] = MappingProxyType(
    {
        cl.Buffer: _plain,
        cl.Image: _plain,
        **dict.fromkeys(ALLOCATED, _allocated),
        cl.array.Array: _array,
        DeviceMemory: _device_memory,
        np.ndarray: _host,
        type(None): _new,
    }
)
