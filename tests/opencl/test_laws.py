from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memdesc import image_desc, memory_desc
from reorder import opencl, plan_reorder
from tests.opencl.runtimes import check_image, check_reorder
from tests.strategies import desc_pairs, descs_of

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

    from memdesc import ImageDesc, MemoryDesc
    from tests.opencl.runtimes import Runtime

MAX_NELEMS = 1024
COMMON = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@st.composite
def image_texts(draw: DrawFn, ndims: int) -> str:
    """Draw rows|columns|lane: letters and blocks in any order, cut anywhere."""
    letters = "abcdef"[:ndims]
    lane = draw(st.sampled_from([*letters, ""]))
    blocked = {lane} | set(draw(st.lists(st.sampled_from(letters), max_size=1)))
    outer = draw(
        st.permutations([letter.upper() if letter in blocked else letter for letter in letters])
    )
    parts = [
        *outer,
        *(f"{draw(st.sampled_from((2, 3, 4)))}{letter}" for letter in sorted(blocked - {lane, ""})),
    ]
    cut = draw(st.integers(0, len(parts)))
    return f"{''.join(parts[:cut])}|{''.join(parts[cut:])}|{f'4{lane}' if lane else ''}"


@st.composite
def image_cases(
    draw: DrawFn, max_nelems: int = MAX_NELEMS
) -> tuple[MemoryDesc, ImageDesc, MemoryDesc]:
    """Draw a source, an image and a destination of the same dims and dtype."""
    dims = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 4, 5, 7, 8, 13)), min_size=1, max_size=4)))
    while prod(dims) > max_nelems // 2:
        dims = dims[:-1]
    dtype = draw(st.sampled_from(("f32", "f16", "s32", "s8", "u8")))
    image = image_desc(dims, dtype, draw(image_texts(len(dims))))
    return (
        draw(descs_of(dims, dtype, max_nelems)),
        image,
        draw(descs_of(dims, dtype, max_nelems, source=False)),
    )


def check(
    runtime: Runtime,
    case: tuple[MemoryDesc, ImageDesc, MemoryDesc],
    seed: int,
    min_tiled: int | None = None,
) -> None:
    # half of the cases in tiles, which images as small as these do not take by themselves
    check_image(runtime, case, seed, min_tiled=0 if seed // 3 % 2 else min_tiled)


@settings(COMMON, max_examples=10)
@given(case=image_cases(), seed=st.integers(0, 2**20))
def test_any_descriptor_into_any_image_into_any_descriptor_keeps_the_bits(
    runtime: Runtime, case: tuple[MemoryDesc, ImageDesc, MemoryDesc], seed: int
) -> None:
    check(runtime, case, seed)


@pytest.mark.campaign
@settings(COMMON, max_examples=5_000)
@given(case=image_cases(), seed=st.integers(0, 2**20))
def test_five_thousand_images_keep_the_bits(
    runtime: Runtime, case: tuple[MemoryDesc, ImageDesc, MemoryDesc], seed: int
) -> None:
    check(runtime, case, seed)


@pytest.mark.campaign
@settings(COMMON, max_examples=300)
@given(case=image_cases(), seed=st.integers(0, 2**20))
def test_images_keep_the_bits_in_tiles_of_any_size(
    runtime: Runtime, case: tuple[MemoryDesc, ImageDesc, MemoryDesc], seed: int
) -> None:
    check(runtime, case, seed, 0)


_BUFFERS = desc_pairs(max_ndims=6, max_nelems=MAX_NELEMS)


@settings(COMMON, max_examples=60)
@given(pair=_BUFFERS, seed=st.integers(0, 2**20))
def test_a_reorder_between_buffers_equals_its_definition_and_touches_nothing_else(
    runtime: Runtime, pair: tuple[MemoryDesc, MemoryDesc], seed: int
) -> None:
    check_reorder(runtime, (*pair, None), seed)


@pytest.mark.campaign
@settings(COMMON, max_examples=2_000)
@given(pair=_BUFFERS, seed=st.integers(0, 2**20))
def test_two_thousand_reorders_between_buffers_equal_their_definition(
    runtime: Runtime, pair: tuple[MemoryDesc, MemoryDesc], seed: int
) -> None:
    check_reorder(runtime, (*pair, None), seed)


@pytest.mark.parametrize("dtypes", [("f32", "f32"), ("u4", "u4"), ("s8", "f16")])
def test_a_swizzle_without_constant_strides_follows_a_table(
    dtypes: tuple[str, str], runtime: Runtime
) -> None:
    dims = (401, 37)
    plain = memory_desc(dims, dtypes[0], "ba")
    rows = memory_desc(dims, dtypes[1], strides=(37, 1))
    swizzled = memory_desc(dims, dtypes[1], replace(rows.layout, xor=((3, 7 << 2),)))
    (box,) = plan_reorder(plain, swizzled).boxes
    assert box.indirect[0].xor
    check_reorder(runtime, (plain, swizzled, None), 1)
    check_reorder(runtime, (swizzled, plain, None), 2)


def test_offsets_beyond_two_gigabytes_take_64_bits(runtime: Runtime) -> None:
    # rows so far apart that 32 bits do not reach the last one, in bytes of which few are touched
    far = 2**31 + 64
    src = memory_desc((2, 8), "u8", strides=(far, 1))
    if runtime.device.device.max_mem_alloc_size < src.min_nbytes:
        pytest.skip(f"{runtime.name} allocates no {src.min_nbytes} bytes")
    source = runtime.buffer(np.zeros(0, np.uint8))
    dst = memory_desc((2, 8), "u8", "ba")
    import pyopencl as cl  # with the buffer

    source = cl.Buffer(runtime.context, cl.mem_flags.READ_WRITE, src.min_nbytes)
    x = np.arange(16, dtype=np.uint8).reshape(2, 8)
    for k in range(2):
        cl.enqueue_copy(runtime.queue, source, x[k], dst_offset=k * far)
    target = runtime.buffer(np.zeros(16, np.uint8))
    event = opencl.enqueue_reorder(runtime.queue, source, target, src=src, dst=dst)
    assert runtime.read(target, event).reshape(8, 2).T.tolist() == x.tolist()
    source.release()
