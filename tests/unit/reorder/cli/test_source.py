from __future__ import annotations

from typing import TYPE_CHECKING

import memdesc
import reorder

if TYPE_CHECKING:
    from tests.unit.reorder.cli.shell import Shell


def test_a_layout_or_a_reorder_is_written_as_code(shell: Shell) -> None:
    desc = memdesc.memory_desc((2, 17, 5, 4), "f16", "nChw16c")
    shown = shell.lines("source nChw16c 2x17x5x4 --lang c++ --dtype f16")
    assert shown == desc.source("c++", "nChw16c", "nchw").splitlines()
    src = memdesc.memory_desc((2, 17, 5, 4), "f32", "nchw")
    plan = reorder.plan_reorder(src, desc.with_dtype("s8"))
    shown = shell.lines("source nchw 2x17x5x4 --to nChw16c --to-dtype s8 --name reorder")
    assert shown == plan.source("c", "reorder").splitlines()


def test_functions_are_called_by_the_layout_or_as_given(shell: Shell) -> None:
    for command, function in (
        ("340x20x4x1 2x17x5x4 --letters wxyz", "tensor_offset(int64_t w, int64_t x, int64_t y"),
        ("ab 2x3 --name weights", "weights_offset(int64_t a, int64_t b)"),
        ("OIHW16i16o 32x17x3x3", "OIHW16i16o_offset(int64_t o, int64_t i, int64_t h, int64_t w)"),
        ("480x160x32x8:8b 2x17x5x4", "tensor_offset(int64_t a, int64_t b, int64_t c, int64_t d)"),
        ("in_out_channel 2x17x5x4", "in_out_channel_lane(int64_t n, int64_t c, int64_t h"),
    ):
        assert f"int64_t {function}" in "\n".join(shell.lines(f"source {command}"))


def test_what_has_no_source_is_refused(shell: Shell) -> None:
    said = shell.refusal("source ab 2x3 --lang rust")
    assert said.startswith("unknown language 'rust'; source is made in")
    said = shell.refusal("source nchw 2x17x5x4 --to nhwc --letters nchw")
    assert "--letters are for the dims of a layout" in said
    assert "add --to" in shell.refusal("source nchw 2x17x5x4 --to-dtype s8")
