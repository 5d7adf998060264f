"""DeviceMemory: a buffer or an image on a device, with its descriptor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from memdesc import ImageDesc, MemdescError
from reorder.memory.memory import Memory
from reorder.opencl.image_formats import channel_type_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import MemoryDesc

__all__ = ["DeviceMemory"]


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What lies in a buffer or an image of a device, and when it will.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        The queue that filled it.
    data : pyopencl.Buffer, pyopencl.array.Array or pyopencl.Image
        The memory.
    desc : MemoryDesc or ImageDesc
        What lies in it.
    event : pyopencl.Event, optional
        Done when it lies there.
    """

    queue: cl.CommandQueue
    data: Any
    desc: MemoryDesc | ImageDesc
    event: cl.Event | None = None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001 - numpy's protocol
        msg = f"{self.desc!r} lies on a device, where numpy does not read; .get() copies it to the host"
        raise MemdescError(msg)

    def get(self) -> Memory | NDArray[Any]:
        """Wait for the data and copy them to the host.

        Returns
        -------
        Memory or ndarray
            A Memory of the same descriptor; for an image its pixels as an array of shape
            (height, width, channels), in the type of the image's lanes.
        """
        wait_for = None if self.event is None else [self.event]
        if isinstance(self.desc, ImageDesc):
            shape = (self.desc.height, self.desc.width, self.desc.channels)
            pixels = np.empty(shape, _lane_dtype(self.desc, self.data))
            region = (self.desc.width, self.desc.height, 1)
            cl.enqueue_copy(
                self.queue, pixels, self.data, origin=(0, 0, 0), region=region, wait_for=wait_for
            )
            return pixels
        memory = Memory(self.desc)
        if not memory.nbytes:
            return memory
        buffer: Any = self.data
        skipped = 0
        if isinstance(buffer, cl.array.Array):
            skipped, buffer = buffer.offset, buffer.base_data
        if buffer.size - skipped < self.desc.min_nbytes:
            msg = f"the buffer has {buffer.size - skipped} bytes, but {self.desc!r} touches {self.desc.min_nbytes}"
            raise MemdescError(msg)
        cl.enqueue_copy(
            self.queue,
            memory.data[: self.desc.min_nbytes],
            buffer,
            src_offset=skipped,
            wait_for=wait_for,
        )
        return memory


def _lane_dtype(desc: ImageDesc, image: cl.Image) -> np.dtype[Any]:
    """Return the dtype of a lane: 32-bit lanes of 8-bit data are wider than their descriptor says."""
    wide = {"SIGNED_INT32": np.int32, "UNSIGNED_INT32": np.uint32}
    return np.dtype(wide.get(channel_type_of(desc, image.format, "the memory"), desc.dtype.numpy))
