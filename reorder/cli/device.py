"""Reorders of commands on an OpenCL device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reorder.api import reorder

if TYPE_CHECKING:
    from reorder.memory.memory import Memory

__all__ = ["DEVICE", "reorder_on"]

DEVICE = "an OpenCL device, by a part of its name or of its runtime's, such as nvidia"


def reorder_on(device: str, x: Memory, dst: str, *, out: Memory | None, **given: Any) -> Memory:
    """Reorder as `reorder.reorder` does, on the device of a name; the result is on the host.

    Raises
    ------
    MemdescError
        If no such device works, or it cannot do that.
    """
    import pyopencl as cl  # pyopencl is slow to load

    from reorder.opencl import find_device  # likewise

    # a queue does not keep its context everywhere
    context = cl.Context([find_device(device).device])
    queue = cl.CommandQueue(context)
    held = None if out is None else reorder(out, out.desc, queue=queue)
    return reorder(x, dst, out=held, queue=queue, **given).get()
