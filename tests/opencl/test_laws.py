"""Reorders equal their definition, and touch nothing else: any layouts, types and attributes."""

from dataclasses import fields
from math import prod

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from memdesc import ImageDesc, MemoryDesc, image_desc, memory_desc
from memdesc.dtypes import DATA_TYPES
from reorder import Attr, opencl
from tests.attributes import attrs, conversions
from tests.opencl.runtimes import TILES, Case, Planned, Runtime, check, examples
from tests.strategies import desc_pairs, descs_of

Pair = tuple[MemoryDesc, MemoryDesc]
ImageCase = tuple[MemoryDesc, ImageDesc, MemoryDesc]
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
def image_cases(draw: DrawFn, max_nelems: int = MAX_NELEMS) -> ImageCase:
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


def how(seed: int) -> Planned | None:
    """Return tiles for half of all cases, which tensors as small as these do not take."""
    return TILES if seed // 6 % 2 else None


@examples(10)
@given(case=image_cases(), seed=st.integers(0, 2**20))
def test_any_descriptor_into_any_image_into_any_descriptor_keeps_the_bits(
    runtime: Runtime, case: ImageCase, seed: int
) -> None:
    src, image, dst = case
    check(runtime, (src, image, None), seed, planned=how(seed))
    check(runtime, (image, dst, None), seed, planned=how(seed))


@st.composite
def image_conversions(draw: DrawFn) -> tuple[Case, Case]:
    """Draw what becomes an image of another type, what it becomes then, and attributes of both."""
    src, image, dst = draw(image_cases(256))
    names = st.sampled_from(list(DATA_TYPES))
    src, dst = src.with_dtype(draw(names)), dst.with_dtype(draw(names))
    into, out = draw(attrs(src, image.desc)), draw(attrs(image.desc, dst))
    given_ = {field.name: getattr(into, field.name) for field in fields(into) if field.init}
    into = Attr(**given_ | {"beta": 0.0})
    one, other = (draw(st.sampled_from([None, attr])) for attr in (into, out))
    return (src, image, one), (image, dst, other)


@examples(3)
@given(cases=image_conversions(), seed=st.integers(0, 2**20))
def test_images_convert_as_the_definition_says(
    runtime: Runtime, cases: tuple[Case, Case], seed: int
) -> None:
    for case in cases:
        check(runtime, case, seed, planned=how(seed))


_BUFFERS = desc_pairs(max_ndims=6, max_nelems=MAX_NELEMS)


@examples(60)
@given(pair=_BUFFERS, seed=st.integers(0, 2**20))
def test_a_reorder_between_buffers_equals_its_definition_and_touches_nothing_else(
    runtime: Runtime, pair: Pair, seed: int
) -> None:
    check(runtime, (*pair, None), seed)


@examples(1)
@given(case=conversions(512), seed=st.integers(0, 2**20))
def test_any_types_layouts_and_attributes_equal_the_definition(
    runtime: Runtime, case: Case, seed: int
) -> None:
    check(runtime, case, seed)
    check(runtime, case, seed, planned=Planned(0 if seed // 2 % 2 else 1 << 16))


@st.composite
def large_pairs(draw: DrawFn) -> Pair:
    """Draw two layouts, or parts of them, that tiles and rows of several sizes cover."""
    ndims, dtype = draw(st.integers(2, 3)), draw(st.sampled_from(("u4", "u8", "f16", "f32")))
    extents = st.sampled_from((1, 3, 16, 32, 37, 40, 64, 96, 129, 300))
    dims = tuple(draw(extents) for _ in range(ndims))
    if prod(dims) > 1 << 15:
        dims = (*dims[:-1], 5)
    one, other = ("".join(draw(st.permutations("abc"[:ndims]))) for _ in range(2))
    src, dst = (memory_desc(dims, dtype, tag) for tag in (one, other))
    if draw(st.booleans()):
        # padding behind the data
        return src, memory_desc(dims, dtype, f"{other[:-1]}{other[-1].upper()}32{other[-1]}")
    if dtype == "u4" or draw(st.booleans()):
        return src, dst
    cut = tuple(draw(st.integers(0, min(3, size - 1))) for size in dims)
    smaller = tuple(size - less for size, less in zip(dims, cut, strict=True))
    src = src.submemory(smaller, tuple(draw(st.integers(0, less)) for less in cut))
    whole, part = memory_desc(smaller, dtype, other), dst.submemory(smaller, (0,) * ndims)
    return src, draw(st.sampled_from((whole, part)))


@pytest.mark.campaign
@settings(max_examples=800, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    pair=st.one_of(large_pairs(), desc_pairs(max_ndims=6, max_nelems=1 << 14)),
    seed=st.integers(0, 2**20),
)
def test_many_tiles_equal_the_definition(runtime: Runtime, pair: Pair, seed: int) -> None:
    check(runtime, (*pair, None), seed, planned=Planned(0, 64, bool(seed // 2 % 2)))


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
        for pair in ((plain, swizzled), (swizzled, plain)):
            check(runtime, (*pair, None), seed)
    check(runtime, (swizzled, memory_desc(dims, "f32"), None), 5)


def test_offsets_beyond_two_gigabytes_take_64_bits(runtime: Runtime) -> None:
    # rows so far apart that 32 bits do not reach the last one, in bytes of which few are touched
    far = 2**31 + 64
    src = memory_desc((2, 8), "u8", strides=(far, 1))
    if runtime.device.device.max_mem_alloc_size < src.min_nbytes:
        pytest.skip(f"{runtime.name} allocates no {src.min_nbytes} bytes")
    dst = memory_desc((2, 8), "u8", "ba")
    source = cl.Buffer(runtime.context, cl.mem_flags.READ_WRITE, src.min_nbytes)
    x = np.arange(16, dtype=np.uint8).reshape(2, 8)
    for k in range(2):
        cl.enqueue_copy(runtime.queue, source, x[k], dst_offset=k * far)
    target = runtime.buffer(np.zeros(16, np.uint8))
    event = opencl.enqueue_reorder(runtime.queue, source, target, src=src, dst=dst)
    assert runtime.read(target, event).reshape(8, 2).T.tolist() == x.tolist()
    source.release()
