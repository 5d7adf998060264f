"""`memdesc show`: facts, elements and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

import memdesc

if TYPE_CHECKING:
    from tests.unit.reorder.cli.shell import Shell


def test_sizes_strides_blocks_padding_and_names(shell: Shell) -> None:
    shown = shell.facts("show nChw8c 2x17x5x4 --dtype f32")
    assert shown["padded_dims"] == [2, 24, 5, 4]
    assert shown["strides"] == [480, 160, 32, 8]
    assert (shown["inner_blks"], shown["inner_idxs"]) == ([8], [1])
    sizes = shown["bytes"], shown["unpadded_bytes"], shown["padding_overhead"]
    assert sizes == (3840, 2720, 1.4118)
    assert {"vocabulary": "cldnn", "text": "b_fs_yx_fsv8", "domain": "data"} in shown["names"]


def test_the_memory_order_is_shown_and_a_name_needs_no_sizes_for_it(shell: Shell) -> None:
    order = "memory order      outermost first: b, f/16, y, x, f%16"
    assert order in shell.lines("show b_fs_yx_fsv16 1x17x5x4")
    assert "memory_order" not in shell.facts("show 'Sw<3,3,3> o 0 o (8,64):(64,1)' 7x40")
    assert shell.facts("show b_fs_yx_fsv16") == {
        "layout": "b_fs_yx_fsv16",
        "dims": "b, f, y, x",
        "tag": "aBcd16b",
        "memory_order": "outermost first: b, f/16, y, x, f%16",
        "note": "give 4 sizes, as in 2x17x5x4, to see strides and bytes",
    }
    assert shell.facts("show ohwi --letters abcd")["memory_order"] == "outermost first: a, c, d, b"
    for text in ("plain", "nchw --draw", "nchw --at 0,0,0,0", "340x20x4x1"):
        assert "give dims" in shell.refusal(f"show {text}")


def test_banks_count_the_conflicts_of_lanes_along_each_dim(shell: Shell) -> None:
    shown = shell.facts("show NVMMASharedLayout(64,16) 64x64 --dtype f16 --banks")
    found = {(row["lanes_along"], row["bytes"]): row["conflicts"] for row in shown["banks"]}
    assert [found["a", nbytes] for nbytes in (16, 8, 4, 2)] == [0, 1, 3, 3]
    assert found["b", 16] == 1
    assert shown["xor"] == [{"shift": 3, "mask": 24}]
    assert shown["names"][0]["text"] == "K_SW64"


def test_the_memory_formats_of_torch_are_among_the_names(shell: Shell) -> None:
    def names(command: str) -> list[str]:
        found = shell.facts(f"show {command}")["names"]
        return [name["text"] for name in found if name["vocabulary"] == "pytorch"]

    assert names("channels_last 2x3x4x5") == ["torch.channels_last"]
    assert names("nchw 2x1x4x5") == ["torch.contiguous_format", "torch.channels_last"]
    assert names("ndhwc 2x3x4x5x6") == ["torch.channels_last_3d"]
    assert names("nChw8c 2x3x4x5") == names("ab 2x3 --dtype s4") == names("3x-1@2 2x3") == []
    for line in shell.lines("show channels_last 2x3x4x5"):
        assert not line.startswith("names") or line.endswith(", torch.channels_last (pytorch)")
    lines = shell.lines("show nChw8c 2x17x5x4")
    assert "padded dims       2 24 5 4" in lines
    assert "b_fs_yx_fsv8 (cldnn of OpenVINO)" in lines[-1]
    assert shell.facts("show 6x1@3 3x4")["offset0"] == 3


def test_a_swizzle_has_no_inner_blocks(shell: Shell) -> None:
    name = "os_is_yx_osa4_isa8_osv8_isv4_swizzled_by_4"
    shown = "\n".join(shell.lines(f"show {name} 35x37x2x3 --dtype s8"))
    assert "swizzled" in shown
    assert "axis 0, step 32, extent 2, stride 12288" in shown


def test_an_image_has_pixels(shell: Shell) -> None:
    found = shell.facts("show in_out_channel 1x64x56x56")
    assert (found["width"], found["height"], found["channels"]) == (896, 56, 4)
    assert found["first_pixels"][1] == {
        "pixel": [1, 0],
        "holds": [[0, 0, 0, 1], [0, 1, 0, 1], [0, 2, 0, 1], [0, 3, 0, 1]],
    }
    tail = shell.facts("show argument 6")["first_pixels"]
    assert [pixel["holds"] for pixel in tail] == [[[0], [1], [2], [3]], [[4], [5], None, None]]
    last = shell.lines("show argument 6")[-1]
    assert last.endswith("pixel (1, 0), holds (4,) (5,) padding padding")
    (one,) = shell.facts("show in_out_channel 1x6x2x3 --at 0,5,1,2")["elements"]
    image = memdesc.image_desc((1, 6, 2, 3), "f32", "in_out_channel")
    assert (*one["pixel"], one["lane"]) == image.pixel((0, 5, 1, 2))


def test_a_record_has_fields(shell: Shell) -> None:
    shown = shell.facts("show Q4_K 2x256 --draw --svg a.svg")
    record = memdesc.record.record_desc((2, 256), "q4_k")
    assert (shown["bits_per_element"], shown["rule"]) == (4.5, str(record.rule))
    assert [field["name"] for field in shown["fields"]] == [part.name for part in record.fields]
    assert shown["picture"] == record.show().text.splitlines()
    assert Path("a.svg").read_text(encoding="utf-8") == f"{record.show().svg}\n"
    assert shell.facts("show gptq 8x8 --dtype u4")["bytes"] == 32


def test_pictures_have_the_letters_of_the_name_and_mark_elements(shell: Shell) -> None:
    desc = memdesc.memory_desc((1, 5, 2, 3), "f32", "nChw4c")
    image = memdesc.image_desc((1, 6, 2, 3), "f16", "in_out_channel")
    marked = desc.show("nchw", highlight=[(0, 3, 1, 2), (0, 1, 0, 2)])
    for command, picture in (
        ("nChw4c 1x5x2x3", desc.show("nchw")),
        ("nChw4c 1x5x2x3 --at 0,3,1,2 --at 0x1x0x2", marked),
        ("in_out_channel 1x6x2x3 --dtype f16", image.show()),
    ):
        assert shell.facts(f"show {command} --svg a.svg")["wrote"] == "a.svg"
        assert Path("a.svg").read_text(encoding="utf-8") == f"{picture.svg}\n"
        assert ET.parse("a.svg").getroot().tag.endswith("svg")
    drawn = shell.facts("show aBcd4b 1x5x2x3 --draw")["picture"]
    # a wide picture needs the columns from the left edge on
    assert shell.lines("show aBcd4b 1x5x2x3 --draw")[-len(drawn) - 1 :] == ["", *drawn]
    assert drawn == desc.show("abcd").text.splitlines()
    for command, axes in (
        ("b_fs_yx_fsv4 1x5x2x3", "rows y, columns x"),
        ("nchw 1x5x2x3 --letters opqr", "rows q, columns r"),
    ):
        assert axes in "".join(shell.facts(f"show {command} --draw")["picture"])


def test_an_index_and_a_byte_are_the_same_element(shell: Shell) -> None:
    found = shell.facts("show nChw8c 2x17x5x4 --at 1,9,2,3 --byte 2918")
    element = {"index": [1, 9, 2, 3], "offset": 729, "byte": 2916, "padding": False}
    assert found["layout"] == repr(memdesc.memory_desc((2, 17, 5, 4), "f32", "nChw8c"))
    assert found["elements"] == [element] * 2
    assert shell.lines("show nChw8c 2x17x5x4 --at 0x16x0x0 --at 0,20,0,0")[1:] == [
        "index 0,16,0,0  offset 320  byte 1280",
        "index 0,20,0,0  offset 324  byte 1296  padding",
    ]
    # an index that shares its element with others
    assert shell.lines("show 0x1 3x2 --at 2,1")[1:] == ["index 2,1  offset 1  byte 4"]
    halves = shell.facts("show Ab2a 3x5 --dtype s4 --byte 3")["elements"]
    assert [(one["index"], one["half"]) for one in halves] == [([0, 3], "low"), ([1, 3], "high")]


@pytest.mark.parametrize(
    ("layout", "byte", "offsets"),
    [("ab 3x5", 7, [14]), ("3x1 2x2", 0, [0, 1]), ("3x1 2x2", 1, [3]), ("5x2 2x2", 0, [0])],
)
def test_a_byte_may_hold_one_element_of_4_bits(
    shell: Shell, layout: str, byte: int, offsets: list[int]
) -> None:
    found = shell.facts(f"show {layout} --dtype u4 --byte {byte}")["elements"]
    assert [each["offset"] for each in found] == offsets


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("ab 2x3 --at 0,3", "index 3 of b (dim 1) is not in 0 to 2"),
        ("ab 2x3 --at 0", "must be 2 numbers"),
        ("ab 2x3 --at '0;1'", "must be integers joined by x or commas"),
        ("ab 2x3 --byte 24", "at offset 6: offsets are 0 to 5"),
        ("ab 2x3 --byte -1", "at offset -1"),
        ("4x1 2x3 --byte 12", "it lies in a gap between elements"),
        (f"ab 2x3 --byte {2**66}", "offset must be an integer that int64 holds"),
        ("ab --draw", "'ab' does not contain the sizes; give dims"),
        ("nChw8d 2x17x5x4", "did you mean 'nChw8c'"),
        ("nChw8c 2x17", "2 sizes"),
        ("nChw8c 2x17x5x4 --dtype f31", "unknown data type 'f31'"),
        ("6 3x4", "must be 2 numbers"),
        ("q4_k 2x250", "which do not divide b (dim 1)"),
        ("q4_k 2x256 --letters oi", "leave --letters out"),
        ("q4_k 2x256 --dtype f16", "leave --dtype out"),
        ("nchw 1x5x2x3 --svg none/a.svg", "cannot be written"),
        ("nchw 1x5x2x3 --letters nch", "4 different ones"),
        # decimal digits of ASCII only
        *(
            (f"ab {dims}", "must be integers joined by x or commas")
            for dims in ("1_0x3", "２x3", "+2x3", "2x", "2.17", f"2x{'9' * 5000}")  # noqa: RUF001 - a digit that is not ASCII
        ),
    ],
)
def test_what_cannot_be_shown_is_refused(shell: Shell, command: str, reason: str) -> None:
    assert reason in shell.refusal(f"show {command}")


@pytest.mark.parametrize(
    "layout",
    [
        "f16:b_fs_yx_fsv16:2x17x5x4",
        "(2,(16,2),5,4):(640,(1,320),64,16)",
        "f32[2,17,5,4]{3,2,1,0:T(16,1,1)}",
    ],
)
def test_a_notation_with_sizes_needs_no_dims(shell: Shell, layout: str) -> None:
    assert shell.facts(["show", layout])["layout"] == repr(memdesc.parse_layout(layout))


def test_sizes_are_read_as_numpy_and_torch_print_them(shell: Shell) -> None:
    for dims, at in (("(2, 3)", "(1,2)"), ("[2, 3]", "[1, 2]"), ("torch.Size([2, 3])", "1,2")):
        found = shell.facts(["show", "ab", dims, "--at", at])
        assert (found["dims"], found["elements"][0]["offset"]) == ([2, 3], 5)
    assert shell.facts(["show", "a", "(5,)"])["dims"] == [5]


def test_a_pixel_is_asked_for_what_its_lanes_hold(shell: Shell) -> None:
    found = shell.facts("show in_out_channel 1x6x5x4 --pixel 5,1")["elements"]
    assert [one["index"] for one in found] == [[0, 4 + lane, 1, 1] for lane in range(4)]
    assert [one["padding"] for one in found] == [False, False, True, True]
    found = shell.facts("show tvm_texture 2x6x5x7 --pixel 3,2,1")["elements"]
    assert found[1] | {"pixel": [3, 2, 1], "lane": 1, "index": [0, 5, 2, 3]} == found[1]
    assert "x = 9 is not in" in shell.refusal("show in_out_channel 1x6x5x4 --pixel 9,1")
    assert "use --byte" in shell.refusal("show nchw 1x6x5x4 --pixel 5,1")
