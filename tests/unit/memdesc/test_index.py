import copy

import numpy as np
import pytest

from memdesc import memory_desc
from memdesc.errors import OutOfRangeError
from memdesc.index import index_at
from memdesc.layout import layout_by_strides

BLOCKED = memory_desc((2, 17, 5, 4), "f32", "nChw8c")
HUGE = memory_desc((2**31, 2**31), "u8", "ba")


def test_an_offset_leads_back_to_its_index() -> None:
    assert not BLOCKED.index(729).is_padding
    assert BLOCKED.index(729) == (1, 9, 2, 3)
    assert repr(BLOCKED.index(729)) == "(1, 9, 2, 3)"
    padded = BLOCKED.index(np.int32(479))
    assert padded.is_padding is True
    assert repr(padded) == "Index((0, 23, 4, 3), is_padding=True)"
    assert BLOCKED.offset(padded) == BLOCKED.offset((0, 23, 4, 3), padded=True) == 479
    again = copy.copy(padded)
    assert again.is_padding is True
    assert again == padded == (0, 23, 4, 3)


def test_arrays_of_an_index_are_broadcast() -> None:
    found = BLOCKED.offset((1, [[6], [7]], range(2), np.uint8(3)))
    assert found.tolist() == [[BLOCKED.offset((1, c, h, 3)) for h in range(2)] for c in (6, 7)]
    assert found.dtype == np.int64
    assert BLOCKED.offset(([], [], [], [])).shape == (0,)
    assert BLOCKED.index([]).is_padding.shape == (0,)


def test_offsets_near_the_end_of_int64_are_exact() -> None:
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
    layout = layout_by_strides((10**5, 10**5), (10**6 + 3, 10**6 + 5))
    assert index_at(layout, layout.offset((3, 40_000))) is None
