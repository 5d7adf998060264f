"""Kernels of tiles and of rows equal the definition: every width, odd dims, any work-group."""

from math import prod
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memdesc import MemoryDesc, image_desc, memory_desc
from memdesc.names import is_image
from reorder.opencl.kernel.launch import Body
from reorder.opencl.kernel.staged import Runs, Staged
from tests.opencl.runtimes import Runtime, check_buffers, check_image
from tests.strategies import desc_pairs

Pair = tuple[MemoryDesc, MemoryDesc]


# types, layouts, sizes; then what its kernels are, the multiple of bytes at which rows of a tile
# end, and the most work items of a group; the cases of `memdesc bench --device` are more
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
    dims = tuple(map(int, sizes.split("x")))
    src = memory_desc(dims, dtype, one)
    if is_image(other):
        image = image_desc(dims, to_dtype or dtype, other)
        check_image(runtime, (src, image, src), 1, min_tiled=0)
        return
    dst = memory_desc(dims, to_dtype or dtype, other)
    bodies = check_buffers(runtime, (src, dst, None), 0, int(options.get("most", 256)))
    names = {type(body).__name__ for body in bodies}
    assert words[0] in names, line
    assert names == {"RowCopy"} or "RowCopy" not in names, line
    if "align" in options:
        assert int(options["align"]) in aligned(bodies), line


def test_tensors_go_through_tiles_or_in_rows(first: Runtime) -> None:
    for line in CASES.strip().splitlines():
        check(first, line)


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
def large_pairs(draw: st.DrawFn) -> Pair:
    """Draw two layouts, or parts of them, that tiles and rows of several sizes cover."""
    ndims, dtype = draw(st.integers(2, 3)), draw(st.sampled_from(("u4", "u8", "f16", "f32")))
    extents = st.sampled_from((1, 3, 16, 32, 37, 40, 64, 96, 129, 300))
    dims = tuple(draw(extents) for _ in range(ndims))
    if prod(dims) > 1 << 15:
        dims = (*dims[:-1], 5)
    one, other = ("".join(draw(st.permutations("abc"[:ndims]))) for _ in range(2))
    if draw(st.booleans()):
        # padding behind the data
        return described(dtype, one, f"{other[:-1]}{other[-1].upper()}32{other[-1]}", dims)
    pair = described(dtype, one, other, dims)
    if dtype == "u4" or draw(st.booleans()):
        return pair
    cut = tuple(draw(st.integers(0, min(3, size - 1))) for size in dims)
    smaller = tuple(size - less for size, less in zip(dims, cut, strict=True))
    src = pair[0].submemory(smaller, tuple(draw(st.integers(0, less)) for less in cut))
    whole = memory_desc(smaller, dtype, other)
    part = pair[1].submemory(smaller, (0,) * ndims)
    return src, draw(st.sampled_from((whole, part)))


_PAIRS = desc_pairs(max_ndims=6, max_nelems=1 << 14).filter(
    lambda pair: pair[0].dtype.bits > 4 and pair[1].nelems > 0
)


@pytest.mark.campaign
@settings(max_examples=800, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pair=st.one_of(large_pairs(), _PAIRS), is_aligned=st.booleans())
def test_many_tiles_equal_the_definition(runtime: Runtime, pair: Pair, is_aligned: bool) -> None:
    check_buffers(runtime, (*pair, None), 0, 64, is_aligned=is_aligned)
