"""How boxes that convert are cut into tiles."""

from math import prod
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdesc import MemoryDesc, memory_desc
from memdesc.dtypes import BYTE_BITS
from reorder import Attr, plan_reorder
from reorder.cpu.schedule.tiles import TileSpec, cut_into_tiles
from reorder.plan import Box, Node
from tests.reorders import box_map, check, element_map
from tests.strategies import desc_pairs


def _check_cut(
    pair: tuple[MemoryDesc, MemoryDesc],
    spec: TileSpec,
) -> None:
    (widths, limit, in_place, *_) = spec
    boxes: list[Box] = []
    for box in plan_reorder(*pair).boxes:
        if box.indirect:
            return
        tiles, zeros = cut_into_tiles(box, spec)
        for tile in tiles:
            # bits in the scratch: nothing, the elements of one side, or those of both
            moved = [
                width
                for width, stays in zip(widths, (tile.reads, tile.writes), strict=True)
                if not (in_place and stays)
            ]
            size = prod(node.valid for node in tile.inner)
            assert size * max(moved, default=0) <= limit * max(widths)
            if widths[1] < BYTE_BITS and not tile.writes:
                # they are packed from bytes, padding included
                padded_size = prod(node.extent for node in tile.inner)
                assert padded_size * BYTE_BITS <= limit * max(widths)
            assert all(node.valid == node.extent for node in tile.outer)
            padded = [node for node in tile.inner if node.valid < node.extent]
            # a conversion writes no padding
            assert not tile.writes or not padded
            boxes.append(Box(tile.offsets, (*tile.outer, *tile.inner)))
        boxes += zeros
    to, fro = box_map(tuple(boxes))
    wanted = element_map(*pair)
    assert len(np.unique(to)) == len(to)
    for found, order in (((to, fro), np.argsort(to)), (wanted, np.argsort(wanted[0]))):
        found[0][...], found[1][...] = found[0][order], found[1][order]
    assert np.array_equal(to, wanted[0])
    assert np.array_equal(fro, wanted[1])


_WIDTHS = st.sampled_from([(32, 8), (8, 32), (4, 32), (32, 4), (16, 16), (32, 16)])


@given(
    desc_pairs(),
    _WIDTHS,
    st.sampled_from([128, 2048, 4096]),
    st.booleans(),
    st.none() | st.integers(0, 63),
    st.booleans(),
)
def test_tiles_and_zeros_together_write_every_padded_element_once_and_tiles_fit_the_scratch(
    pair: tuple[MemoryDesc, MemoryDesc],
    widths: tuple[int, int],
    limit: int,
    in_place: bool,
    place: int | None,
    streams: bool,
) -> None:
    _check_cut(pair, TileSpec(widths, limit, in_place, place, streams))


def test_tiles_start_cache_lines_of_dst() -> None:
    src, dst = memory_desc((1024, 300), "s8", "ab"), memory_desc((1024, 300), "f32", "ba")
    (box,) = plan_reorder(src, dst).boxes
    tiles, _ = cut_into_tiles(box, TileSpec((8, 32), 4096, is_single=True, place=4))
    starts = {tile.offsets[1] % 1024 for tile in tiles} - {0}
    assert starts
    assert all((start + 4) % 16 == 0 for start in starts)


@pytest.mark.parametrize(
    ("types", "tags", "place", "moved"),
    [
        # a tile is one run of dst
        (("f32", "s8"), ("abcd", "acdb"), 0, "src"),
        (("f32", "bf16"), ("abcd", "aBcd16b"), 3, "src"),
        # rows of a line or two in each; those of bytes are moved out of the scratch
        (("f32", "bf16"), ("acdb", "abcd"), 0, "src"),
        (("f32", "s8"), ("acdb", "abcd"), 0, "dst"),
        # runs that are contiguous on both sides: half a line, and one or two lines at two places
        (("f32", "bf16"), ("aBcd16b", "acdb"), 0, "src"),
        (("f32", "s8"), ("aBcd16b", "acdb"), 0, ""),
        (("bf16", "f32"), ("aBcd16b", "acdb"), 0, "src"),
        (("f32", "f32"), ("aBcd32b", "acdb"), 0, ""),
        (("f32", "f32"), ("aBcd32b", "acdb"), 4, "src"),
        # long rows
        (("f32", "bf16"), ("abcd", "abcd"), 3, ""),
    ],
)
def test_beyond_the_caches_the_side_is_moved_that_leaves_long_rows_of_dst(
    types: tuple[str, str], tags: tuple[str, str], place: int, moved: str
) -> None:
    src, dst = (memory_desc((2, 256, 56, 56), *each) for each in zip(types, tags, strict=True))
    (box,) = plan_reorder(src, dst).boxes
    widths = src.dtype.bits, dst.dtype.bits
    limit = 2**17 // max(widths)
    tiles, _ = cut_into_tiles(
        box, TileSpec(widths, limit, is_single=True, place=place, exceeds=True)
    )
    sides = {(tile.reads, tile.writes) for tile in tiles}
    assert sides == {(moved != "src", moved != "dst")}


