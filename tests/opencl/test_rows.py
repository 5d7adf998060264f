"""Copies of rows that start at any byte, in vectors that are aligned in dst."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memdesc import memory_desc
from reorder.opencl.kernel.launch import DeviceTraits
from reorder.opencl.kernel.profile import GPU
from reorder.opencl.kernel.rows import Rows
from reorder.opencl.kernel.transfers import OperandSpec, plan_transfers
from tests.opencl.test_tiles import check

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from tests.opencl.runtimes import Runtime

PROFILE = GPU._replace(min_tiled=0)


def has_rows(src: MemoryDesc, dst: MemoryDesc) -> bool:
    """Whether rows are copied in vectors."""
    one, other = (OperandSpec(desc) for desc in (src, dst))
    transfers = plan_transfers(one, other, DeviceTraits(256, profile=PROFILE), is_aligned=True)
    return all(
        isinstance(launch.pattern.body, Rows)
        for transfer in transfers
        for launch in transfer.launches
    )


@pytest.mark.parametrize(
    ("dtype", "dims"),
    [("u8", (2, 37, 3, 111)), ("u8", (3, 20, 4, 17)), ("f16", (2, 9, 5, 33)), ("f32", (5, 7, 43))],
)
def test_outer_loops_change_places(dtype: str, dims: tuple[int, ...], first: Runtime) -> None:
    one = "abcd"[: len(dims)]
    other = one[:-3] + one[-2] + one[-3] + one[-1]
    descs = memory_desc(dims, dtype, one), memory_desc(dims, dtype, other)
    assert has_rows(*descs)
    check(first, *descs, PROFILE)


def test_rows_of_a_view_with_gaps_in_dst(first: Runtime) -> None:
    src = memory_desc((7, 1500), "u8", strides=(1501, 1))
    dst = memory_desc((7, 1500), "u8", strides=(1503, 1))
    assert has_rows(src, dst)
    check(first, src, dst, PROFILE)


def test_elements_at_offsets_of_which_one_is_odd(first: Runtime) -> None:
    whole = memory_desc((3, 9, 1040), "s8", "abc")
    src = whole.submemory((2, 8, 1031), (1, 1, 3))
    dst = memory_desc((2, 8, 1031), "s8", "bac")
    assert has_rows(src, dst)
    check(first, src, dst, PROFILE)
    back = memory_desc((2, 8, 1031), "s8", "bac"), src
    assert has_rows(*back)
    check(first, *back, PROFILE)


@st.composite
def rows(draw: st.DrawFn) -> tuple[MemoryDesc, MemoryDesc]:
    """Draw two layouts with the same innermost dim."""
    dims = (*draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)), draw(st.integers(16, 1200)))
    if prod(dims) > 1 << 15:
        dims = (1, *dims[-2:])
    outer = "abcd"[: len(dims) - 1]
    last = "abcde"[len(dims) - 1]
    one, other = ("".join(draw(st.permutations(outer))) + last for _ in range(2))
    dtype = draw(st.sampled_from(("u8", "f16", "f32")))
    pair = memory_desc(dims, dtype, one), memory_desc(dims, dtype, other)
    cut = draw(st.integers(0, 3)) if dims[-1] > 20 else 0
    if cut:
        smaller = (*dims[:-1], dims[-1] - cut)
        offsets = (*(0 for _ in outer), draw(st.integers(0, cut)))
        views = pair[0].submemory(smaller, offsets), pair[1].submemory(smaller, (0,) * len(dims))
        plain = memory_desc(smaller, dtype, other)
        pair = views[0], draw(st.sampled_from((views[1], plain)))
    return pair


@pytest.mark.campaign
@settings(max_examples=400, deadline=None)
@given(pair=rows())
def test_many_rows_equal_the_definition(
    runtime: Runtime, pair: tuple[MemoryDesc, MemoryDesc]
) -> None:
    check(runtime, *pair, PROFILE)
