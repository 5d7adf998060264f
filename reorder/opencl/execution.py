"""Transfers between operands: prepared once, and enqueued.

Each context caches its prepared reorders by everything that plans and kernels depend on: the
device, the descriptors, the attributes, and whether vectors may start where the memories do.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyopencl as cl
import pyopencl.array
from pyopencl.tools import first_arg_dependent_memoize

from memdesc.tuples import NamedTuple
from reorder.opencl.allocation import allocate_buffer
from reorder.opencl.kernel.launch import MAX_LOCAL, DeviceTraits
from reorder.opencl.kernel.transfers import Transfer, plan_transfers
from reorder.opencl.operands import DeviceOperand, check_operands
from reorder.opencl.programs import PreparedLaunch, constant_buffer, floats_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reorder.values.attr import Attr


# the most prepared reorders that a context keeps
_MAX_KEYS = 512


class PreparedTransfer(NamedTuple):
    """A transfer with the prepared launches of its stages."""

    transfer: Transfer
    stages: tuple[tuple[PreparedLaunch, ...], ...]

    @property
    def launch(self) -> PreparedLaunch | None:
        """The only launch, if there is one."""
        is_single = len(self.stages) == 1 and len(self.stages[0]) == 1
        return self.stages[0][0] if is_single else None


Prepared = tuple[PreparedTransfer, ...]


def prepare_transfers(
    queue: cl.CommandQueue, src: DeviceOperand, dst: DeviceOperand, attr: Attr | None = None
) -> Prepared:
    """Check two operands against each other, plan their transfers and build the kernels.

    Only arrays of scales and zero points are allocated. Operands in other memory have the same
    transfers if the descriptors and images are equal, and the alignment.
    """
    check_operands(src, dst, attr)
    is_aligned = src.is_aligned and dst.is_aligned
    key = queue.device, src.spec, dst.spec, is_aligned, attr
    known = _known_in(queue.context)
    prepared = known.get(key)
    if prepared is not None:
        return prepared
    traits = device_traits(queue.device)
    transfers = plan_transfers(src.spec, dst.spec, traits, attr, is_aligned=is_aligned)
    prepared = build_transfers(queue.context, queue.device, transfers)
    if attr is None or not attr.is_large:
        if len(known) >= _MAX_KEYS:
            known.clear()
        known[key] = prepared
    return prepared


def build_transfers(
    context: cl.Context, device: cl.Device, transfers: Sequence[Transfer]
) -> tuple[PreparedTransfer, ...]:
    """Build the kernels of planned transfers for a device."""
    prepared = []
    for transfer in transfers:
        varying = [constant_buffer(context, values) for values in transfer.buffers]
        stages = (
            tuple(PreparedLaunch((context, device), launch, varying) for launch in stage)
            for stage in transfer.stages
        )
        prepared.append(PreparedTransfer(transfer, tuple(stages)))
    return tuple(prepared)


@first_arg_dependent_memoize
def _known_in(context: cl.Context) -> dict[Any, Prepared]:  # noqa: ARG001 - one for each
    return {}


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
    # all buffers are allocated before the first transfer starts; the runtime keeps them until
    # the kernels that use them have finished
    between = [
        allocate_buffer(queue.context, transfer.dst.desc.nbytes) for transfer, _ in transfers[:-1]
    ]
    waiting = None if wait_for is None else list(wait_for)
    events: list[cl.Event] = []
    commands = [] if commands is None else commands
    operands = pairwise([memory[0], *between, memory[1]])
    for (transfer, stages), pair in zip(transfers, operands, strict=True):
        for stage in stages:
            events = waiting = [launch.enqueue(queue, pair, waiting) for launch in stage]
            commands += events
        if transfer.region is not None:
            events = waiting = [_copy_pixels(queue, pair, transfer.region, waiting)]
            commands += events
    return events[0] if len(events) == 1 else cl.enqueue_marker(queue, wait_for=waiting)


@cache
def device_traits(device: cl.Device) -> DeviceTraits:
    """Return what plans depend on."""
    max_local = min(device.local_mem_size, MAX_LOCAL)
    return DeviceTraits(device.max_work_group_size, floats_of(device), max_local=max_local)


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
