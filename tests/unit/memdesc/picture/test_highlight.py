"""Elements that are highlighted."""

from itertools import product

import memdesc
from memdesc import memory_desc
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
