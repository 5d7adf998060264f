"""`memdesc names`: known names, and every name and notation of a layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memdesc import UnsupportedFormatError, known_names
from memdesc.exchange import SYSTEMS
from memdesc.names import images, resolve
from memdesc.record import known_records

if TYPE_CHECKING:
    from tests.unit.reorder.cli.shell import Shell


def _texts(shell: Shell, command: str) -> list[str]:
    return [row["text"] for row in shell.facts(f"names {command}")["names"]]


def test_strides_have_all_names_of_the_layout(shell: Shell) -> None:
    names = ["aBcd8b", "gOiw8o", "nChw8c", "b_fs_yx_fsv8", "mlas_nchwc8"]
    assert _texts(shell, "480x160x32x8:8b 2x17x5x4") == names
    assert {"nchw", "nhwc"} <= {*_texts(shell, "20x20x4x1 8x1x5x4")}


def test_exact_names_come_first_and_records_are_names(shell: Shell) -> None:
    assert _texts(shell, "nchw")[:2] == ["nchw", "NCHW"]
    assert _texts(shell, "NCHW")[:2] == ["NCHW", "nchw"]
    assert _texts(shell, "q4_0")[0] == "q4_0"
    assert shell.lines("names q5_1")[0] == "q5_1  record  quantised weights  see memdesc show"
    assert {row["text"] for row in shell.facts("names --system record")["names"]} == {
        *known_records()
    }


def test_a_layout_without_a_name_says_why_and_ends_with_1(shell: Shell) -> None:
    assert "leave gaps" in shell.facts("names 6x1 3x4", 1)["why"]
    moved = shell.facts("names 4x1@2 3x4", 1)
    assert "does not start at element 0" in moved["why"]
    assert moved["written"]["strides"] == ["4x1@2"]
    assert shell.facts("names strides:-4x1@8 3x4", 1)["names"] == []
    assert shell.lines("names 6x1 3x4", 1)[-1].startswith("no name  names describe dense layouts")


def test_a_layout_is_written_for_every_system_or_refused(shell: Shell) -> None:
    found = shell.facts("names nChw16c 2x17x5x4")
    assert {*found["written"], *found["cannot"]} == set(SYSTEMS)
    assert found["written"]["onednn"][0] == "aBcd16b"
    assert found["cannot"]["mace"] == "it has no name for aBcd16b of f32"
    assert found["bytes"] == 5120
    shown = shell.lines("names nChw16c 2x17x5x4")
    assert "cute      (2,(16,2),5,4):(640,(1,320),64,16)" in shown
    assert shown[-1].startswith("cannot    mace, ")
    # one system answers by its string alone
    assert shell.lines("names 'bf16[64,32]{1,0:T(8,128)(2,1)}' --system memdesc") == ["AB4a128b2a"]
    assert shell.lines("names 1x4 3x2 --system cute") == ["(3,2):(1,4)"]


def test_an_image_type_is_among_the_names_of_its_image(shell: Shell) -> None:
    found = shell.facts("names conv2d_filter 6x3x2x2")
    assert found["written"]["mace"] == ["conv2d_filter"]
    assert found["names"][0] == {"vocabulary": "mace", "text": "conv2d_filter", "domain": "image"}
    assert "mace" not in found["cannot"]
    given = "names image_2d_rgba 1x4x2x3 --system cldnn"
    assert shell.lines(given) == ["image_2d_rgba"]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("4xa 3x4", "are not integers joined by x"),
        ("4 3x4", "must be 2 numbers"),
        ("4x1:b8 3x4", "such as 340x20x4x1 or 480x160x32x8:8b@16"),
        ("'(8,4):(1'", "is not CuTe's notation"),
        ("1x4 3x2 --system xla", "these strides leave gaps"),
        ("nchw 2x3x4x5 --system glow", "no system 'glow'"),
        ("nchw 2x3x4x5 --system torch", "did you mean 'pytorch' or 'executorch'?"),
        ("340x1x68x17", "'340x1x68x17' is read as strides, which do not contain the sizes"),
        ("nchw --system cute", "give dims"),
        ("ab 2x3 --ndims 2", "--ndims is for a list"),
        ("nchw 2x3x4x5 --letters nn", "4 different ones"),
    ],
)
def test_what_has_no_names_is_refused(shell: Shell, command: str, reason: str) -> None:
    assert reason in shell.refusal(f"names {command}")


def test_every_known_name_is_listed_once_or_for_each_width_that_it_exists_for(shell: Shell) -> None:
    found = shell.facts("names")["names"]
    rows = [(row["text"], row["vocabulary"], row.get("bits")) for row in found]
    assert len(set(rows)) == len(rows)
    known = {*images.IMAGES, *(name.text for name in known_names()), *known_records()}
    assert {text for text, _, _ in rows} == known
    for row in found:
        if row["vocabulary"] == "record":
            assert row["tag"] is None
        elif row["text"] in images.IMAGES:
            assert row["tag"] == images.IMAGES[row["text"]].parts
        elif row["tag"] is None:
            with pytest.raises(UnsupportedFormatError):
                resolve(row["text"], (), 32)
            assert row["text"] in row["why"]
        else:
            tag = resolve(row["text"], (), row.get("bits", 32))
            assert (row["tag"], row["ndims"]) == (str(tag), tag.ndims)
    assert [row["bits"] for row in found if row["text"] == "marlin" and row["tag"]] == [8, 4]


def test_names_are_filtered_in_any_case(shell: Shell) -> None:
    blocked = [f"nChw{block}c" for block in (16, 32, 4, 8)]
    for wanted in ("nChw*c", "NCHW*C"):
        assert [text for text in _texts(shell, wanted) if text.startswith("nC")] == blocked
    assert shell.facts("names FSV16 --ndims 5")["count"] == 3
    for wanted, line in (
        ("in_out_c", "in_out_channel  mace  image  ac|Bd|4b"),
        ("nv12", "nv12  cldnn of OpenVINO  data  refused"),
        ("gptq_exl*", "gptq_exllama  weights  weights  Ab2a/1.4a/2 (4 bits)"),
    ):
        assert shell.lines(f"names {wanted}") == [line]
    assert shell.facts("names xyzzy", 1) == {"count": 0, "names": []}
    assert shell.lines("names xyzzy", 1) == ["no known name matches"]


def test_a_system_limits_the_list_to_its_names(shell: Shell) -> None:
    packs, images = (1, 4, 8, 16), (1, 4, 8)
    assert _texts(shell, "--system ncnn") == [
        *(f"elempack{n}" for n in packs),
        *(f"ncnn_image_elempack{n}" for n in images),
    ]
    assert "paddle_image_nw" in _texts(shell, "--system paddle")
    assert _texts(shell, "nchwc16 --system weights") == ["mlas_nchwc16"]
    assert shell.facts("names nchw --system onednn")["count"] > 1
    assert shell.facts("names nchw --system ncnn", 1)["names"] == []
    said = shell.refusal("names --system cute")
    assert said.startswith("cute has no names to list; those that have are onednn, cldnn, mace")
    assert "no system 'torch'" in shell.refusal("names --system torch")


def test_what_other_systems_call_a_layout_finds_its_names(shell: Shell) -> None:
    assert _texts(shell, "channels_last") == ["ndhwc", "nhwc", "nwc"]
    assert "nhwc" in _texts(shell, "channels_last 2x3x4x5")


@pytest.mark.parametrize(
    "text", ["(8,(2,(2,2))):(1,(8,(16,32)))", "(8,(2,4)):(1,(8,16))", "((2,4),8):((1,2),8)"]
)
def test_nested_modes_that_continue_each_other_are_one_dim(shell: Shell, text: str) -> None:
    found = shell.facts(["names", text])
    assert {"ba", "io"} <= {name["text"] for name in found["names"]}
    assert (found["written"]["onednn"][0], found["written"]["pytorch"][0]) == (
        "ba",
        "dim_order=(1, 0)",
    )


def test_only_tags_of_the_enum_are_names_of_onednn(shell: Shell) -> None:
    found = shell.facts("names BA4b2a 16x16")
    assert [name["vocabulary"] for name in found["names"]] == ["memdesc"]
    assert found["cannot"]["onednn"] == "it has no name for BA4b2a of f32"
    (line,) = shell.lines("names BA4b2a", 1)
    assert line == (
        "no known name matches; BA4b2a is a tag for 2 dims; give their sizes to see its layout"
    )
