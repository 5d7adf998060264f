"""Prepare the transfers of a reorder between two operands, and enqueue them."""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pyopencl as cl
from pyopencl.tools import first_arg_dependent_memoize

from reorder.opencl.allocation import allocate_buffer
from reorder.opencl.kernel.launch import DeviceTraits
from reorder.opencl.kernel.transfers import Transfer, plan_transfers
from reorder.opencl.operands import DeviceOperand
from reorder.opencl.pairs import check_apart, check_kinds, check_old_values
from reorder.opencl.programs import PreparedLaunch, floats_of, prepare
from reorder.plan.plan import check_types

if TYPE_CHECKING:
    from collections.abc import Sequence
    from functools import _lru_cache_wrapper

    from numpy.typing import NDArray

    from reorder.values.attr import Attr

__all__ = [
    "PreparedTransfer",
    "build_transfers",
    "device_traits",
    "enqueue_transfers",
    "prepare_transfers",
]

# reorders of a context that are known: pairs of descriptors with attributes
_KEPT = 512
# fields of an operand before its memory, which plans do not depend on
_IN_MEMORY = DeviceOperand._fields.index("memory")


class PreparedTransfer(NamedTuple):
    """A transfer with the kernels of its launches."""

    transfer: Transfer
    launches: tuple[PreparedLaunch, ...]
    second: tuple[PreparedLaunch, ...] = ()
    # scales and zero points that differ along the dims
    constants: tuple[cl.Buffer, ...] = ()


def prepare_transfers(
    queue: cl.CommandQueue, src: DeviceOperand, dst: DeviceOperand, attr: Attr | None = None
) -> tuple[PreparedTransfer, ...]:
    """Check two operands against each other, plan their transfers and build the kernels.

    Only arrays of scales and zero points are allocated, and kept: an operand without memory is
    allocated later.
    """
    check_types(src.desc, dst.desc, attr)
    check_apart(src, dst)
    check_old_values(dst, attr)
    known = _prepared_in(queue.context)
    find = known.__wrapped__ if attr is not None and attr.is_large else known
    return find(queue.device, src[:_IN_MEMORY], dst[:_IN_MEMORY], attr)


def build_transfers(
    context: cl.Context, device: cl.Device, transfers: Sequence[Transfer]
) -> tuple[PreparedTransfer, ...]:
    """Build the kernels of planned transfers for a device."""
    return tuple(
        PreparedTransfer(
            transfer,
            tuple(prepare(context, device, launch) for launch in transfer.launches),
            tuple(prepare(context, device, launch) for launch in transfer.second),
            tuple(_constant(context, values) for values in transfer.buffers),
        )
        for transfer in transfers
    )


@first_arg_dependent_memoize
def _prepared_in(context: cl.Context) -> _lru_cache_wrapper[tuple[PreparedTransfer, ...]]:
    """Return what plans and builds in a context, and keeps what was asked for last.

    A known reorder takes no lock, so it does not wait where another thread builds a kernel.
    """

    @lru_cache(maxsize=_KEPT)
    def prepared(
        device: cl.Device, one: tuple[Any, ...], other: tuple[Any, ...], attr: Attr | None
    ) -> tuple[PreparedTransfer, ...]:
        src, dst = DeviceOperand(*one), DeviceOperand(*other)
        check_kinds(src, dst)
        transfers = plan_transfers(
            src.spec(dst),
            dst.spec(src),
            device_traits(device),
            attr,
            is_aligned=src.is_aligned and dst.is_aligned,
        )
        return build_transfers(context, device, transfers)

    return prepared


def enqueue_transfers(
    queue: cl.CommandQueue,
    transfers: Sequence[PreparedTransfer],
    memory: tuple[Any, Any],
    wait_for: Sequence[cl.Event] | None,
    commands: list[cl.Event] | None = None,
) -> cl.Event:
    """Enqueue prepared transfers from the first memory to the second.

    A list of `commands` gets the event of each one that moves data: the event that is returned may
    be that of a marker, whose times say nothing.
    """
    if len(transfers) == 1:
        # the loops below take several us where one kernel takes as long
        transfer, launches, second, constants = transfers[0]
        if len(launches) == 1 and not second:
            event = launches[0].enqueue(queue, memory, wait_for, constants)
            if commands is not None:
                commands.append(event)
            return event
    # all buffers are allocated before the first transfer starts; the runtime keeps them until
    # the kernels that use them are done
    between = [
        allocate_buffer(queue.context, transfer.dst.desc.nbytes) for transfer, *_ in transfers[:-1]
    ]
    waiting = None if wait_for is None else list(wait_for)
    events: list[cl.Event] = []
    commands = [] if commands is None else commands
    operands = pairwise([memory[0], *between, memory[1]])
    for (transfer, launches, second, constants), pair in zip(transfers, operands, strict=True):
        if transfer.region is not None:
            events = [_copy_pixels(queue, pair, transfer.region, waiting)]
            commands += events
            waiting = events
            continue
        for group in (launches, second):
            if group:
                events = [launch.enqueue(queue, pair, waiting, constants) for launch in group]
                commands += events
                waiting = events
    return events[0] if len(events) == 1 else cl.enqueue_marker(queue, wait_for=waiting)


def _constant(context: cl.Context, values: NDArray[Any]) -> cl.Buffer:
    """Return a buffer of numbers; the runtime keeps it until the kernels that use it are done."""
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    return cl.Buffer(context, flags, hostbuf=values)


@cache
def device_traits(device: cl.Device) -> DeviceTraits:
    """Return what plans depend on."""
    return DeviceTraits(device.max_work_group_size, floats_of(device))


def _copy_pixels(
    queue: cl.CommandQueue,
    memory: tuple[Any, Any],
    region: tuple[int, int],
    wait_for: Sequence[cl.Event] | None,
) -> cl.Event:
    """Copy pixels between an image and a linear buffer, without conversion."""
    copy: Any = cl.enqueue_copy  # pyopencl's type stubs lack the parameter offset
    src, dst = memory
    event: cl.Event = copy(
        queue, dst, src, offset=0, origin=(0, 0, 0), region=(*region, 1), wait_for=wait_for
    )
    return event
