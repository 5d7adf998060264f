"""Comparison of two layouts, against the offsets of all elements."""

import numpy as np
import pytest
from hypothesis import given

from memdesc import Extra, MemdescError, MemoryDesc, memory_desc
from reorder import compare_layouts
from reorder.plan.compare import COPY, NO_OP, VIEW
from tests.strategies import desc_pairs

# sizes, layouts of src and dst, the kind, and what the reason contains
_CASES = """
1x5 ab ab__b8 copy dst has padding in b (dim 1) where src has none: zeros must be written
1x5 ab__b8 ab no-op
7x2 Ab3a Ab4a copy
2x2 Ab3a Ab4a copy
7x1 Ab3a Ab4a no-op
1099511627776 a A48a copy
3298534883328 a A48a no-op
1099511627776x2 Ab16a Ab64a16a copy from index 0 to index 16 of a (dim 0) the offset changes by 32 in src, by 16 in dst
1099511627776x2 Ab48a Ab32a copy are not compared one by one
1x8x4x4 aBcd8b aB(CD)8b16(cd) copy
1x1x4x4 abcd ab(CD)16(cd) no-op
1x1x3x4 abcd ab(CD)16(cd) copy
1x1x3x4 ab(CD)16(cd) abcd no-op
1x2x4x4 abdc ab(CD)16(cd) copy
1x1x4096x4096 abcd ab(CD)16(cd) copy are not compared one by one
"""  # noqa: E501 - a case in each line


@pytest.mark.parametrize("line", _CASES.strip().splitlines())
def test_two_layouts_have_a_relation_and_a_reason(line: str) -> None:
    sizes, src, dst, kind, *reason = line.split(" ", 4)
    dims = tuple(map(int, sizes.split("x")))
    relation = compare_layouts(memory_desc(dims, "f32", src), memory_desc(dims, "f32", dst))
    assert relation.kind == kind
    assert "".join(reason) in relation.why


@given(pair=desc_pairs(max_nelems=512))
def test_a_copy_is_reported_exactly_where_src_does_not_hold_dst_already(
    pair: tuple[MemoryDesc, MemoryDesc],
) -> None:
    src, dst = pair
    assert compare_layouts(dst, dst).kind == NO_OP
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


def test_a_window_is_a_view_and_says_how_far() -> None:
    parent, dst = memory_desc((4, 20), "f32", "ab"), memory_desc((2, 5), "f32", strides=(20, 1))
    far, near = (parent.submemory((2, 5), at) for at in ((1, 10), (0, 1)))
    assert compare_layouts(far, dst)[:2] == (VIEW, 30)
    assert "30 elements later in src" in compare_layouts(far, dst).why
    assert "1 element earlier in src" in compare_layouts(dst, near).why


def test_a_conversion_and_compensation_are_a_copy() -> None:
    weights = memory_desc((3, 5, 1), "s8", "cba")
    relation = compare_layouts(weights.with_dtype("f32"), weights)
    assert relation.why == "elements are converted from f32 to s8"
    compensated = weights.with_extra(Extra(s8s8_mask=1))
    assert compare_layouts(compensated, compensated).kind == NO_OP
    assert "compensation" in compare_layouts(weights, compensated).why
    assert compare_layouts(compensated, weights).kind == NO_OP
    with pytest.raises(MemdescError, match="a reorder keeps the dims"):
        compare_layouts(memory_desc((2, 3), "f32", "ab"), memory_desc((3, 2), "f32", "ab"))
