"""`memdesc check` with a contract and a reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import reorder
from reorder.cli import main
from tests.unit.reorder.cli.results import facts, refusal

if TYPE_CHECKING:
    from pathlib import Path

    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture


def test_a_contract_is_written_and_checked(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    good, bad, rules = (str(tmp_path / n) for n in ("good.npz", "bad.npz", "rules.toml"))
    x = np.arange(16 * 64, dtype=np.float32).reshape(16, 64)
    reorder.save(good, {"w": reorder.reorder(x, "AB8b8a")})
    reorder.save(bad, {"w": reorder.reorder(np.roll(x, 8, 0), "AB8b8a"), "b": x})
    assert facts(capsys, "check", good, "--write", rules)["rules"] == 1
    held = facts(capsys, "check", good, "--expect", rules, "--reference", good)
    assert (held["holds"], held["checked"], held["compared"]) == (True, 1, 1)
    found = facts(capsys, "check", bad, "--expect", rules, "--reference", good, code=1)
    assert found["without_rule"] == ["b"]
    assert [each["causes"] for each in found["breaches"]] == [
        ["the halves of dim 0 are swapped"],
        [],
    ]
    assert main(["check", bad, "--reference", good]) == 1
    shown = capsys.readouterr().out
    assert "w: values differ in 1024 of 1024 elements: the halves of dim 0 are swapped" in shown
    assert "b: values is not in the reference" in shown


def test_bad_input_is_refused(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    model, rules = tmp_path / "x.npz", tmp_path / "rules.toml"
    reorder.save(model, {"w": np.ones(3)})
    rules.write_text('["w"]\nlayuot = "a"\n')
    said = refusal(capsys, "check", str(model), "--expect", str(rules))
    assert "rule 'w': there is no key 'layuot'" in said
    said = refusal(capsys, "check", str(model), "--write", "r", "--expect", str(rules))
    assert "run them apart" in said
    refusal(capsys, "check", str(model), "--expect", str(tmp_path / "missing.toml"))
