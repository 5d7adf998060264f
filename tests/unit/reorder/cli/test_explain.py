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
    same = shell.facts("explain nchw nhwc 8x1x5x4")
    assert (same["reorder"], same["equal"]) == ("no-op", True)
    assert "first_moved" not in same
    copy = shell.facts("explain nchw nChw16c 8x17x5x4 --dtype f16")
    assert (copy["reorder"], copy["equal"]) == ("copy", False)
    assert copy["first_moved"] == {"index": [0, 0, 0, 1], "a": 1, "b": 16}
    assert copy["padded_dims"] == {"a": [8, 17, 5, 4], "b": [8, 32, 5, 4]}
    view = shell.facts("explain 20x1@3 20x1 3x4")
    assert view["reorder"] == "view"
    assert "3 elements later" in view["why"]
    assert shell.facts("explain ab ab__b8 1x5")["first_moved"] is None
    shown = shell.lines("explain nchw nChw16c 8x17x5x4")
    assert "padded dims  a (8, 17, 5, 4), b (8, 32, 5, 4)" in shown
    assert "first moved  (0, 0, 0, 1) from offset 1 to 16" in shown


def test_images_are_compared_as_the_buffers_of_their_pixels(shell: Shell) -> None:
    packed = shell.facts("explain abcd in_out_channel 1x6x3x2")
    assert packed["b"] == "image_desc((1, 6, 3, 2), 'f32', 'in_out_channel')"
    assert (packed["bytes_written"], packed["of_these_padding"]) == (4 * 48, 4 * 12)
    assert not shell.facts("explain in_out_channel in_out_width 1x6x3x2")["equal"]
    same = shell.facts("explain argument a 8")
    assert (same["equal"], same["reorder"]) == (False, "no-op")


def test_plan_bytes_and_kernels(shell: Shell) -> None:
    shown = shell.facts("explain nchw nChw16c 1x17x5x4 --svg plan.svg")
    src, dst = (memdesc.memory_desc((1, 17, 5, 4), "f32", tag) for tag in ("nchw", "nChw16c"))
    assert (shown["bytes_read"], shown["bytes_written"]) == (src.nbytes, dst.nbytes)
    assert shown["of_these_padding"] == 15 * 20 * 4
    assert shown["kernels"]
    assert shown["offset_tables"] is False
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
    converted = shell.facts("explain nchw nChw16c 1x17x5x4 --to-dtype s8")
    assert converted["bytes_written"] == dst.nbytes // 4
    assert converted["why"] == "elements are converted from f32 to s8"
    assert "f32 -> s8" in "\n".join(shell.lines("explain nchw nChw16c 1x17x5x4 --to-dtype s8"))
    empty = shell.facts("explain ab ba 0x3")
    assert (empty["bytes_read"], empty["bytes_written"], empty["kernels"]) == (0, 0, [])


def test_both_memories_are_drawn_side_by_side(shell: Shell) -> None:
    wrote = shell.facts("explain nchw nhwc 2x3x4x5 --beside --svg a.svg")["wrote"]
    a, b = (memdesc.memory_desc((2, 3, 4, 5), "f32", tag) for tag in ("nchw", "nhwc"))
    assert Path(wrote).read_text(encoding="utf-8") == f"{a.show(beside=b).svg}\n"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("nchw nChw8d 2x17x5x4", "did you mean 'nChw8c'"),
        ("nchw nhwc 2x17x5", "is for 4 dims"),
        ("nchw nhwc 2x17x5y", "not integers joined by x"),
        ("ab 4x1x1 3x4", "must be 2 numbers"),
        ("ab 4x1@a 3x4", "not integers"),
        ("ab", "are required: B; see"),
        ("nchw nhwc 2x3x4x5 --svg a.pdf", "is written as"),
        ("ab ba 2x3 --svg .", "cannot be written"),
    ],
)
def test_what_cannot_be_explained_is_refused(shell: Shell, command: str, reason: str) -> None:
    assert reason in shell.refusal(f"explain {command}")
