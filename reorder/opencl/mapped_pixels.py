"""The pixels of an image as a linear buffer over its own memory, mapped while kernels use it.

PoCL and Intel's runtime for processors keep images row by row in the memory of the host, and their
kernels call a function for each pixel of an image. Mapping such an image copies nothing.
"""

from __future__ import annotations

from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyopencl as cl

from reorder.forks import at_fork
from reorder.opencl.addresses import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["MappedPixels", "map_pixels", "turn_to_map"]

_FLAGS, _MAP = cl.mem_flags, cl.map_flags
# Flags of images that are not mapped: those that the host may not both read and write, and those
# over memory of a caller, where access through a second memory object is undefined.
_UNMAPPED = (
    _FLAGS.USE_HOST_PTR | _FLAGS.HOST_NO_ACCESS | _FLAGS.HOST_READ_ONLY | _FLAGS.HOST_WRITE_ONLY
)
_VECTOR_NBYTES = 16
_lock = RLock()
at_fork(_lock.acquire, _lock.release, _lock.release)
_BYTES = np.dtype(np.uint8)


class _Turn:
    """Whether the thread that holds the lock maps an image."""

    is_taken = False


@contextmanager
def turn_to_map() -> Iterator[bool]:
    """Wait until no other thread maps images, and hold off all others; yields whether to map.

    Held from the call that maps to the one that unmaps: PoCL 3.1 crashes if another thread maps
    the image in between. The commands themselves may overlap. A finalizer or the handler of a
    signal may run in between, in the same thread: it must not map.
    """
    with _lock:
        if _Turn.is_taken:
            yield False
            return
        _Turn.is_taken = True
        try:
            yield True
        finally:
            _Turn.is_taken = False


class MappedPixels(NamedTuple):
    """A buffer over the pixels of an image; kernels that use it wait for `event`."""

    buffer: cl.Buffer
    event: cl.Event
    pixels: Any
    is_written: bool

    def unmap(self, queue: cl.CommandQueue, wait_for: Sequence[cl.Event]) -> cl.Event:
        """Give the pixels back to the image, once all events are complete."""
        waiting = list(wait_for)
        if self.is_written:
            # what kernels wrote to memory of the host is there once it is mapped
            waiting = [_touched(queue, self.buffer, _MAP.READ, waiting)]
        event: cl.Event = self.pixels.base.release(queue, waiting)
        return event


def map_pixels(
    queue: cl.CommandQueue,
    image: cl.Image,
    region: tuple[int, int],
    wait_for: Sequence[cl.Event] | None,
    *,
    is_written: bool,
) -> MappedPixels | None:
    """Map the first pixels of an image, to read all of them or to write all, in `turn_to_map`.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where it is mapped; nothing waits.
    image : pyopencl.Image
        Of two dimensions.
    region : tuple of int
        Width and height, in pixels.
    wait_for : sequence of pyopencl.Event or None
        Events that must be complete before.
    is_written : bool
        Whether kernels write, or read.

    Returns
    -------
    MappedPixels, or None
        None if the rows of the region do not follow one another, or are not to be mapped.
    """
    width, height = region
    row_nbytes = width * image.element_size
    is_dense = row_nbytes * height and image.row_pitch == row_nbytes
    if not is_dense or image.flags & _UNMAPPED or place_of(image)[0] != image.int_ptr:
        return None
    pixels: Any  # pyopencl's type stubs lack the map behind an array
    pixels, event, row_pitch, _ = cl.enqueue_map_image(
        queue,
        image,
        _MAP.WRITE_INVALIDATE_REGION if is_written else _MAP.READ,
        (0, 0, 0),
        (width, height, 1),
        (row_nbytes * height,),
        _BYTES,
        wait_for=wait_for,
        is_blocking=False,
    )
    if row_pitch != row_nbytes or pixels.ctypes.data % _VECTOR_NBYTES:
        unmapped = pixels.base.release(queue, [event])
        # what is enqueued instead comes after it, in queues that keep no order too
        cl.enqueue_barrier(queue, wait_for=[unmapped])
        return None
    access = _FLAGS.READ_WRITE if is_written else _FLAGS.READ_ONLY
    buffer = cl.Buffer(queue.context, access | _FLAGS.USE_HOST_PTR, hostbuf=pixels)
    if not is_written:
        # what the memory of the host holds is in the buffer once it was mapped for writing
        event = _touched(queue, buffer, _MAP.WRITE_INVALIDATE_REGION, [event])
    return MappedPixels(buffer, event, pixels, is_written)


def _touched(
    queue: cl.CommandQueue, buffer: cl.Buffer, flags: cl.map_flags, wait_for: list[cl.Event]
) -> cl.Event:
    """Map a buffer and unmap it."""
    mapped, event = cl.enqueue_map_buffer(
        queue, buffer, flags, 0, (buffer.size,), _BYTES, wait_for=wait_for, is_blocking=False
    )
    done: cl.Event = mapped.base.release(queue, [event])
    return done
