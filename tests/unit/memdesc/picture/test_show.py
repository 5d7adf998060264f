from __future__ import annotations

import subprocess
import sys
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import memdesc
from memdesc import MemdescError, memory_desc
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


def test_a_large_tensor_is_capped_and_shows_both_ends_of_its_padding() -> None:
    desc = memory_desc((32, 250, 56, 56), "f32", "nChw16c")
    picture = desc.show("nchw")
    grid, memory = cells(picture.svg)
    check(desc, grid, memory)
    assert len(grid) + len(memory) < 1200
    assert {index[1] for index in (seen.index for seen in grid)} >= {0, 249, 250, 255}
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


def test_a_long_title_is_cut() -> None:
    desc = memory_desc(
        (2,) * 12, "f32", strides=[2**k + (2**12 if k == 11 else 0) for k in range(12)]
    )
    assert "…" in elements(desc.show().svg, "title")[0].text  # type: ignore[operator] # it has one


def test_notebooks_draw_and_terminals_print() -> None:
    picture = memory_desc((2, 3), "f32", "ab").show()
    assert picture._repr_svg_() == picture.svg
    assert picture.svg in picture._repr_html_()
    assert str(picture) == repr(picture) == picture.text


def test_the_terminal_form_shows_offsets_padding_and_cache_lines() -> None:
    text = memory_desc((17, 2), "f32", "Ab4a").show().text
    lines = text.splitlines()
    assert " 16  32  36" in lines
    assert "[33]" in text
    assert sum(line.count("|") for line in lines) == 3
    gaps = memory_desc((3, 2), "f32", strides=(4, 1)).show().text
    assert "0,0 0,1   -   - 1,0" in gaps


def test_a_picture_is_saved_whole_or_not_at_all(tmp_path: Path) -> None:
    picture = memory_desc((2, 3), "f32", "ab").show()
    picture.save(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == f"{picture.svg}\n"
    for path in (tmp_path / "none" / "a.svg", tmp_path):
        with pytest.raises(MemdescError, match="cannot be written"):
            picture.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["a.svg"]


def test_importing_and_describing_load_no_pictures() -> None:
    script = "import sys, memdesc; memdesc.memory_desc((2, 3), 'f32', 'ba'); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True
    ).stdout.split()
    assert not [name for name in loaded if name.startswith("memdesc.picture")]
