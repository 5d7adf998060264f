"""Layouts: what they refuse, and the edges of int64. Laws say what legal ones answer."""

from typing import Any

import pytest

from memdesc import Axis, Block, Layout, MemdescError, memory_desc
from memdesc.layout import layout_by_strides, memory_order
from memdesc.tags import parse_tag

INT64_MAX = 2**63 - 1


def by_tag(dims: tuple[int, ...], tag: str) -> Layout:
    return memory_desc(dims, "u8", tag).layout


def plain(*strides: int, dims: tuple[int, ...], offset0: int = 0) -> Layout:
    return layout_by_strides(dims, strides, offset0=offset0)


def test_a_block_of_one_is_dropped_as_onednn_does() -> None:
    assert parse_tag("aB1b") == parse_tag("ab")
    assert parse_tag("A1a/1.4a/1b") == parse_tag("A4ab")


def test_blocks_sort_as_they_lie_in_memory() -> None:
    order = sorted(by_tag((2, 9, 1, 5), "aBcd4b").blocks, key=memory_order)
    assert [(block.axis, block.extent) for block in order] == [
        *((0, 2), (1, 3), (2, 1), (3, 5), (1, 4))
    ]
    back = plain(-20, 1, 5, dims=(2, 5, 4), offset0=20)
    assert [block.axis for block in sorted(back.blocks, key=memory_order)] == [0, 2, 1]
    # two blocks of one axis that share elements, as a layout that is only read may
    wide, narrow = Block(0, 2, 2, 1), Block(0, 1, 2, 1)
    assert sorted([narrow, wide], key=memory_order) == [wide, narrow]


def test_offsets_up_to_int64_are_legal() -> None:
    assert by_tag((INT64_MAX,), "a").last == INT64_MAX - 1
    assert plain(1, dims=(2,), offset0=INT64_MAX - 1).last == INT64_MAX
    assert plain(INT64_MAX, 1, dims=(2, 1)).last == INT64_MAX
    assert plain(-INT64_MAX, 1, dims=(2, 1), offset0=INT64_MAX).last == INT64_MAX


def _raises() -> Any:
    yield 1
    raise RuntimeError


def test_an_axis_or_a_block_whose_iterator_raises_is_refused() -> None:
    axis, block = Axis((0,), 2), Block(0, 1, 2, 1)
    with pytest.raises(MemdescError, match="axes must be a tuple of Axis"):
        Layout((2,), (_raises(),), (block,))
    with pytest.raises(MemdescError, match="blocks must be a tuple of Block"):
        Layout((2,), (axis,), (_raises(),))
