"""`memdesc check`: zero padding, contracts and references."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder
from tests.checkpoints import write_safetensors

if TYPE_CHECKING:
    from tests.unit.reorder.cli.shell import Shell

X = np.random.default_rng(0).random((2, 17, 5, 4), np.float32)


def test_padding_that_is_not_zero_is_counted_and_listed(shell: Shell) -> None:
    dirty = reorder.reorder(X, "nChw8c")
    dirty.data.view(np.float32)[[324, 325, 959]] = 1
    reorder.save("m.npz", {"a": dirty, "b": reorder.reorder(X, "nhwc"), "c": X[0, 0]})
    found = shell.facts("check m.npz --limit 2", 1)
    zero = [one["zero"] for one in found["tensors"]]
    assert (found["zero"], zero) == (False, [False, True, True])
    assert found["tensors"][0]["not_zero"] == 3
    assert found["tensors"][0]["places"] == [
        {"index": [0, 20, 0, 0], "byte": 1296, "bits": "0x3f800000"},
        {"index": [0, 21, 0, 0], "byte": 1300, "bits": "0x3f800000"},
    ]
    assert shell.facts("check m.npz:b")["zero"] is True
    assert shell.facts("check m.npz --limit 0", 1)["tensors"][0]["places"] == []
    lines = shell.lines("check m.npz", 1)
    assert lines[:4] == ["file  m.npz", "zero  no", "", "name              a"]
    reorder.save("x.safetensors", dirty)
    last = shell.lines("check x.safetensors", 1)[-1]
    assert last.endswith("index (1, 23, 4, 3), byte 3836, bits 0x3f800000")


def test_a_contract_is_written_and_checked(shell: Shell) -> None:
    x = np.arange(16 * 64, dtype=np.float32).reshape(16, 64)
    swapped = reorder.reorder(np.roll(x, 8, 0), "AB8b8a")
    reorder.save("good.npz", {"w": reorder.reorder(x, "AB8b8a")})
    reorder.save("bad.npz", {"w": swapped, "b": x})
    assert shell.facts("check good.npz --write rules.toml")["rules"] == 1
    assert shell.facts("check good.npz --write rules.toml --overwrite")["rules"] == 1
    held = shell.facts("check good.npz --expect rules.toml --reference good.npz")
    assert (held["holds"], held["checked"], held["compared"]) == (True, 1, 1)
    found = shell.facts("check bad.npz --expect rules.toml --reference good.npz", 1)
    assert found["without_rule"] == ["b"]
    causes = [(each["key"], each["causes"]) for each in found["breaches"]]
    swapped_halves = "the halves of dim 0 are swapped"
    assert causes == [("values", [swapped_halves]), ("values", []), ("others", [])]
    good = shell.lines("check good.npz --expect rules.toml")
    assert good[-1] == "compared      no values, which takes a --reference"
    assert not any("unconfirmed" in line for line in good)
    shown = "\n".join(shell.lines("check bad.npz --reference good.npz", 1))
    assert "w: values differ in 1024 of 1024 elements: the halves of dim 0 are swapped" in shown
    assert "b: values are not in the reference" in shown


def test_a_contract_says_which_layouts_it_assumes(shell: Shell) -> None:
    packed = reorder.reorder(np.arange(64, dtype=np.int8).reshape(8, 8), "AB4b4a")
    rows = packed.data.view(np.int8).reshape(8, 8)
    write_safetensors(Path("raw.safetensors"), {"b": rows, "a.1": rows, "a.2": rows})
    found = shell.facts("check raw.safetensors --write raw.toml")
    plain = {"layout": "plain"}
    assert found["assumed"] == [{"rule": "b", **plain}, {"rule": "a.*", **plain}]
    said = 'layout = "plain"  # assumed: the file does not say it'
    assert Path("raw.toml").read_text(encoding="utf-8").count(said) == 2
    assert shell.facts("check raw.safetensors --expect raw.toml")["holds"]
    reorder.save("said.safetensors", {"w": packed})
    assert "assumed" not in shell.facts("check said.safetensors --write said.toml")
    assert "#" not in Path("said.toml").read_text(encoding="utf-8")


def test_a_reference_that_may_be_packed_or_plain_confirms_nothing(shell: Shell) -> None:
    packed = reorder.reorder(np.arange(64, dtype=np.int8).reshape(8, 8), "AB4b4a")
    write_safetensors(Path("raw.safetensors"), {"w": packed.data.view(np.int8).reshape(8, 8)})
    rules = '["w"]\nlayout = "AB4b4a"\ndims = [8, 8]\ndtype = "s8"\n'
    Path("r.toml").write_text(rules, encoding="utf-8")
    command = "check raw.safetensors --expect r.toml --reference raw.safetensors"
    found = shell.facts(command, 1)
    assert (found["holds"], found["unconfirmed"]) == (False, ["w"])
    shown = "\n".join(shell.lines(command, 1))
    assert "w: reference does not say whether it is packed or plain" in shown
    assert "unconfirmed   w" in shown
    assert shell.facts(f"{command} --reference-is packed")["unconfirmed"] == []
    (breach,) = shell.facts(f"{command} --reference-is plain", 1)["breaches"]
    assert breach["causes"] == ["it is not packed"]


@pytest.mark.parametrize("target", ["m/1.safetensors", "link", "m/config.json", "m/model.toml"])
def test_a_contract_replaces_only_contracts(shell: Shell, target: str) -> None:
    Path("m").mkdir()
    reorder.save("m/1.safetensors", {"w": X})
    Path("link").symlink_to("m/1.safetensors")
    Path("m/config.json").write_text("{}", encoding="utf-8")
    Path("m/model.toml").hardlink_to("m/1.safetensors")
    data = Path(target).read_bytes()
    for model in ("m", "m/1.safetensors"):
        reason = shell.refusal(f"check {model} --write {target} --overwrite")
        assert f"--overwrite replaces contracts only, and {target!r} is not TOML" in reason
    assert Path(target).read_bytes() == data
    Path("old.toml").write_text("", encoding="utf-8")
    assert shell.facts("check m --write old.toml --overwrite")["rules"] == 1


def test_breaches_of_equal_layers_share_a_line(shell: Shell) -> None:
    reorder.save("good.npz", {f"layers.{k}.w": X for k in range(3)})
    shell.facts("check good.npz --write rules.toml")
    tensors = {f"layers.{k}.w": X.astype(np.float16) for k in range(3)}
    reorder.save("bad.npz", tensors | {"more.0": X, "more.1": X})
    lines = shell.lines("check bad.npz --expect rules.toml", 1)
    assert [line.partition("; and ")[2] for line in lines[2:4]] == [
        "2 such tensors, see --json",
        "1 such tensor, see --json",
    ]
    assert not any("without rule" in line for line in lines)  # each is a breach already
    assert len(shell.facts("check bad.npz --expect rules.toml", 1)["breaches"]) == 5


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (".", "'.' is a folder: --expect and --reference check one"),
        ("raw.bin", "`memdesc reorder` makes one of raw bytes, and checks their padding"),
        ("x.npz --expect rules.toml", "rule 'w': 'layuot' is not a key"),
        ("x.npz --write r --expect rules.toml", "run them apart"),
        ("x.npz --write rules.toml", "'rules.toml' exists; --overwrite replaces it"),
        ("x.npz --expect missing.toml", "cannot be read"),
        ("x.npz --reference-is plain", "there is none"),
        ("x.npz --overwrite", "--overwrite is for the file of --write"),
        ("x.npz:d", "has no tensor 'd'; it has 1: w"),
        ("x.npy", "nothing says what is padding"),
        ("none.npz", "has no tensors"),
        ("damaged.npz", "is not a .npz file, or a damaged one"),
        ("missing.npz:x", "cannot be read"),
        ("pipe", "'pipe' cannot be read: it is a folder or a device"),
    ],
)
def test_what_cannot_be_checked_is_refused(shell: Shell, command: str, reason: str) -> None:
    reorder.save("x.npz", {"w": np.ones(3)})
    np.save("x.npy", X)
    np.savez("none.npz")
    Path("raw.bin").write_bytes(bytes(4))
    Path("damaged.npz").write_bytes(b"PK\x03\x04 and nothing else")
    Path("rules.toml").write_text('["w"]\nlayuot = "a"\n', encoding="utf-8")
    os.mkfifo("pipe")
    assert reason in shell.refusal(f"check {command}")
