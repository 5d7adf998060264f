"""Two layouts side by side."""

import re

import pytest

from memdesc import MemdescError, memory_desc
from tests.pictures import cells


def test_two_layouts_are_drawn_side_by_side_in_the_colours_of_the_second() -> None:
    a, b = (memory_desc((2, 9, 2, 3), "f32", tag) for tag in ("nchw", "nChw4c"))
    picture = a.show(beside=b, highlight=[(1, 7, 1, 2)])
    grid, memory = cells(picture.svg)
    assert grid == []
    middle = min(seen.x for seen in memory if any("offset in a" in line for line in seen.hover))
    left, right = ([seen for seen in memory if (seen.x < middle) == side] for side in (True, False))
    for desc, other, side, name in ((a, b, left, "b"), (b, a, right, "a")):
        for seen in side:
            assert seen.texts[1] == ("pad" if seen.is_hatched else ",".join(map(str, seen.index)))
            if seen.is_hatched:
                continue
            assert desc.offset(seen.index) == seen.offset
            assert seen.hover[-1] == f"offset in {name} {other.offset(seen.index)}"
        assert [seen.index for seen in side if seen.is_highlighted] == [(1, 7, 1, 2)]
    colours = {seen.index: seen.fill for seen in right}
    assert all(seen.fill == colours.get(seen.index, seen.fill) for seen in left)
    # a terminal shows these colours
    shown = re.findall("\x1b\\[38;5;16;48;5;([0-9]+)m *([0-9,]+)\x1b", picture.coloured)
    assert len({*shown}) < len(shown)
    assert len({*shown}) == len({index for _, index in shown})
    heads = (
        "a: memory_desc((2, 9, 2, 3), 'f32', 'nchw')",
        "b: memory_desc((2, 9, 2, 3), 'f32', 'nChw4c')",
    )
    assert picture.text.startswith("\n".join([*heads, ""]))
    with pytest.raises(MemdescError, match=r"beside has the dims \(2, 9, 3, 2\)"):
        a.show(beside=memory_desc((2, 9, 3, 2), "f32", "nchw"))
    with pytest.raises(MemdescError, match="beside must be a MemoryDesc"):
        a.show(beside=3)  # type: ignore[arg-type] # callers without types


def test_layouts_with_gaps_and_without_elements_are_drawn_side_by_side() -> None:
    a, b = memory_desc((3, 2), "f32", strides=(4, 1)), memory_desc((3, 2), "f32", "ba")
    assert "no element" in a.show(beside=b).svg
    empty = memory_desc((0, 2), "f32", "ab")
    assert "nothing to draw" in empty.show(beside=empty).svg
