"""`memdesc names`: known names, and every name and notation of a layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memdesc import UnsupportedFormatError, known_names
from memdesc.exchange import SYSTEMS
from memdesc.names import images, resolve
from reorder.cli import main
from tests.unit.reorder.cli.results import facts, refusal

if TYPE_CHECKING:
    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture


def test_strides_have_all_names_of_the_layout(capsys: CaptureFixture[str]) -> None:
    found = facts(capsys, "names", "480x160x32x8:8b", "2x17x5x4")
    assert [name["text"] for name in found["names"]] == [
        "aBcd8b",
        "gOiw8o",
        "nChw8c",
        "b_fs_yx_fsv8",
        "mlas_nchwc8",
    ]
    plain = facts(capsys, "names", "20x20x4x1", "8x1x5x4")["names"]
    assert {"nchw", "nhwc"} <= {name["text"] for name in plain}


@pytest.mark.parametrize(
    ("vocabulary", "name", "arguments"),
    [
        ("tensorrt", "kCHW32", "2x64x5x4 1280x640x128x32:32b s8"),
        ("acl", "OHWIo4", "8x3x5x4 240x4x48x12:4a f32"),
        ("ascend", "NC1HWC0", "2x32x5x4 640x320x64x16:16b f16"),
        ("ncnn", "elempack4", "8x5x4 80x16x4:4a f32"),
        ("mnn", "NC4HW4", "2x8x5x4 160x80x16x4:4b f32"),
        ("tflite_gpu", "TensorStorageType::BUFFER", "1x5x4x8 160x16x4x80:4d f32"),
    ],
)
def test_names_of_other_systems_are_listed_and_found(
    vocabulary: str, name: str, arguments: str, capsys: CaptureFixture[str]
) -> None:
    listed = facts(capsys, "names", name.partition(":")[0])["names"]
    assert (vocabulary, name) in [(row["vocabulary"], row["text"]) for row in listed]
    dims, strides, dtype = arguments.split()
    found = facts(capsys, "names", strides, dims, "--dtype", dtype)["names"]
    assert (vocabulary, name) in [(row["vocabulary"], row["text"]) for row in found]


def test_a_layout_without_a_name_says_why_and_ends_with_1(capsys: CaptureFixture[str]) -> None:
    assert "leave gaps" in facts(capsys, "names", "6x1", "3x4", code=1)["why"]
    moved = facts(capsys, "names", "4x1@2", "3x4", code=1)
    assert "does not start at element 0" in moved["why"]
    assert moved["written"]["strides"] == ["4x1@2"]
    assert facts(capsys, "names", "strides:-4x1@8", "3x4", code=1)["names"] == []
    assert main(["names", "6x1", "3x4"]) == 1
    assert "no name  names describe dense layouts" in capsys.readouterr().out


def test_what_is_not_a_layout_is_refused(capsys: CaptureFixture[str]) -> None:
    assert "are not integers joined by x" in refusal(capsys, "names", "4xa", "3x4")
    assert "must be 2 numbers" in refusal(capsys, "names", "4", "3x4")
    assert "such as 340x20x4x1 or 480x160x32x8:8b@16" in refusal(capsys, "names", "4x1:b8", "3x4")
    assert "is not CuTe's notation" in refusal(capsys, "names", "(8,4):(1")


def test_a_layout_is_written_for_every_system_or_refused(capsys: CaptureFixture[str]) -> None:
    found = facts(capsys, "names", "nChw16c", "2x17x5x4")
    assert {*found["written"], *found["cannot"]} == set(SYSTEMS)
    assert found["written"]["onednn"][0] == "aBcd16b"
    assert found["cannot"]["mace"] == "it has no name for aBcd16b of f32"
    assert found["bytes"] == 5120
    assert main(["names", "nChw16c", "2x17x5x4"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "cute      (2,(16,2),5,4):(640,(1,320),64,16)" in shown
    assert shown[-1].startswith("cannot    mace, ")


def test_one_system_is_answered_by_its_string_alone(capsys: CaptureFixture[str]) -> None:
    text = "bf16[64,32]{1,0:T(8,128)(2,1)}"
    assert main(["names", text, "--system", "onednn"]) == 0
    assert capsys.readouterr().out == "AB4a128b2a\n"
    assert main(["names", "1x4", "3x2", "--system", "cute"]) == 0
    assert capsys.readouterr().out == "(3,2):(1,4)\n"
    assert "these strides leave gaps" in refusal(capsys, "names", "1x4", "3x2", "--system", "xla")
    assert "no system 'glow'" in refusal(capsys, "names", "nchw", "2x3x4x5", "--system", "glow")
    assert "give dims" in refusal(capsys, "names", "nchw", "--system", "cute")
    assert "--ndims is for a list" in refusal(capsys, "names", "ab", "2x3", "--ndims", "2")
    letters = ("names", "nchw", "2x3x4x5", "--letters", "nn")
    assert "4 different ones" in refusal(capsys, *letters)


def test_every_known_name_is_listed_once_or_for_each_width_that_it_exists_for(
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


def test_names_are_filtered_in_any_case(capsys: CaptureFixture[str]) -> None:
    blocked = [f"nChw{block}c" for block in (16, 32, 4, 8)]
    for wanted in ("nChw*c", "NCHW*C"):
        listed = [row["text"] for row in facts(capsys, "names", wanted)["names"]]
        assert [text for text in listed if text.startswith("nC")] == blocked
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


def test_what_other_systems_call_a_layout_finds_its_names(capsys: CaptureFixture[str]) -> None:
    found = [row["text"] for row in facts(capsys, "names", "channels_last")["names"]]
    assert found == ["ndhwc", "nhwc", "nwc"]
    named = facts(capsys, "names", "channels_last", "2x3x4x5")
    assert "nhwc" in [row["text"] for row in named["names"]]
