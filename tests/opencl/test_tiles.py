"""Kernels of transposes and of rows equal the definition: every width, odd dims, any work-group."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memdesc import memory_desc
from reorder.opencl.kernel.rows import RowCopy
from reorder.opencl.kernel.staged import Runs, Staged
from tests.opencl.runtimes import check_buffers
from tests.strategies import desc_pairs

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from reorder.opencl.kernel.launch import Body
    from tests.opencl.runtimes import Runtime

    Pair = tuple[MemoryDesc, MemoryDesc]

CASES = [
    ("u8", "ab", "ba", (301, 259)),
    ("f16", "ab", "ba", (258, 300)),
    ("s8", "oihw", "OIhw4i16o4i", (64, 128, 3, 3)),
    ("u4", "ab", "ba", (264, 520)),
]
MORE_CASES = [
    ("u8", "ab", "ba", (300, 272)),
    ("f16", "ab", "ba", (257, 301)),
    ("f32", "ab", "ba", (301, 130)),
    ("f64", "ab", "ba", (101, 131)),
    ("u8", "nhwc", "nchw", (3, 512, 7, 7)),
    ("s8", "nchw", "bs_fs_yx_bsv32_fsv16", (33, 40, 8, 8)),
    ("s8", "bs_fs_yx_bsv32_fsv16", "nchw", (33, 40, 8, 8)),
    ("s8", "ab", "BA16a64b4a", (200, 390)),
    ("s8", "OIhw4i16o4i", "oihw", (64, 128, 3, 3)),
    ("f16", "ab", "BA8b16a2b", (130, 258)),
    ("u4", "ab", "ba", (256, 288)),
    ("s4", "nchw", "nhwc", (2, 96, 16, 16)),
    ("u4", "abc", "cba", (64, 3, 96)),
]


def aligned(bodies: list[Body]) -> list[int]:
    """Return what rows of the tiles end at multiples of."""
    return [
        body.dst.align for body in bodies if isinstance(body, Staged) and isinstance(body.dst, Runs)
    ]


def described(dtype: str, src: str, dst: str, dims: tuple[int, ...]) -> Pair:
    return memory_desc(dims, dtype, src), memory_desc(dims, dtype, dst)


@pytest.mark.parametrize(
    "case", [*CASES, *(pytest.param(case, marks=pytest.mark.campaign) for case in MORE_CASES)]
)
def test_a_tensor_goes_through_tiles(
    case: tuple[str, str, str, tuple[int, ...]], first: Runtime
) -> None:
    # in groups of fewer work items than other kernels for rows that start anywhere have
    bodies = check_buffers(first, (*described(*case), None), 0, 64)
    assert any(isinstance(body, Staged) for body in bodies)


# each number of work items, shape and type once; a campaign combines them
_GROUPS = [("u8", (81, 20), 16), ("f32", (300, 9), 64), ("u8", (9, 300), 128)]
_ALL_GROUPS = product(("u8", "f32"), ((81, 20), (300, 9), (9, 300)), (16, 64, 128))


@pytest.mark.parametrize(
    ("dtype", "dims", "most"),
    [
        pytest.param(*case, marks=() if case in _GROUPS else pytest.mark.campaign)
        for case in _ALL_GROUPS
    ],
)
def test_transposes_are_right_in_work_groups_of_any_size(
    dtype: str, dims: tuple[int, int], most: int, runtime: Runtime
) -> None:
    check_buffers(runtime, (*described(dtype, "ab", "ba", dims), None), 0, most)


@pytest.mark.parametrize(
    ("case", "align"),
    [
        (("u8", "ab", "ba", (301, 259)), 32),
        (("f16", "ab", "ba", (258, 301)), 32),
        (("f32", "nchw", "nhwc", (2, 43, 9, 11)), 32),
        # rows of dst are aligned
        (("f32", "ab", "ba", (128, 131)), 0),
        # rows of dst are padded with zeros behind the data
        (("f16", "ab", "bA203a", (129, 131)), 32),
    ],
)
def test_rows_that_start_anywhere_are_transposed(
    case: tuple[str, str, str, tuple[int, ...]], align: int, first: Runtime
) -> None:
    bodies = check_buffers(first, (*described(*case), None), 0)
    assert align in aligned(bodies)


def test_rows_of_views_have_gaps_and_start_at_odd_offsets(first: Runtime) -> None:
    whole = described("u8", "ab", "ba", (200, 300))
    src, dst = (
        desc.submemory((131, 157), at) for desc, at in zip(whole, ((5, 3), (7, 1)), strict=True)
    )
    assert aligned(check_buffers(first, (src, dst, None), 0)) == [32]


def _rows() -> list[Pair]:
    part = memory_desc((3, 9, 1040), "s8", "abc").submemory((2, 8, 1031), (1, 1, 3))
    plain = memory_desc((2, 8, 1031), "s8", "bac")
    gaps = [memory_desc((7, 1500), "u8", strides=(step, 1)) for step in (1501, 1503)]
    return [
        described("u8", "abcd", "acbd", (2, 37, 3, 111)),
        described("u8", "abcd", "acbd", (3, 20, 4, 17)),
        described("f16", "abcd", "acbd", (2, 9, 5, 33)),
        described("f32", "abc", "bac", (5, 7, 43)),
        (gaps[0], gaps[1]),
        # elements at offsets of which one is odd
        (part, plain),
        (plain, part),
    ]


@pytest.mark.parametrize("pair", _rows())
def test_rows_are_copied_in_vectors(pair: Pair, first: Runtime) -> None:
    assert all(isinstance(body, RowCopy) for body in check_buffers(first, (*pair, None), 0))


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
