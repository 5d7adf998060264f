"""`memdesc explain`: two layouts beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import memdesc
from reorder import plan_reorder
from reorder.cli import main
from tests.unit.reorder.cli.results import facts, refusal

if TYPE_CHECKING:
    from pathlib import Path

    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture


def test_explain_says_no_op_view_or_copy(capsys: CaptureFixture[str]) -> None:
    same = facts(capsys, "explain", "nchw", "nhwc", "8x1x5x4")
    assert (same["reorder"], same["equal"]) == ("no-op", True)
    assert "first_moved" not in same
    copy = facts(capsys, "explain", "nchw", "nChw16c", "8x17x5x4", "--dtype", "f16")
    assert (copy["reorder"], copy["equal"]) == ("copy", False)
    assert copy["first_moved"] == {"index": [0, 0, 0, 1], "a": 1, "b": 16}
    assert copy["padded_dims"] == {"a": [8, 17, 5, 4], "b": [8, 32, 5, 4]}
    view = facts(capsys, "explain", "20x1@3", "20x1", "3x4")
    assert view["reorder"] == "view"
    assert "3 elements later" in view["why"]
    assert facts(capsys, "explain", "ab", "ab__b8", "1x5")["first_moved"] is None
    assert main(["explain", "nchw", "nChw16c", "8x17x5x4"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "padded dims  a (8, 17, 5, 4), b (8, 32, 5, 4)" in shown
    assert "first moved  (0, 0, 0, 1) from offset 1 to 16" in shown


def test_explain_shows_the_plan_the_bytes_and_the_kernels(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    out = tmp_path / "plan.svg"
    shown = facts(capsys, "explain", "nchw", "nChw16c", "1x17x5x4", "--svg", str(out))
    src, dst = (memdesc.memory_desc((1, 17, 5, 4), "f32", tag) for tag in ("nchw", "nChw16c"))
    assert shown["bytes_read"] == src.nbytes
    assert shown["bytes_written"] == dst.nbytes
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
    assert shown["plan"] == boxes
    assert len(boxes) == 2
    assert "by box 1" in out.read_text(encoding="utf-8")
    converted = facts(capsys, "explain", "nchw", "nChw16c", "1x17x5x4", "--to-dtype", "s8")
    assert converted["bytes_written"] == dst.nbytes // 4
    assert converted["why"] == "elements are converted from f32 to s8"
    assert main(["explain", "nchw", "nChw16c", "1x17x5x4", "--to-dtype", "s8"]) == 0
    assert "f32 -> s8" in capsys.readouterr().out
    empty = facts(capsys, "explain", "ab", "ba", "0x3")
    assert (empty["bytes_read"], empty["bytes_written"], empty["kernels"]) == (0, 0, [])


def test_two_layouts_that_do_not_fit_are_refused(capsys: CaptureFixture[str]) -> None:
    assert "did you mean 'nChw8c'" in refusal(capsys, "explain", "nchw", "nChw8d", "2x17x5x4")
    assert "is for 4 dims" in refusal(capsys, "explain", "nchw", "nhwc", "2x17x5")
    assert "not integers joined by x" in refusal(capsys, "explain", "nchw", "nhwc", "2x17x5y")
    assert "must be 2 numbers" in refusal(capsys, "explain", "ab", "4x1x1", "3x4")
    assert "not integers" in refusal(capsys, "explain", "ab", "4x1@a", "3x4")
    assert "are required: B; see" in refusal(capsys, "explain", "ab")


def test_explain_draws_both_layouts(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    out = tmp_path / "a.svg"
    assert facts(capsys, "explain", "nchw", "nhwc", "2x3x4x5", "--beside", "--svg", str(out))[
        "wrote"
    ] == str(out)
    a, b = (memdesc.memory_desc((2, 3, 4, 5), "f32", tag) for tag in ("nchw", "nhwc"))
    assert out.read_text(encoding="utf-8") == f"{a.show(beside=b).svg}\n"
    assert "is written as" in refusal(
        capsys, "explain", "nchw", "nhwc", "2x3x4x5", "--svg", str(tmp_path / "a.pdf")
    )
