"""Kernels of tiles and of rows equal the definition: every width, odd dims, any work-group."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memdesc import image_desc, memory_desc
from memdesc.names import is_image
from reorder import Attr
from reorder.opencl.kernel.staged import Runs, Staged
from tests.opencl.runtimes import check_buffers, check_image, check_reorder
from tests.strategies import desc_pairs

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from reorder.opencl.kernel.launch import Body
    from tests.opencl.runtimes import Runtime

    Pair = tuple[MemoryDesc, MemoryDesc]

# types, layouts, sizes; then what its kernels are, the multiple of bytes at which rows of a tile
# end, the most work items of a group, and attributes
CASES = """
u8 ab ba 301x259 Staged align=32
u8 ab ba 301x259 Staged most=64
u8 ab ba 81x20 Staged most=16
f32 ab ba 300x9 Staged most=64
u8 ab ba 9x300 Staged most=128
f16 ab ba 258x301 Staged align=32
f32 nchw nhwc 2x43x9x11 Staged align=32
f32 ab ba 128x131 Staged align=0
f16 ab bA203a 129x131 Staged align=32
s8 oihw OIhw4i16o4i 64x128x3x3 Staged most=64
u4 ab ba 264x520 Staged most=64
u8 abcd acbd 2x37x3x111 RowCopy
u8 abcd acbd 3x20x4x17 RowCopy
f16 abcd acbd 2x9x5x33 RowCopy
f32 abc bac 5x7x43 RowCopy
f16 oihw conv2d_filter 9x16x3x3 Staged
f32->f16 nhwc in_out_channel 2x40x7x9 Staged
"""
MORE_CASES = """
u8 ab ba 300x272 Staged
f16 ab ba 257x301 Staged
f32 ab ba 301x130 Staged
f64 ab ba 101x131 Staged
u8 nhwc nchw 3x512x7x7 Staged
s8 nchw bs_fs_yx_bsv32_fsv16 33x40x8x8 Staged
s8 bs_fs_yx_bsv32_fsv16 nchw 33x40x8x8 Staged
s8 ab BA16a64b4a 200x390 Staged
s8 OIhw4i16o4i oihw 64x128x3x3 Staged
f16 ab BA8b16a2b 130x258 Staged
u4 ab ba 256x288 Staged
s4 nchw nhwc 2x96x16x16 Staged
u4 abc cba 64x3x96 Staged
f32->s8 abcd acdb 2x33x17x18 Staged attr=POINT
s8->f32 acdb abcd 2x40x16x16 Staged attr=SCALE
f16->bf16 ab ba 130x258 Staged
u4 ab ba 270x1000 Staged
u4->f32 ab ba 132x192 Staged attr=GROUPS
f32->s4 ab Ab8a 129x200 Staged attr=ROWS
s64->f32 ab ba 129x131 Staged
f32->u8 abc cba 48x30x40 Staged attr=SCALE
"""
_PIXELS = """
nhwc in_out_channel 2x40x7x9
nhwc in_out_channel 1x70x3x5
nchw in_out_channel 2x8x6x16
nChw16c in_out_channel 2x36x5x6
nhwc in_out_height 2x32x9x5
nhwc in_out_width 2x48x5x14
oihw conv2d_filter 9x16x3x3
oihw weight_height 16x24x3x3
oihw weight_width 6x20x3x3
"""
_CONVERTED = "f32 f16 u8 s8 s32 f32->f16 bf16->f32 f32->s8:POINT u8->f32:SCALE s32->u8:LIMIT"
ATTRS = {
    "SCALE": Attr(src_scale=0.75),
    "POINT": Attr(src_scale=0.75, dst_zero_point=3),
    "LIMIT": Attr(saturate=True),
    "ROWS": Attr(dst_scale=np.linspace(1, 2, 129), dst_scale_mask=1),
    "GROUPS": Attr(
        src_scale=np.linspace(1, 2, 9).reshape(3, 3), src_scale_mask=3, src_scale_groups=(44, 64)
    ),
}


def lines(table: str) -> list[str]:
    return table.strip().splitlines()


def described(dtype: str, src: str, dst: str, dims: tuple[int, ...]) -> Pair:
    return memory_desc(dims, dtype, src), memory_desc(dims, dtype, dst)


def aligned(bodies: list[Body]) -> list[int]:
    """Return what rows of the tiles end at multiples of."""
    return [
        body.dst.align for body in bodies if isinstance(body, Staged) and isinstance(body.dst, Runs)
    ]


def check(runtime: Runtime, line: str) -> None:
    """Compare what a line of a table describes with the definition, and what its kernels are."""
    types, one, other, sizes, *words = line.split()
    options: dict[str, Any] = dict(word.split("=") for word in words if "=" in word)
    dtype, _, to_dtype = types.partition("->")
    dims, attr = tuple(map(int, sizes.split("x"))), ATTRS.get(options.get("attr", ""))
    src = memory_desc(dims, dtype, one)
    if is_image(other):
        image = image_desc(dims, to_dtype or dtype, other)
        check_image(runtime, (src, image, src), 1, (attr, None), min_tiled=0)
        return
    dst = memory_desc(dims, to_dtype or dtype, other)
    bodies = check_buffers(runtime, (src, dst, attr), 0, int(options.get("most", 256)))
    names = {type(body).__name__ for body in bodies}
    assert words[0] in names, line
    assert names == {"RowCopy"} or "RowCopy" not in names, line
    if "align" in options:
        assert int(options["align"]) in aligned(bodies), line


def test_tensors_go_through_tiles_or_in_rows(first: Runtime) -> None:
    for line in lines(CASES):
        check(first, line)


@pytest.mark.campaign
@pytest.mark.parametrize("line", lines(MORE_CASES))
def test_more_tensors_go_through_tiles(line: str, runtime: Runtime) -> None:
    check(runtime, line)
    types, one, other, sizes, *_ = line.split()
    dtype, _, to_dtype = types.partition("->")
    dims = tuple(map(int, sizes.split("x")))
    src, dst = memory_desc(dims, dtype, one), memory_desc(dims, to_dtype or dtype, other)
    check_reorder(runtime, (src, dst, None), 3)


@pytest.mark.campaign
@pytest.mark.parametrize("types", _CONVERTED.split())
@pytest.mark.parametrize("line", lines(_PIXELS))
def test_pixels_of_all_types_go_through_tiles(line: str, types: str, runtime: Runtime) -> None:
    dtypes, _, attr = types.partition(":")
    check(runtime, f"{dtypes} {line} attr={attr}")


def views() -> list[tuple[Pair, str]]:
    whole = described("u8", "ab", "ba", (200, 300))
    src, dst = (
        desc.submemory((131, 157), at) for desc, at in zip(whole, ((5, 3), (7, 1)), strict=True)
    )
    part = memory_desc((3, 9, 1040), "s8", "abc").submemory((2, 8, 1031), (1, 1, 3))
    plain = memory_desc((2, 8, 1031), "s8", "bac")
    one, other = (memory_desc((7, 1500), "u8", strides=(step, 1)) for step in (1501, 1503))
    # rows with gaps; elements at offsets of which one is odd
    pairs = ((src, dst), (one, other), (part, plain), (plain, part))
    return list(zip(pairs, ("Staged", *["RowCopy"] * 3), strict=True))


@pytest.mark.parametrize(("pair", "fires"), views())
def test_rows_of_views_have_gaps_and_start_at_odd_offsets(
    pair: Pair, fires: str, first: Runtime
) -> None:
    bodies = check_buffers(first, (*pair, None), 0)
    assert {type(body).__name__ for body in bodies} == {fires}
    assert aligned(bodies) == ([32] if fires == "Staged" else [])


@st.composite
def four_bits(draw: st.DrawFn) -> Pair:
    """Draw two layouts of 4-bit elements, of which many fill whole bytes in both."""
    ndims = draw(st.integers(2, 3))
    extents = st.sampled_from((3, 16, 32, 40, 64, 72, 96))
    dims = tuple(draw(extents) for _ in range(ndims))
    if prod(dims) > 1 << 15:
        dims = (*dims[:-1], 4)
    one, other = ("".join(draw(st.permutations("abc"[:ndims]))) for _ in range(2))
    if draw(st.booleans()):
        # padding behind the data
        other = f"{other[:-1]}{other[-1].upper()}32{other[-1]}"
    return described("u4", one, other, dims)


@st.composite
def rows(draw: st.DrawFn) -> Pair:
    """Draw two layouts with the same innermost dim."""
    dims = (*draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)), draw(st.integers(16, 1200)))
    if prod(dims) > 1 << 15:
        dims = (1, *dims[-2:])
    outer = "abcd"[: len(dims) - 1]
    last = "abcde"[len(dims) - 1]
    one, other = ("".join(draw(st.permutations(outer))) + last for _ in range(2))
    dtype = draw(st.sampled_from(("u8", "f16", "f32")))
    pair = described(dtype, one, other, dims)
    cut = draw(st.integers(0, 3)) if dims[-1] > 20 else 0
    if cut:
        smaller = (*dims[:-1], dims[-1] - cut)
        offsets = (*(0 for _ in outer), draw(st.integers(0, cut)))
        views = pair[0].submemory(smaller, offsets), pair[1].submemory(smaller, (0,) * len(dims))
        plain = memory_desc(smaller, dtype, other)
        pair = views[0], draw(st.sampled_from((views[1], plain)))
    return pair


@st.composite
def transposes(draw: st.DrawFn) -> Pair:
    """Draw two layouts whose innermost dims differ, or parts of them."""
    dtype = draw(st.sampled_from(("u8", "f16", "f32")))
    least = 96 // {"u8": 1, "f16": 2, "f32": 4}[dtype]
    extents = st.integers(least, 4 * least)
    dims = draw(extents), draw(extents), draw(st.integers(1, 3))
    pair = described(
        dtype, *draw(st.sampled_from((("cab", "cba"), ("acb", "bca"), ("cab", "bca")))), dims
    )
    if draw(st.booleans()):
        cut = tuple(draw(st.integers(0, 5)) for _ in dims[:2])
        smaller = (dims[0] - cut[0], dims[1] - cut[1], dims[2])
        if min(smaller) > 0:
            src, dst = (
                desc.submemory(smaller, (*(draw(st.integers(0, c)) for c in cut), 0))
                for desc in pair
            )
            pair = src, dst
    return pair


_PAIRS = desc_pairs(max_ndims=6, max_nelems=1 << 14).filter(
    lambda pair: pair[0].dtype.bits > 4 and pair[1].nelems > 0
)


@pytest.mark.campaign
@settings(max_examples=400, deadline=None)
@given(pair=st.one_of(four_bits(), _PAIRS), is_aligned=st.booleans())
def test_many_tiles_equal_the_definition(runtime: Runtime, pair: Pair, is_aligned: bool) -> None:
    check_buffers(runtime, (*pair, None), 0, 64, is_aligned=is_aligned)


@pytest.mark.campaign
@settings(max_examples=400, deadline=None)
@given(pair=st.one_of(rows(), transposes()))
def test_many_rows_that_start_anywhere_equal_the_definition(runtime: Runtime, pair: Pair) -> None:
    check_buffers(runtime, (*pair, None), 0)
