"""Elements that are highlighted."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import memdesc
from memdesc import MemdescError, memory_desc
from tests.pictures import cells, check


def test_highlighted_elements_are_marked_in_both_halves_however_large_the_tensor_is() -> None:
    for desc, index in (
        (memory_desc((2, 17, 5, 4), "f32", "nChw8c"), (1, 9, 2, 3)),
        (memory_desc((32, 250, 56, 56), "f32", "nChw16c"), (17, 101, 33, 20)),
        (memory_desc((32, 250, 56, 56), "f32", "nChw16c"), (17, 255, 33, 20)),
        (memory_desc((1000, 1000), "f32", strides=(10**6, 100)), (500, 7)),
        (memory_desc((1, 6, 40, 50), "f16", "ab(cd)"), (0, 3, 20, 30)),
    ):
        picture = desc.show(highlight=[index])
        grid, memory = cells(picture.svg)
        check(desc, grid, memory)
        for side in (grid, memory):
            assert [seen.index for seen in side if seen.is_highlighted] == [index]
        assert picture.text.count("<") == 2
        assert "highlighted" in picture.svg
    assert "highlighted" not in memory_desc((2, 3), "f32", "ab").show().svg


def test_highlighted_pixels_are_shown_in_large_images() -> None:
    image = memdesc.image_desc((1, 64, 56, 56), "f16", "in_out_channel")
    for side in cells(image.show(highlight=[(0, 33, 20, 21)]).svg):
        assert [seen.index for seen in side if seen.is_highlighted] == [(0, 33, 20, 21)]


def test_many_highlighted_elements_do_not_make_the_picture_larger() -> None:
    desc = memory_desc((64, 1000), "f32", "ab")
    whole = product(range(64), range(1000))
    grid, memory = cells(desc.show(highlight=whole).svg)
    assert len(grid) + len(memory) < 1200
    assert all(seen.is_highlighted for seen in [*grid, *memory])


@pytest.mark.parametrize(
    ("highlight", "says"),
    [
        ([(1, 9, 2)], "must be 4 numbers"),
        ([(1, 9, 5, 3)], r"index 5 of h \(dim 2\) is not in 0 to 4"),
        ([(0, 24, 0, 0)], "is not in 0 to 23, with padding"),
        ([(0, -1, 0, 0)], "is not in 0 to 23"),
        ((1, 9, 2, 3), r"such as \[\(0, 0, 0, 0\)\]"),
        (7, "must be a list of indices"),
        ([(1, 9, 2, 3.5)], "must be a list of indices"),
        ("1,9,2,3", "must be a list of indices"),
    ],
)
def test_indices_that_cannot_be_highlighted_are_refused(highlight: Any, says: str) -> None:
    desc = memory_desc((2, 17, 5, 4), "f32", "nChw8c")
    with pytest.raises(MemdescError, match=says):
        desc.show(highlight=highlight)


def test_an_index_beyond_the_padding_of_fused_dims_is_refused() -> None:
    fused = memory_desc((1, 1, 3, 3), "f32", "ab(CD)8(cd)")
    with pytest.raises(MemdescError, match="has no such index"):
        fused.show(highlight=[(0, 0, 5, 2)])
