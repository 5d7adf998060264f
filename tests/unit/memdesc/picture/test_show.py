from __future__ import annotations

import pickle
import re
import subprocess
import sys
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import memdesc
from memdesc import MemdescError, memory_desc
from memdesc.names import dim_letters, resolve
from memdesc.picture import Picture
from memdesc.picture.png import check_font
from tests.pictures import cells, elements

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pictures import Seen

_CASES: dict[str, dict[str, Any]] = {
    "vector": {"dims": (5,), "dtype": "f32", "tag": "a"},
    "scalar": {"dims": (1, 1), "dtype": "f32", "tag": "ab"},
    "column-major": {"dims": (3, 4), "dtype": "u8", "tag": "ba"},
    "blocked": {"dims": (1, 5, 2, 3), "dtype": "f32", "tag": "nChw4c"},
    "two images": {"dims": (2, 3, 2, 2), "dtype": "f16", "tag": "nhwc"},
    "blocks of three": {"dims": (2, 4, 2), "dtype": "f64", "tag": "aBc3b"},
    "nested blocks": {"dims": (5, 6), "dtype": "s8", "tag": "BA2a4b2a"},
    "4 bits": {"dims": (5, 7), "dtype": "s4", "tag": "Ab4a"},
    "fused plane": {"dims": (1, 2, 2, 3), "dtype": "f32", "tag": "aB(CD)2b4(cd)"},
    "swizzled": {"dims": (3, 3), "dtype": "s8", "tag": "AB2a/1.2a/2.2b"},
    "aligned": {"dims": (3, 5), "dtype": "bf16", "tag": "ab__b8"},
    "gaps": {"dims": (3, 4), "dtype": "f32", "strides": (6, 1), "offset0": 3},
    "negative": {"dims": (3, 4), "dtype": "f32", "strides": (4, -1), "offset0": 3},
    "broadcast": {"dims": (3, 4), "dtype": "f32", "strides": (0, 1)},
    "in the middle of a cache line": {"dims": (3,), "dtype": "f32", "strides": (1,), "offset0": 9},
    "not nested": {"dims": (3, 2), "dtype": "f32", "strides": (2, 3)},
}
_IMAGES: dict[str, tuple[int, ...]] = dict.fromkeys(
    ("in_out_channel", "in_out_height", "in_out_width", "conv2d_filter", "weight_height"),
    (2, 5, 4, 3),
)
_IMAGES |= {
    "weight_width": (2, 2, 1, 6),
    "argument": (7,),
    "image_2d_weights_c4_fyx_b": (3, 2, 1, 3),
    "image_2d_weights_c1_b_fyx": (3, 2, 1, 3),
}


def check(desc: memdesc.MemoryDesc, grid: list[Seen], memory: list[Seen]) -> None:
    """Check every number that a picture shows against the descriptor."""
    padded = {}
    tables = desc.layout.tables(padded=True)
    for seen in [*grid, *memory]:
        if not seen.is_element:
            continue
        is_padding = seen.hover[0].startswith("padding at")
        assert is_padding == any(i >= size for i, size in zip(seen.index, desc.dims, strict=True))
        assert is_padding == seen.is_hatched
        if not is_padding:
            assert desc.offset(seen.index) == seen.offset
        by_axis = (
            np.ravel_multi_index(
                [seen.index[d] for d in axis.dims],
                (1 << 40, *(desc.dims[d] for d in axis.dims[1:])),
            )
            for axis in desc.axes
        )
        assert (
            desc.offset0 + sum(int(table[i]) for table, i in zip(tables, by_axis, strict=True))
            == seen.offset
        )
        padded[seen.index] = seen.offset
        place = next(line for line in seen.hover if line.startswith("byte "))
        assert f"offset {seen.offset}" in seen.hover
        half = f", {'high' if seen.offset % 2 else 'low'} half" if desc.dtype.is_packed else ""
        assert place == f"byte {seen.offset * desc.dtype.bits // 8}{half}"
    if desc.padded_nelems < 1 << 20:
        held = {desc.offset0 + sum(map(int, parts)) for parts in product(*tables)}
        assert all(seen.is_element == (seen.offset in held) for seen in memory)
    if not desc.has_broadcast:
        assert len(set(padded.values())) == len(padded)
    # one number, one colour on both sides
    colours = {seen.offset: seen.fill for seen in grid if not seen.is_hatched}
    for seen in memory:
        assert seen.is_hatched or colours.get(seen.offset, seen.fill) == seen.fill
    for side in (grid, memory):
        assert len({(seen.x, seen.y) for seen in side}) == len(side)
    # the memory runs line by line
    assert [seen.offset for seen in memory] == sorted(seen.offset for seen in memory)
    assert sorted(memory, key=lambda seen: (seen.y, seen.x)) == memory


