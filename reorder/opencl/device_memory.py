"""DeviceMemory: a buffer or an image on a device, with its descriptor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from memdesc import ImageDesc, MemdescError
from reorder.memory.indexing import elements_at, select
from reorder.memory.memory import Memory
from reorder.opencl.addresses import host_view
from reorder.opencl.allocation import check_not_released
from reorder.opencl.arrays import first_byte
from reorder.opencl.image_formats import channel_type_of
from reorder.opencl.operands import device_operand
from reorder.opencl.queues import check_queue, checked_events, events_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from memdesc import DataType, MemoryDesc

__all__ = ["DeviceMemory"]


@dataclass(slots=True, repr=False, eq=False)
class DeviceMemory:
    """A buffer or an image on a device, its descriptor, and the event after which it is filled.

    Writing into it (``out=``) replaces the event.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        The queue that filled it.
    data : pyopencl.Buffer, pyopencl.array.Array, pyopencl.SVMPointer or pyopencl.Image
        The memory.
    desc : MemoryDesc or ImageDesc
        What it holds.
    event : pyopencl.Event, optional
        Done when it is filled.

    Examples
    --------
    >>> import numpy as np, pyopencl as cl, reorder
    >>> from reorder import opencl
    >>> device = next(d.device for d in opencl.devices() if d.works)
    >>> context = cl.Context([device])
    >>> queue = cl.CommandQueue(context)
    >>> x = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> memory = reorder.reorder(x, "ba", queue=queue)
    >>> memory
    DeviceMemory(memory_desc((2, 3), 'f32', 'ba'))
    >>> memory.get().numpy()
    array([[0., 1., 2.],
           [3., 4., 5.]], dtype=float32)
    """

    queue: cl.CommandQueue
    data: Any
    desc: MemoryDesc | ImageDesc
    event: cl.Event | None = None

    def __repr__(self) -> str:
        return f"DeviceMemory({self.desc!r})"

    def _repr_html_(self) -> str:
        return self.desc._repr_html_()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001 - numpy's protocol
        msg = (
            f"{self.desc!r} lies on a device, where numpy does not read; "
            ".get() copies it to the host"
        )
        raise MemdescError(msg)

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical sizes, as `desc.dims`."""
        return self.desc.dims

    @property
    def dtype(self) -> DataType:
        """Type of the elements, as `desc.dtype`."""
        return self.desc.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the memory that are described, as `desc.nbytes`; of an image, its pixels."""
        return self.desc.nbytes

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return len(self.desc.dims)

    def __len__(self) -> int:
        return self.desc.dims[0]

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        """Wait for the data and read elements by their logical index, as `reorder.Memory` does.

        The bytes from the first to the last of these elements are copied to the host; of an
        image, the rows.
        """
        desc = self.desc.desc if isinstance(self.desc, ImageDesc) else self.desc
        selection = select(desc, key)
        wait_for = self._checked_events()
        first, end = selection.span(desc)
        if isinstance(self.desc, ImageDesc):
            row_nbytes = desc.nbytes // self.desc.height
            rows = range(first // row_nbytes, -(-end // row_nbytes))
            data = self._pixels(self.desc, wait_for, rows)
            first = rows.start * row_nbytes
        else:
            data = np.empty(end - first, np.uint8)
            self._copy(data, first, wait_for)
        return elements_at(data, desc, selection, first)

    def get(self) -> Memory:
        """Wait for the data and copy them to the host.

        Returns
        -------
        Memory
            Of the same descriptor; of `desc.desc` for an image, whose pixels are its `elements`,
            row by row. Padding is what it is on the device.

        Raises
        ------
        MemdescError
            If the memory is not what its descriptor says, is too small, or of another context
            than the queue, or if this library allocated it and it was released.
        """
        wait_for = self._checked_events()
        if isinstance(self.desc, ImageDesc):
            pixels = self._pixels(self.desc, wait_for, range(self.desc.height))
            return Memory(self.desc.desc, pixels, zero_pad=False)
        memory = Memory(self.desc)
        self._copy(memory.data[: self.desc.min_nbytes], 0, wait_for)
        return memory

    def events_before(self, queue: cl.CommandQueue) -> list[cl.Event]:
        """Return what must be complete before a queue uses the memory."""
        own = [] if self.event is None else [self.event]
        events = [*checked_events(queue, own), *events_of(queue, self.data)]
        if self.queue != queue:
            # another queue would wait forever for what is not submitted
            self.queue.flush()
        return events

    def _checked_events(self) -> list[cl.Event]:
        """Check the fields, which may be made by hand; return what to wait for."""
        check_queue(self.queue)
        check_not_released(self.data, "the memory")
        wait_for = self.events_before(self.queue)
        # no kernel reads the memory, so it may be WRITE_ONLY
        device_operand(self.queue, self.data, self.desc, "the memory")
        return wait_for

    def _copy(self, data: NDArray[np.uint8], start: int, wait_for: list[cl.Event]) -> None:
        """Copy bytes of the buffer to the host."""
        if not data.nbytes:
            return
        memory: Any = self.data
        if isinstance(memory, cl.array.Array):
            start, memory = start + first_byte(memory), memory.base_data
        if isinstance(memory, cl.SVMPointer):
            memory, start = host_view(memory, start, data.nbytes), 0
        cl.enqueue_copy(self.queue, data, memory, src_offset=start, wait_for=wait_for)

    def _pixels(self, desc: ImageDesc, wait_for: list[cl.Event], rows: range) -> NDArray[np.uint8]:
        """Copy rows of the image to the host, as bytes; lanes of 32 bits may hold 8-bit data."""
        shape = (len(rows), desc.width, desc.channels)
        pixels = np.empty(shape, _lane_dtype(desc, self.data))
        if len(rows):
            origin, region = (0, rows.start, 0), (desc.width, len(rows), 1)
            cl.enqueue_copy(
                self.queue, pixels, self.data, origin=origin, region=region, wait_for=wait_for
            )
        return pixels.astype(desc.dtype.numpy, copy=False).view(np.uint8).reshape(-1)


def _lane_dtype(desc: ImageDesc, image: cl.Image) -> np.dtype[Any]:
    """Return the dtype of a lane; lanes of 32 bits may hold 8-bit data."""
    wide = {"SIGNED_INT32": np.int32, "UNSIGNED_INT32": np.uint32}
    return np.dtype(wide.get(channel_type_of(desc, image.format, "the memory"), desc.dtype.numpy))
