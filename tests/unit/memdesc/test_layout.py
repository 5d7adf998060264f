"""Layouts: the edges of int64, the search for an index, and dims regrouped. Laws say the rest."""

import copy
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from memdesc import Axis, Block, Layout, MemdescError, memory_desc
from memdesc.diophantine import Term, solve
from memdesc.errors import OutOfRangeError
from memdesc.layout import layout_by_strides, memory_order
from memdesc.overlap import check_overlap
from tests.indices import index_at
from tests.work import count_calls

INT64_MAX = 2**63 - 1
BLOCKED = memory_desc((2, 17, 5, 4), "f32", "nChw8c")
HUGE = memory_desc((2**31, 2**31), "u8", "ba")


def by_tag(dims: tuple[int, ...], tag: str) -> Layout:
    return memory_desc(dims, "u8", tag).layout


def plain(*strides: int, dims: tuple[int, ...], offset0: int = 0) -> Layout:
    return layout_by_strides(dims, strides, offset0=offset0)


def test_blocks_sort_as_they_lie_in_memory() -> None:
    back = plain(-20, 1, 5, dims=(2, 5, 4), offset0=20)
    assert [block.axis for block in sorted(back.blocks, key=memory_order)] == [0, 2, 1]
    wide, narrow = Block(0, 2, 2, 1), Block(0, 1, 2, 1)
    assert sorted([narrow, wide], key=memory_order) == [wide, narrow]
    # extents decide where a block has a single step, whose stride may be any
    assert memory_order(Block(0, 1, 3, 4)) < memory_order(Block(1, 1, 1, 4))


def test_narrow_integers_of_numpy_do_not_wrap() -> None:
    layout = plain(200, 1, dims=(3, 200))
    index: Any
    for index in ((np.uint8(2), np.int8(100)), (np.array([2], np.uint8), 100)):
        assert layout.offset(index) == 500


def _raises() -> Any:
    yield 1
    raise RuntimeError


def test_an_axis_or_a_block_whose_iterator_raises_is_refused() -> None:
    axis, block = Axis((0,), 2), Block(0, 1, 2, 1)
    with pytest.raises(MemdescError, match="axes must be a tuple of Axis"):
        Layout((2,), (_raises(),), (block,))
    with pytest.raises(MemdescError, match="blocks must be a tuple of Block"):
        Layout((2,), (axis,), (_raises(),))


class _Broken:
    def __index__(self) -> int:
        raise RuntimeError("no number")


def test_an_offset_whose_index_raises_is_refused() -> None:
    with pytest.raises(MemdescError, match="offset must be an integer that int64 holds"):
        BLOCKED.index(_Broken())  # type: ignore[arg-type] # it is refused


def test_an_index_says_whether_it_is_of_padding() -> None:
    assert (BLOCKED.index(729), BLOCKED.index(729).is_padding) == ((1, 9, 2, 3), False)
    assert repr(BLOCKED.index(729)) == "(1, 9, 2, 3)"
    padded = BLOCKED.index(np.int32(479))
    assert repr(padded) == "Index((0, 23, 4, 3), is_padding=True)"
    assert BLOCKED.offset(padded) == BLOCKED.offset((0, 23, 4, 3), padded=True) == 479
    again = copy.copy(padded)
    assert again.is_padding is padded.is_padding is True
    assert again == padded == (0, 23, 4, 3)


def test_arrays_of_an_index_are_broadcast() -> None:
    found = BLOCKED.offset((1, [[6], [7]], range(2), np.uint8(3)))
    assert found.tolist() == [[BLOCKED.offset((1, c, h, 3)) for h in range(2)] for c in (6, 7)]
    assert found.dtype == np.int64
    assert BLOCKED.offset(([], [], [], [])).shape == (0,)
    assert BLOCKED.index([]).is_padding.shape == (0,)


def test_offsets_near_the_end_of_int64_are_exact() -> None:
    assert plain(1, dims=(2,), offset0=INT64_MAX - 1).last == INT64_MAX
    assert plain(-INT64_MAX, 1, dims=(2, 1), offset0=INT64_MAX).last == INT64_MAX
    last = 2**62 - 1
    end = (2**31 - 1, 2**31 - 1)
    assert HUGE.offset(tuple([i] for i in end)).tolist() == [HUGE.offset(end)] == [last]
    assert HUGE.index(np.array([last], np.uint64)) == HUGE.index(last) == end
    wide = memory_desc((2, 2), "u8", strides=(2**61, 2**60))
    assert wide.index([2**61 + 2**60]) == (1, 1)


def test_an_index_outside_is_an_index_error() -> None:
    with pytest.raises(OutOfRangeError) as caught:
        BLOCKED.offset((0, 24, 0, 0), padded=True)
    assert isinstance(caught.value, IndexError)
    assert str(caught.value) == "index 24 of c (dim 1) is not in 0 to 23"