@pytest.mark.parametrize("name", _CASES)
def test_the_numbers_of_a_picture_are_the_offsets_of_the_descriptor(name: str) -> None:
    desc = memory_desc(**_CASES[name])
    grid, memory = cells(desc.show().svg)
    check(desc, grid, memory)
    shown = {seen.index for seen in grid if not seen.is_hatched}
    assert shown == set(product(*map(range, desc.dims)))
    if not desc.has_broadcast:
        assert {seen.index for seen in memory if seen.is_element} == {seen.index for seen in grid}
        assert sum(seen.is_element for seen in grid) == desc.padded_nelems


@pytest.mark.parametrize("name", _IMAGES)
def test_the_cells_of_an_image_are_its_pixels_and_lanes(name: str) -> None:
    image = memdesc.image_desc(_IMAGES[name], "f16", name)
    grid, memory = cells(image.show().svg)
    check(image.desc, grid, memory)
    assert {seen.index for seen in grid if not seen.is_hatched} == set(
        product(*map(range, image.dims))
    )
    for seen in [*grid, *memory]:
        x, y, lane = (int(part.split()[-1]) for part in seen.hover[1].partition(" (")[0].split(","))
        assert (y * image.width + x) * image.channels + lane == seen.offset
        if not seen.is_hatched:
            assert image.pixel(seen.index) == (x, y, lane)
    lines = sorted({seen.y for seen in memory})
    assert len(lines) == min(image.height, 20)


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


def test_one_colour_is_one_run_of_memory_and_the_next_run_has_another() -> None:
    for tag, run in (("nChw4c", 4), ("nchw", 6), ("nChw8c", 8), ("nChw2c", 12)):
        grid, memory = cells(memory_desc((1, 8, 4, 6), "f32", tag).show().svg)
        for here, after in pairwise(memory):
            is_same_run = here.offset // run == after.offset // run
            assert (here.fill == after.fill) == is_same_run or after.offset != here.offset + 1
        assert len({seen.fill for seen in grid}) == 7


def test_the_grid_runs_row_by_row_in_each_panel() -> None:
    grid, _ = cells(memory_desc((2, 3, 4), "f32", "cab").show().svg)
    for panel in (0, 1):
        own = [seen for seen in grid if seen.index[0] == panel]
        assert sorted(own, key=lambda seen: (seen.y, seen.x)) == sorted(
            own, key=lambda seen: seen.index
        )


def test_lines_that_hold_elements_are_shown_where_there_are_many_gaps() -> None:
    parent = memory_desc((64, 1000), "f32", "ab")
    desc = parent.submemory((5, 3), (7, 501))
    grid, memory = cells(desc.show().svg)
    check(desc, grid, memory)
    assert {seen.index for seen in memory if seen.is_element} == {seen.index for seen in grid}
    wide = memory_desc((1000, 1000), "f32", strides=(10**6, 100))
    grid, memory = cells(wide.show().svg)
    check(wide, grid, memory)
    assert sum(seen.is_element for seen in memory) >= 19


