"""Pictures of large tensors: what is left out, and how large they get."""

import re
from itertools import pairwise

import memdesc
from memdesc import memory_desc
from tests.pictures import cells, check, elements, halves


def test_a_large_tensor_is_capped_and_shows_both_ends_of_its_data_and_the_end_of_its_padding() -> (
    None
):
    desc = memory_desc((32, 250, 56, 56), "f32", "nChw16c")
    picture = desc.show("nchw")
    grid, memory = cells(picture.svg)
    check(desc, grid, memory)
    assert len(grid) + len(memory) < 1200
    assert {index[1] for index in (seen.index for seen in grid)} >= {0, 249, 255}
    assert memory[-1].offset == desc.min_nbytes // 4 - 1
    assert "⋯" in picture.svg
    assert "⋮" in picture.svg
    assert "…" in picture.text
    assert "c=255" in picture.text


def test_two_dims_and_a_vector_are_capped_too() -> None:
    for desc in (
        memory_desc((100, 200), "f32", "BA16b16a"),
        memory_desc((1000,), "s8", "a"),
        memory_desc((3, 2, 40, 2, 2), "f32", "aBcde4b"),
    ):
        grid, memory = cells(desc.show().svg)
        check(desc, grid, memory)
        assert len(grid) + len(memory) < 1200


def test_panels_left_out_leave_a_mark_in_front_of_the_next_one() -> None:
    desc = memory_desc((5, 17, 5, 4), "f32", "nChw8c")
    lines = desc.show().text.splitlines()
    captions = [re.findall("n=([0-9]+) c=([0-9]+)", line) for line in lines]
    shown = [(int(n), int(c)) for found in captions for n, c in found]
    assert {n for n, _ in shown} == {0, 4}
    assert {c for _, c in shown} >= {0, 16, 23}
    skipped = sum(after[0] * 24 + after[1] != n * 24 + c + 1 for (n, c), after in pairwise(shown))
    grid = lines[: next(k for k, line in enumerate(lines) if line.startswith("memory: "))]
    assert grid.count("…") == skipped
    panels = [text.text for text in elements(halves(desc.show())[0], "text")]
    assert sum(panels.count(dots) for dots in "⋮⋯") == skipped


def test_no_picture_is_longer_than_two_screens() -> None:
    for dims, tag in (((2, 17, 5, 4), "nChw8c"), ((32, 250, 56, 56), "nhwc"), ((9,) * 6, "abcdef")):
        svg = memory_desc(dims, "f32", tag).show().svg
        assert int(re.findall(' height="([0-9]+)"', svg)[0]) < 2000


def test_values_in_a_notebook_show_a_picture_of_bounded_size() -> None:
    for dims, dtype, tag in (
        ((2, 3), "f32", "ab"),
        ((32, 250, 56, 56), "f32", "nChw16c"),
        ((64, 64, 3, 3, 3), "s4", "ABcde8b16a2b"),
        ((2,) * 12, "f64", "abcdefghijkl"),
    ):
        desc = memory_desc(dims, dtype, tag)
        html = desc._repr_html_()
        assert html.startswith('<figure class="memdesc-figure">')
        assert len(html) < 150_000
    image = memdesc.image_desc((1, 64, 56, 56), "f16", "in_out_channel")
    assert len(image._repr_html_()) < 150_000
