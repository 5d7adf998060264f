"""Device memory that this library allocates, and that records its release.

pyopencl does not tell whether an object was released, and some runtimes crash if they are asked
about a released one. Memory that callers allocated is left to pyopencl and the runtime.
"""

from __future__ import annotations

from typing import Any

import pyopencl as cl
import pyopencl.array

from memdesc import ImageDesc, MemdescError, MemoryDesc
from memdesc.errors import OutOfMemoryError
from reorder.opencl.image_formats import object_type


class AllocatedBuffer(cl.Buffer):
    """A buffer that records its release."""

    is_released = False

    def release(self) -> None:
        """Give the memory back to the runtime, once the commands that use it have finished."""
        super().release()
        self.is_released = True


class AllocatedImage(cl.Image):
    """An image that records its release; pyopencl's classes do not allow a common second base."""

    is_released = False

    def release(self) -> None:
        """Give the memory back to the runtime, once the commands that use it have finished."""
        super().release()
        self.is_released = True


def allocate(
    context: cl.Context, desc: MemoryDesc | ImageDesc, form: cl.ImageFormat | None
) -> cl.Buffer | cl.Image:
    """Return a buffer for a MemoryDesc, or an image of a format for an ImageDesc.

    If the runtime refuses it, the OutOfMemoryError gives the size of its largest buffer.
    """
    if not isinstance(desc, ImageDesc):
        return allocate_buffer(context, desc.nbytes)
    size = cl.ImageDescriptor()
    size.image_type = object_type(desc.kind)
    size.shape = desc.shape[-2::-1]  # type: ignore[assignment] # as many sides as the image has
    if desc.kind == "array":
        size.array_size = desc.depth
    try:
        return AllocatedImage(context, cl.mem_flags.READ_WRITE, form, desc=size)  # type: ignore[arg-type] # an image has a format
    except cl.Error as error:
        raise _refused(context, f"{desc!r} of {desc.nbytes} bytes", error) from None


def allocate_buffer(
    context: cl.Context, nbytes: int, flags: int = cl.mem_flags.READ_WRITE
) -> cl.Buffer:
    """Return a buffer of at least one byte, since OpenCL has no empty buffers.

    Fails like `allocate`.
    """
    try:
        return AllocatedBuffer(context, flags, max(nbytes, 1))
    except cl.Error as error:
        raise _refused(context, f"a buffer of {nbytes} bytes", error) from None


def _refused(context: cl.Context, what: str, error: cl.Error) -> MemdescError:
    """Return the error for memory that the runtime refuses to allocate."""
    most = min(device.max_mem_alloc_size for device in context.devices)
    names = ", ".join(repr(device.name.strip()) for device in context.devices)
    return OutOfMemoryError(
        f"{what} cannot be allocated on {names}, whose largest buffer has {most} bytes: {error}; "
        "reorder parts of the tensor"
    )


def check_not_released(memory: Any, name: str) -> None:
    """Refuse memory that this library allocated if it was released, or an array in it."""
    if isinstance(memory, cl.array.Array):
        memory = memory.base_data
    if isinstance(memory, AllocatedBuffer | AllocatedImage) and memory.is_released:
        raise released_error(memory, name)


def is_released_error(error: cl.Error) -> bool:
    """Whether an error of the runtime means that memory was released."""
    return bool(error.code == cl.status_code.INVALID_MEM_OBJECT)


def released_error(memory: Any, name: str) -> MemdescError:
    """Return the error for released memory."""
    noun = "an Image" if isinstance(memory, cl.Image) else "a Buffer"
    return MemdescError(
        f"{name} is {noun} that was released; nothing can be read from it or written to it"
    )
