"""Pictures with names: letters of dims, titles, values, and two layouts beside each other."""

import copy
import re

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from memdesc.picture.svg import text_width
from tests.pictures import cells, elements


def test_letters_name_the_dims_and_a_long_title_is_cut() -> None:
    desc = memory_desc((1, 5, 2, 3), "f32", "nChw4c")
    for letters, tag in (("nchw", "nChw4c"), ("wxyz", "aBcd4b")):
        text = desc.show(letters).text
        assert text.startswith(f"memory_desc((1, 5, 2, 3), 'f32', '{tag}')\n")
        panels = "rows {2}, columns {3}, a panel for each {1}".format(*letters)
        assert panels in text
    assert "n(1) c/4(2) h(2) w(3) c%4(4)" in desc.show("nchw").svg
    tile = memory_desc((8, 64), "f16", "Sw<3,3,3> o (8,64):(64,1)").with_letters("mn")
    assert "rows m, columns n" in tile.show().text
    strides = [2**k + (2**12 if k == 11 else 0) for k in range(12)]
    svg = memory_desc((2,) * 12, "f32", strides=strides).show().svg
    assert "…" in elements(svg, "title")[0].text  # type: ignore[operator] # it has one


def test_letters_stay_with_a_layout_and_are_no_part_of_its_value() -> None:
    desc, same = (memory_desc((2, 17, 5, 4), "f32", tag) for tag in ("nChw8c", "aBcd8b"))
    assert (same, hash(same), repr(same), same.letters) == (desc, hash(desc), repr(desc), None)
    assert "rows h, columns w, a panel for each n,c" in desc.show().text
    box = desc.submemory((1, 8, 5, 4), (1, 8, 0, 0))
    for kept in (box, desc.with_dtype("bf16"), desc.with_extra(None), copy.copy(desc)):
        assert kept.letters == "nchw"
    assert desc.permute_axes((0, 3, 1, 2)).letters == "nhwc"
    assert same.permute_axes((0, 3, 1, 2)).letters is desc.reshape((2, 17, 20)).letters is None
    # what was asked of an equal one does not matter
    for letter, other in (("n", desc), ("a", same)):
        plain = memory_desc((2, 17, 5, 4), "f32", "nchw" if other is desc else "abcd")
        assert f"of {letter} (dim 0)" in reorder.compare_layouts(plain, other).why


def test_values_are_drawn_in_place_of_offsets() -> None:
    desc = memory_desc((3, 2), "f32", "Ab2a")
    values = [[0.5, -1.25e-5], [2.0, 3.0], [4.0, 1e10]]
    text = desc.show(values=values).text.splitlines()
    assert text[4] == "logical: rows a, columns b; numbers are values"
    assert text[6].split() == ["0", "0.5", "-1.25e-05"]
    assert " ".join(text[-1].split("|")[1].split()) == "0.5 2 -1.25e-05 3 4 [0] 1e+10 [0]"
    drawn = elements(desc.show(values=values).svg, "text")
    # once in the grid, once in the memory
    assert [each.text for each in drawn].count("1e+10") == 2


def test_columns_and_rows_of_many_short_values_are_aligned() -> None:
    dims = (12345, 65432)
    picture = memory_desc(dims, "u8", "ab").show(values=np.broadcast_to(np.uint8(7), dims))
    top, first, *_, last = picture.text.split("\n\n")[1].splitlines()[1:]
    assert first.split() == ["0", *"7" * 15, "…", "7"]
    assert [found.end() for found in re.finditer("7", first)] == [
        found.end() for found in re.finditer("[0-9]+", top)
    ]
    assert last.removeprefix("12344") == first.removeprefix("    0")
    first_x, second_x, *_ = (seen.x for seen in cells(picture.svg)[0])
    assert second_x - first_x > text_width("65431")


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
