"""The cells of pictures: their numbers are the offsets of the descriptor."""

import re
from collections import Counter
from itertools import pairwise

import pytest

import memdesc
from memdesc import memory_desc
from tests.images import SHAPES
from tests.pictures import cells, check, elements, halves


@pytest.mark.parametrize("name", SHAPES)
def test_the_cells_of_an_image_are_its_pixels_and_lanes(name: str) -> None:
    image = memdesc.image_desc(SHAPES[name][0], "f16", name)
    grid, memory = cells(image.show().svg)
    check(image.desc, grid, memory)
    for seen in [*grid, *memory]:
        x, y, lane = (int(part.split()[-1]) for part in seen.hover[1].partition(" (")[0].split(","))
        assert (y * image.width + x) * image.channels + lane == seen.offset
        if not seen.is_hatched:
            assert image.pixel(seen.index) == (x, y, lane)
    assert len({seen.y for seen in memory}) == min(image.height, 20)


def test_one_colour_is_one_run_of_memory_and_the_next_run_has_another() -> None:
    for tag, run in (("nChw4c", 4), ("nchw", 6), ("nChw8c", 8), ("nChw2c", 12)):
        grid, memory = cells(memory_desc((1, 8, 4, 6), "f32", tag).show().svg)
        for here, after in pairwise(memory):
            is_same_run = here.offset // run == after.offset // run
            assert (here.fill == after.fill) == is_same_run or after.offset != here.offset + 1
        assert len({seen.fill for seen in grid}) == 7


def test_lines_are_longer_if_there_would_be_more_than_ten() -> None:
    for size, offset0, length in ((80, 0, 8), (81, 0, 16), (60, 40, 8)):
        desc = memory_desc((size,), "f32", strides=(1,), offset0=offset0)
        _, memory = cells(desc.show().svg)
        assert max(Counter(seen.y for seen in memory).values()) == length


def paths(svg: str, key: str, value: str) -> list[str]:
    """Return the lines of the paths of a look."""
    return [path.get("d", "") for path in elements(svg, "path") if path.get(key) == value]


def test_a_cache_line_is_marked_where_it_starts() -> None:
    desc = memory_desc((4, 16), "f32", "ab")
    svg = halves(desc.show())[1]
    _, memory = cells(svg)
    (marks,) = [path for path in paths(svg, "stroke-width", "3.5") if path.count("M") > 1]
    starts = {tuple(map(float, mark.split("v")[0].split())) for mark in marks.split("M")[1:]}
    assert starts == {(seen.x, seen.y - 1) for seen in memory if seen.offset % 16 == 0}


def test_blocks_are_outlined_in_the_memory_and_framed_in_the_grid() -> None:
    svg = halves(memory_desc((1, 8, 1, 2), "f32", "nChw4c").show())[1]
    edges = paths(svg, "class", "memdesc-edge")
    _, memory = cells(svg)
    for seen in memory:
        has_edge = any(f"M{seen.x:g} {seen.y:g}v30" in edge for edge in edges)
        assert has_edge == (seen.offset % 4 == 0)
    assert not paths(memory_desc((4, 4), "f32", "ab").show().svg, "class", "memdesc-edge")


def test_a_tensor_without_elements_is_drawn_as_a_note() -> None:
    picture = memory_desc((2, 0), "f32", "ab").show()
    assert cells(picture.svg) == ([], [])
    assert "nothing to draw" in picture.svg
    assert picture.text.endswith("nothing to draw")


def test_compensation_is_counted_and_not_drawn() -> None:
    weights = memory_desc((3, 5, 1), "s8", "cba")
    desc = weights.with_extra(memdesc.Extra(s8s8_mask=1))
    more = desc.nbytes - weights.nbytes
    size = f"{desc.nbytes} bytes in 1 cache line, the last {more} of them compensation"
    assert size in desc.show().text
    assert cells(desc.show().svg) == cells(weights.show().svg)


def test_the_terminal_form_shows_offsets_padding_and_cache_lines() -> None:
    text = memory_desc((17, 2), "f32", "Ab4a").show().text
    lines = text.splitlines()
    assert " 16  32  36" in lines
    assert "[33]" in text
    assert sum(line.count("|") for line in lines) == 3
    gaps = memory_desc((3, 2), "f32", strides=(4, 1)).show().text
    assert "0,0 0,1   -   - 1,0" in gaps


def test_a_terminal_shows_the_colours_of_the_picture_and_the_same_text() -> None:
    picture = memory_desc((5, 4), "f32", "Ab4a").show()
    lines = re.sub("\x1b\\[[0-9;]*m", "", picture.coloured).splitlines()
    assert [line.rstrip() for line in lines] == picture.text.splitlines()
    runs = re.findall("\x1b\\[38;5;16;48;5;([0-9]+)m *([0-9]+) *\x1b", picture.coloured)
    grid, _ = cells(picture.svg)
    fills = {seen.offset: seen.fill for seen in grid}
    assert {int(number) for _, number in runs} == {
        seen.offset for seen in grid if not seen.is_hatched
    }
    pairs = {(colour, fills[int(number)]) for colour, number in runs}
    assert len(pairs) == len({colour for colour, _ in pairs}) == len({fill for _, fill in pairs})
