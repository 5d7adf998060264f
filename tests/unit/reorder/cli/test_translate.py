from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from memdesc.exchange import SYSTEMS
from reorder.cli.main import main

if TYPE_CHECKING:
    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture


def test_a_name_is_written_for_every_system_or_refused(capsys: CaptureFixture[str]) -> None:
    assert main(["translate", "nChw16c", "--dims", "2x17x5x4", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert {*facts["written"], *facts["cannot"]} == set(SYSTEMS)
    assert facts["written"]["onednn"][0] == "aBcd16b"
    assert facts["cannot"]["mace"] == "it has no name for aBcd16b of f32"
    assert (facts["bytes"], facts["unpadded_bytes"]) == (5120, 2720)


def test_lines_have_the_string_first_and_what_padding_costs(capsys: CaptureFixture[str]) -> None:
    text = "bf16[64,32]{1,0:T(8,128)(2,1)}"
    assert main(["translate", text, "--from", "xla", "--to", "onednn"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["onednn", "AB4a128b2a"]
    assert lines[-1] == "padding overhead  4x expansion"
    assert main(["translate", "nChw16c", "--dims", "1x16x2x2"]) == 0
    assert "cannot: it has no name for aBcd16b" in capsys.readouterr().out


def test_strides_are_read_and_refused_where_a_system_has_none(capsys: CaptureFixture[str]) -> None:
    assert main(["translate", "1x4", "--dims", "3x2", "--to", "cute"]) == 0
    assert capsys.readouterr().out.startswith("cute              (3,2):(1,4)\n")
    assert main(["translate", "1x4", "--dims", "3x2", "--to", "xla"]) == 2
    assert "these strides leave gaps" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nchw", "--to", "xla"], "give --dims"),
        (["nchw", "--from", "onednn", "--to", "xla"], "give dims"),
        (["nchw", "--dims", "2x3x4x5", "--to", "glow"], "no system 'glow'"),
        (["nchw", "--dims", "2x3x4x5", "--letters", "nn"], "4 different ones"),
    ],
)
def test_what_is_missing_is_said(
    arguments: list[str], reason: str, capsys: CaptureFixture[str]
) -> None:
    assert main(["translate", *arguments]) == 2
    assert reason in capsys.readouterr().err
