"""The OpenCL runtimes of the machine, and what tests read and write on them."""

import re
import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray

from memdesc import ImageDesc, MemdescError, MemoryDesc
from reorder import Attr, opencl
from reorder.opencl.execution import build_transfers, enqueue_transfers, floats_of
from reorder.opencl.kernel.access import VECTOR
from reorder.opencl.kernel.launch import Body, DeviceTraits
from reorder.opencl.kernel.transfers import OperandSpec, plan_transfers
from reorder.opencl.memory_objects import object_type, supported_format
from reorder.reference import execute_reference
from tests.guarded import POISON, Guarded
from tests.reorders import elements

Case = tuple[MemoryDesc | ImageDesc, MemoryDesc | ImageDesc, Attr | None]


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
        """Return an image of ([depth,] height, width, channels), at least that of a descriptor."""
        size: Any = cl.ImageDescriptor()
        size.image_type, size.shape = object_type(desc.kind), pixels.shape[-2::-1]
        if desc.kind == "array":
            size.array_size = desc.depth
        form = supported_format(self.queue, desc, channel_type)
        image = cl.Image(self.context, FLAGS, form, desc=size)
        cl.enqueue_copy(self.queue, image, np.ascontiguousarray(pixels), **_region_of(pixels))
        return image

    def pixels(
        self,
        image: cl.Image,
        dtype: Any,
        event: cl.Event | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> NDArray[Any]:
        """Return all pixels of an image, those of a shape if it has slices."""
        orders: dict[Any, int] = {cl.channel_order.RGBA: 4, cl.channel_order.RG: 2}
        lanes = orders.get(image.format.channel_order, 1)
        content = np.empty(shape or (image.height, image.width, lanes), dtype)
        wait_for = [event] if event else None
        cl.enqueue_copy(self.queue, content, image, wait_for=wait_for, **_region_of(content))
        return content


def _region_of(pixels: NDArray[Any]) -> dict[str, Any]:
    return {"origin": (0, 0, 0), "region": (*pixels.shape[-2::-1], 1)[:3]}


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


def as_buffer(desc: MemoryDesc | ImageDesc) -> MemoryDesc:
    """Return a descriptor, or that of the pixels of an image in a buffer."""
    return desc.desc if isinstance(desc, ImageDesc) else desc


# bytes behind a tensor in memory that no page guards, and of one without elements
_BESIDE, _LEAST = 64, 8


@cache
def _region(side: int, nbytes: int) -> Guarded:
    del side  # src and dst have one each
    return Guarded(nbytes)


class Placed:
    """A tensor in memory: between inaccessible pages, if the device accesses that of the host."""

    def __init__(
        self,
        runtime: Runtime,
        desc: MemoryDesc | ImageDesc,
        content: NDArray[np.uint8],
        *,
        side: int,
        seed: int,
        is_aligned: bool,
    ) -> None:
        self._runtime, self._desc = runtime, desc
        self._region: Guarded | None = None
        if isinstance(desc, ImageDesc):
            # an image may have more pixels than it needs
            *slices, height, width, lanes = desc.shape
            whole = *slices, height + seed % 3, width + seed % 3, lanes
            self._pixels = np.ones(whole, desc.dtype.numpy)
            self._inside = np.s_[..., :height, :width, :]
            self._pixels[self._inside] = content.view(desc.dtype.numpy).reshape(desc.shape)
            self.memory: Any = runtime.image(desc, self._pixels)
            return
        self._count = desc.min_nbytes or _LEAST
        content = content[: self._count]
        if not runtime.device.is_processor:
            beside = np.full(_BESIDE, POISON, np.uint8)
            self.memory = runtime.buffer(np.concatenate([content, beside]))
            return
        if is_aligned:
            content = np.resize(content, -(-self._count // VECTOR) * VECTOR)
            content[self._count :] = POISON
        self._region = _region(side, 1 << max(content.size - 1, 4095).bit_length())
        host = self._region.buffer(content, at_end=seed % 2 == 0)
        if not side:
            self._region.forbid_writes()
        flags = FLAGS | cl.mem_flags.USE_HOST_PTR
        self.memory = cl.Buffer(runtime.context, flags, hostbuf=host)

    def read(self, event: cl.Event) -> NDArray[np.uint8]:
        """Return the bytes of the tensor; all around it must be as they were."""
        if isinstance(self._desc, ImageDesc):
            shape, dtype = self._pixels.shape, self._pixels.dtype
            found = self._runtime.pixels(self.memory, dtype, event, shape)
            inside = found[self._inside].copy()
            found[self._inside] = self._pixels[self._inside]
            assert found.tobytes() == self._pixels.tobytes()
            return inside.reshape(-1).view(np.uint8)
        content = self._runtime.read(self.memory, event)
        assert (content[self._count :] == POISON).all()
        assert self._region is None or self._region.is_intact()
        return content[: self._count]


class Planned(NamedTuple):
    """Kernels: tiles from some bytes on, the most work items of a group, vectors if aligned.

    With `has_conversions`, the device's own conversions to integers.
    """

    min_tiled: int = 0
    most: int = 256
    is_aligned: bool = True
    has_conversions: bool = False


TILES = Planned()


def check(
    runtime: Runtime,
    case: Case,
    seed: int = 1,
    *,
    source: NDArray[Any] | None = None,
    planned: Planned | None = None,
) -> list[Body]:
    """Compare a reorder of some bytes with its definition; payloads in images of f16 may differ.

    It is enqueued as callers do, or as `planned`; then what its kernels do is returned.
    """
    src, dst, attr = case
    one, other = as_buffer(src), as_buffer(dst)
    content = elements(one, seed) if source is None else source.reshape(-1).view(np.uint8)
    content = np.resize(content, one.nbytes or _LEAST)
    if isinstance(src, ImageDesc) and src.dtype.name == "f16":
        # kernels may read another NaN than the host
        halves = content.view(np.float16)
        halves[np.isnan(halves)] = -0.0
    before = np.resize(elements(other, seed + 1), other.nbytes or _LEAST)
    is_aligned = planned is not None and planned.is_aligned
    given, out = (
        Placed(runtime, desc, of, side=side, seed=seed, is_aligned=is_aligned)
        for side, (desc, of) in enumerate(((src, content), (dst, before)))
    )
    bodies: list[Body] = []
    if planned is None:
        event = opencl.enqueue_reorder(
            runtime.queue, given.memory, out.memory, src=src, dst=dst, attr=attr
        )
    else:
        device = runtime.device.device
        floats = floats_of(device)._replace(has_conversions=planned.has_conversions)
        traits = DeviceTraits(planned.most, floats, planned.min_tiled)
        specs = OperandSpec.of(src), OperandSpec.of(dst)
        transfers = plan_transfers(*specs, traits if is_aligned else traits.unaligned, attr)
        prepared = build_transfers(runtime.context, device, transfers)
        event = enqueue_transfers(runtime.queue, prepared, (given.memory, out.memory), None)
        bodies = [launch.pattern.body for transfer in transfers for launch in transfer.launches]
    found, wanted = out.read(event), before.copy()
    if other.nelems:
        execute_reference(one, other, content, wanted, attr)
    wanted = wanted[: found.size]
    if isinstance(dst, ImageDesc) and dst.dtype.name == "f16":
        halves, same = found.view(np.float16), wanted.view(np.float16)
        is_nan = np.isnan(halves) & np.isnan(same) & (np.signbit(halves) == np.signbit(same))
        halves[is_nan] = same[is_nan]
    assert np.array_equal(found, wanted), case
    return bodies
