"""Transfers between operands: prepared once, and enqueued; the texts of their kernels.

Each context caches its prepared reorders by everything that plans and kernels depend on.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from itertools import pairwise
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
from pyopencl.tools import first_arg_dependent_memoize

from memdesc import ImageDesc, MemdescError, MemoryDesc
from memdesc.errors import short_repr
from reorder.opencl.binaries import build
from reorder.opencl.kernel.access import Mode
from reorder.opencl.kernel.formula import TRIED, Floats, conversion_trial
from reorder.opencl.kernel.launch import (
    KERNEL,
    MAX_LOCAL,
    DeviceTraits,
    Launch,
    Pattern,
    kernel_source,
)
from reorder.opencl.kernel.transfers import OperandSpec, Transfer, plan_transfers
from reorder.opencl.memory_objects import (
    allocate_buffer,
    channel_type_of,
    image_format,
    is_released_error,
    released_error,
)
from reorder.opencl.operands import DeviceOperand, check_desc, check_operands
from reorder.opencl.runtimes import check_process, try_program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from reorder.values.attr import Attr

# the most prepared reorders that a context keeps
_MAX_KEYS = 512
# limits that nearly all devices meet
_COMMON = DeviceTraits(max_work_items=256, max_local=32 << 10)
_OUT_OF_ORDER = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
# pyopencl's type stubs lack the parameter offset
_copy: Any = cl.enqueue_copy


class PreparedLaunch:
    """A launch with its program, its constant arguments, and kernels that are not in use.

    No call waits for another one: if all kernels are in use, it gets a new one. Each `idle` kernel
    comes with the allocations of src and dst that are set in it, which are 0 if they are not known.
    `sizes` are the work items in total and per group. A kernel that `reads` takes src.
    """

    __slots__ = ("_buffers", "_kernels", "_numbers", "_program", "idle", "reads", "sizes")

    def __init__(
        self,
        place: tuple[cl.Context, cl.Device],
        launch: Launch,
        varying: Sequence[cl.Buffer],
    ) -> None:
        pattern = launch.pattern
        items = pattern.work_items
        tables = [constant_buffer(place[0], table) for table in launch.tables]
        with _building:
            self._program = _program(*place, pattern)
        # a kernel that writes zeros takes dst, but no src and no scales
        self.reads = pattern.src.mode != Mode.NONE
        self._buffers = [*(varying if self.reads else ()), *tables]
        self._numbers = np.array(launch.params, pattern.index_type)
        self.sizes = (launch.groups[0] * items, *launch.groups[1:]), (items, 1, 1)
        # raises where the program cannot make a kernel
        self.idle: list[tuple[cl.Kernel, int, int]] = [(self.new(), 0, 0)]
        # by whether src and dst are SVM: on an H200, kernels with buffers refuse SVM, and then
        # buffers too
        self._kernels = {(False, False): self.idle}

    def new(self) -> cl.Kernel:
        """Return a new kernel with all arguments but src and dst."""
        kernel = cl.Kernel(self._program, KERNEL)
        first = 1 + self.reads
        for k, buffer in enumerate(self._buffers, first):
            kernel.set_arg(k, buffer)
        # `set_arg` calls this for bytes, but tries other types first, which takes 7 to 17 us
        _set_numbers(kernel, first + len(self._buffers), self._numbers)
        return kernel

    def enqueue(
        self, queue: cl.CommandQueue, memory: tuple[Any, Any], wait_for: Sequence[cl.Event] | None
    ) -> cl.Event:
        """Enqueue the launch from one memory to another; the runtime may refuse SVM."""
        shared = isinstance(memory[0], cl.SVMPointer), isinstance(memory[1], cl.SVMPointer)
        idle = self._kernels.setdefault(shared, [])
        try:
            kernel, *_ = idle.pop()
        except IndexError:
            kernel = self.new()
        try:
            for k, of in enumerate(memory[not self.reads :]):
                kernel.set_arg(k, of)
            # by position: pyopencl takes longer for names
            return _enqueue(queue, kernel, *self.sizes, None, wait_for)
        except cl.LogicError as error:
            if is_released_error(error):
                raise released_error(memory[0], "x or out") from None
            if error.code != cl.status_code.INVALID_KERNEL_ARGS or not any(shared):
                raise
            raise MemdescError(
                f"kernels on device {queue.device.name.strip()!r} do not take shared virtual "
                "memory: its runtime says INVALID_KERNEL_ARGS; use a Buffer"
            ) from None
        finally:
            idle.append((kernel, 0, 0))


_enqueue: Callable[..., cl.Event] = cl.enqueue_nd_range_kernel
_set_numbers: Callable[..., None] = getattr(cl.Kernel, "_set_arg_buf", cl.Kernel.set_arg)
# makes a device round quotients of f32 correctly if it can
_DIVISION = ("-cl-fp32-correctly-rounded-divide-sqrt",)
# warning filters belong to the process; a finalizer may build a kernel while its thread builds
# another
_building = RLock()


def constant_buffer(context: cl.Context, values: NDArray[Any]) -> cl.Buffer:
    """Return a buffer of numbers; the runtime keeps it until no kernel uses it any more."""
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    return cl.Buffer(context, flags, hostbuf=values)


@first_arg_dependent_memoize
def _program(context: cl.Context, device: cl.Device, pattern: Pattern) -> cl.Program:
    """Return the program of a pattern on a device; raises as `build`."""
    divides = pattern.conversion is not None and floats_of(device).divides
    return build((context, device), kernel_source(pattern), _DIVISION if divides else ())


def floats_of(device: cl.Device) -> Floats:
    """Return the arithmetic of a device."""
    single, config = device.single_fp_config, cl.device_fp_config
    exact = config.DENORM | config.INF_NAN | config.ROUND_TO_NEAREST
    return Floats(
        has_f64=bool(device.double_fp_config),
        rounds=bool(single & config.ROUND_TO_NEAREST),
        is_exact=single & exact == exact,
        divides=bool(single & config.CORRECTLY_ROUNDED_DIVIDE_SQRT),
    )


# transfers, each with its prepared launches
Prepared = tuple[tuple[Transfer, tuple[PreparedLaunch, ...]], ...]


def prepare_transfers(
    queue: cl.CommandQueue, src: DeviceOperand, dst: DeviceOperand, attr: Attr | None = None
) -> Prepared:
    """Check operands against each other, plan their transfers and build the kernels."""
    check_operands(src, dst, attr)
    is_aligned = src.is_aligned and dst.is_aligned
    key = queue.device, src.spec, dst.spec, is_aligned, attr
    known = _known_in(queue.context)
    prepared = known.get(key)
    if prepared is None:
        traits = device_traits(queue.context, queue.device)
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
        launches = (PreparedLaunch((context, device), of, varying) for of in transfer.launches)
        prepared.append((transfer, tuple(launches)))
    return tuple(prepared)


@first_arg_dependent_memoize
def _known_in(context: cl.Context) -> dict[Any, Prepared]:  # noqa: ARG001 - one for each
    return {}


def enqueue_transfers(
    queue: cl.CommandQueue,
    transfers: Prepared,
    memory: tuple[Any, Any],
    wait_for: Sequence[cl.Event] | None,
    commands: list[cl.Event] | None = None,
) -> cl.Event:
    """Enqueue transfers from the first memory to the second; `commands` gets their events."""
    # all buffers are allocated before the first transfer starts; the runtime keeps them until
    # the kernels that use them have finished
    between = [
        allocate_buffer(queue.context, transfer.dst.desc.nbytes) for transfer, _ in transfers[:-1]
    ]
    waiting = None if wait_for is None else list(wait_for)
    commands = [] if commands is None else commands
    operands = pairwise([memory[0], *between, memory[1]])
    # commands of other queues run in order, and waiting for an event takes an H200 microseconds
    must_wait = bool(queue.properties & _OUT_OF_ORDER)
    for (transfer, launches), (src, dst) in zip(transfers, operands, strict=True):
        for launch in launches:
            commands.append(launch.enqueue(queue, (src, dst), waiting))
            waiting = commands[-1:] if must_wait else None
        if transfer.region is not None:
            at: Any = {"offset": 0, "origin": (0, 0, 0), "region": transfer.region}
            commands.append(_copy(queue, dst, src, wait_for=waiting, **at))
            waiting = commands[-1:] if must_wait else None
    return commands[-1] if commands else cl.enqueue_marker(queue, wait_for=waiting)


@first_arg_dependent_memoize
def device_traits(context: cl.Context, device: cl.Device) -> DeviceTraits:
    """Return what plans depend on."""
    floats = floats_of(device)
    if not device.type & cl.device_type.CPU:  # where integers are faster
        with _building, suppress(MemdescError, cl.Error):
            differs = try_program((context, device), conversion_trial(), TRIED)
            floats = floats._replace(has_conversions=not differs.any())
    max_local = min(device.local_mem_size, MAX_LOCAL)
    return DeviceTraits(device.max_work_group_size, floats, max_local=max_local)


@cache
def _context_of(device: cl.Device) -> cl.Context:
    """Return the context in which a device is tried, since contexts are never released."""
    return cl.Context([device])


def kernel_texts(
    src: MemoryDesc | ImageDesc,
    dst: MemoryDesc | ImageDesc,
    attr: Attr | None = None,
    *,
    device: cl.Device | None = None,
) -> tuple[str, ...]:
    """Return the OpenCL C of each kernel that a reorder runs, in the order of its launches.

    A kernel takes src, dst, the scales and zero points that differ along the dims, indirection
    tables, and a struct with extents, strides and offsets. The texts of tiles contain extents too.

    Parameters
    ----------
    src, dst : MemoryDesc or ImageDesc
        With the same dims. Images have the default channel type of their data type.
    attr : Attr, optional
        Scales, zero points, accumulation.
    device : pyopencl.Device, optional
        The device to generate kernels for; its largest work-group, its local memory and its
        arithmetic matter. By default a device with work-groups of 256 work items, 32 KiB of local
        memory, f64, and IEEE 754 arithmetic.

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
    src_spec, dst_spec = _spec(src, "src"), _spec(dst, "dst")
    check_operands(DeviceOperand(src_spec), DeviceOperand(dst_spec), attr)
    traits = _COMMON if device is None else device_traits(_context_of(device), device)
    transfers = plan_transfers(src_spec, dst_spec, traits, attr)
    patterns = [launch.pattern for transfer in transfers for launch in transfer.launches]
    return tuple(dict.fromkeys(map(kernel_source, patterns)))


def _spec(desc: MemoryDesc | ImageDesc, name: str) -> OperandSpec:
    check_desc(desc, name)
    if isinstance(desc, ImageDesc):
        return OperandSpec.of(desc, channel_type_of(desc, image_format(desc), name))
    return OperandSpec(desc)
