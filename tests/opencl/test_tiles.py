"""Kernels of tiles and of rows equal the definition: every width, odd dims, any work-group."""

from math import prod

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memdesc import MemoryDesc, memory_desc
from reorder.opencl.kernel.rows import RowCopy
from tests.opencl.runtimes import Runtime, check_buffers
from tests.strategies import desc_pairs

Pair = tuple[MemoryDesc, MemoryDesc]


# what the matrix does not have: types, layouts, sizes, the kernels, the most work items of a group
CASES = """
u8 ab ba 301x259 Staged 256
u8 ab ba 301x259 Staged 64
u8 ab ba 81x20 Staged 16
f32 ab ba 300x9 Staged 64
u8 ab ba 9x300 Staged 128
f16 ab bA203a 129x131 Staged 256
s8 oihw OIhw4i16o4i 64x128x3x3 Staged 64
s8 oihw OIhw4i16o4i 37x23x3x3 Staged 64
s8 ab BA16a64b4a 93x91 Staged 128
f16->s8 ab BA16b16a 40x37 Staged 128
u8 aB16b BA16b16a 40x37 Staged 128
u4 ab ba 264x520 Staged 64
u4 cdba aBcd2b 40x6x5x8 Staged 256
u8 abcd acbd 2x37x3x111 RowCopy 256
"""


def described(dtype: str, src: str, dst: str, dims: tuple[int, ...]) -> Pair:
    return memory_desc(dims, dtype, src), memory_desc(dims, dtype, dst)


def test_tensors_go_through_tiles_or_in_rows(first: Runtime) -> None:
    for line in CASES.strip().splitlines():
        dtype, one, other, sizes, fires, most = line.split()
        dtype, _, to_dtype = dtype.partition("->")
        src, dst = described(dtype, one, other, tuple(map(int, sizes.split("x"))))
        pair = src, dst.with_dtype(to_dtype or dtype)
        bodies = check_buffers(first, (*pair, None), 0, int(most))
        assert fires in {type(body).__name__ for body in bodies}, line


def test_rows_of_views_start_at_odd_offsets(first: Runtime) -> None:
    part = memory_desc((3, 9, 1040), "s8", "abc").submemory((2, 8, 1031), (1, 1, 3))
    plain = memory_desc((2, 8, 1031), "s8", "bac")
    one, other = (memory_desc((7, 1500), "u8", strides=(step, 1)) for step in (1501, 1503))
    for pair in ((one, other), (part, plain), (plain, part)):
        (body,) = check_buffers(first, (*pair, None), 0)
        assert isinstance(body, RowCopy)


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
