from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import memdesc
from memdesc import MemdescError, MemoryDesc, memory_desc
from reorder import compare_layouts
from reorder.plan.compare import COPY, NO_OP, VIEW
from tests.strategies import desc_pairs


def named(dims: tuple[int, ...], a: str, b: str) -> str:
    return compare_layouts(memory_desc(dims, "f32", a), memory_desc(dims, "f32", b)).kind


@given(pair=desc_pairs(max_nelems=512))
def test_a_copy_is_reported_exactly_where_src_does_not_hold_dst_already(
    pair: tuple[MemoryDesc, MemoryDesc],
) -> None:
    src, dst = pair
    relation = compare_layouts(src, dst)
    if not dst.nelems:
        assert relation.kind == NO_OP
        return
    moved = src.layout.offsets() - dst.layout.offsets()
    if relation.kind == COPY:
        if [axis.dims for axis in src.axes] == [axis.dims for axis in dst.axes]:
            asked = dst.layout.offsets(padded=True)
            held = src.layout.offsets(padded=True)[tuple(map(slice, asked.shape))]
            assert held.shape != asked.shape or len(np.unique(held - asked)) > 1
        return
    assert (moved == relation.shift).all()
    assert (relation.shift == 0) == (relation.kind == NO_OP)
    # the padding of dst is padding of src, so zeros are there
    beyond = set((dst.layout.offsets(padded=True) + relation.shift).ravel().tolist()) - set(
        src.layout.offsets().ravel().tolist()
    )
    assert beyond <= set(src.layout.offsets(padded=True).ravel().tolist())


@given(pair=desc_pairs(max_nelems=512))
def test_equal_layouts_need_no_copy(pair: tuple[MemoryDesc, MemoryDesc]) -> None:
    _, dst = pair
    assert compare_layouts(dst, dst).kind == NO_OP


def test_padding_makes_a_copy_in_one_direction_only() -> None:
    plain, aligned = memory_desc((1, 5), "f32", "ab"), memory_desc((1, 5), "f32", "ab__b8")
    assert (
        compare_layouts(plain, aligned).why
        == "dst has padding in b (dim 1) where src has none: zeros must be written"
    )
    assert compare_layouts(aligned, plain).kind == NO_OP


def test_a_window_is_a_view_and_says_how_far() -> None:
    parent = memory_desc((4, 20), "f32", "ab")
    src, dst = parent.submemory((2, 5), (1, 10)), memory_desc((2, 5), "f32", strides=(20, 1))
    assert compare_layouts(src, dst)[:2] == (VIEW, 30)
    assert "30 elements later in src" in compare_layouts(src, dst).why
    assert "30 elements earlier in src" in compare_layouts(dst, src).why
    near = parent.submemory((2, 5), (0, 1))
    assert "1 element later in src" in compare_layouts(near, dst).why


def test_parts_that_lie_further_apart_are_a_copy() -> None:
    # 3 channels in blocks of 2, which lie 8 apart in one and 16 in the other: only the offsets of
    # the boxes differ
    src = memory_desc((3, 1), "f32", strides=(8, 1), inner_blks=(2,), inner_idxs=(0,))
    dst = memory_desc((3, 1), "f32", strides=(16, 1), inner_blks=(2,), inner_idxs=(0,))
    assert compare_layouts(src, dst).kind == COPY


def test_blocks_that_do_not_divide_each_other_are_compared_too() -> None:
    assert named((7, 2), "Ab3a", "Ab4a") == COPY
    assert named((2, 2), "Ab3a", "Ab4a") == COPY
    assert named((7, 1), "Ab3a", "Ab4a") == NO_OP


def test_huge_tensors_are_compared_by_their_steps() -> None:
    assert named((1 << 40,), "a", "A48a") == COPY  # for the padding alone
    assert named((3 << 40,), "a", "A48a") == NO_OP
    src, dst = (memory_desc((1 << 40, 2), "u8", tag) for tag in ("Ab16a", "Ab64a16a"))
    assert (
        "from index 0 to index 16 of a (dim 0) the offset changes by 32 in src, by 16 in dst"
        in compare_layouts(src, dst).why
    )
    assert (
        "not compared one by one"
        in compare_layouts(
            *(memory_desc((1 << 40, 2), "u8", tag) for tag in ("Ab48a", "Ab32a"))
        ).why
    )


def test_dims_that_are_cut_as_one_index_on_one_side_are_compared_one_by_one() -> None:
    assert named((1, 8, 4, 4), "aBcd8b", "aB(CD)8b16(cd)") == COPY
    assert named((1, 1, 4, 4), "abcd", "ab(CD)16(cd)") == NO_OP
    assert named((1, 1, 3, 4), "abcd", "ab(CD)16(cd)") == COPY
    assert named((1, 1, 3, 4), "ab(CD)16(cd)", "abcd") == NO_OP
    assert named((1, 2, 4, 4), "abdc", "ab(CD)16(cd)") == COPY
    assert (
        "not compared one by one"
        in compare_layouts(
            *(
                memdesc.memory_desc((1, 1, 4096, 4096), "f32", tag)
                for tag in ("abcd", "ab(CD)16(cd)")
            )
        ).why
    )


def test_a_conversion_and_compensation_are_a_copy() -> None:
    assert (
        compare_layouts(memory_desc((2, 3), "f32", "ab"), memory_desc((2, 3), "s8", "ab")).why
        == "elements are converted from f32 to s8"
    )
    weights = memory_desc((3, 5, 1), "s8", "cba")
    compensated = weights.with_extra(memdesc.Extra(s8s8_mask=1))
    assert compare_layouts(compensated, compensated).kind == NO_OP
    assert "compensation" in compare_layouts(weights, compensated).why
    assert compare_layouts(compensated, weights).kind == NO_OP


def test_layouts_of_other_dims_have_no_relation() -> None:
    with pytest.raises(MemdescError, match="a reorder keeps the dims"):
        compare_layouts(memory_desc((2, 3), "f32", "ab"), memory_desc((3, 2), "f32", "ab"))