def test_choosing_tiles_makes_no_tables_of_their_rows() -> None:
    src, dst = memory_desc((2, 256, 56, 56), "bf16"), memory_desc((2, 256, 56, 56), "f32", "acdb")
    (box,) = plan_reorder(src, dst).boxes
    with mock.patch("reorder.cpu.schedule.operands.offset_table") as offset_table:
        cut_into_tiles(box, TileSpec((16, 32), 4096, is_single=True, place=0, exceeds=True))
    assert not offset_table.called


@pytest.mark.parametrize(
    ("channels", "kind", "pixels"),
    [
        # rows of four lines, and not of the one line that makes a tile a run of dst
        (256, "s4", 64),
        # scales that repeat leave rows of dst long
        (192, "s8", 0),
        (256, "s8", 0),
    ],
)
def test_beyond_the_caches_short_rows_of_scales_leave_src_in_place(
    channels: int, kind: str, pixels: int
) -> None:
    dims = 2, channels, 56, 56
    src, dst = memory_desc(dims, "f32"), memory_desc(dims, kind, "acdb")
    attr = Attr(dst_scale=np.linspace(1, 2, channels), dst_scale_mask=2)
    (box,) = plan_reorder(src, dst, attr).boxes
    widths = 32, dst.dtype.bits
    tiles, _ = cut_into_tiles(box, TileSpec(widths, 4096, is_single=True, place=0, exceeds=True))
    is_read = pixels > 0
    assert all((tile.reads, tile.writes) == (is_read, not is_read) for tile in tiles)
    if is_read:
        assert {tile.inner[-1].extent for tile in tiles} == {pixels}


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize(
    ("dims", "stag", "dtag"),
    [
        *(((165, 333), tag, tag) for tag in ("BA4a2b", "ab", "aB16b", "Ba8b")),
        *(((165, 333), *tags) for tags in (("ab", "ba"), ("ab", "AB16a16b"), ("Ab32a", "ab"))),
        # conversions do not write this padding, so the wider elements go through the scratch
        *(((17, 127), *tags) for tags in (("ba", "aB24b"), ("ab", "bA16a"), ("ab", "BA16a16b"))),
        # five elements of padding for each element
        ((3, 2000), "ba", "AB16a16b"),
    ],
)
def test_tiles_of_large_tensors_fit_the_scratch(
    dims: tuple[int, int], stag: str, dtag: str, in_place: bool
) -> None:
    pair = memory_desc(dims, "s8", stag), memory_desc(dims, "s8", dtag)
    for widths in ((8, 64), (8, 32), (32, 8), (32, 4)):
        _check_cut(pair, TileSpec(widths, 2048, in_place))


# what tiles once went wrong with: types, layouts and dims
_ONCE_WRONG = """
u8 f32   abcd   ABcd16b16a  8x3x14x14
u8 f32   cdba   Abcd16a     8x3x14x14
s8 f64   BA4a2b BA4a2b      65x65
f64 s32  acb    ABc48a32b   40x21x43
f32 u4   ba     AB16a16b    3x2000
u4 u4    ba     AB16a16b    3x2000
u4 f32   ba     AB16a16b    3x2000
f32 u8   ABc48a32b ABc32a4b 49x5x3
f32 u8   ABc32a4b ABc48a32b 49x5x3
f32 s8   abc    acb         2x130x144
f32 s8   abc    acb         2x130x196
f32 s8   abc    acb         2x130x729
u8 f32   acb    abc         2x130x144
u8 f32   acb    abc         2x130x196
u8 f32   acb    abc         2x130x729
"""


@pytest.mark.parametrize("case", _ONCE_WRONG.strip().splitlines())
def test_conversions_of_padding_and_tails_are_right(case: str) -> None:
    src_type, dst_type, src_tag, dst_tag, sizes = case.split()
    dims = tuple(map(int, sizes.split("x")))
    src, dst = memory_desc(dims, src_type, src_tag), memory_desc(dims, dst_type, dst_tag)
    channels, each = np.arange(1.0, dims[1] + 1), np.arange(1.0, dims[1] * dims[-1] + 1)
    attrs = [
        None,
        Attr(src_scale=0.3),
        Attr(dst_scale=channels, dst_scale_mask=2),
        # more scales than the scratch holds
        Attr(src_scale=1 / each.reshape(dims[1], -1), src_scale_mask=6),
    ]
    for attr in attrs if len(dims) == 3 else attrs[:1]:
        check((src, dst, attr), 3, at_end=True)


def test_a_broadcast_source_is_read_again_for_each_tile() -> None:
    src = memory_desc((70, 80), "f32", strides=(0, 1))
    _check_cut((src, memory_desc((70, 80), "f32", "ba")), TileSpec((32, 8), 256, is_single=False))
    zeros = Box((0, 0), (Node(4, 0, (0, 1)),))
    assert cut_into_tiles(zeros, TileSpec((32, 8), 256, is_single=False))[0] == []
