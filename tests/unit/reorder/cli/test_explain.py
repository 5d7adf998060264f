"""`memdesc explain`: how two layouts differ, and what a reorder does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import memdesc
from reorder import plan_reorder

if TYPE_CHECKING:
    from tests.unit.reorder.cli.shell import Shell


def test_no_op_view_or_copy(shell: Shell) -> None:
    same = shell.facts("explain nchw 8x1x5x4 --to nhwc")
    assert (same["reorder"], same["equal"]) == ("no-op", True)
    assert "first_moved" not in same
    copy = shell.facts("explain nchw 8x17x5x4 --to nChw16c --dtype f16")
    assert (copy["reorder"], copy["equal"]) == ("copy", False)
    assert copy["first_moved"] == {"index": [0, 0, 0, 1], "src": 1, "dst": 16}
    assert copy["padded_dims"] == {"src": [8, 17, 5, 4], "dst": [8, 32, 5, 4]}
    view = shell.facts("explain 20x1@3 3x4 --to 20x1")
    assert view["reorder"] == "view"
    assert "3 elements later" in view["why"]
    assert shell.facts("explain ab 1x5 --to ab__b8")["first_moved"] is None
    shown = shell.lines("explain nchw 8x17x5x4 --to nChw16c")
    assert "padded dims  src (8, 17, 5, 4), dst (8, 32, 5, 4)" in shown
    assert "first moved  (0, 0, 0, 1) from offset 1 to 16" in shown


def test_strides_that_share_few_sets_of_a_cache_are_named_with_ones_that_do_not(
    shell: Shell,
) -> None:
    by_rows, by_columns = shell.facts("explain ab 4096x2048 --to ba")["slow"]
    assert by_rows.startswith("neighbours in dst are 8,192 bytes apart in src")
    assert by_columns.startswith("neighbours in src are 16,384 bytes apart in dst")
    assert "strides=(2064, 1) would spread them" in by_rows
    assert "strides=(1, 4112) would spread them" in by_columns
    assert shell.facts("explain 2064x1 4096x2048 --to 1x4112")["slow"] == []
    for command in ("ab 4000x2000 --to ba", "ab 4096x2048 --to aB16b", "ab 8x1024 --to ba"):
        assert shell.facts(f"explain {command}")["slow"] == []
    (blocked,) = shell.facts("explain nChw16c 1x32x64x64 --to nchw")["slow"]
    assert blocked.startswith("neighbours in src are 16,384 bytes apart in dst")


def test_a_scale_makes_a_copy(shell: Shell) -> None:
    found = shell.facts("explain ab 4x8 --to ab --scale 0.5")
    assert (found["reorder"], found["why"]) == ("copy", "a scale changes numbers")
    assert "Attr(dst_scale=0.5)" in shell.lines("explain ab 4x8 --to ab --scale 0.5")[3]


def test_bytes_are_those_of_a_copy_where_nothing_has_to_move(shell: Shell) -> None:
    shown = shell.lines("explain nchw 8x1x5x4 --to nhwc")
    assert "bytes    0 if src is used as dst; if copied, 640 read, 640 written" in shown
    assert "kernels  if copied, run 32-bit" in shown
    shown = shell.lines("explain 20x1@3 3x4 --to 20x1")
    assert "bytes        0 if src is used as dst; if copied, 48 read, 48 written" in shown
    assert "bytes        24 read, 24 written" in shell.lines("explain ab 2x3 --to ba")


@pytest.mark.parametrize(
    ("command", "what", "reads", "writes"),
    [
        (
            "nchw 4x64x64x64 --to nChw16c",
            "transposes 16 x 4096 elements",
            "16384-byte runs 16384 bytes apart (whole lines)",
            "64-byte runs 64 bytes apart (whole lines)",
        ),
        (
            "nChw16c 4x64x64x64 --to nchw",
            "transposes 4096 x 16 elements",
            "64-byte runs 64 bytes apart (whole lines)",
            "16384-byte runs 16384 bytes apart (whole lines)",
        ),
        (  # elements are packed in pairs
            "abc 64x32x2 --to bac --dtype u8",
            "transposes 64 x 32 elements",
            "64-byte runs 64 bytes apart (whole lines)",
            "128-byte runs 128 bytes apart (whole lines)",
        ),
        (
            "ab 64x32 --to ba --to-dtype s8",
            "transposes 64 x 32 elements",
            "128-byte runs 128 bytes apart (whole lines)",
            "64-byte runs 64 bytes apart (whole lines)",
        ),
        (
            "nChw16c 2x32x8x8 --to nhwc",
            "copies runs",
            "64-byte runs 4096 bytes apart (whole lines)",
            "64-byte runs 64 bytes apart (whole lines)",
        ),
        (  # src does not start with a line
            "32x1@8 3x16 --to 16x1",
            "copies runs",
            "64-byte runs 128 bytes apart",
            "64-byte runs 64 bytes apart (whole lines)",
        ),
        (
            "320x32 5x10 --to 10x1",
            "moves single elements",
            "4-byte runs 128 bytes apart (a line each)",
            "one run of 200 bytes",
        ),
        ("a 64 --to a", "copies runs", *["one run of 256 bytes (whole lines)"] * 2),
        (
            "ab 1x5 --to ab__b8",
            "copies runs",
            "one run of 20 bytes",
            "one run of 32 bytes, 38% zeros",
        ),
        (  # other runs of dst share these lines
            "nChw8c 1x8x4x4 --to nChw16c",
            "copies runs",
            "32-byte runs 32 bytes apart",
            "32-byte runs 64 bytes apart, 50% zeros",
        ),
        (
            "ab 7x9 --to ba --dtype s4",
            "transposes 7 x 9 elements",
            "4.5-byte runs 4.5 bytes apart",
            "3.5-byte runs 3.5 bytes apart",
        ),
        (
            "Ab47a 2000x3 --to Ab31a",
            "moves single elements",
            "4-byte runs 188 bytes apart (a line each)",
            "4-byte runs 124 bytes apart (a line each), at offsets from indirection tables",
        ),
    ],
)
def test_a_line_for_each_box_says_how_memory_is_accessed(
    shell: Shell, command: str, what: str, reads: str, writes: str
) -> None:
    shown = shell.facts(f"explain {command}")
    assert shown["access"] == [f"{what}: reads {reads}, writes {writes}"]


def test_boxes_of_padding_only_write(shell: Shell) -> None:
    *_, last = shell.facts("explain Ab4a 3x5 --to BA16a4b")["access"]
    assert last == "writes one run of 192 bytes (whole lines), 100% zeros"


def test_images_are_compared_as_the_buffers_of_their_pixels(shell: Shell) -> None:
    packed = shell.facts("explain abcd 1x6x3x2 --to in_out_channel")
    assert packed["dst"] == "image_desc((1, 6, 3, 2), 'f32', 'in_out_channel')"
    assert (packed["bytes_written"], packed["of_these_padding"]) == (4 * 48, 4 * 12)
    assert not shell.facts("explain in_out_channel 1x6x3x2 --to in_out_width")["equal"]
    same = shell.facts("explain argument 8 --to a")
    assert (same["equal"], same["reorder"]) == (False, "no-op")


def test_plan_bytes_and_kernels(shell: Shell) -> None:
    shown = shell.facts("explain nchw 1x17x5x4 --to nChw16c --svg plan.svg")
    src, dst = (memdesc.memory_desc((1, 17, 5, 4), "f32", tag) for tag in ("nchw", "nChw16c"))
    assert (shown["bytes_read"], shown["bytes_written"]) == (src.nbytes, dst.nbytes)
    assert shown["of_these_padding"] == 15 * 20 * 4
    assert shown["kernels"]
    assert shown["indirection_tables"] is False
    boxes = [
        {
            "offsets": list(box.offsets),
            "loops": [
                {"extent": node.extent, "valid": node.valid, "strides": list(node.strides)}
                for node in box.nodes
            ],
            "indirect_loops": 0,
        }
        for box in plan_reorder(src, dst).boxes
    ]
    assert (shown["plan"], len(boxes)) == (boxes, 2)
    assert "by box 1" in Path("plan.svg").read_text(encoding="utf-8")
    converted = shell.facts("explain nchw 1x17x5x4 --to nChw16c --to-dtype s8")
    assert converted["bytes_written"] == dst.nbytes // 4
    assert converted["why"] == "elements are converted from f32 to s8"
    assert "f32 -> s8" in "\n".join(shell.lines("explain nchw 1x17x5x4 --to nChw16c --to-dtype s8"))
    empty = shell.facts("explain ab 0x3 --to ba")
    assert (empty["bytes_read"], empty["bytes_written"], empty["kernels"]) == (0, 0, [])


def test_both_memories_are_drawn_side_by_side(shell: Shell) -> None:
    wrote = shell.facts("explain nchw 2x3x4x5 --to nhwc --beside --svg a.svg")["wrote"]
    a, b = (memdesc.memory_desc((2, 3, 4, 5), "f32", tag) for tag in ("nchw", "nhwc"))
    assert Path(wrote).read_text(encoding="utf-8") == f"{a.show(beside=b).svg}\n"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("ab 2x3 --to ba --beside", "--beside changes only the picture of --svg"),
        ("nchw 2x17x5x4 --to nChw8d", "did you mean 'nChw8c'"),
        ("nchw 2x17x5 --to nhwc", "is for 4 dims"),
        ("nchw 2x17x5y --to nhwc", "must be integers joined by x"),
        ("ab 3x4 --to 4x1x1", "must be 2 numbers"),
        ("ab 3x4 --to 4x1@a", "not integers"),
        ("ab", "are required: --to; see"),
        ("3x4x5 --to abc", "'3x4x5' is read as strides, which do not contain the sizes; give dims"),
        (
            "nchw 4 64 64 64 --to nhwc",
            "64 64 64; sizes are one argument, joined by x, such as 2x17x5x4; see memdesc",
        ),
        ("nchw mb4ic64ih7iw7 --to nhwc", "such as 2x17x5x4; for the numbers alone, write 4x64x7x7"),
        ("picture.svg --to nchw", "'picture.svg' is a file, not a layout; `memdesc inspect` lists"),
        ("ab 2x3 --to picture.svg", "'picture.svg' is a file, not a layout"),
        ("nchw 4x64x7x7 --to rowmajor", "unknown format 'rowmajor': it is 'plain' here"),
        ("nchw 2x3x4x5 --to nhwc --svg a.pdf", "is written as"),
        ("ab 2x3 --to ba --svg .", "cannot be written"),
    ],
)
def test_what_cannot_be_explained_is_refused(shell: Shell, command: str, reason: str) -> None:
    Path("picture.svg").touch()
    assert reason in shell.refusal(f"explain {command}")
