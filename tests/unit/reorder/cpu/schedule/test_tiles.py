"""How boxes that convert are cut: what is in place, what is moved, what goes through scratch.

`tests/property/reorder/test_tile_laws.py` has the laws of all tiles.
"""

from __future__ import annotations

import numpy as np
import pytest

from memdesc import memory_desc
from reorder import Attr, plan_reorder
from reorder.cpu.schedule.tiles import (
    SlotLimits,
    Tile,
    cut_into_tiles,
    is_scattered,
)
from tests.property.reorder.test_convert_laws import check
from tests.reorders import beyond_caches

_LIMIT = 4096
_LIMITS = SlotLimits(_LIMIT, 2 * _LIMIT)


def _tiles(
    dims: tuple[int, ...], src: str, dst: str, widths: tuple[int, int] = (32, 8)
) -> list[Tile]:
    plan = plan_reorder(memory_desc(dims, "s8", src), memory_desc(dims, "s8", dst))
    cuts = [cut_into_tiles(box, widths, _LIMITS, in_place=True) for box in plan.boxes]
    return [tile for tiles, _ in cuts for tile in tiles]


def test_runs_that_are_contiguous_on_both_sides_are_converted_in_place() -> None:
    for tile in _tiles((64, 1000), "ab", "ab"):
        assert tile.reads
        assert tile.writes


@pytest.mark.parametrize(
    ("widths", "reads", "writes"), [((32, 8), True, False), ((8, 32), False, True)]
)
def test_the_narrower_side_is_moved(widths: tuple[int, int], reads: bool, writes: bool) -> None:
    for tile in _tiles((512, 512), "ab", "ba", widths):
        assert (tile.reads, tile.writes) == (reads, writes)


def test_padding_is_written_by_a_move() -> None:
    tiles = _tiles((30, 70, 5, 7), "abcd", "aBcd16b", (8, 32))
    padded = [tile for tile in tiles if any(node.valid < node.extent for node in tile.inner)]
    assert padded
    assert not any(tile.writes for tile in padded)


@pytest.mark.parametrize(
    ("stag", "dtag", "masks", "zeroes"),
    [
        ("aBcd16b", "aBcd16b", True, True),
        ("aBcd16b", "aBcd16b", False, False),
        # rows longer than a block, in dst and in src
        ("aBcd32b", "aBcd32b", True, False),
        ("acdb", "aBcd16b", True, False),
    ],
)
def test_a_conversion_writes_the_padding_behind_short_rows(
    stag: str, dtag: str, masks: bool, zeroes: bool
) -> None:
    dims = 3, 13, 5, 7
    plan = plan_reorder(memory_desc(dims, "f32", stag), memory_desc(dims, "s8", dtag))
    tiles, zeros = cut_into_tiles(plan.boxes[0], (32, 8), _LIMITS, in_place=True, masks=masks)
    assert not zeros
    assert {tile.writes for tile in tiles} == {zeroes}


@pytest.mark.parametrize(
    ("src", "dst", "expected"),
    [
        ("AB8b16a2b", "AB8a16b2a", True),
        ("AB8b16a2b", "ab", False),
        ("ab", "ba", False),
    ],
)
def test_boxes_with_pairs_of_other_dims_are_scattered(src: str, dst: str, expected: bool) -> None:
    plan = plan_reorder(memory_desc((64, 64), "bf16", src), memory_desc((64, 64), "bf16", dst))
    assert [is_scattered(box, 16) for box in plan.boxes] == [expected] * len(plan.boxes)


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "s8"])
@pytest.mark.parametrize(
    ("dims", "src", "dst"),
    [
        ((611, 203), "ab", "ba"),
        ((40, 7, 9), "abc", "acb"),
        ((64, 208), "ba", "Ba8b"),
        ((131, 40, 3), "cba", "ABc4a4b"),
    ],
)
def test_moves_beyond_the_caches_are_right_bit_for_bit(
    dims: tuple[int, ...], src: str, dst: str, dtype: str
) -> None:
    with beyond_caches():
        pair = memory_desc(dims, dtype, src), memory_desc(dims, dtype, dst)
        check((*pair, None), 3, at_end=True, threads=2)


@pytest.mark.parametrize("pixels", [144, 196, 729])
@pytest.mark.parametrize(
    ("types", "tags"), [(("f32", "s8"), ("abc", "acb")), (("u8", "f32"), ("acb", "abc"))]
)
def test_conversions_of_rows_with_tails_are_right(
    types: tuple[str, str], tags: tuple[str, str], pixels: int
) -> None:
    src, dst = (
        memory_desc((2, 130, pixels), dtype, tag) for dtype, tag in zip(types, tags, strict=True)
    )
    for attr in (None, Attr(src_scale=0.3), Attr(dst_scale=np.arange(1.0, 131), dst_scale_mask=2)):
        check((src, dst, attr), 3, at_end=True)
