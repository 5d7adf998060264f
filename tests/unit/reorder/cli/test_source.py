from __future__ import annotations

from typing import TYPE_CHECKING

import memdesc
import reorder
from reorder.cli import main

if TYPE_CHECKING:
    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture


def test_source_prints_what_the_descriptor_writes(capsys: CaptureFixture[str]) -> None:
    assert main(["source", "nChw16c", "2x17x5x4", "--lang", "c++", "--dtype", "f16"]) == 0
    desc = memdesc.memory_desc((2, 17, 5, 4), "f16", "nChw16c")
    assert capsys.readouterr().out == desc.source("c++", "nChw16c", "nchw")


def test_source_of_strides_is_called_a_tensor(capsys: CaptureFixture[str]) -> None:
    assert main(["source", "340x20x4x1", "2x17x5x4", "--letters", "wxyz"]) == 0
    assert "int64_t tensor_offset(int64_t w, int64_t x, int64_t y" in capsys.readouterr().out
    assert main(["source", "ab", "2x3", "--name", "weights"]) == 0
    assert "int64_t weights_offset(int64_t a, int64_t b)" in capsys.readouterr().out


def test_source_refuses_a_language_that_it_does_not_write(capsys: CaptureFixture[str]) -> None:
    assert main(["source", "ab", "2x3", "--lang", "rust"]) == 2
    assert capsys.readouterr().err.startswith("memdesc: unknown language 'rust'; source is made in")


def test_source_to_another_layout_is_the_reorder(capsys: CaptureFixture[str]) -> None:
    command = ["source", "nchw", "2x17x5x4", "--to", "nChw16c", "--to-dtype", "s8"]
    assert main([*command, "--name", "reorder"]) == 0
    src = memdesc.memory_desc((2, 17, 5, 4), "f32", "nchw")
    dst = memdesc.memory_desc((2, 17, 5, 4), "s8", "nChw16c")
    assert capsys.readouterr().out == reorder.plan_reorder(src, dst).source("c", "reorder")
    assert main([*command, "--letters", "nchw"]) == 2
    assert "--letters are for the dims of a layout" in capsys.readouterr().err
