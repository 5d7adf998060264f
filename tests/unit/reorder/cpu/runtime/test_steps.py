"""What steps of a tile prefetch, and what they write by non-temporal stores."""

from __future__ import annotations

import pytest

from memdesc import memory_desc
from reorder import Attr, plan_reorder
from reorder.cpu.runtime.steps import StepWriter
from reorder.cpu.schedule.config import KernelConfig
from reorder.cpu.schedule.rows import tile_rows
from reorder.cpu.schedule.tile_program import Base
from reorder.cpu.schedule.tiles import SlotLimits, cut_into_tiles
from tests.property.reorder.test_convert_laws import check
from tests.reorders import beyond_own_caches


def _distance(dims: tuple[int, ...], types: tuple[str, str], tags: tuple[str, str]) -> int:
    """Return how many bytes ahead the first conversion of the largest tiles prefetches."""
    src, dst = (memory_desc(dims, dtype, tag) for dtype, tag in zip(types, tags, strict=True))
    plan = plan_reorder(src, dst)
    config = KernelConfig(*types, plan.bound_attr, (src.nelems, dst.nelems), prefetches=True)
    widths = src.dtype.bits, dst.dtype.bits
    (tile, *_), _ = cut_into_tiles(
        plan.boxes[0], widths, SlotLimits(4096, 8192, 2048), in_place=True
    )
    writer = StepWriter(config, tile, [(0,), (0,)])
    in_src = writer.in_place(Base.SRC, types[0])
    strides = writer.in_place(Base.DST, types[1]).strides if tile.writes else writer.dense
    return writer.prefetch_distance(in_src, tile_rows(writer.nodes, [in_src.strides, strides]))


@pytest.mark.parametrize(
    ("dims", "types", "tags", "distance"),
    [
        # one row, which goes on in the next tile
        ((8, 100000), ("f32", "s8"), ("ab", "ab"), 8192),
        # 64 pixels of 64 channels each: the next 64 pixels come before the next 64 channels
        ((8, 256, 57, 57), ("f32", "f16"), ("abcd", "abcd"), 8192),
        ((8, 256, 57, 57), ("f32", "f16"), ("acdb", "abcd"), 64 * 256 * 4),
        # 64 channels of 64 pixels each: the next 64 pixels come after few tiles
        ((9, 285, 63, 63), ("f32", "s8"), ("abcd", "acdb"), 64 * 4),
        # rows of a block, which go on in the same tile
        ((138, 143, 13, 13), ("s32", "s8"), ("aBcd16b", "acdb"), 16 * 4),
    ],
)
def test_rows_that_are_read_soon_are_prefetched(
    dims: tuple[int, ...], types: tuple[str, str], tags: tuple[str, str], distance: int
) -> None:
    assert _distance(dims, types, tags) == distance


@pytest.mark.parametrize(
    ("types", "attr"),
    [
        (("f32", "bf16"), None),
        (("s8", "f32"), None),
        (("f32", "s4"), None),
        (("bf16", "f32"), Attr(src_scale=0.3)),
    ],
)
def test_long_rows_that_are_streamed_equal_the_definition(
    types: tuple[str, str], attr: Attr | None
) -> None:
    for dims, strides in (((3, 5003), (5003, 1)), ((2, 2, 1031), (4000, 1500, 1))):
        src, dst = (memory_desc(dims, dtype, strides=strides) for dtype in types)
        with beyond_own_caches():
            check((src, dst, attr), 1, at_end=True, threads=2)
