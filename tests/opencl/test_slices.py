"""Images with slices, and those of other systems than MACE: packed, read back and unpacked."""

from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from memdesc import ImageDesc, MemdescError, image_desc
from memdesc.names.images import IMAGES
from reorder import opencl, reorder
from tests.images import small_dims
from tests.opencl.runtimes import Runtime

# one type of each kind of pixels, and one of each width
_TYPES = ("f32", "f16", "u8")
# large enough for tiles in local memory
_LARGE = ("executorch_channels_packed", "tvm_texture", "tvm_texture_nhwc", "tflite_gpu_texture_2d")


def _check(runtime: Runtime, image: ImageDesc) -> None:
    """Compare an image on a device with the one in host memory, both ways."""
    x: Any = (np.arange(image.desc.nelems) % 100).astype(image.dtype.numpy).reshape(image.dims)
    made, event = opencl.pack(runtime.queue, x, image)
    memory = opencl.DeviceMemory(runtime.queue, made, image, event)
    assert (memory.get().elements.view(x.dtype) == reorder(x, image).reshape(-1)).all()
    last = tuple(size - 1 for size in image.dims)
    assert memory[last] == x[last]
    buffer, event = opencl.unpack(runtime.queue, made, "plain", image, wait_for=[event])
    back = np.empty_like(x)
    cl.enqueue_copy(runtime.queue, back, buffer, wait_for=[event])
    assert (back == x).all()


@pytest.mark.parametrize("dtype", _TYPES)
def test_every_image_is_packed_as_in_host_memory_and_unpacked(runtime: Runtime, dtype: str) -> None:
    for name in IMAGES:
        image = image_desc(small_dims(name), dtype, name)
        try:
            _check(runtime, image)
        except MemdescError as error:
            if image.channels != 2:
                raise
            assert "no images of RG" in str(error)


@pytest.mark.parametrize("name", _LARGE)
def test_large_images_with_slices_too(runtime: Runtime, name: str) -> None:
    _check(runtime, image_desc((2, 37, 33, 41), "f32", name))
