"""Launches that are prepared: a program, its constant arguments, and kernels that have them."""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
from pyopencl.tools import first_arg_dependent_memoize

from memdesc import MemdescError
from reorder.opencl.binaries import build
from reorder.opencl.kernel.access import Mode
from reorder.opencl.kernel.formula import Floats
from reorder.opencl.kernel.launch import KERNEL, Launch, Pattern, kernel_source
from reorder.opencl.memory_objects import is_released_error, released_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


class PreparedLaunch:
    """A launch with its program, its constant arguments, and kernels that are not in use.

    No call waits for another one: if all kernels are in use, a thread, a finalizer or the handler
    of a signal gets a new one. Each that is `idle` is with the allocations of src and dst that it
    has, which are 0 if they are not known. `sizes` are the work items in total and per group.
    """

    __slots__ = ("_buffers", "_dst", "_numbers", "_program", "idle", "launch", "sizes")

    def __init__(
        self,
        place: tuple[cl.Context, cl.Device],
        launch: Launch,
        varying: Sequence[cl.Buffer],
    ) -> None:
        pattern = launch.pattern
        items = pattern.work_items
        tables = [constant_buffer(place[0], table) for table in launch.tables]
        self.launch = launch
        with _building:
            self._program = _program(*place, pattern)
        # a kernel that writes zeros takes dst, but no src and no scales
        self._dst = int(pattern.src.mode != Mode.NONE)
        self._buffers = [*(varying if self._dst else ()), *tables]
        self._numbers = np.array(launch.params, pattern.index_type)
        self.sizes = (launch.groups[0] * items, *launch.groups[1:]), (items, 1, 1)
        # raises where the program cannot make a kernel
        self.idle: list[tuple[cl.Kernel, int, int]] = [(self.new(), 0, 0)]

    @property
    def reads(self) -> bool:
        """Whether the kernel takes src."""
        return self._dst == 1

    def new(self) -> cl.Kernel:
        """Return a new kernel with all arguments but src and dst."""
        kernel = cl.Kernel(self._program, KERNEL)
        for k, buffer in enumerate(self._buffers, self._dst + 1):
            kernel.set_arg(k, buffer)
        # `set_arg` calls this for bytes, but tries other kinds first, which takes 7 to 17 us
        _set_numbers(kernel, self._dst + 1 + len(self._buffers), self._numbers)
        return kernel

    def enqueue(
        self, queue: cl.CommandQueue, memory: tuple[Any, Any], wait_for: Sequence[cl.Event] | None
    ) -> cl.Event:
        """Enqueue the launch from one memory to another.

        The runtime may say that src or dst was released, or that it does not take SVM.
        """
        # on an H200, a kernel that had been given buffers refused SVM, and then buffers as well
        is_shared = any(isinstance(of, cl.SVMPointer) for of in memory)
        try:
            kernel = self.new() if is_shared else self.idle.pop()[0]
        except IndexError:
            kernel = self.new()
        setting = "x"
        try:
            if self.reads:
                kernel.set_arg(0, memory[0])
            setting = "out"
            kernel.set_arg(self._dst, memory[1])
            setting = ""
            # by position: pyopencl takes longer for names
            return _enqueue(queue, kernel, *self.sizes, None, wait_for)
        except cl.LogicError as error:
            if setting and is_released_error(error):
                raise released_error(memory[setting == "out"], setting) from None
            if error.code != cl.status_code.INVALID_KERNEL_ARGS or not is_shared:
                raise
            raise MemdescError(
                f"kernels on device {queue.device.name.strip()!r} do not take shared virtual "
                "memory: its runtime says INVALID_KERNEL_ARGS; use a Buffer"
            ) from None
        finally:
            if not is_shared:
                self.idle.append((kernel, 0, 0))


_enqueue: Callable[..., cl.Event] = cl.enqueue_nd_range_kernel
_set_numbers: Callable[..., None] = getattr(cl.Kernel, "_set_arg_buf", cl.Kernel.set_arg)
# makes a device that can round quotients of f32 correctly do so
_DIVISION = ("-cl-fp32-correctly-rounded-divide-sqrt",)
# warning filters belong to the process; a finalizer may build a kernel while its thread builds one
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
    rounds = bool(single & config.ROUND_TO_NEAREST)
    return Floats(
        has_f64=bool(device.double_fp_config),
        rounds=rounds,
        is_exact=single & exact == exact,
        divides=bool(single & config.CORRECTLY_ROUNDED_DIVIDE_SQRT),
    )
