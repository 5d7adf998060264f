"""How boxes that convert are cut into tiles."""

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reorder
from memdesc import MemoryDesc, memory_desc
from memdesc.dtypes import BYTE_BITS
from reorder import Attr, plan_reorder
from reorder.cpu.schedule.tiles import cut_into_tiles
from reorder.plan import Box, Node
from tests.property.reorder.test_convert_laws import check
from tests.reorders import box_map, element_map
from tests.strategies import desc_pairs


def _check_cut(
    pair: tuple[MemoryDesc, MemoryDesc],
    widths: tuple[int, int],
    limit: int,
    *,
    in_place: bool,
    place: int | None = None,
) -> None:
    boxes: list[Box] = []
    for box in plan_reorder(*pair).boxes:
        if box.indirect:
            return
        tiles, zeros = cut_into_tiles(box, widths, limit, in_place=in_place, place=place)
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
)
def test_tiles_and_zeros_together_write_every_padded_element_once_and_tiles_fit_the_scratch(
    pair: tuple[MemoryDesc, MemoryDesc],
    widths: tuple[int, int],
    limit: int,
    in_place: bool,
    place: int | None,
) -> None:
    _check_cut(pair, widths, limit, in_place=in_place, place=place)


def test_tiles_start_cache_lines_of_dst() -> None:
    src, dst = memory_desc((1024, 300), "s8", "ab"), memory_desc((1024, 300), "f32", "ba")
    (box,) = plan_reorder(src, dst).boxes
    tiles, _ = cut_into_tiles(box, (8, 32), 4096, in_place=True, place=4)
    starts = {tile.offsets[1] % 1024 for tile in tiles} - {0}
    assert starts
    assert all((start + 4) % 16 == 0 for start in starts)


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
        _check_cut(pair, widths, 2048, in_place=in_place)


@pytest.mark.parametrize(("stag", "dtag"), [("oihw", "OIhw16i16o"), ("hwio", "Oihw16o")])
def test_bytes_are_widened_into_padded_blocks(stag: str, dtag: str) -> None:
    x = np.arange(8 * 3 * 14 * 14, dtype=np.uint8).reshape(8, 3, 14, 14)
    src = reorder.reorder(x, stag)
    y = reorder.Memory(memory_desc(x.shape, "f32", dtag))
    reorder.reorder(src, out=y)
    assert (reorder.reorder(y, "oihw").numpy() == x).all()
    y.check_padding()


def test_a_padded_tensor_longer_than_the_scratch_is_converted_without_leaving_it() -> None:
    for sizes, stag, dtag, types in (
        ((65, 65), "BA4a2b", "BA4a2b", ("s8", "f64")),
        ((40, 21, 43), "acb", "ABc48a32b", ("f64", "s32")),
        ((3, 2000), "ba", "AB16a16b", ("f32", "u4")),
        ((3, 2000), "ba", "AB16a16b", ("u4", "u4")),
        ((3, 2000), "ba", "AB16a16b", ("u4", "f32")),
    ):
        src, dst = memory_desc(sizes, types[0], stag), memory_desc(sizes, types[1], dtag)
        check((src, dst, None), 1, at_end=True)


def test_a_broadcast_source_is_read_again_for_each_tile() -> None:
    src = memory_desc((70, 80), "f32", strides=(0, 1))
    _check_cut((src, memory_desc((70, 80), "f32", "ba")), (32, 8), 256, in_place=False)
    zeros = Box((0, 0), (Node(4, 0, (0, 1)),))
    assert cut_into_tiles(zeros, (32, 8), 256, in_place=False)[0] == []


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
    channels, each = np.arange(1.0, 131), np.arange(1.0, 130 * pixels + 1)
    for attr in (
        None,
        Attr(src_scale=0.3),
        Attr(dst_scale=channels, dst_scale_mask=2),
        # more scales than the scratch holds
        Attr(src_scale=1 / each.reshape(130, pixels), src_scale_mask=6),
    ):
        check((src, dst, attr), 3, at_end=True)
