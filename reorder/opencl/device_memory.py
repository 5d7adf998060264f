"""DeviceMemory: a buffer or an image on a device, its descriptor, and the event that fills it."""

from __future__ import annotations

from ctypes import c_ubyte
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pyopencl.array

from memdesc import ImageDesc, MemdescError, MemoryDesc
from memdesc.errors import short_repr
from reorder.memory.indexing import Indexed, elements_at, select_elements
from reorder.memory.memory import Memory
from reorder.opencl.memory_objects import channel_type_of, check_not_released
from reorder.opencl.operands import (
    array_desc,
    check_desc,
    check_queue,
    checked_events,
    class_of,
    device_operand,
    first_byte,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

# what the lanes of 8-bit data may be
_WIDE_LANES = {"SIGNED_INT32": np.int32, "UNSIGNED_INT32": np.uint32}


@dataclass(slots=True, repr=False, eq=False)
class DeviceMemory(Indexed):
    """A buffer or an image on a device, its descriptor, and the event that fills it.

    Writing into it (``out=``) replaces the event. Fields may be assigned; the memory is checked
    against its descriptor when it is used.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        The queue that fills it.
    data : pyopencl.Buffer, pyopencl.array.Array, pyopencl.SVMPointer or pyopencl.Image
        The memory.
    desc : MemoryDesc or ImageDesc
        What it holds.
    event : pyopencl.Event, optional
        Complete when the memory is filled.

    Raises
    ------
    MemdescError
        If the queue, the descriptor or the event is not one.

    Examples
    --------
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
    # the last event that is known to belong to the queue's context
    known_event: cl.Event | None = field(default=None, init=False)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "queue":
            check_queue(value)
        elif name == "desc":
            check_desc(value, "desc")
        elif name == "event" and not isinstance(value, cl.Event | None):
            raise MemdescError(f"event must be a pyopencl.Event or None, not {short_repr(value)}")
        object.__setattr__(self, name, value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001 - numpy's protocol
        raise MemdescError(
            f"{self.desc!r} is on a device, which numpy cannot read; .get() copies it to the host"
        )

    @property
    def nbytes(self) -> int:
        """Bytes that the descriptor covers, as `desc.nbytes`; for an image, bytes of its pixels."""
        return self.desc.nbytes

    def __getitem__(self, key: Any) -> Any:
        """Wait for the data and read elements by their logical index, as `reorder.Memory` does.

        The bytes from the first to the last of these elements are copied to the host; for an
        image, all pixels.
        """
        if isinstance(self.desc, ImageDesc):
            return self.get()[key]
        wait_for = self._checked_events()
        selection = select_elements(self.desc, key)
        first, end = selection.span(self.desc)
        data = np.empty(end - first, np.uint8)
        self._copy(data, first, wait_for)
        return elements_at(data, self.desc, selection, first)

    def get(self) -> Memory:
        """Wait for the data and copy them to the host.

        Returns
        -------
        Memory
            With the same descriptor. For an image, with `desc.desc`: its `elements` are the
            pixels, row by row. Padding is copied as it is on the device.

        Raises
        ------
        MemdescError
            If the memory does not fit its descriptor, is too small, does not belong to the
            queue's context, or was allocated by this library and has been released.
        """
        wait_for = self._checked_events()
        desc = self.desc
        if not isinstance(desc, ImageDesc):
            memory = Memory(desc)
            self._copy(memory.data[: desc.min_nbytes], 0, wait_for)
            return memory
        # lanes of 32 bits may hold 8-bit data
        lane = _WIDE_LANES.get(channel_type_of(desc, self.data.format, "the memory"))
        pixels = np.empty(
            (desc.depth, desc.height, desc.width, desc.channels), lane or desc.dtype.numpy
        )
        region: Any = {"origin": (0, 0, 0), "region": (desc.width, desc.height, desc.depth)}
        if pixels.size:
            cl.enqueue_copy(self.queue, pixels, self.data, wait_for=wait_for, **region)
        pixels = pixels.astype(desc.dtype.numpy, copy=False)
        return Memory(desc.desc, pixels.view(np.uint8).reshape(-1), zero_pad=False)

    def _checked_events(self) -> list[cl.Event]:
        """Check the memory against its descriptor; return what to wait for."""
        check_queue(self.queue)
        check_not_released(self.data, "the memory")
        wait_for = events_of(self.queue, self)
        # no kernel reads the memory here, so it may be WRITE_ONLY
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
            # the runtime copies it: the host may not be able to read it
            view = (c_ubyte * data.nbytes).from_address(int(memory.svm_ptr) + start)
            memory, start = cl.SVM(np.ctypeslib.as_array(view)), 0
        cl.enqueue_copy(self.queue, data, memory, src_offset=start, wait_for=wait_for)


def as_device_memory(x: Any) -> DeviceMemory:
    """Return a DeviceMemory, or one made of an Array, whose layout is known too."""
    if isinstance(x, cl.array.Array):
        queue: Any = x.queue
        return DeviceMemory(queue, x, array_desc(x, "x"))
    if not isinstance(x, DeviceMemory):
        raise MemdescError(
            f"x is {class_of(x)}, whose layout is not known; make a DeviceMemory of it"
        )
    return x


def events_of(queue: cl.CommandQueue, memory: Any) -> list[cl.Event]:
    """Return the events that memory carries; queues whose commands are waited for are flushed."""
    if isinstance(memory, DeviceMemory):
        carried = [] if memory.event is None else [memory.event]
        events = [*checked_events(queue, carried), *events_of(queue, memory.data)]
        if memory.queue != queue:
            memory.queue.flush()
        return events
    if not isinstance(memory, cl.array.Array) or not memory.events:
        return []
    if memory.queue is not None and memory.queue != queue:
        memory.queue.flush()
    return checked_events(queue, memory.events)


def record_event(memory: Any, event: cl.Event) -> None:
    """Let an Array carry the event of its last write, which waited for all earlier ones."""
    if isinstance(memory, cl.array.Array):
        # once there are twelve events, `add_event` would wait here for the first ones
        memory.events.clear()
        memory.add_event(event)
