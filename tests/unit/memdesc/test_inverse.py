from __future__ import annotations

import numpy as np
import pytest

from memdesc import memory_desc
from memdesc.index import index_at
from memdesc.layout import layout_by_strides


@pytest.mark.parametrize(
    "tag", ["aBcd8b", "dcba", "ABcd4b16a4b", "aB(CD)8b16(cd)", "ABcd2a/1.16a/2.4b"]
)
def test_the_index_at_the_offset_of_an_index_is_that_index(tag: str) -> None:
    layout = memory_desc((2, 9, 3, 5), "f32", tag).layout
    assert all(index_at(layout, layout.offset(index)) == index for index in np.ndindex(2, 9, 3, 5))


def test_padding_has_an_index_beyond_the_dims() -> None:
    layout = memory_desc((2, 9), "f32", "aB8b").layout
    assert index_at(layout, 12) == (0, 12)
    # of dims that are one axis the first carries the excess
    assert index_at(memory_desc((1, 1, 3, 5), "f32", "bf8_xy16").layout, 15) == (0, 0, 3, 0)


def test_a_gap_or_what_lies_outside_has_no_index() -> None:
    layout = memory_desc((2, 3), "f32", strides=(4, 1), offset0=2).layout
    assert [index_at(layout, offset) for offset in (1, 2, 4, 5, 8, 9)] == [
        None,
        (0, 0),
        (0, 2),
        None,
        (1, 2),
        None,
    ]


def test_a_single_element_lies_at_one_offset_only() -> None:
    layout = memory_desc((1, 1), "f32").layout
    assert [index_at(layout, offset) for offset in (-1, 0, 1)] == [None, (0, 0), None]


def test_what_a_view_cuts_off_from_a_block_has_no_index() -> None:
    view = memory_desc((2, 20), "f32", "aB8b").submemory((2, 3), (0, 8)).layout
    assert index_at(view, view.offset((1, 2))) == (1, 2)
    assert index_at(view, view.offset((1, 2)) + 1) is None


def test_a_broadcast_is_seen_at_its_first_index() -> None:
    assert index_at(memory_desc((2, 3), "f32", strides=(0, 1)).layout, 2) == (0, 2)


def test_a_search_beyond_its_bounds_finds_nothing() -> None:
    # no descriptor has such a layout: it is not proved free of overlap either
    layout = layout_by_strides((10**5, 10**5), (10**6 + 3, 10**6 + 5))
    assert index_at(layout, layout.offset((3, 40_000))) is None
