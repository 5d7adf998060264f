"""`memdesc check`: zero padding of saved tensors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder

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


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (".", "'.' is a folder; padding is checked in one"),
        ("raw.bin", "`memdesc reorder` makes one of raw bytes, and checks their padding"),
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
