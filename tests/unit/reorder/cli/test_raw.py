"""`memdesc reorder` of raw dumps: they become arrays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from reorder import Memory, load, reorder
from reorder.cli import main
from tests.notice import without_notice
from tests.unit.reorder.cli.results import facts, refusal

if TYPE_CHECKING:
    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture


@pytest.fixture
def dump(tmp_path: Path) -> tuple[str, np.ndarray[Any, Any]]:
    """Raw bytes of a blocked f16 tensor, and what they hold."""
    x = np.random.default_rng(0).random((1, 17, 5, 4)).astype(np.float16)
    path = tmp_path / "dump.bin"
    path.write_bytes(reorder(x, "b_fs_yx_fsv16").data.tobytes())
    return str(path), x


def test_reorder_turns_a_dump_into_an_array(
    dump: tuple[str, Any], tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    path, x = dump
    out = str(tmp_path / "out.npy")
    shown = facts(
        capsys,
        "reorder",
        path,
        out,
        *["--from", "b_fs_yx_fsv16", "--dims", "1x17x5x4", "--dtype", "f16"],
    )
    assert np.array_equal(np.load(out), x)
    assert (shown["padding_zero"], shown["padding_elements"]) == (True, 300)
    assert isinstance(load(out), Memory)


def test_reorder_skips_a_header_widens_and_finds_dirty_padding(
    dump: tuple[str, Any], tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    path, x = dump
    raw = bytearray(Path(path).read_bytes())
    raw[-2:] = b"\x00\x3c"
    Path(path).write_bytes(b"header!!" + raw + b"tail")
    out = str(tmp_path / "out.npy")
    arguments = [
        "reorder",
        path,
        out,
        *["--from", "b_fs_yx_fsv16", "--dims", "1x17x5x4", "--dtype", "f16", "--offset", "8"],
    ]
    assert "has 1284 bytes from byte 8 on" in refusal(capsys, *arguments)
    assert main([*arguments, "--ignore-rest", "--to-dtype", "f32", "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["padding_zero"] is False
    assert shown["not_zero"] == 1
    assert shown["places"] == [{"index": [0, 31, 4, 3], "byte": 1278, "bits": "0x3c00"}]
    assert np.array_equal(np.load(out), x.astype(np.float32))


def test_reorder_knows_types_that_npy_does_not(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    x = np.arange(12).reshape(3, 4).astype(ml_dtypes.bfloat16)
    (tmp_path / "dump.bin").write_bytes(reorder(x, "ba").data.tobytes())
    out, kept = str(tmp_path / "out.npy"), str(tmp_path / "out.safetensors")
    facts(
        capsys,
        "reorder",
        str(tmp_path / "dump.bin"),
        kept,
        "--from",
        "ba",
        "--dims",
        "3x4",
        "--dtype",
        "bf16",
    )
    assert np.array_equal(load(kept).numpy(), x)
    y = np.arange(-6, 6).reshape(3, 4).astype(ml_dtypes.int4)
    (tmp_path / "dump.bin").write_bytes(reorder(y, "Ab4a").data.tobytes())
    facts(
        capsys,
        "reorder",
        str(tmp_path / "dump.bin"),
        out,
        *["--from", "Ab4a", "--dims", "3x4", "--dtype", "s4", "--to-dtype", "s8"],
    )
    assert np.array_equal(np.load(out), np.arange(-6, 6).reshape(3, 4))


def test_bad_dumps_are_refused_before_it_writes(
    dump: tuple[str, Any], tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    path, _ = dump
    out = str(tmp_path / "out.npy")
    layout = ["--from", "b_fs_yx_fsv16", "--dims", "1x17x5x4", "--dtype"]
    assert (
        "but memory_desc((1, 17, 5, 4), 'f32', 'aBcd16b') takes 2560; it is truncated"
        in refusal(capsys, "reorder", path, out, *layout, "f32")
    )
    assert "no tensor can start there" in refusal(
        capsys, "reorder", path, out, *layout, "f16", "--offset", "5000"
    )
    assert "--ignore-rest" in refusal(capsys, "reorder", path, out, *layout, "u8")
    assert "no tensor can start there" in refusal(
        capsys, "reorder", path, out, *layout, "f16", "--offset", "-1"
    )
    assert "No such file" in refusal(capsys, "reorder", "none.bin", out, *layout, "f16")
    assert "is a folder or a device" in refusal(
        capsys, "reorder", str(tmp_path), out, *layout, "f16"
    )
    assert "unknown data type 'f17'" in refusal(capsys, "reorder", path, out, *layout, "f17")
    assert "cannot be written" in refusal(
        capsys, "reorder", path, str(tmp_path / "none" / "out.npy"), *layout, "f16"
    )
    assert "does not contain the data type; give dtype" in refusal(
        capsys, "reorder", path, out, *layout[:-1]
    )
    assert [file.name for file in tmp_path.iterdir()] == ["dump.bin"]


def test_the_command_runs_where_nothing_is_a_terminal(
    dump: tuple[str, Any], tmp_path: Path
) -> None:
    path, _ = dump
    arguments = [
        path,
        str(tmp_path / "o.npy"),
        *["--from", "b_fs_yx_fsv16", "--dims", "1x17x5x4", "--dtype", "f16"],
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "reorder", "reorder", *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ},
    )
    assert without_notice(ran.stderr) == ""
    assert "padding zero      yes" in ran.stdout


def test_options_that_would_be_ignored_are_refused(
    dump: tuple[str, Any], tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    told = ("--from", "b_fs_yx_fsv16", "--dims", "1x17x5x4", "--dtype", "f16")
    command = ("reorder", dump[0], str(tmp_path / "out.npy"), *told)
    assert "--row-pitch is for the pixels" in refusal(capsys, *command, "--row-pitch", "64")
    assert "--max-size is for image types" in refusal(capsys, *command, "--max-size", "9x9")
    np.save(tmp_path / "x.npy", dump[1])
    array = ("reorder", str(tmp_path / "x.npy"), str(tmp_path / "out.npy"))
    assert "has dims (1, 17, 5, 4), not (17, 20); leave --dims out" in refusal(
        capsys, *array, "--dims", "17x20"
    )
    assert "has 680 bytes, but" in refusal(capsys, *array, "--dims", "17x21", "--from", "ba")


def test_the_bytes_of_an_array_are_read_as_any_layout_with_sizes(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    x = np.arange(32, dtype=np.int8)
    np.save(tmp_path / "x.npy", x)
    out = tmp_path / "out.npy"
    for layout, wanted in (
        ("cute:(8,4):(1,8)", x.reshape(4, 8).T),
        ("memref<4x8xi8, strided<[8, 1]>>", x.reshape(4, 8)),
        ("S[(2, 4, 4):(4, 8, 1)]", x.reshape(4, 2, 4).transpose(1, 0, 2)),
    ):
        facts(capsys, "reorder", str(tmp_path / "x.npy"), str(out), "--from", layout)
        assert np.array_equal(np.load(out), wanted)
    said = refusal(capsys, "reorder", str(tmp_path / "x.npy"), str(out), "--from", "f32[2,4]{1,0}")
    assert "holds int8, not f32" in said


@pytest.mark.parametrize(
    ("layout", "axes"),
    [("channels_last", (0, 2, 3, 1)), ("NHWC", (0, 2, 3, 1)), ("WHCN", (3, 2, 1, 0))],
)
def test_axes_lie_as_other_systems_call_it(
    layout: str, axes: tuple[int, ...], tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    x = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    np.save(tmp_path / "x.npy", x.transpose(axes))
    out = str(tmp_path / "out.npy")
    facts(capsys, "reorder", str(tmp_path / "x.npy"), out, "--from", layout)
    assert np.array_equal(np.load(out), x)
    facts(capsys, "reorder", out, str(tmp_path / "blocks.bin"), "--raw", "--to", "NCHW4c")
    blocks = np.fromfile(tmp_path / "blocks.bin", np.float32).reshape(2, 1, 4, 5, 4)
    np.save(tmp_path / "blocks.npy", blocks)
    facts(capsys, "reorder", str(tmp_path / "blocks.npy"), out, "--from", "NCHW4c")
    assert np.array_equal(np.load(out)[:, :3], x)
