"""Plans as pictures: each cell of dst says where its element comes from."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from memdesc import MemdescError, MemoryDesc, memory_desc
from reorder import Attr, plan_reorder
from reorder.plan.picture import trace
from tests.indices import index_at
from tests.pictures import cells
from tests.strategies import desc_pairs

SCALES = Attr(src_scale=np.arange(1, 36, dtype=np.float32), src_scale_mask=1)


def pair_of(dims: tuple[int, ...], src: Any, dst: Any) -> tuple[MemoryDesc, MemoryDesc]:
    one, other = (
        memory_desc(dims, "f32", tag) if isinstance(tag, str) else memory_desc(dims, "f32", **tag)
        for tag in (src, dst)
    )
    return one, other


@pytest.mark.parametrize(
    ("pair", "attr"),
    [
        (pair_of((1, 5, 2, 2), "nhwc", "nChw4c"), None),
        (pair_of((2, 3), "ab", "ba"), None),
        # blocks that do not divide each other, in boxes and in a table
        (pair_of((7, 2), "Ab3a", "Ab4a"), None),
        (pair_of((35, 2), "Ab47a", "Ab31a"), None),
        (pair_of((35, 2), "Ab47a", "Ab31a"), SCALES),
        # a single zero, and gaps
        (pair_of((1, 17), "Ab4a", "(AB)18(ab)"), None),
        (pair_of((3, 2), "ab", {"strides": (4, 1)}), None),
    ],
    ids=str,
)
def test_each_cell_of_dst_shows_the_offset_in_src_and_the_box(
    pair: tuple[MemoryDesc, MemoryDesc], attr: Attr | None
) -> None:
    src, dst = pair
    plan = plan_reorder(src, dst, attr)
    picture = plan.show()
    assert str(plan) in picture.text
    _, strips = cells(picture.svg)
    left = min(seen.x for seen in strips)
    in_dst = [seen for seen in strips if any("by box" in line for line in seen.hover)]
    assert in_dst
    for seen in in_dst:
        assert seen.x > left
        assert seen.is_hatched == seen.hover[0].startswith("padding")
        if seen.is_hatched:
            assert seen.texts[0] == "0"
        else:
            assert seen.offset == src.offset(seen.index)
            assert f"offset {dst.offset(seen.index)}" in seen.hover
    # a single box is not named in every cell
    named = {text for seen in strips for text in seen.texts if text.startswith("box")}
    count = len(plan.boxes)
    assert named <= {f"box {k}" for k in range(count)}
    assert bool(named) == (count > 1) == ("and the box" in picture.text)


def test_a_plan_without_elements_a_long_one_and_one_that_is_too_large() -> None:
    assert cells(plan_reorder(*pair_of((0, 3), "ab", "ba")).show().svg) == ([], [])
    long = plan_reorder(*pair_of((17, 17, 17, 17), "abcd", "ABCD4a4b4c4d"))
    assert "… 8 more" in long.show().svg
    large = plan_reorder(*pair_of((1 << 15, 2), "Ab47a", "Ab31a"))
    with pytest.raises(MemdescError, match="a picture can search at most 16384"):
        large.show()
    # in a notebook it is printed
    assert large._repr_html_() is None
    html = plan_reorder(*pair_of((32, 250, 56, 56), "nchw", "nChw16c"))._repr_html_()
    assert html is not None
    assert html.startswith("<figure")
    assert len(html) < 300_000


@given(pair=desc_pairs(max_nelems=256, max_ndims=5))
def test_each_place_of_dst_says_where_it_comes_from(pair: tuple[MemoryDesc, MemoryDesc]) -> None:
    src, dst = pair
    boxes = plan_reorder(src, dst).boxes
    if not dst.nelems:
        assert not boxes
        return
    for offset in range(min(dst.layout.last + 1, 64)):
        index = index_at(dst.layout, offset)
        traced = trace(boxes, offset)
        if index is None:
            assert traced is None
            continue
        assert traced is not None
        is_padding = any(i >= size for i, size in zip(index, dst.dims, strict=True))
        assert traced[1] == (None if is_padding else src.offset(index))