def test_a_cache_line_is_marked_where_it_starts() -> None:
    desc = memory_desc((4, 16), "f32", "ab")
    svg = desc.show().svg
    _, memory = cells(svg)
    (marks,) = [
        path.get("d", "")
        for path in elements(svg, "path")
        if path.get("stroke-width") == "3.5" and path.get("d", "").count("M") > 1
    ]
    starts = {tuple(map(float, mark.split("v")[0].split())) for mark in marks.split("M")[1:]}
    assert starts == {(seen.x, seen.y - 1) for seen in memory if seen.offset % 16 == 0}


def test_blocks_are_outlined_in_the_memory_and_framed_in_the_grid() -> None:
    svg = memory_desc((1, 8, 1, 2), "f32", "nChw4c").show().svg
    edges = [
        path.get("d", "") for path in elements(svg, "path") if path.get("class") == "memdesc-edge"
    ]
    _, memory = cells(svg)
    for seen in memory:
        has_edge = any(f"M{seen.x:g} {seen.y:g}v26" in edge for edge in edges)
        assert has_edge == (seen.offset % 4 == 0)
    assert not any(
        path.get("class") == "memdesc-edge"
        for path in elements(memory_desc((4, 4), "f32", "ab").show().svg, "path")
    )


def test_the_same_picture_has_the_same_bytes_in_every_process() -> None:
    script = "import memdesc; print(memdesc.memory_desc((2, 17, 5, 4), 's8', 'nChw8c').show().svg)"
    runs = {
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in "12"
    }
    assert len(runs) == 1
    assert runs.pop().decode().strip() == memory_desc((2, 17, 5, 4), "s8", "nChw8c").show().svg


def test_a_picture_has_no_ids_links_or_scripts() -> None:
    svg = memory_desc((2, 17, 5, 4), "s8", "nChw8c").show().svg
    assert " id=" not in svg
    assert "href" not in svg
    assert "script" not in svg


def test_a_tensor_without_elements_is_drawn_as_a_note() -> None:
    picture = memory_desc((2, 0), "f32", "ab").show()
    assert cells(picture.svg) == ([], [])
    assert "nothing to draw" in picture.svg
    assert picture.text.endswith("nothing to draw")


def test_compensation_is_counted_and_not_drawn() -> None:
    weights = memory_desc((3, 5, 1), "s8", "cba")
    desc = weights.with_extra(memdesc.Extra(s8s8_mask=1))
    assert (
        f"{desc.nbytes} bytes in 1 cache line, the last {desc.nbytes - weights.nbytes} of "
        "them compensation"
    ) in desc.show().text
    assert cells(desc.show().svg) == cells(weights.show().svg)


def test_letters_name_the_dims() -> None:
    desc = memory_desc((1, 5, 2, 3), "f32", "nChw4c")
    assert "rows h, columns w, a panel for each c" in desc.show("nchw").text
    assert "n(1) c/4(2) h(2) w(3) c%4(4)" in desc.show("nchw").svg
    for letters in ("nch", "nchh"):
        with pytest.raises(MemdescError, match="must name 4 dims"):
            desc.show(letters)
    for wrong in ("", 3, [], list("nchw"), b"nchw"):
        with pytest.raises(MemdescError, match="must name 4 dims"):
            desc.show(wrong)  # type: ignore[arg-type] # callers without types
        with pytest.raises(MemdescError, match="must name 4 dims"):
            memdesc.image_desc((1, 5, 2, 3), "f16", "in_out_channel").show(wrong)  # type: ignore[arg-type] # likewise
    with pytest.raises(MemdescError, match="must name 1 dims"):
        memdesc.image_desc((7,), "f16", "argument").show("ab")


