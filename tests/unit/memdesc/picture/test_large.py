"""Pictures of large tensors: what is left out, how large they get, and what is highlighted."""

import re
from itertools import product

import pytest

import memdesc
from memdesc import MemoryDesc, memory_desc
from tests.pictures import cells, check, elements, halves

# elements to highlight
_LARGE = {
    memory_desc((2, 17, 5, 4), "f32", "nChw8c"): (1, 9, 2, 3),
    memory_desc((32, 250, 56, 56), "f32", "nChw16c"): (17, 101, 33, 20),
    memory_desc((1000, 1000), "f32", strides=(10**6, 100)): (500, 7),
    memory_desc((1, 6, 40, 50), "f16", "ab(cd)"): (0, 3, 20, 30),
    memory_desc((100, 200), "f32", "BA16b16a"): (99, 199),
    memory_desc((1000,), "s8", "a"): (500,),
    memory_desc((3, 2, 40, 2, 2), "f32", "aBcde4b"): (2, 1, 20, 1, 1),
    memory_desc((32, 250, 56, 56), "f32", "nhwc"): (17, 101, 33, 20),
    memory_desc((9,) * 6, "f32", "abcdef"): (4,) * 6,
    memory_desc((64, 64, 3, 3, 3), "s4", "ABcde8b16a2b"): (33, 33, 1, 1, 1),
    memory_desc((2,) * 12, "f64", "abcdefghijkl"): (1, 0) * 6,
}


@pytest.mark.parametrize("desc", _LARGE, ids=str)
def test_a_picture_is_capped_and_shows_what_is_highlighted_in_both_halves(desc: MemoryDesc) -> None:
    index = _LARGE[desc]
    picture = desc.show(highlight=[index])
    grid, memory = cells(picture.svg)
    check(desc, grid, memory)
    for side in (grid, memory):
        assert [seen.index for seen in side if seen.is_highlighted] == [index]
    assert picture.text.count("<") == 2
    assert "highlighted" in picture.svg
    assert len(grid) + len(memory) < 1200
    assert int(re.findall(' height="([0-9]+)"', picture.svg)[0]) < 2050
    html = desc._repr_html_()
    assert html.startswith('<figure class="memdesc-figure">')
    assert len(html) < 300_000
    assert "highlighted" not in html


def test_a_large_tensor_shows_both_ends_of_its_data_and_the_end_of_its_padding() -> None:
    desc = memory_desc((32, 250, 56, 56), "f32", "nChw16c")
    picture = desc.show("nchw", highlight=[(17, 255, 33, 20)])
    grid, memory = cells(picture.svg)
    check(desc, grid, memory)
    assert {index[1] for index in (seen.index for seen in grid)} >= {0, 249, 255}
    assert memory[-1].offset == desc.min_nbytes // 4 - 1
    assert [seen.index for seen in grid if seen.is_highlighted] == [(17, 255, 33, 20)]
    assert {"⋯", "⋮"} <= {*picture.svg}
    assert "…" in picture.text
    assert "c=255" in picture.text
    # a mark in front of a panel where some are left out
    picture = memory_desc((5, 17, 5, 4), "f32", "nChw8c").show()
    texts = [text.text for text in elements(halves(picture)[0], "text")]
    assert picture.text.partition("memory: ")[0].count("…") == 5
    assert (texts.count("⋮"), texts.count("⋯")) == (3, 2)


def test_many_highlighted_elements_do_not_make_the_picture_larger() -> None:
    whole = product(range(64), range(1000))
    grid, memory = cells(memory_desc((64, 1000), "f32", "ab").show(highlight=whole).svg)
    assert len(grid) + len(memory) < 1200
    assert all(seen.is_highlighted for seen in [*grid, *memory])


def test_highlighted_pixels_are_shown_in_large_images() -> None:
    image = memdesc.image_desc((1, 64, 56, 56), "f16", "in_out_channel")
    for side in cells(image.show(highlight=[(0, 33, 20, 21)]).svg):
        assert [seen.index for seen in side if seen.is_highlighted] == [(0, 33, 20, 21)]
    assert len(image._repr_html_()) < 300_000


def test_lines_with_elements_are_shown_if_there_are_many_gaps() -> None:
    desc = memory_desc((64, 1000), "f32", "ab").submemory((5, 3), (7, 501))
    grid, memory = cells(desc.show().svg)
    check(desc, grid, memory)
    assert {seen.index for seen in memory if seen.is_element} == {seen.index for seen in grid}
    _, memory = cells(memory_desc((1000, 1000), "f32", strides=(10**6, 100)).show().svg)
    assert sum(seen.is_element for seen in memory) >= 19
