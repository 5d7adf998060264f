"""Programs by pattern: built once for each context, for all sizes."""

from __future__ import annotations

import warnings
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyopencl as cl
from pyopencl.tools import first_arg_dependent_memoize

from memdesc import MemdescError
from reorder.opencl.allocation import is_released_error, released_error
from reorder.opencl.binaries import build_program
from reorder.opencl.kernel.access import AccessKind
from reorder.opencl.kernel.conversion import Floats
from reorder.opencl.kernel.source import KERNEL, kernel_source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from reorder.opencl.kernel.launch import Launch, Pattern

__all__ = ["Kernels", "PreparedLaunch", "build", "floats_of", "prepare"]


class Kernels:
    """Kernel objects of one program: each is used by one call at a time, from arguments to launch.

    No call waits for another one: a thread, a finalizer or the handler of a signal takes a new
    object where all are in use.
    """

    def __init__(self, program: cl.Program, name: str) -> None:
        self._program, self._name = program, name
        # raises where the program cannot make it
        idle = [cl.Kernel(program, name)]
        self._take = idle.pop
        # ends the use of an object
        self.give_back: Callable[[cl.Kernel], None] = idle.append

    def take(self) -> cl.Kernel:
        """Return an object that is not in use."""
        try:
            return self._take()
        except IndexError:
            return cl.Kernel(self._program, self._name)


class PreparedLaunch(NamedTuple):
    """A launch with its kernels.

    `names` are those of the arguments; the last is a struct of `numbers`. `sizes` are the work
    items in all and of a group.
    """

    launch: Launch
    kernels: Kernels
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
        src, dst = memory
        _, kernels, names, numbers, sizes = self
        last = len(names) - 1
        # one that writes zeros takes no scales
        given = ((src, dst, *others) if names[0] == "src" else (dst, *others))[:last]
        shared = _BUFFERS
        if isinstance(src, cl.SVMPointer) or isinstance(dst, cl.SVMPointer):
            shared = isinstance(src, cl.SVMPointer), isinstance(dst, cl.SVMPointer)
            with _building:
                kernels = _kernels(queue.context, queue.device, self.launch.pattern, shared)
        kernel = kernels.take()
        try:
            k, argument = 0, None
            try:
                for k, argument in enumerate(given):
                    kernel.set_arg(k, argument)
            except cl.LogicError as error:
                if not is_released_error(error):
                    raise
                raise released_error(argument, names[k]) from None
            # the function that `set_arg` calls for bytes, after it tried other kinds for 7 to 17 us
            _set_numbers(kernel, last, numbers)
            try:
                # by position: pyopencl takes longer for names
                return _enqueue(queue, kernel, *sizes, None, wait_for)
            except cl.LogicError as error:
                if error.code != cl.status_code.INVALID_KERNEL_ARGS or shared == _BUFFERS:
                    raise
        finally:
            kernels.give_back(kernel)
        msg = (
            f"kernels on device {queue.device.name.strip()!r} take no shared virtual memory: its "
            "runtime says INVALID_KERNEL_ARGS; use a Buffer"
        )
        raise MemdescError(msg)


_enqueue: Callable[..., cl.Event] = cl.enqueue_nd_range_kernel
_set_numbers: Callable[..., None] = getattr(cl.Kernel, "_set_arg_buf", cl.Kernel.set_arg)
# src and dst are no SVM
_BUFFERS = (False, False)
# quotients of f32 are rounded correctly, where a device can
_DIVISION = ("-cl-fp32-correctly-rounded-divide-sqrt",)
# warning filters belong to the process; a finalizer may build a kernel while its thread builds one
_building = RLock()


def prepare(context: cl.Context, device: cl.Device, launch: Launch) -> PreparedLaunch:
    """Find or build the kernel of a launch on a device; raises as `build`."""
    pattern = launch.pattern
    with _building:
        kernels = _kernels(context, device, pattern)
    operands = ("dst",) if pattern.src.kind == AccessKind.NONE else ("src", "dst")
    items = pattern.work_items
    return PreparedLaunch(
        launch,
        kernels,
        (*operands, *pattern.others, "params"),
        np.array(launch.params, np.int64 if pattern.is_wide else np.int32),
        ((launch.groups[0] * items, *launch.groups[1:]), (items, 1, 1)),
    )


@first_arg_dependent_memoize
def _kernels(
    context: cl.Context,
    device: cl.Device,
    pattern: Pattern,
    shared: tuple[bool, bool] = (False, False),  # noqa: ARG001 - each value has its own kernels
) -> Kernels:
    """Return the kernels of a pattern on a device.

    There are others for each combination of SVM in src and dst: on an H200, a kernel that had
    been given buffers refused SVM, and then buffers as well.
    """
    divides = pattern.conversion is not None and floats_of(device).divides
    options = _DIVISION if divides else ()
    return build((context, device), kernel_source(pattern), KERNEL, options)


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
) -> Kernels:
    """Build a program for a device of a context, and return the objects of one of its kernels.

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
            return Kernels(build_program(*place, source, options), name)
    except cl.Error as error:
        reason = " ".join(str(error).split())[:400]
        msg = (
            f"the OpenCL compiler of {place[1].name.strip()} fails ({reason}); `memdesc doctor` "
            "tries every runtime"
        )
        raise MemdescError(msg) from error
