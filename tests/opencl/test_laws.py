from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from memdesc import ImageDesc, MemoryDesc, image_desc, memory_desc
from reorder import opencl
from tests.opencl.runtimes import Runtime, check_image, check_reorder, examples
from tests.strategies import desc_pairs, descs_of

MAX_NELEMS = 1024


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


@examples(10)
@given(case=image_cases(), seed=st.integers(0, 2**20))
def test_any_descriptor_into_any_image_into_any_descriptor_keeps_the_bits(
    runtime: Runtime, case: tuple[MemoryDesc, ImageDesc, MemoryDesc], seed: int
) -> None:
    # half of the cases in tiles, which images as small as these do not take by themselves
    check_image(runtime, case, seed, min_tiled=0 if seed // 3 % 2 else None)


_BUFFERS = desc_pairs(max_ndims=6, max_nelems=MAX_NELEMS)


@examples(60)
@given(pair=_BUFFERS, seed=st.integers(0, 2**20))
def test_a_reorder_between_buffers_equals_its_definition_and_touches_nothing_else(
    runtime: Runtime, pair: tuple[MemoryDesc, MemoryDesc], seed: int
) -> None:
    check_reorder(runtime, (*pair, None), seed)


@pytest.mark.parametrize(
    ("dims", "dtype", "text"),
    [
        ((16, 16), "f16", "Sw<1,3,1> o 0 o (16,16):(16,1)"),
        ((72, 64), "s8", "Sw<3,3,3> o 0 o (72,64):(72,1)"),
        ((33, 65), "s4", "Sw<2,2,3> o 0 o (33,65):(65,1)"),
    ],
)
def test_a_swizzle_is_read_from_a_table(
    dims: tuple[int, ...], dtype: str, text: str, runtime: Runtime
) -> None:
    swizzled = memory_desc(dims, dtype, text)
    for seed, order in enumerate(("ab", "ba")):
        plain = memory_desc(dims, dtype, order)
        check_reorder(runtime, (plain, swizzled, None), seed)
        check_reorder(runtime, (swizzled, plain, None), seed)
    check_reorder(runtime, (swizzled, memory_desc(dims, "f32"), None), 5)


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
