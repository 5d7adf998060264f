"""Transfers between operands: prepared once, and enqueued; the texts of their kernels.

Each context caches its prepared reorders by everything that plans and kernels depend on: the
device, the descriptors, the attributes, and whether vectors may start where the memories do.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyopencl as cl
from pyopencl.tools import first_arg_dependent_memoize

from memdesc import ImageDesc, MemdescError, MemoryDesc
from memdesc.errors import short_repr
from memdesc.tuples import NamedTuple
from reorder.opencl.kernel.launch import MAX_LOCAL, DeviceTraits, kernel_source
from reorder.opencl.kernel.transfers import OperandSpec, Transfer, plan_transfers
from reorder.opencl.memory_objects import allocate_buffer, channel_type_of, image_format
from reorder.opencl.operands import DeviceOperand, check_desc, check_operands
from reorder.opencl.programs import PreparedLaunch, constant_buffer, floats_of
from reorder.opencl.runtimes import check_process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reorder.values.attr import Attr

# the most prepared reorders that a context keeps
_MAX_KEYS = 512
# limits that nearly all devices meet
_COMMON = DeviceTraits(max_work_items=256, max_local=32 << 10)
# pyopencl's type stubs lack the parameter offset
_copy: Any = cl.enqueue_copy


class PreparedTransfer(NamedTuple):
    """A transfer with the prepared launches of its stages."""

    transfer: Transfer
    stages: tuple[tuple[PreparedLaunch, ...], ...]


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
    if prepared is None:
        traits = device_traits(queue.device)
        traits = traits if is_aligned else traits.unaligned
        transfers = plan_transfers(src.spec, dst.spec, traits, attr)
        prepared = build_transfers(queue.context, queue.device, transfers)
        if attr is None or not attr.is_large:
            if len(known) >= _MAX_KEYS:
                known.clear()
            known[key] = prepared
    return prepared


def build_transfers(
    context: cl.Context, device: cl.Device, transfers: Sequence[Transfer]
) -> Prepared:
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
    for (transfer, stages), (src, dst) in zip(transfers, operands, strict=True):
        for stage in stages:
            events = waiting = [launch.enqueue(queue, (src, dst), waiting) for launch in stage]
            commands += events
        if transfer.region is not None:
            at: Any = {"offset": 0, "origin": (0, 0, 0), "region": transfer.region}
            events = waiting = [_copy(queue, dst, src, wait_for=waiting, **at)]
            commands += events
    return events[0] if len(events) == 1 else cl.enqueue_marker(queue, wait_for=waiting)


@cache
def device_traits(device: cl.Device) -> DeviceTraits:
    """Return what plans depend on."""
    max_local = min(device.local_mem_size, MAX_LOCAL)
    return DeviceTraits(device.max_work_group_size, floats_of(device), max_local=max_local)


def kernel_texts(
    src: MemoryDesc | ImageDesc,
    dst: MemoryDesc | ImageDesc,
    attr: Attr | None = None,
    *,
    device: cl.Device | None = None,
) -> tuple[str, ...]:
    """Return the OpenCL C of each kernel that a reorder runs, in the order of its launches.

    A kernel takes src, dst, the scales and zero points that differ along the dims, indirection
    tables, and a struct with extents, strides and offsets. The texts of tiles of pixels contain
    extents too.

    Parameters
    ----------
    src, dst : MemoryDesc or ImageDesc
        With the same dims. Images have the default channel type of their data type.
    attr : Attr, optional
        Scales, zero points, accumulation.
    device : pyopencl.Device, optional
        The device to generate kernels for; its largest work-group and its arithmetic matter. By
        default a device with work-groups of 256 work items, f64, and IEEE 754 arithmetic.

    Returns
    -------
    tuple of str
        Texts of programs, each with one kernel named ``reorder``. Empty if nothing is moved, or if
        the runtime copies the pixels.

    Raises
    ------
    MemdescError
        If no such reorder is possible on a device.

    Notes
    -----
    *Law*: these texts are what `enqueue_reorder` builds for that device.

    Examples
    --------
    >>> src = memdesc.memory_desc((3, 2), "s8", "ab")
    >>> (text,) = opencl.kernel_texts(src, memdesc.memory_desc((3, 2), "s8", "ba"))
    >>> print(text[text.index("void") : text.index("{", text.index("void"))])
    void reorder(__global const uchar *restrict src, __global uchar *restrict dst, const params_t p)
    <BLANKLINE>
    """
    if device is not None:
        if not isinstance(device, cl.Device):
            raise MemdescError(f"device must be a pyopencl.Device, not {short_repr(device)}")
        check_process()
    one, other = _spec(src, "src"), _spec(dst, "dst")
    check_operands(DeviceOperand(one), DeviceOperand(other), attr)
    traits = _COMMON if device is None else device_traits(device)
    transfers = plan_transfers(one, other, traits, attr)
    patterns = [launch.pattern for transfer in transfers for launch in transfer.launches]
    return tuple(dict.fromkeys(map(kernel_source, patterns)))


def _spec(desc: MemoryDesc | ImageDesc, name: str) -> OperandSpec:
    check_desc(desc, name)
    if isinstance(desc, ImageDesc):
        return OperandSpec.of(desc, channel_type_of(desc, image_format(desc), name))
    return OperandSpec(desc)
