"""The OpenCL runtimes of the machine, and what tests read and write on them."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pytest

from memdesc import MemdescError
from reorder import execute_reference, opencl
from reorder.opencl.execution import build_transfers, enqueue_transfers
from reorder.opencl.image_formats import image_format
from reorder.opencl.kernel.launch import DeviceTraits
from reorder.opencl.kernel.profile import GPU
from reorder.opencl.kernel.transfers import OperandSpec, plan_transfers
from reorder.opencl.operands import device_operand
from reorder.opencl.programs import floats_of
from tests.reorders import random_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import ImageDesc, MemoryDesc
    from reorder import Attr
    from reorder.opencl.kernel.launch import Body
    from reorder.opencl.kernel.profile import Profile

__all__ = ["Runtime", "check_buffers", "enqueue", "refused", "runtimes"]

FLAGS = cl.mem_flags.READ_WRITE


class Runtime:
    """A device with a context and a queue of its own."""

    def __init__(self, device: opencl.Device) -> None:
        self.name = device.platform
        self.device = device
        self.context = cl.Context([device.device])
        self.queue = cl.CommandQueue(self.context)

    def buffer(self, content: NDArray[Any]) -> cl.Buffer:
        """Return a buffer of some bytes."""
        buffer = cl.Buffer(self.context, FLAGS, max(content.nbytes, 1))
        if content.nbytes:
            cl.enqueue_copy(self.queue, buffer, np.ascontiguousarray(content))
        return buffer

    def read(self, buffer: cl.Buffer, event: cl.Event | None = None) -> NDArray[np.uint8]:
        """Return all bytes of a buffer."""
        content = np.empty(buffer.size, np.uint8)
        cl.enqueue_copy(self.queue, content, buffer, wait_for=[event] if event else None)
        return content

    def image(
        self, desc: ImageDesc, pixels: NDArray[Any], channel_type: str | None = None
    ) -> cl.Image:
        """Return an image of (height, width, channels) pixels, at least those of its descriptor."""
        image = cl.create_image(
            self.context,
            FLAGS,
            image_format(desc, channel_type),
            shape=(pixels.shape[1], pixels.shape[0]),
        )
        region = (pixels.shape[1], pixels.shape[0], 1)
        cl.enqueue_copy(
            self.queue, image, np.ascontiguousarray(pixels), origin=(0, 0, 0), region=region
        )
        return image

    def pixels(self, image: cl.Image, dtype: Any, event: cl.Event | None = None) -> NDArray[Any]:
        """Return all pixels of an image."""
        lanes = 4 if image.format.channel_order == cl.channel_order.RGBA else 1
        content = np.empty((image.height, image.width, lanes), dtype)
        region = (image.width, image.height, 1)
        cl.enqueue_copy(
            self.queue,
            content,
            image,
            origin=(0, 0, 0),
            region=region,
            wait_for=[event] if event else None,
        )
        return content


def enqueue(
    runtime: Runtime,
    src: tuple[Any, MemoryDesc | ImageDesc],
    dst: tuple[Any, MemoryDesc | ImageDesc],
    attr: Attr | None = None,
    profile: Profile | None = None,
) -> cl.Event:
    """Enqueue a reorder between memories with their descriptors; with the kernels of a profile."""
    if profile is None:
        return opencl.enqueue_reorder(runtime.queue, *src, *dst, attr)
    device = runtime.device.device
    traits = DeviceTraits(device.max_work_group_size, floats_of(device), profile)
    one, other = (
        device_operand(runtime.queue, *given, name) for given, name in ((src, "src"), (dst, "dst"))
    )
    transfers = plan_transfers(one.spec(other), other.spec(one), traits, attr, is_aligned=True)
    prepared = build_transfers(runtime.context, device, transfers)
    return enqueue_transfers(runtime.queue, prepared, (src[0], dst[0]), None)


@cache
def runtimes() -> list[Runtime]:
    """Return those that build and run a small program."""
    return [Runtime(device) for device in opencl.devices() if device.works and device.has_images]


def refused(message: str) -> Any:
    """Return the context in which an error with this message is expected."""
    return pytest.raises(MemdescError, match=re.escape(message))


# bytes of a buffer beside the tensor
BESIDE = 64


def check_buffers(
    runtime: Runtime,
    case: tuple[MemoryDesc, MemoryDesc, Attr | None],
    profile: Profile = GPU,
    max_work_items: int = 256,
    *,
    is_aligned: bool = True,
) -> list[Body]:
    """Compare a reorder with its definition; bytes beside the tensor must stay.

    Returns what the kernels do.
    """
    src, dst, attr = case
    traits = DeviceTraits(max_work_items, floats_of(runtime.device.device), profile)
    one, other = OperandSpec(src), OperandSpec(dst)
    transfers = plan_transfers(one, other, traits, attr, is_aligned=is_aligned)
    source = random_bytes(max(src.nbytes, 1), 1)
    before = random_bytes(dst.nbytes + BESIDE, 2)
    memory = runtime.buffer(source), runtime.buffer(before)
    prepared = build_transfers(runtime.context, runtime.device.device, transfers)
    event = enqueue_transfers(runtime.queue, prepared, memory, None)
    wanted = before.copy()
    if dst.nelems:
        execute_reference(src, dst, source[: src.nbytes], wanted[: dst.nbytes], attr)
    assert np.array_equal(runtime.read(memory[1], event), wanted), (src, dst, attr)
    return [launch.pattern.body for transfer in transfers for launch in transfer.launches]