def test_a_name_names_the_dims_of_what_is_made_from_it() -> None:
    desc = memory_desc((2, 17, 5, 4), "f32", "nChw8c")
    assert desc.letters == "nchw"
    assert "rows h, columns w, a panel for each n,c" in desc.show().text
    assert memory_desc((2, 17, 5, 4), "f32", "b_fs_yx_fsv8").letters == "bfyx"
    same = memory_desc((2, 17, 5, 4), "f32", "aBcd8b")
    assert same.letters is None
    assert same == desc
    assert hash(same) == hash(desc)
    assert repr(same) == repr(desc)
    assert desc.with_dtype("bf16").letters == desc.with_extra(None).letters == "nchw"
    assert desc.submemory((1, 8, 5, 4), (1, 8, 0, 0)).letters == "nchw"
    assert desc.permute_axes((0, 3, 1, 2)).letters == "nhwc"
    assert same.permute_axes((0, 3, 1, 2)).letters is None
    assert desc.reshape((2, 17, 20)).letters is None
    assert pickle.loads(pickle.dumps(desc)).letters == "nchw"  # noqa: S301 - made here
    for wrong in ("nch", 4, "nchh"):
        with pytest.raises(MemdescError, match="must name 4 dims"):
            memdesc.MemoryDesc(desc.dtype, desc.layout, letters=wrong)  # type: ignore[arg-type] # callers without types


def test_every_known_name_makes_a_descriptor_with_its_letters_or_none() -> None:
    for name in memdesc.known_names():
        try:
            tag = resolve(name.text, (), 32)
            desc = memory_desc((4,) * tag.ndims, "f32", name.text)
        except MemdescError:
            continue  # refused, with the reason, or for other sizes
        assert desc.letters in {None, dim_letters(name.text)}


def test_a_long_title_is_cut() -> None:
    desc = memory_desc(
        (2,) * 12, "f32", strides=[2**k + (2**12 if k == 11 else 0) for k in range(12)]
    )
    assert "…" in elements(desc.show().svg, "title")[0].text  # type: ignore[operator] # it has one


def test_notebooks_draw_and_terminals_print() -> None:
    picture = memory_desc((2, 3), "f32", "ab").show()
    assert picture._repr_svg_() == picture.svg
    assert picture._repr_html_() == picture.fragment
    assert Picture(picture.svg, picture.text)._repr_html_() == picture.svg
    assert str(picture) == repr(picture) == picture.text


def test_the_terminal_form_shows_offsets_padding_and_cache_lines() -> None:
    text = memory_desc((17, 2), "f32", "Ab4a").show().text
    lines = text.splitlines()
    assert " 16  32  36" in lines
    assert "[33]" in text
    assert sum(line.count("|") for line in lines) == 3
    gaps = memory_desc((3, 2), "f32", strides=(4, 1)).show().text
    assert "0,0 0,1   -   - 1,0" in gaps


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
    svg = desc.show().svg
    panels = [text for text in elements(svg, "text") if text.text in {"⋮", "⋯"}]
    (head,) = [text for text in elements(svg, "text") if (text.text or "").startswith("memory: ")]
    left = float(head.get("x", ""))
    assert sum(float(text.get("x", "")) < left for text in panels) == skipped


def test_three_batches_are_all_drawn() -> None:
    assert "n=1 c=0" in memory_desc((3, 17, 5, 4), "f32", "nChw8c").show().text


def test_no_picture_is_longer_than_two_screens() -> None:
    for dims, tag in (((2, 17, 5, 4), "nChw8c"), ((32, 250, 56, 56), "nhwc"), ((9,) * 6, "abcdef")):
        svg = memory_desc(dims, "f32", tag).show().svg
        assert int(re.findall(' height="([0-9]+)"', svg)[0]) < 2000


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
        ([(1, 9, 5, 3)], r"index 5 of c \(dim 2\) is not in 0 to 4"),
        ([(0, 24, 0, 0)], "is not in 0 to 23, with padding"),
        ([(0, -1, 0, 0)], "is not in 0 to 23"),
        ((1, 9, 2, 3), r"such as \[\(0, 0, 0, 0\)\]"),
        (7, "must be a list of indices"),
        ([(1, 9, 2, 3.5)], "must be a list of indices"),
        ("1,9,2,3", "must be a list of indices"),
    ],
)
def test_what_cannot_be_highlighted_is_refused(highlight: Any, says: str) -> None:
    desc = memory_desc((2, 17, 5, 4), "f32", "nChw8c")
    with pytest.raises(MemdescError, match=says):
        desc.show(highlight=highlight)


