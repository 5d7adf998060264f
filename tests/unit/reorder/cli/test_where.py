from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from memdesc import UnsupportedFormatError, image_desc, known_names, memory_desc
from memdesc.names import images, resolve
from reorder.cli import main

if TYPE_CHECKING:
    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture


def facts(capsys: CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_an_index_an_offset_and_a_byte_are_the_same_element(capsys: CaptureFixture[str]) -> None:
    layout = ("where", "nChw8c", "2x17x5x4")
    found = facts(capsys, *layout, "1,9,2,3", "--offset", "729", "--byte", "2918")
    element = {"index": [1, 9, 2, 3], "offset": 729, "byte": 2916, "padding": False}
    assert found == {"layout": repr(memory_desc((2, 17, 5, 4), "f32", "nChw8c"))} | {
        "elements": [element] * 3
    }
    assert main([*layout, "0x16x0x0", "0,20,0,0"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "index 0,16,0,0  offset 320  byte 1280",
        "index 0,20,0,0  offset 324  byte 1296  padding",
    ]


def test_a_byte_of_four_bit_elements_is_two(capsys: CaptureFixture[str]) -> None:
    found = facts(capsys, "where", "Ab2a", "3x5", "--dtype", "s4", "--byte", "3")
    assert [(one["index"], one["half"]) for one in found["elements"]] == [
        ([0, 3], "low"),
        ([1, 3], "high"),
    ]


def test_an_element_of_an_image_has_a_pixel(capsys: CaptureFixture[str]) -> None:
    (one,) = facts(capsys, "where", "in_out_channel", "1x6x2x3", "0,5,1,2")["elements"]
    image = image_desc((1, 6, 2, 3), "f32", "in_out_channel")
    assert (*one["pixel"], one["lane"]) == image.pixel((0, 5, 1, 2))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("ab", "2x3"), "give an index, such as 1,9,2,3"),
        (("ab", "2x3", "0,3"), "index 3 of b (dim 1) is not in 0 to 2"),
        (("ab", "2x3", "0"), "must be 2 numbers"),
        (("ab", "2x3", "0;1"), "are not integers joined by x or commas"),
        (("ab", "2x3", "--byte", "24"), "at offset 6: offsets are 0 to 5"),
        (("ab", "2x3", "--byte", "-1"), "at offset -1"),
        (("4x1", "2x3", "--offset", "3"), "it lies in a gap between elements"),
        (("ab", "2x3", "--offset", f"{2**64}"), "offset must be an integer that int64 holds"),
    ],
)
def test_what_lies_nowhere_is_refused(
    capsys: CaptureFixture[str], arguments: tuple[str, ...], reason: str
) -> None:
    assert main(["where", *arguments]) == 2
    assert reason in capsys.readouterr().err


def test_names_lists_every_known_name_once_or_for_each_width_that_it_exists_for(
    capsys: CaptureFixture[str],
) -> None:
    found = facts(capsys, "names")["names"]
    rows = [(row["text"], row["vocabulary"], row.get("bits")) for row in found]
    assert len(set(rows)) == len(rows)
    assert {text for text, _, _ in rows} == {
        *images.IMAGES,
        *(name.text for name in known_names()),
    }
    for row in found:
        if row["text"] in images.IMAGES:
            assert row["tag"] == images.IMAGES[row["text"]].parts
        elif row["tag"] is None:
            with pytest.raises(UnsupportedFormatError):
                resolve(row["text"], (), 32)
            assert row["text"] in row["why"]
        else:
            assert (row["tag"], row["ndims"]) == (
                str(resolve(row["text"], (), row.get("bits", 32))),
                resolve(row["text"], (), row.get("bits", 32)).ndims,
            )
    assert [row["bits"] for row in found if row["text"] == "marlin"] == [8, 4]


def test_names_are_filtered(capsys: CaptureFixture[str]) -> None:
    assert [row["text"] for row in facts(capsys, "names", "nChw*c")["names"]] == [
        f"nChw{block}c" for block in (16, 32, 4, 8)
    ]
    assert facts(capsys, "names", "FSV16", "--ndims", "5")["count"] == 3
    assert main(["names", "in_out_c"]) == 0
    assert capsys.readouterr().out == "in_out_channel  mace  image  ac|Bd|4b\n"
    assert main(["names", "nv12"]) == 0
    assert capsys.readouterr().out == "nv12  cldnn  data  refused\n"
    assert main(["names", "gptq_exl*"]) == 0
    assert capsys.readouterr().out == "gptq_exllama  weights  weights  Ab2a/1.4a/2 (4 bits)\n"
    assert facts(capsys, "names", "xyzzy", code=1) == {"count": 0, "names": []}
    assert main(["names", "xyzzy"]) == 1
    assert capsys.readouterr().out == "no name matches\n"
