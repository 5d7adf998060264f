"""The cells of pictures: their numbers are the offsets of the descriptor."""

import re
from collections import Counter

import memdesc
from memdesc import memory_desc
from tests.images import SHAPES
from tests.pictures import cells, check


def test_the_cells_of_an_image_are_its_pixels_and_lanes() -> None:
    for name, (dims, *_) in SHAPES.items():
        image = memdesc.image_desc(dims, "f16", name)
        grid, memory = cells(image.show().svg)
        check(image.desc, grid, memory)
        for seen in [*grid, *memory]:
            pixel = [int(part.split()[-1]) for part in seen.hover[1].split(" (")[0].split(",")]
            assert seen.is_hatched or tuple(pixel) == image.pixel(seen.index)
        assert len({seen.y for seen in memory}) == min(image.height, 20)


def test_lines_are_longer_if_there_would_be_more_than_ten() -> None:
    for size, offset0, length in ((80, 0, 8), (81, 0, 16), (60, 40, 8)):
        desc = memory_desc((size,), "f32", strides=(1,), offset0=offset0)
        _, memory = cells(desc.show().svg)
        assert max(Counter(seen.y for seen in memory).values()) == length


def test_a_terminal_shows_padding_cache_lines_gaps_and_compensation() -> None:
    picture = memory_desc((17, 2), "f32", "Ab4a").show()
    lines = picture.text.splitlines()
    assert " 16  32  36" in lines
    assert (picture.text.count("[33]"), picture.text.count("|")) == (2, 3)
    assert re.sub("\x1b\\[[0-9;]*m| +", "", picture.coloured) == picture.text.replace(" ", "")
    weights = memory_desc((3, 5, 1), "s8", "cba")
    desc = weights.with_extra(memdesc.Extra(s8s8_mask=1))
    assert (
        f"{desc.nbytes} bytes in 1 cache line, the last {desc.nbytes - 15} of" in desc.show().text
    )
    assert cells(desc.show().svg) == cells(weights.show().svg)
    gaps = memory_desc((3, 2), "f32", strides=(4, 1)).show().text
    assert "0,0 0,1   -   - 1,0" in gaps


def test_a_tensor_without_elements_is_drawn_as_a_note() -> None:
    picture = memory_desc((2, 0), "f32", "ab").show()
    assert cells(picture.svg) == ([], [])
    assert "nothing to draw" in picture.svg
    assert picture.text.endswith("nothing to draw")
