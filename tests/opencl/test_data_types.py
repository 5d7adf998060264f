"""Moves on devices depend on the width of an element only, so every data type moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyopencl.array as cl_array
import pytest

from memdesc import image_desc, memory_desc
from memdesc.dtypes import DATA_TYPES
from reorder import Memory, opencl, reorder
from tests.opencl.runtimes import refused

if TYPE_CHECKING:
    from tests.opencl.runtimes import Runtime

DIMS = (3, 10, 6)
WHOLE_BYTES = [name for name, dtype in DATA_TYPES.items() if not dtype.is_packed]


@pytest.mark.parametrize("tag", ["acb", "aBc8b", "cba"])
@pytest.mark.parametrize("name", WHOLE_BYTES)
def test_every_data_type_moves_bit_for_bit(name: str, tag: str, runtime: Runtime) -> None:
    src, dst = memory_desc(DIMS, name, "abc"), memory_desc(DIMS, name, tag)
    bits = np.random.default_rng(7).integers(0, 256, src.nbytes, np.uint8)
    target = runtime.buffer(np.full(dst.nbytes, 0xA5, np.uint8))
    event = opencl.enqueue_reorder(runtime.queue, runtime.buffer(bits), src, target, dst)
    expected = reorder(Memory(src, bits), dst).data
    assert runtime.read(target, event).tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", WHOLE_BYTES)
def test_arrays_of_every_data_type_are_taken_as_they_are(name: str, runtime: Runtime) -> None:
    x = np.arange(24).reshape(4, 6).astype(DATA_TYPES[name].numpy)
    found = reorder(cl_array.to_device(runtime.queue, x), "ba").get()
    assert isinstance(found, Memory)
    assert found.desc == memory_desc(x.shape, name, "ba")
    assert found.numpy().tobytes() == x.tobytes()


def test_types_that_no_image_holds_are_refused(first: Runtime) -> None:
    x = np.zeros((1, 4, 2, 2), np.int16)
    with refused("OpenCL has no image of s16 lanes; images hold f32, f16, s32, s8, u8"):
        reorder(x, image_desc(x.shape, "s16", "in_out_channel"), queue=first.queue)
