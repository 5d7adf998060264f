"""Transposes of rows that start at any byte, in tiles whose rows in dst end where vectors do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memdesc import memory_desc
from reorder.opencl.kernel.launch import DeviceTraits
from reorder.opencl.kernel.profile import GPU, SkewedShape
from reorder.opencl.kernel.skewed import Skewed
from reorder.opencl.kernel.transfers import OperandSpec, plan_transfers
from tests.opencl.test_tiles import check

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from tests.opencl.runtimes import Runtime

PROFILE = GPU._replace(min_tiled=0)


def skews(src: MemoryDesc, dst: MemoryDesc) -> list[int]:
    """Return the alignment of the tiles of each launch; none where there are no such tiles."""
    one, other = (OperandSpec(desc) for desc in (src, dst))
    transfers = plan_transfers(one, other, DeviceTraits(256, profile=PROFILE), is_aligned=True)
    bodies = [launch.pattern.body for transfer in transfers for launch in transfer.launches]
    return [body.align for body in bodies if isinstance(body, Skewed)]


@pytest.mark.parametrize(
    ("dtype", "src", "dst", "dims", "align"),
    [
        ("u8", "ab", "ba", (301, 259), 32),
        ("f16", "ab", "ba", (258, 301), 32),
        ("f32", "nchw", "nhwc", (2, 43, 9, 11), 32),
        # rows of dst are aligned
        ("f32", "ab", "ba", (128, 131), 0),
        # rows of dst are padded with zeros behind the data
        ("f16", "ab", "bA203a", (129, 131), 32),
    ],
)
def test_rows_that_start_anywhere_are_transposed(
    dtype: str, src: str, dst: str, dims: tuple[int, ...], align: int, first: Runtime
) -> None:
    descs = memory_desc(dims, dtype, src), memory_desc(dims, dtype, dst)
    assert align in skews(*descs)
    check(first, *descs, PROFILE)


@pytest.mark.parametrize("dtype", ["u8", "f16", "f32"])
def test_a_tile_without_whole_units_of_rows_is_not_taken(dtype: str, first: Runtime) -> None:
    profile = PROFILE._replace(skewed=(SkewedShape(128, 16, 256, 128),) * 3)
    descs = memory_desc((301, 259), dtype, "ab"), memory_desc((301, 259), dtype, "ba")
    check(first, *descs, profile)


def test_rows_of_views_have_gaps_and_start_at_odd_offsets(first: Runtime) -> None:
    src = memory_desc((200, 300), "u8", "ab").submemory((131, 157), (5, 3))
    dst = memory_desc((200, 300), "u8", "ba").submemory((131, 157), (7, 1))
    assert skews(src, dst) == [32]
    check(first, src, dst, PROFILE)


@st.composite
def transposes(draw: st.DrawFn) -> tuple[MemoryDesc, MemoryDesc]:
    """Draw two layouts whose innermost dims differ, or parts of them."""
    dtype = draw(st.sampled_from(("u8", "f16", "f32")))
    least = 96 // {"u8": 1, "f16": 2, "f32": 4}[dtype]
    extents = st.integers(least, 4 * least)
    dims = draw(extents), draw(extents), draw(st.integers(1, 3))
    one, other = draw(st.sampled_from((("cab", "cba"), ("acb", "bca"), ("cab", "bca"))))
    pair = memory_desc(dims, dtype, one), memory_desc(dims, dtype, other)
    if draw(st.booleans()):
        cut = tuple(draw(st.integers(0, 5)) for _ in dims[:2])
        smaller = (dims[0] - cut[0], dims[1] - cut[1], dims[2])
        if min(smaller) > 0:
            offsets = [tuple(draw(st.integers(0, c)) for c in cut) for _ in pair]
            src, dst = (
                desc.submemory(smaller, (*offset, 0))
                for desc, offset in zip(pair, offsets, strict=True)
            )
            pair = src, dst
    return pair


@pytest.mark.campaign
@settings(max_examples=60, deadline=None)
@given(pair=transposes())
def test_many_transposes_equal_the_definition(
    runtime: Runtime, pair: tuple[MemoryDesc, MemoryDesc]
) -> None:
    check(runtime, *pair, PROFILE)
