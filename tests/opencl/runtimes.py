"""The OpenCL runtimes of the machine, and what tests read and write on them."""

import re
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray

from memdesc import ImageDesc, MemdescError, MemoryDesc, memory_desc
from reorder import Attr, opencl
from reorder.opencl.execution import build_transfers, enqueue_transfers
from reorder.opencl.image_formats import image_format
from reorder.opencl.kernel.launch import Body, DeviceTraits
from reorder.opencl.kernel.transfers import OperandSpec, plan_transfers
from reorder.opencl.operands import device_operand
from reorder.opencl.programs import floats_of
from reorder.reference import execute_reference
from tests.reorders import elements, random_bytes

Case = tuple[MemoryDesc, MemoryDesc, Attr | None]


FLAGS = cl.mem_flags.READ_WRITE


def examples(count: int) -> settings:
    """Return the settings of a law: so many examples, or all those of a profile with many."""
    profile = settings().max_examples
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    return settings(
        deadline=None,
        suppress_health_check=checks,
        max_examples=profile if profile >= _MANY else count,
    )


# examples of the profiles that run long
_MANY = 400


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
    min_tiled: int | None = None,
) -> cl.Event:
    """Enqueue a reorder between memories with their descriptors; in tiles from some bytes on."""
    if min_tiled is None:
        return opencl.enqueue_reorder(
            runtime.queue, src[0], dst[0], src=src[1], dst=dst[1], attr=attr
        )
    device = runtime.device.device
    traits = DeviceTraits(device.max_work_group_size, floats_of(device), min_tiled)
    one, other = (
        device_operand(runtime.queue, *given, name) for given, name in ((src, "src"), (dst, "dst"))
    )
    transfers = plan_transfers(one.spec, other.spec, traits, attr, is_aligned=True)
    prepared = build_transfers(runtime.context, device, transfers)
    return enqueue_transfers(runtime.queue, prepared, (src[0], dst[0]), None)


@cache
def runtimes() -> list[Runtime]:
    """Return those that build and run a small program."""
    return [Runtime(device) for device in opencl.devices() if device.works and device.has_images]


def eventually(is_true: Callable[[], bool]) -> bool:
    """Return whether something becomes true: threads of a runtime release what they held late.

    PoCL's do so after they have said that a command is complete.
    """
    end = time.monotonic() + 60
    while not is_true() and time.monotonic() < end:
        time.sleep(0.001)
    return is_true()


def refused(message: str) -> Any:
    """Return the context in which an error with this message is expected."""
    return pytest.raises(MemdescError, match=re.escape(message))


# bytes of a buffer beside the tensor
BESIDE = 64


def _check(
    runtime: Runtime, case: Case, seed: int, run: Callable[[tuple[cl.Buffer, cl.Buffer]], cl.Event]
) -> None:
    """Compare what is run with its definition; bytes beside the tensor must stay."""
    src, dst, attr = case
    source = random_bytes(max(src.nbytes, 1), seed)
    before = random_bytes(dst.nbytes + BESIDE, seed + 1)
    memory = runtime.buffer(source), runtime.buffer(before)
    event = run(memory)
    wanted = before.copy()
    if dst.nelems:
        execute_reference(src, dst, source[: src.nbytes], wanted[: dst.nbytes], attr)
    assert np.array_equal(runtime.read(memory[1], event), wanted), case


def check_reorder(runtime: Runtime, case: Case, seed: int) -> None:
    """Compare a reorder as callers enqueue it with its definition."""
    src, dst, attr = case
    queue = runtime.queue
    _check(
        runtime,
        case,
        seed,
        lambda memory: opencl.enqueue_reorder(
            queue, memory[0], memory[1], src=src, dst=dst, attr=attr
        ),
    )


def check_buffers(
    runtime: Runtime,
    case: Case,
    min_tiled: int = 1 << 16,
    max_work_items: int = 256,
    *,
    is_aligned: bool = True,
) -> list[Body]:
    """Compare kernels, tiles from some bytes on, with the definition; returns what these do."""
    src, dst, attr = case
    traits = DeviceTraits(max_work_items, floats_of(runtime.device.device), min_tiled)
    one, other = OperandSpec(src), OperandSpec(dst)
    transfers = plan_transfers(one, other, traits, attr, is_aligned=is_aligned)
    prepared = build_transfers(runtime.context, runtime.device.device, transfers)
    _check(
        runtime, case, 1, lambda memory: enqueue_transfers(runtime.queue, prepared, memory, None)
    )
    return [launch.pattern.body for transfer in transfers for launch in transfer.launches]


def check_image(
    runtime: Runtime,
    case: tuple[MemoryDesc, ImageDesc, MemoryDesc],
    seed: int,
    attrs: tuple[Attr | None, Attr | None] = (None, None),
    min_tiled: int | None = None,
) -> None:
    """Compare an image, and a buffer made of it, with the definition; NaN in f16 is any NaN.

    The image may have more pixels than it needs, which must stay, and so must bytes beside dst.
    """
    src, image, dst = case
    kind = image.dtype.numpy
    source = elements(src, seed)
    shape = image.height + seed % 3, image.width + seed % 3, image.channels
    before = elements(memory_desc(shape, image.dtype), seed + 1).view(kind).reshape(shape)
    memory = runtime.image(image, before)
    event = enqueue(runtime, (runtime.buffer(source), src), (memory, image), attrs[0], min_tiled)
    pixels = runtime.pixels(memory, kind, event)
    wanted = np.zeros(image.desc.padded_nelems, kind)
    execute_reference(src, image.desc, source, wanted.view(np.uint8), attrs[0])
    inside = np.s_[: image.height, : image.width]
    after = before.copy()
    after[inside] = wanted.reshape(image.height, image.width, image.channels)
    if image.dtype.name == "f16":
        assert (np.isnan(pixels) == np.isnan(after)).all()
        after = np.where(np.isnan(after), pixels, after)
    assert pixels.tobytes() == after.tobytes()
    if image.dtype.name == "f16":
        # the next kernel may read another NaN than the host
        pixels = np.where(np.isnan(pixels), np.float16(-0.0), pixels)
        memory = runtime.image(image, pixels)
    wanted = random_bytes(dst.nbytes + BESIDE, seed + 2)
    place = runtime.buffer(wanted)
    event = enqueue(runtime, (memory, image), (place, dst), attrs[1], min_tiled)
    content = np.ascontiguousarray(pixels[inside]).reshape(-1).view(np.uint8)
    execute_reference(image.desc, dst, content, wanted[: dst.nbytes], attrs[1])
    assert runtime.read(place, event).tobytes() == wanted.tobytes()