def test_a_search_beyond_its_bounds_finds_nothing() -> None:
    # no descriptor has such a layout: it is not proved free of overlap either
    layout = plain(10**6 + 3, 10**6 + 5, dims=(10**5, 10**5))
    assert index_at(layout, layout.offset((3, 40_000))) is None


def test_strides_that_nest_need_no_search() -> None:
    for dims, strides in (
        *(((4, 5, 6), (30, 6, 1)), ((4, 5, 6), (31, 6, 1))),
        *(((4, 6), (-7, 1)), ((2, 3, 2), (2, 4, 1))),
    ):
        layout = plain(*strides, dims=dims, offset0=10**6)
        # the least search makes 30 calls, and one of three loops 80
        assert count_calls(lambda layout=layout: check_overlap(layout)) < 25  # type: ignore[misc] # bound at once


def test_strides_that_nest_are_solved_however_large_their_extents() -> None:
    values = {1: 999_999, -(10**6): 123_456, 10**12: 7}
    target = sum(stride * value for stride, value in values.items())
    for order in permutations(values):
        terms = [Term(stride, 0, 10**6 - 1) for stride in order]
        assert solve(terms, target) == tuple(values[stride] for stride in order)


def test_values_are_skipped_if_the_smaller_strides_cannot_add_the_rest() -> None:
    # 15,000 values of the first are in range, and one leaves a multiple of 15,000
    terms = [Term(30_001, 0, 14_999), Term(30_000, 0, 10**6), Term(15_000, 0, 2)]
    assert solve(terms, 30_001 * 7 + 30_000 * 50_000) == (7, 50_000, 0)


_REGROUPED = """
2,3,4 abc -> 24 a
2,3,4 abc -> 6,4 ab
2,3,4 abc -> 2,2,6 abc
2,17,5,4 aBcd8b -> 2,17,20 aBc8b
2,17,20 aBc8b -> 2,17,5,4 aBcd8b
2,17,20 aBc8b -> 2,1,17,20,1 abCde8c
2,1,17,1 abCd8c -> 2,17 aB8b
17,3 ba -> 17,3,1,1 cbad
1,1 ab -> 1 a
2,17 aB8b -> 2,17 aB8b
32,8,5,4 ABcd2a/1.16a/2.4b -> 32,8,20 ABc2a/1.16a/2.4b
2,3,5,7 aB(CD)8b16(cd) -> 2,1,3,5,7 abC(DE)8c16(de)
2,3,5,7 aB(CD)8b16(cd) -> 2,3,5,1,7 aB(CE)d8b16(ce)
2,3,4 acb -> 6,4 Ab3a
6,4 Ab3a -> 2,3,4 acb
2,3,5,16,8 abcde -> 2,3,80,8 abcd
5,6,4 aBc2b -> 5,3,2,4 abdc
3,16 aB8b -> 3,2,8 abc
2,0,4 abc -> 2,0,4 abc
2,0,4 abc -> 2,0,2,2 abcd
0,4 ab -> 0,1,4 abc
"""


@pytest.mark.parametrize("line", _REGROUPED.strip().splitlines())
def test_dims_are_regrouped_where_no_data_moves(line: str) -> None:
    old, new = (
        memory_desc(tuple(map(int, dims.split(","))), "f32", tag)
        for dims, tag in (side.split() for side in line.split(" -> "))
    )
    assert old.reshape(new.dims) == new


def test_the_first_dim_of_those_that_are_merged_may_be_padded() -> None:
    merged = memory_desc((3, 4), "f32", "Ab8a").reshape((12,))
    assert (merged.dims, merged.padded_dims) == ((12,), (32,))
    split = merged.reshape((6, 2))
    assert split.padded_dims == (16, 2)
    assert split.reshape((3, 4)) == memory_desc((3, 4), "f32", "ba__a8")


def test_a_blocked_dim_of_one_that_is_not_padded_can_be_dropped_with_its_blocks() -> None:
    # oneDNN leaves inner_idxs pointing at the missing dim
    view = memory_desc((3, 16), "f32", "AB8a8b").submemory((3, 1), (0, 8))
    assert view.padded_dims == (8, 1)
    dropped = view.reshape((3,))
    assert dropped.layout.offsets().tolist() == [64, 72, 80]
    assert len(dropped.axes) == 1


def test_offsets_of_no_elements_take_no_memory() -> None:
    # the sum over the first two dims alone would take petabytes
    layout = memory_desc((1 << 24, 1 << 24, 0), "s8", "abc").layout
    assert layout.offsets().shape == layout.offsets(padded=True).shape == (1 << 24, 1 << 24, 0)
