from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given

from memdesc import MemdescError, MemoryDesc, memory_desc
from memdesc.index import index_at
from reorder import Attr, plan_reorder
from reorder.plan.picture import trace
from tests.pictures import cells
from tests.strategies import desc_pairs

if TYPE_CHECKING:
    from memdesc.picture import Picture


def check(src: MemoryDesc, dst: MemoryDesc, picture: Picture) -> None:
    """Check that each cell of dst shows the offset in src of its element, or that it is zero."""
    _, strips = cells(picture.svg)
    left = min(seen.x for seen in strips)
    in_dst = [seen for seen in strips if any("by box" in line for line in seen.hover)]
    assert in_dst
    for seen in in_dst:
        assert seen.x > left
        if seen.hover[0].startswith("padding"):
            assert seen.is_hatched
            assert seen.texts[0] == "0"
        else:
            assert not seen.is_hatched
            assert seen.offset == src.offset(seen.index)
            assert f"offset {dst.offset(seen.index)}" in seen.hover


def test_a_plan_is_drawn_box_by_box() -> None:
    src, dst = memory_desc((1, 5, 2, 2), "f32", "nhwc"), memory_desc((1, 5, 2, 2), "f32", "nChw4c")
    plan = plan_reorder(src, dst)
    picture = plan.show()
    check(src, dst, picture)
    assert str(plan) in picture.text
    _, strips = cells(picture.svg)
    boxes = {seen.texts[1] for seen in strips if seen.texts[1:] and seen.texts[1].startswith("box")}
    assert boxes == {f"box {k}" for k in range(len(plan.boxes))}


def test_blocks_that_do_not_divide_each_other_are_drawn_too() -> None:
    src, dst = memory_desc((7, 2), "s8", "Ab3a"), memory_desc((7, 2), "s8", "Ab4a")
    check(src, dst, plan_reorder(src, dst).show())
    src, dst = memory_desc((35, 2), "s8", "Ab47a"), memory_desc((35, 2), "s8", "Ab31a")
    assert plan_reorder(src, dst).boxes[0].indirect
    check(src, dst, plan_reorder(src, dst).show())
    src, dst = (memory_desc((1 << 15, 2), "s8", tag) for tag in ("Ab47a", "Ab31a"))
    with pytest.raises(MemdescError, match="a picture can search at most 16384"):
        plan_reorder(src, dst).show()


def test_an_empty_plan_and_a_long_one() -> None:
    src, dst = (memory_desc((0, 3), "f32", tag) for tag in ("ab", "ba"))
    assert cells(plan_reorder(src, dst).show().svg) == ([], [])
    src, dst = (memory_desc((17, 17, 17, 17), "f32", tag) for tag in ("abcd", "ABCD4a4b4c4d"))
    assert "… 8 more" in plan_reorder(src, dst).show().svg


def test_a_single_zero_is_written_by_a_box_of_its_own() -> None:
    src, dst = memory_desc((1, 17), "f32", "Ab4a"), memory_desc((1, 17), "f32", "(AB)18(ab)")
    plan = plan_reorder(src, dst)
    assert trace(plan.boxes, 17) == (1, None)
    check(src, dst, plan.show())


def test_gaps_of_dst_are_written_by_no_box() -> None:
    src, dst = memory_desc((3, 2), "f32", "ab"), memory_desc((3, 2), "f32", strides=(4, 1))
    plan = plan_reorder(src, dst)
    assert trace(plan.boxes, 2) is None
    assert trace(plan.boxes, 4) == (0, 2)
    check(src, dst, plan.show())


@given(pair=desc_pairs(max_nelems=256, max_ndims=5))
def test_each_place_of_dst_says_where_it_comes_from(pair: tuple[MemoryDesc, MemoryDesc]) -> None:
    src, dst = pair
    boxes = plan_reorder(src, dst).boxes
    if not dst.nelems:
        assert not boxes
        return
    for offset in range(min(dst.layout.last + 1, 64)):
        index = index_at(dst.layout, offset)
        found = trace(boxes, offset)
        if index is None:
            assert found is None
        elif any(i >= size for i, size in zip(index, dst.dims, strict=True)):
            assert found is not None
            assert found[1] is None
        else:
            assert found is not None
            assert found[1] == src.offset(index)


def test_indirect_loops_with_parameters_are_drawn() -> None:
    src, dst = memory_desc((35, 2), "s8", "Ab47a"), memory_desc((35, 2), "s8", "Ab31a")
    attr = Attr(src_scale=np.arange(1, 36, dtype=np.float32), src_scale_mask=1)
    plan = plan_reorder(src, dst, attr)
    assert plan.boxes[0].indirect[0].params
    check(src, dst, plan.show())


def test_a_plan_of_one_box_does_not_name_it_in_every_cell() -> None:
    src, dst = (memory_desc((2, 3), "f32", tag) for tag in ("ab", "ba"))
    plan = plan_reorder(src, dst)
    assert len(plan.boxes) == 1
    picture = plan.show()
    check(src, dst, picture)
    _, strips = cells(picture.svg)
    assert not [seen for seen in strips if "box" in "".join(seen.texts)]
    assert "and the box" not in picture.text


def test_a_plan_in_a_notebook_shows_a_small_picture_or_is_printed() -> None:
    src, dst = (memory_desc((32, 250, 56, 56), "f32", tag) for tag in ("nchw", "nChw16c"))
    html = plan_reorder(src, dst)._repr_html_()
    assert html is not None
    assert html.startswith("<figure")
    assert len(html) < 200_000
    src, dst = (memory_desc((1 << 15, 2), "s8", tag) for tag in ("Ab47a", "Ab31a"))
    assert plan_reorder(src, dst)._repr_html_() is None
