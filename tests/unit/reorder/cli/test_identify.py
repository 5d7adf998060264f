from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from reorder.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """4-bit weights packed in a raw file behind 8 bytes, and plain ones in a .npy."""
    q = np.random.default_rng(0).integers(0, 16, (64, 128), np.uint8)
    dump, plain = tmp_path / "dump.bin", tmp_path / "q.npy"
    dump.write_bytes(bytes(8) + reorder.reorder(q, "marlin", dtype="u4").data.tobytes())
    np.save(plain, q)
    return str(dump), str(plain)


def facts(capsys: CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main(["identify", *arguments, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_layout_of_a_dump_is_found_by_its_values(
    files: tuple[str, str], capsys: CaptureFixture[str]
) -> None:
    dump, plain = files
    found = facts(capsys, dump, "--like", plain, "--offset", "8")
    assert (found["bytes"], found["row_major"]) == (4096, False)
    (layout,) = found["layouts"]
    assert layout["names"][-1]["text"] == "marlin"
    assert (layout["order"], layout["padding_elements"], layout["padding_zero"]) == (
        [0, 1],
        0,
        True,
    )
    assert main(["identify", dump, "--like", plain, "--offset", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(
        "4096 bytes: one layout gives these bytes: AB8b/1.4a/2.4b/16.2a/1.2b/8.2a/8 (marlin)"
    )
    assert lines[1].endswith(
        "'AB8b/1.4a/2.4b/16.2a/1.2b/8.2a/8'): AB8b/1.4a/2.4b/16.2a/1.2b/8.2a/8, marlin"
    )


def test_without_a_reference_what_remains_is_listed(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    reorder.reorder(np.ones((2, 17, 5, 4), np.float32), "nChw8c").data.tofile(tmp_path / "x.bin")
    arguments = [str(tmp_path / "x.bin"), "--dims", "2x17x5x4", "--dtype", "f32"]
    found = facts(capsys, *arguments, code=1)
    assert [each["padding_elements"] for each in found["layouts"]] == [280, 280]
    assert main(["identify", *arguments]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "leave 2 layouts; a tensor of the same values tells them apart" in lines[0]
    assert lines[1] == "ordinary values if the type is: f32 100%, s32 0%, u32 0%"
    assert lines[2].endswith("; 280 padding")
    np.zeros(256, np.uint8).tofile(tmp_path / "zeros.bin")
    assert (
        main(["identify", str(tmp_path / "zeros.bin"), "--dims", "4x4x4x4", "--dtype", "u8"]) == 1
    )
    assert re.fullmatch(
        r"\.\.\. and \d+ more; --json lists them", capsys.readouterr().out.splitlines()[-1]
    )


def test_each_tensor_of_a_set_is_plain_or_packed(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    plain = {name: rng.integers(0, 16, (64, 128), np.uint8) for name in ("a", "bb", "c", "d")}
    packed = {
        "a": reorder.reorder(plain["a"], "marlin", dtype="u4").data,
        "bb": plain["bb"],
        "c": plain["a"],
        "e": plain["d"],
    }
    reorder.save(tmp_path / "packed.npz", packed)
    reorder.save(tmp_path / "plain.npz", plain)
    one = [f"{tmp_path / 'packed.npz'}:a", "--like", f"{tmp_path / 'plain.npz'}:a"]
    assert facts(capsys, *one)["verdict"].endswith("(marlin)")
    arguments = [str(tmp_path / "packed.npz"), "--like", str(tmp_path / "plain.npz")]
    found = facts(capsys, *arguments, code=1)
    assert [(each["tensor"], each["row_major"]) for each in found["tensors"]] == [
        ("a", False),
        ("bb", True),
        ("c", False),
    ]
    assert found["not_compared"] == ["d", "e"]
    assert main(["identify", *arguments]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"a   one layout gives these bytes: .* \(marlin\)", lines[0])
    assert lines[1:] == [
        "bb  plain",
        "c   no known layout of (64, 128) elements of u8 or u4 gives these bytes",
        "d   not in both files",
        "e   not in both files",
    ]


def test_a_saved_tensor_is_identified_by_its_bytes(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    x = np.random.default_rng(0).random((2, 17, 5, 4), np.float32)
    np.save(tmp_path / "x.npy", x)
    reorder.save(tmp_path / "packed.safetensors", reorder.reorder(x, "nChw8c"))
    found = facts(capsys, str(tmp_path / "packed.safetensors"), "--like", str(tmp_path / "x.npy"))
    assert "nChw8c" in {name["text"] for name in found["layouts"][0]["names"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dump.bin"], "give like=, a tensor of the same values, or dims=, the logical sizes"),
        (["nothing.bin", "--dims", "2"], "'nothing.bin' cannot be read: No such file or directory"),
        (["dump.bin", "--dims", "2", "--offset", "-1"], "--offset -1: 'dump.bin' has 4104 bytes"),
        (
            ["dump.bin", "--dims", "2", "--offset", "99999999999"],
            "'dump.bin' has 4104 bytes, so no tensor can start there",
        ),
        (["pipe", "--dims", "2"], "'pipe' cannot be read: it is a folder or a device"),
        (["pipe", "--like", "q.npy"], "'pipe' cannot be read: it is a folder or a device"),
        (["dump.bin", "--like", "pipe"], "'pipe' cannot be read: it is a folder or a device"),
        ([".", "--dims", "2"], "'.' cannot be read: "),
        (["q.npy", "--dims", "2", "--offset", "8"], "--offset 8 is for files of raw bytes"),
        (["q.npz", "--dims", "2"], "'q.npz' has 2 tensors: a, b; "),
        (["q.npz", "--like", "q.npy"], "'q.npz' has 2 tensors: a, b; "),
        (["q.npz", "--like", "r.npz"], "'q.npz' and 'r.npz' have no tensor of the same name"),
    ],
)
def test_what_cannot_be_identified_is_refused(
    arguments: list[str],
    message: str,
    files: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("q.npz", a=np.ones(2), b=np.ones(2))
    np.savez("r.npz", c=np.ones(2))
    os.mkfifo("pipe")
    assert len(files) == 2
    assert main(["identify", *arguments]) == 2
    assert message in capsys.readouterr().err
