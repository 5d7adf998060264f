"""Programs by pattern: built once for each context, whatever the sizes."""

from __future__ import annotations

import warnings
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyopencl as cl
from pyopencl.tools import first_arg_dependent_memoize

from memdesc import MemdescError
from reorder.opencl.codegen.pattern import Space
from reorder.opencl.codegen.source import kernel_text
from reorder.opencl.handles import released

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reorder.opencl.codegen.pattern import Pattern
    from reorder.opencl.schedule.lower import Launch

__all__ = ["Prepared", "build", "prepare"]


class Prepared(NamedTuple):
    """A launch with its kernel."""

    launch: Launch
    kernel: cl.Kernel
    # the arguments of a kernel belong to it, not to a call
    lock: Lock

    def start(
        self, queue: cl.CommandQueue, src: Any, dst: Any, wait_for: Sequence[cl.Event] | None
    ) -> cl.Event:
        """Enqueue the launch.

        Raises
        ------
        MemdescError
            If the runtime says that src or dst was released.
        """
        pattern, numbers, groups = self.launch
        items = pattern.items
        packed = np.array(numbers, np.int64 if pattern.is_wide else np.int32)
        arguments = [dst, packed] if pattern.src.space == Space.NOWHERE else [src, dst, packed]
        with self.lock:
            for k, argument in enumerate(arguments):
                try:
                    self.kernel.set_arg(k, argument)
                except cl.LogicError as error:
                    if error.code != cl.status_code.INVALID_MEM_OBJECT:
                        raise
                    raise released(argument, "dst" if argument is dst else "src") from None
            return cl.enqueue_nd_range_kernel(
                queue,
                self.kernel,
                (groups[0] * items, *groups[1:]),
                (items, 1, 1),
                wait_for=wait_for,
            )


# pyopencl's own cache of binaries does not bear two threads, and filters of warnings belong to the process
_building = Lock()


def prepare(context: cl.Context, launch: Launch) -> Prepared:
    """Find or build the kernel of a launch; raises as `build`."""
    with _building:
        return Prepared(launch, *_kernel(context, launch.pattern))


@first_arg_dependent_memoize
def _kernel(context: cl.Context, pattern: Pattern) -> tuple[cl.Kernel, Lock]:
    return build(context, kernel_text(pattern), "move"), Lock()


def build(context: cl.Context, text: str, name: str) -> cl.Kernel:
    """Build a program and return one of its kernels.

    Raises
    ------
    MemdescError
        If the runtime cannot build it: with what its compiler says.
    """
    try:
        with warnings.catch_warnings():
            # runtimes report on builds that went well
            warnings.simplefilter("ignore", cl.CompilerWarning)
            return cl.Kernel(cl.Program(context, text).build(), name)
    except cl.Error as error:
        names = ", ".join(device.name.strip() for device in context.devices)
        msg = f"the OpenCL compiler of {names} fails ({' '.join(str(error).split())[:400]}); `memdesc doctor` tries every runtime"
        raise MemdescError(msg) from error
