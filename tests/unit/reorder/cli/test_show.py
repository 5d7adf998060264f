"""`memdesc show`: pictures, and what cannot be drawn or written."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

import memdesc
from reorder.cli import main
from tests.unit.reorder.cli.results import facts, refusal

if TYPE_CHECKING:
    from pathlib import Path

    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture


def test_show_draws_a_picture_with_the_letters_of_the_name(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    out = tmp_path / "a.svg"
    shown = facts(capsys, "show", "nChw4c", "1x5x2x3", "--svg", str(out))
    assert shown["wrote"] == str(out)
    desc = memdesc.memory_desc((1, 5, 2, 3), "f32", "nChw4c")
    assert out.read_text(encoding="utf-8") == f"{desc.show('nchw').svg}\n"
    assert ET.parse(out).getroot().tag.endswith("svg")  # noqa: S314 - it is our own
    assert (
        facts(capsys, "show", "aBcd4b", "1x5x2x3", "--draw")["picture"]
        == desc.show("abcd").text.splitlines()
    )
    assert "rows y, columns x" in "".join(
        facts(capsys, "show", "b_fs_yx_fsv4", "1x5x2x3", "--draw")["picture"]
    )
    assert "rows q, columns r" in "".join(
        facts(capsys, "show", "nchw", "1x5x2x3", "--draw", "--letters", "opqr")["picture"]
    )


def test_show_takes_strides(capsys: CaptureFixture[str]) -> None:
    assert facts(capsys, "show", "6x1@3", "3x4")["offset0"] == 3
    assert "must be 2 numbers" in refusal(capsys, "show", "6", "3x4")


def test_show_draws_an_image(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    out = tmp_path / "a.svg"
    facts(capsys, "show", "in_out_channel", "1x6x2x3", "--dtype", "f16", "--svg", str(out))
    image = memdesc.image_desc((1, 6, 2, 3), "f16", "in_out_channel")
    assert out.read_text(encoding="utf-8") == f"{image.show().svg}\n"
    assert "a panel for each c" in image.show().text


def test_show_names_the_fields_of_a_record(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    out = tmp_path / "a.svg"
    shown = facts(capsys, "show", "Q4_K", "2x256", "--draw", "--svg", str(out))
    record = memdesc.record_desc((2, 256), "q4_k")
    assert shown["bits_per_element"] == 4.5
    assert shown["rule"] == str(record.rule)
    assert [field["name"] for field in shown["fields"]] == [part.name for part in record.fields]
    assert shown["picture"] == record.show().text.splitlines()
    assert out.read_text(encoding="utf-8") == f"{record.show().svg}\n"
    assert "which do not divide b (dim 1)" in refusal(capsys, "show", "q4_k", "2x250")
    assert "takes neither --letters" in refusal(capsys, "show", "q4_k", "2x256", "--letters", "oi")
    assert facts(capsys, "show", "gptq", "8x8", "--dtype", "u4")["bytes"] == 32


def test_a_picture_that_cannot_be_written_is_refused(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    assert "cannot be written" in refusal(
        capsys, "show", "nchw", "1x5x2x3", "--svg", str(tmp_path / "none" / "a.svg")
    )
    assert "cannot be written" in refusal(
        capsys, "explain", "ab", "ba", "2x3", "--svg", str(tmp_path)
    )
    assert "must name 4 dims" in refusal(
        capsys, "show", "nchw", "1x5x2x3", "--draw", "--letters", "nch"
    )


def test_show_highlights_elements(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    out = tmp_path / "a.svg"
    desc = memdesc.memory_desc((2, 17, 5, 4), "f32", "nChw8c")
    marked = ["--at", "1,9,2,3", "--at", "0x1x2x3"]
    facts(capsys, "show", "nChw8c", "2x17x5x4", *marked, "--svg", str(out))
    svg = desc.show(highlight=[(1, 9, 2, 3), (0, 1, 2, 3)]).svg
    assert out.read_text(encoding="utf-8") == f"{svg}\n"
    assert "is not in 0 to 4" in refusal(
        capsys, "show", "nChw8c", "2x17x5x4", "--at", "1,9,5,3", "--draw"
    )


def test_an_index_and_a_byte_are_the_same_element(capsys: CaptureFixture[str]) -> None:
    layout = ("show", "nChw8c", "2x17x5x4")
    found = facts(capsys, *layout, "--at", "1,9,2,3", "--byte", "2918")
    element = {"index": [1, 9, 2, 3], "offset": 729, "byte": 2916, "padding": False}
    assert found["layout"] == repr(memdesc.memory_desc((2, 17, 5, 4), "f32", "nChw8c"))
    assert found["elements"] == [element] * 2
    assert main([*layout, "--at", "0x16x0x0", "--at", "0,20,0,0"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "index 0,16,0,0  offset 320  byte 1280",
        "index 0,20,0,0  offset 324  byte 1296  padding",
    ]


def test_a_byte_of_four_bit_elements_is_two(capsys: CaptureFixture[str]) -> None:
    found = facts(capsys, "show", "Ab2a", "3x5", "--dtype", "s4", "--byte", "3")
    assert [(one["index"], one["half"]) for one in found["elements"]] == [
        ([0, 3], "low"),
        ([1, 3], "high"),
    ]


def test_an_element_of_an_image_has_a_pixel(capsys: CaptureFixture[str]) -> None:
    (one,) = facts(capsys, "show", "in_out_channel", "1x6x2x3", "--at", "0,5,1,2")["elements"]
    image = memdesc.image_desc((1, 6, 2, 3), "f32", "in_out_channel")
    assert (*one["pixel"], one["lane"]) == image.pixel((0, 5, 1, 2))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("ab", "2x3", "--at", "0,3"), "index 3 of b (dim 1) is not in 0 to 2"),
        (("ab", "2x3", "--at", "0"), "must be 2 numbers"),
        (("ab", "2x3", "--at", "0;1"), "are not integers joined by x or commas"),
        (("ab", "2x3", "--byte", "24"), "at offset 6: offsets are 0 to 5"),
        (("ab", "2x3", "--byte", "-1"), "at offset -1"),
        (("4x1", "2x3", "--byte", "12"), "it lies in a gap between elements"),
        (("ab", "2x3", "--byte", f"{2**66}"), "offset must be an integer that int64 holds"),
        (("ab",), "'ab' does not contain the sizes; give dims"),
    ],
)
def test_what_lies_nowhere_is_refused(
    capsys: CaptureFixture[str], arguments: tuple[str, ...], reason: str
) -> None:
    assert reason in refusal(capsys, "show", *arguments)


@pytest.mark.parametrize(
    "layout",
    [
        "f16:b_fs_yx_fsv16:2x17x5x4",
        "(2,(16,2),5,4):(640,(1,320),64,16)",
        "f32[2,17,5,4]{3,2,1,0:T(16,1,1)}",
    ],
)
def test_a_notation_with_sizes_needs_no_dims(layout: str, capsys: CaptureFixture[str]) -> None:
    assert facts(capsys, "show", layout)["layout"] == repr(memdesc.parse_layout(layout))