def test_an_index_beyond_the_padding_of_fused_dims_is_refused() -> None:
    fused = memory_desc((1, 1, 3, 3), "f32", "ab(CD)8(cd)")
    with pytest.raises(MemdescError, match="has no such index"):
        fused.show(highlight=[(0, 0, 5, 2)])


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
    assert picture.text.startswith(f"a: {a!r}\nb: {b!r}\n")
    with pytest.raises(MemdescError, match=r"beside has the dims \(2, 9, 3, 2\)"):
        a.show(beside=memory_desc((2, 9, 3, 2), "f32", "nchw"))
    with pytest.raises(MemdescError, match="beside must be a MemoryDesc"):
        a.show(beside="nchw")  # type: ignore[arg-type] # callers without types


def test_layouts_with_gaps_and_without_elements_are_drawn_side_by_side() -> None:
    a, b = memory_desc((3, 2), "f32", strides=(4, 1)), memory_desc((3, 2), "f32", "ba")
    assert "no element" in a.show(beside=b).svg
    empty = memory_desc((0, 2), "f32", "ab")
    assert "nothing to draw" in empty.show(beside=empty).svg


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


def test_html_holds_the_same_cells_as_the_svg() -> None:
    for picture in (
        memory_desc((1, 5, 2, 3), "f32", "nChw4c").show(),
        memory_desc((3, 4), "f32", strides=(6, 1), offset0=3).show(),
    ):
        halves = re.findall("<svg .*?</svg>", picture.fragment, re.DOTALL)
        drawn = [seen for half in halves for side in cells(half) for seen in side]
        assert drawn == [seen for side in cells(picture.svg) for seen in side]
        assert "<script" not in picture.fragment


def test_a_picture_is_saved_whole_or_not_at_all(tmp_path: Path) -> None:
    picture = memory_desc((2, 3), "f32", "ab").show()
    picture.save(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == f"{picture.svg}\n"
    picture.save(tmp_path / "a.TXT")
    assert (tmp_path / "a.TXT").read_text(encoding="utf-8") == f"{picture.text}\n"
    picture.save(tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert page == picture.html()
    assert picture.fragment in page
    assert "<title>memory_desc((2, 3), &#x27;f32&#x27;, &#x27;ab&#x27;)</title>" in page
    for path in (tmp_path / "none" / "a.svg", tmp_path):
        with pytest.raises(MemdescError, match="cannot be written"):
            picture.save(path)
    with pytest.raises(MemdescError, match=r"\.svg, \.png, \.html or \.txt, not as '.*a\.pdf'"):
        picture.save(tmp_path / "a.pdf")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.TXT", "a.html", "a.svg"]


def test_a_page_loads_nothing_and_names_no_other_site() -> None:
    page = memory_desc((2, 3), "f32", "ab").show().html()
    assert re.findall('https?://[^"]*', page) == ["http://www.w3.org/2000/svg"] * page.count(
        "<svg "
    )
    assert not re.search("(src|href|url|import) *[=(]", page)


def test_a_png_is_made_by_resvg_and_its_absence_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resvg = pytest.importorskip("resvg_py")
    picture = memory_desc((2, 3), "f32", "ab").show()
    picture.save(tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert f'width="{width // 2}" height="{height // 2}"' in picture.svg
    with pytest.raises(MemdescError, match="no font was found"):
        check_font(resvg, skip_system_fonts=True)
    monkeypatch.setitem(sys.modules, "resvg_py", None)  # as where it is not installed
    with pytest.raises(MemdescError, match="pip install resvg_py"):
        picture.save(tmp_path / "b.png")
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]


def test_importing_and_describing_load_no_pictures() -> None:
    script = "import sys, memdesc; memdesc.memory_desc((2, 3), 'f32', 'ba'); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True
    ).stdout.split()
    assert not [name for name in loaded if name.startswith("memdesc.picture")]
