"""The instructions of GPUs between f16 and f32 write the bits of the definition."""

import numpy as np
import pytest
from numpy.typing import NDArray

from memdesc import image_desc, memory_desc
from reorder import execute, plan_reorder
from tests.conversions import random_codes, run
from tests.opencl.runtimes import Runtime, enqueue
from tests.opencl.test_conversions import check_codes


def floats_around_halves() -> NDArray[np.uint32]:
    """Return the bits of every half as f32, of numbers between two, and of small ones."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    bits = halves.view(np.uint32)
    rng = np.random.default_rng(3)
    small = np.ldexp(rng.standard_normal(1 << 13), rng.integers(-28, -12, 1 << 13))
    steps = np.ldexp(rng.integers(-4096, 4096, 1 << 13), -26)
    between = [bits | more for more in (0x0FFF, 0x1000, 0x1001)]
    numbers = [part.astype(np.float32).view(np.uint32) for part in (small, steps)]
    return np.concatenate([bits, *between, *numbers, random_codes("f32", 1 << 13)])


@pytest.mark.parametrize("dst", ["f16", pytest.param("bf16", marks=pytest.mark.campaign)])
def test_the_instructions_of_gpus_for_halves_write_the_same_bits(
    dst: str, runtime: Runtime
) -> None:
    check_codes(runtime, "f32", dst, codes=floats_around_halves())
    check_codes(runtime, "f16", "f32" if dst == "f16" else dst)


@pytest.mark.parametrize(
    "layout", ["nhwc", "nChw16c", pytest.param("nchw", marks=pytest.mark.campaign)]
)
def test_images_of_halves_are_written_with_the_same_numbers(layout: str, runtime: Runtime) -> None:
    codes = floats_around_halves()
    codes = np.resize(codes, (1, 64, 65, 67))
    src = memory_desc(codes.shape, "f32", layout)
    dst = image_desc(codes.shape, "f16", "in_out_channel")
    wanted = run(codes.reshape(-1), "f32", "f16", None, by="definition")
    pixels = np.zeros(dst.desc.nelems, np.uint16)
    order = memory_desc(codes.shape, "f16", layout)
    execute(plan_reorder(order, dst.desc), wanted.view(np.uint8), pixels.view(np.uint8))
    image = runtime.image(dst, np.zeros((dst.height, dst.width, 4), np.uint16))
    given = runtime.buffer(codes), src
    event = enqueue(runtime, given, (image, dst), min_tiled=0)
    found = runtime.pixels(image, np.uint16, event).reshape(-1)
    # a NaN has the same sign, and any payload
    is_nan = (pixels & 0x7FFF) > 0x7C00
    assert ((found[is_nan] & 0x7FFF) > 0x7C00).all()
    assert ((found ^ pixels)[is_nan] & 0x8000 == 0).all()
    assert (found == pixels)[~is_nan].all()
