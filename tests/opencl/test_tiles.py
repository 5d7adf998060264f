"""Transposes through local memory: every width, odd dims, blocks on both sides, any work-group."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memdesc import memory_desc
from reorder.opencl.execution import build_transfers, enqueue_transfers
from reorder.opencl.kernel.launch import DeviceTraits
from reorder.opencl.kernel.profile import GPU, Profile, TileShape
from reorder.opencl.kernel.tile import Tile
from reorder.opencl.kernel.transfers import OperandSpec, plan_transfers
from tests.reorders import expect, random_bytes
from tests.strategies import desc_pairs

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from tests.opencl.runtimes import Runtime

# tiles for every size, of a few rows
SMALL = GPU._replace(tiles=(TileShape(16, 16, 1024, 64),) * 4, min_tiled=0)
# what a buffer has beside the tensor, and must keep
BESIDE = 64


def check(
    runtime: Runtime,
    src: MemoryDesc,
    dst: MemoryDesc,
    profile: Profile = GPU,
    max_work_items: int = 256,
    *,
    is_aligned: bool = True,
) -> int:
    """Compare a reorder with its definition; return the launches with tiles."""
    transfers = plan_transfers(
        OperandSpec(src),
        OperandSpec(dst),
        DeviceTraits(max_work_items, profile=profile),
        is_aligned=is_aligned,
    )
    prepared = build_transfers(runtime.context, runtime.device.device, transfers)
    source = random_bytes(max(src.min_nbytes, 1), 1)
    before = random_bytes(dst.min_nbytes + BESIDE, 2)
    memory = runtime.buffer(source), runtime.buffer(before)
    event = enqueue_transfers(runtime.queue, prepared, memory, None)
    wanted = before.copy()
    wanted[: dst.min_nbytes] = expect(src, dst, source, before[: dst.min_nbytes])
    assert np.array_equal(runtime.read(memory[1], event), wanted), (src, dst)
    return sum(
        isinstance(launch.pattern.body, Tile)
        for transfer in transfers
        for launch in transfer.launches
    )


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


@pytest.mark.parametrize(
    ("dtype", "src", "dst", "dims"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.campaign) for case in MORE_CASES)],
)
def test_a_tensor_goes_through_tiles(
    dtype: str, src: str, dst: str, dims: tuple[int, ...], first: Runtime
) -> None:
    descs = memory_desc(dims, dtype, src), memory_desc(dims, dtype, dst)
    # in groups of fewer work items than other kernels for rows that start anywhere have
    assert check(first, *descs, GPU._replace(min_tiled=0), 64)


@st.composite
def four_bits(draw: st.DrawFn) -> tuple[MemoryDesc, MemoryDesc]:
    """Draw two layouts of 4-bit elements, of which many make squares of 2 x 2."""
    ndims = draw(st.integers(2, 3))
    extents = st.sampled_from((3, 16, 32, 40, 64, 72, 96))
    dims = tuple(draw(extents) for _ in range(ndims))
    if prod(dims) > 1 << 15:
        dims = (*dims[:-1], 4)
    one, other = ("".join(draw(st.permutations("abc"[:ndims]))) for _ in range(2))
    if draw(st.booleans()):
        # padding behind the data
        other = f"{other[:-1]}{other[-1].upper()}32{other[-1]}"
    return memory_desc(dims, "u4", one), memory_desc(dims, "u4", other)


@pytest.mark.campaign
@settings(max_examples=300, deadline=None)
@given(pair=four_bits(), is_aligned=st.booleans())
def test_many_tiles_of_four_bits_equal_the_definition(
    runtime: Runtime, pair: tuple[MemoryDesc, MemoryDesc], is_aligned: bool
) -> None:
    check(runtime, *pair, SMALL, 64, is_aligned=is_aligned)


_PAIRS = desc_pairs(max_ndims=6, max_nelems=1024).filter(
    lambda pair: pair[0].dtype.bits > 4 and pair[1].nelems > 0
)


@pytest.mark.campaign
@settings(max_examples=400, deadline=None)
@given(pair=_PAIRS, is_aligned=st.booleans())
def test_many_tiles_of_any_layouts_equal_the_definition(
    runtime: Runtime, pair: tuple[MemoryDesc, MemoryDesc], is_aligned: bool
) -> None:
    tiles = (TileShape(16, 16, 1024, 64),) * 4
    check(runtime, *pair, SMALL._replace(tiles=tiles), 64, is_aligned=is_aligned)
