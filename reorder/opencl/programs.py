"""Programs by pattern: built once for each context, for all sizes."""

from __future__ import annotations

import warnings
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyopencl as cl
from pyopencl.tools import first_arg_dependent_memoize

from memdesc import MemdescError
from reorder.opencl.allocation import is_released_error, released_error
from reorder.opencl.binaries import build_program
from reorder.opencl.codegen.pattern import AccessKind
from reorder.opencl.codegen.source import KERNEL, kernel_source
from reorder.opencl.schedule.conversions import Floats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from reorder.opencl.codegen.pattern import Pattern
    from reorder.opencl.schedule.lower import Launch

__all__ = ["PreparedLaunch", "build", "floats_of", "prepare"]


class PreparedLaunch(NamedTuple):
    """A launch with its kernel; the lock is held while arguments of the kernel are set.

    `names` are those of the arguments; the last is a struct of `numbers`. `sizes` are the work
    items in all and of a group.
    """

    launch: Launch
    kernel: cl.Kernel
    lock: Lock
    names: tuple[str, ...]
    numbers: NDArray[Any]
    sizes: tuple[tuple[int, ...], tuple[int, ...]]

    def enqueue(
        self,
        queue: cl.CommandQueue,
        memory: tuple[Any, Any],
        wait_for: Sequence[cl.Event] | None,
        others: Sequence[cl.Buffer] = (),
    ) -> cl.Event:
        """Enqueue the launch from one memory to another; `others` are scales and zero points.

        Raises
        ------
        MemdescError
            If the runtime says that src or dst was released, or takes no SVM.
        """
        given = (*memory, *others) if self.names[0] == "src" else (memory[1], *others)
        kernel, lock, last = self.kernel, self.lock, len(self.names) - 1
        shared = isinstance(memory[0], cl.SVMPointer), isinstance(memory[1], cl.SVMPointer)
        if any(shared):
            with _building:
                kernel, lock = _kernel(queue.context, queue.device, self.launch.pattern, shared)
        # the function that `set_arg` calls for bytes, after it tried other kinds for 7 to 17 us
        set_numbers = getattr(kernel, "_set_arg_buf", kernel.set_arg)
        with lock:
            set_numbers(last, self.numbers)
            for k, argument in enumerate(given[:last]):
                try:
                    kernel.set_arg(k, argument)
                except cl.LogicError as error:
                    if not is_released_error(error):
                        raise
                    raise released_error(argument, self.names[k]) from None
            try:
                return cl.enqueue_nd_range_kernel(queue, kernel, *self.sizes, wait_for=wait_for)
            except cl.LogicError as error:
                if error.code != cl.status_code.INVALID_KERNEL_ARGS or not any(shared):
                    raise
        msg = (
            f"kernels on device {queue.device.name.strip()!r} take no shared virtual memory: its "
            "runtime says INVALID_KERNEL_ARGS; use a Buffer"
        )
        raise MemdescError(msg)


# quotients of f32 are rounded correctly, where a device can
_DIVISION = ("-cl-fp32-correctly-rounded-divide-sqrt",)
# warning filters belong to the process
_building = Lock()


def prepare(context: cl.Context, device: cl.Device, launch: Launch) -> PreparedLaunch:
    """Find or build the kernel of a launch on a device; raises as `build`."""
    pattern, params, groups = launch
    with _building:
        kernel, lock = _kernel(context, device, pattern)
    operands = ("dst",) if pattern.src.kind == AccessKind.NONE else ("src", "dst")
    items = pattern.work_items
    return PreparedLaunch(
        launch,
        kernel,
        lock,
        (*operands, *pattern.others, "params"),
        np.array(params, np.int64 if pattern.is_wide else np.int32),
        ((groups[0] * items, *groups[1:]), (items, 1, 1)),
    )


@first_arg_dependent_memoize
def _kernel(
    context: cl.Context,
    device: cl.Device,
    pattern: Pattern,
    shared: tuple[bool, bool] = (False, False),  # noqa: ARG001 - each value has its own kernel
) -> tuple[cl.Kernel, Lock]:
    """Return the kernel of a pattern on a device, and its lock.

    There is another one for each combination of SVM in src and dst: on an H200, a kernel that had
    been given buffers refused SVM, and then buffers as well.
    """
    divides = pattern.conversion is not None and floats_of(device).divides
    options = _DIVISION if divides else ()
    return build((context, device), kernel_source(pattern), KERNEL, options), Lock()


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
        has_fma=bool(single & config.FMA),
    )


def build(
    place: tuple[cl.Context, cl.Device], source: str, name: str, options: Sequence[str] = ()
) -> cl.Kernel:
    """Build a program for a device of a context, and return one of its kernels.

    `options` are those of the compiler.

    Raises
    ------
    MemdescError
        If the runtime cannot build it; with the message of its compiler.
    """
    try:
        with warnings.catch_warnings():
            # runtimes warn about successful builds too
            warnings.simplefilter("ignore", cl.CompilerWarning)
            return cl.Kernel(build_program(*place, source, options), name)
    except cl.Error as error:
        reason = " ".join(str(error).split())[:400]
        msg = (
            f"the OpenCL compiler of {place[1].name.strip()} fails ({reason}); `memdesc doctor` "
            "tries every runtime"
        )
        raise MemdescError(msg) from error
