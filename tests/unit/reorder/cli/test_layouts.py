from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import ml_dtypes
import numpy as np
import pytest

import memdesc
from reorder import Memory, load, plan_reorder, reorder
from reorder.cli import main
from reorder.cli.commands import NAMES
from reorder.cli.compile_notice import NOTICE, CompileNotice
from tests.notice import without_notice

if TYPE_CHECKING:
    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture


def facts(capsys: CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == code
    shown = capsys.readouterr()
    assert without_notice(shown.err) == ""
    found: dict[str, Any] = json.loads(shown.out)
    return found


def refusal(capsys: CaptureFixture[str], *arguments: str) -> str:
    """Run a command that must fail, as text and as JSON; returns what it says."""
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert main([*arguments, "--json"]) == 2
    as_json = capsys.readouterr()
    assert as_json.out == ""
    said: str = json.loads(as_json.err)["error"]
    assert shown.err == f"memdesc: {said}\n"
    return said


@pytest.fixture
def dump(tmp_path: Path) -> tuple[str, np.ndarray[Any, Any]]:
    """Raw bytes of a blocked f16 tensor, and what they hold."""
    x = np.random.default_rng(0).random((1, 17, 5, 4)).astype(np.float16)
    path = tmp_path / "dump.bin"
    path.write_bytes(reorder(x, "b_fs_yx_fsv16").data.tobytes())
    return str(path), x


def test_show_draws_a_picture_with_the_letters_of_the_name(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    out = tmp_path / "a.svg"
    shown = facts(capsys, "show", "nChw4c", "1x5x2x3", "--svg", str(out))
    assert shown["wrote"] == str(out)
    desc = memdesc.memory_desc((1, 5, 2, 3), "f32", "nChw4c")
    assert out.read_text(encoding="utf-8") == f"{desc.show('nchw').svg}\n"
    assert ET.parse(out).getroot().tag.endswith("svg")  # noqa: S314 - it is our own
    assert (
        facts(capsys, "show", "aBcd4b", "1x5x2x3", "--draw")["picture"]
        == desc.show("abcd").text.splitlines()
    )
    assert "rows y, columns x" in "".join(
        facts(capsys, "show", "b_fs_yx_fsv4", "1x5x2x3", "--draw")["picture"]
    )
    assert "rows q, columns r" in "".join(
        facts(capsys, "show", "nchw", "1x5x2x3", "--draw", "--letters", "opqr")["picture"]
    )


def test_show_takes_strides(capsys: CaptureFixture[str]) -> None:
    assert facts(capsys, "show", "6x1@3", "3x4")["offset0"] == 3
    assert "must be 2 numbers" in refusal(capsys, "show", "6", "3x4")


def test_show_draws_an_image(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    out = tmp_path / "a.svg"
    facts(capsys, "show", "in_out_channel", "1x6x2x3", "--dtype", "f16", "--svg", str(out))
    image = memdesc.image_desc((1, 6, 2, 3), "f16", "in_out_channel")
    assert out.read_text(encoding="utf-8") == f"{image.show().svg}\n"
    assert "a panel for each c" in image.show().text


def test_show_names_the_fields_of_a_record(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    out = tmp_path / "a.svg"
    shown = facts(capsys, "show", "Q4_K", "2x256", "--draw", "--svg", str(out))
    record = memdesc.record_desc((2, 256), "q4_k")
    assert shown["bits_per_element"] == 4.5
    assert shown["rule"] == str(record.rule)
    assert [field["name"] for field in shown["fields"]] == [part.name for part in record.fields]
    assert shown["picture"] == record.show().text.splitlines()
    assert out.read_text(encoding="utf-8") == f"{record.show().svg}\n"
    assert "which do not divide b (dim 1)" in refusal(capsys, "show", "q4_k", "2x250")
    assert "takes no --letters" in refusal(capsys, "show", "q4_k", "2x256", "--letters", "oi")
    assert facts(capsys, "show", "gptq", "8x8", "--dtype", "u4")["bytes"] == 32


def test_a_picture_that_cannot_be_written_is_refused(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    assert "cannot be written" in refusal(
        capsys, "show", "nchw", "1x5x2x3", "--svg", str(tmp_path / "none" / "a.svg")
    )
    assert "cannot be written" in refusal(
        capsys, "explain", "ab", "ba", "2x3", "--svg", str(tmp_path)
    )
    assert "must name 4 dims" in refusal(
        capsys, "show", "nchw", "1x5x2x3", "--draw", "--letters", "nch"
    )


def test_match_finds_all_names(capsys: CaptureFixture[str]) -> None:
    found = facts(
        capsys, "match", "--dims", "2x17x5x4", "--strides", "480x160x32x8", "--inner", "8b"
    )
    assert [name["text"] for name in found["names"]] == [
        "aBcd8b",
        "gOiw8o",
        "nChw8c",
        "b_fs_yx_fsv8",
        "mlas_nchwc8",
    ]
    assert (
        found["names"]
        == facts(
            capsys,
            "match",
            "--dims",
            "2x17x5x4",
            "--strides",
            "480,160,32,8",
            "--inner",
            "8b",
            "--padded",
            "2x24x5x4",
        )["names"]
    )
    assert {"nchw", "nhwc"} <= {
        name["text"]
        for name in facts(capsys, "match", "--dims", "8x1x5x4", "--strides", "20x20x4x1")["names"]
    }


@pytest.mark.parametrize(
    ("vocabulary", "name", "arguments"),
    [
        ("tensorrt", "kCHW32", "2x64x5x4 1280x640x128x32 32b s8"),
        ("acl", "OHWIo4", "8x3x5x4 240x4x48x12 4a f32"),
        ("ascend", "NC1HWC0", "2x32x5x4 640x320x64x16 16b f16"),
        ("ncnn", "elempack4", "8x5x4 80x16x4 4a f32"),
        ("mnn", "NC4HW4", "2x8x5x4 160x80x16x4 4b f32"),
        ("tflite_gpu", "TensorStorageType::BUFFER", "1x5x4x8 160x16x4x80 4d f32"),
    ],
)
def test_names_of_other_systems_are_listed_and_matched(
    vocabulary: str, name: str, arguments: str, capsys: CaptureFixture[str]
) -> None:
    listed = facts(capsys, "names", name)["names"]
    assert (vocabulary, name) in [(row["vocabulary"], row["text"]) for row in listed]
    dims, strides, inner, dtype = arguments.split()
    options = ["--dims", dims, "--strides", strides, "--inner", inner, "--dtype", dtype]
    matched = facts(capsys, "match", *options)["names"]
    assert (vocabulary, name) in [(row["vocabulary"], row["text"]) for row in matched]


@pytest.mark.parametrize("dims", ["1_0x3", "２x3", "+2x3", "2x", f"2x{'9' * 5000}"])  # noqa: RUF001 - a digit that is none of ASCII
def test_dims_are_decimal_digits_only(dims: str, capsys: CaptureFixture[str]) -> None:
    assert "are not integers joined by x or commas" in refusal(capsys, "show", "ab", dims)


def test_match_without_a_name_says_why_and_ends_with_1(capsys: CaptureFixture[str]) -> None:
    assert (
        "leave gaps" in facts(capsys, "match", "--dims", "3x4", "--strides", "6x1", code=1)["why"]
    )
    assert (
        "behind element 0"
        in facts(capsys, "match", "--dims", "3x4", "--strides", "4x1", "--offset0", "2", code=1)[
            "why"
        ]
    )
    assert (
        facts(capsys, "match", "--dims", "3x4", "--strides=-4x1", "--offset0", "8", code=1)["names"]
        == []
    )


def test_match_refuses_what_is_no_layout(capsys: CaptureFixture[str]) -> None:
    assert "not integers joined by x" in refusal(
        capsys, "match", "--dims", "3x4", "--strides", "4xa"
    )
    assert "must be 2 numbers" in refusal(capsys, "match", "--dims", "3x4", "--strides", "4")
    assert "such as 8b or 4b16a4b" in refusal(
        capsys, "match", "--dims", "3x4", "--strides", "4x1", "--inner", "b8"
    )
    assert "required: --strides; see memdesc match --help" in refusal(
        capsys, "match", "--dims", "3x4"
    )


def test_diff_says_no_op_view_or_copy(capsys: CaptureFixture[str]) -> None:
    same = facts(capsys, "diff", "nchw", "nhwc", "8x1x5x4")
    assert (same["reorder"], same["equal"]) == ("no-op", True)
    assert "first_moved" not in same
    copy = facts(capsys, "diff", "nchw", "nChw16c", "8x17x5x4", "--dtype", "f16")
    assert (copy["reorder"], copy["equal"]) == ("copy", False)
    assert copy["first_moved"] == {"index": [0, 0, 0, 1], "a": 1, "b": 16}
    assert copy["padded_dims"] == {"a": [8, 17, 5, 4], "b": [8, 32, 5, 4]}
    view = facts(capsys, "diff", "20x1@3", "20x1", "3x4")
    assert view["reorder"] == "view"
    assert "3 elements later" in view["why"]
    assert facts(capsys, "diff", "ab", "ab__b8", "1x5")["first_moved"] is None
    assert main(["diff", "nchw", "nhwc", "8x17x5x4"]) == 0
    assert "padded dims  8 17 5 4" in capsys.readouterr().out


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
            "lookups": 0,
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
    for command in ("diff", "explain"):
        assert "did you mean 'nChw8c'" in refusal(capsys, command, "nchw", "nChw8d", "2x17x5x4")
        assert "is for 4 dims" in refusal(capsys, command, "nchw", "nhwc", "2x17x5")
        assert "not integers joined by x" in refusal(capsys, command, "nchw", "nhwc", "2x17x5y")
        assert "must be 2 numbers" in refusal(capsys, command, "ab", "4x1x1", "3x4")
        assert "not integers" in refusal(capsys, command, "ab", "4x1@a", "3x4")
        assert "are required: B, DIMS" in refusal(capsys, command, "ab")


def test_decode_turns_a_dump_into_an_array(
    dump: tuple[str, Any], tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    path, x = dump
    out = str(tmp_path / "out.npy")
    shown = facts(
        capsys,
        "decode",
        path,
        out,
        "--format",
        "b_fs_yx_fsv16",
        "--dims",
        "1x17x5x4",
        "--dtype",
        "f16",
    )
    assert np.array_equal(np.load(out), x)
    assert (shown["padding_zero"], shown["padding_elements"]) == (True, 300)
    assert isinstance(load(out), Memory)


def test_decode_skips_a_header_widens_and_finds_dirty_padding(
    dump: tuple[str, Any], tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    path, x = dump
    raw = bytearray(Path(path).read_bytes())
    raw[-2:] = b"\x00\x3c"
    Path(path).write_bytes(b"header!!" + raw + b"tail")
    out = str(tmp_path / "out.npy")
    arguments = [
        "decode",
        path,
        out,
        "--format",
        "b_fs_yx_fsv16",
        "--dims",
        "1x17x5x4",
        "--dtype",
        "f16",
        "--offset",
        "8",
    ]
    assert "has 1284 bytes from byte 8 on" in refusal(capsys, *arguments)
    assert main([*arguments, "--ignore-rest", "--to-dtype", "f32", "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["padding_zero"] is False
    assert shown["not_zero"] == 1
    assert shown["places"] == [{"index": [0, 31, 4, 3], "byte": 1278, "bits": "0x3c00"}]
    assert np.array_equal(np.load(out), x.astype(np.float32))


def test_decode_knows_types_that_npy_does_not(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    x = np.arange(12).reshape(3, 4).astype(ml_dtypes.bfloat16)
    (tmp_path / "dump.bin").write_bytes(reorder(x, "ba").data.tobytes())
    out = str(tmp_path / "out.npy")
    facts(
        capsys,
        "decode",
        str(tmp_path / "dump.bin"),
        out,
        "--format",
        "ba",
        "--dims",
        "3x4",
        "--dtype",
        "bf16",
    )
    memory = load(out)
    assert isinstance(memory, Memory)
    assert np.array_equal(memory.numpy(), x)
    y = np.arange(-6, 6).reshape(3, 4).astype(ml_dtypes.int4)
    (tmp_path / "dump.bin").write_bytes(reorder(y, "Ab4a").data.tobytes())
    facts(
        capsys,
        "decode",
        str(tmp_path / "dump.bin"),
        out,
        "--format",
        "Ab4a",
        "--dims",
        "3x4",
        "--dtype",
        "s4",
        "--to-dtype",
        "s8",
    )
    assert np.array_equal(np.load(out), np.arange(-6, 6).reshape(3, 4))


def test_decode_refuses_before_it_writes(
    dump: tuple[str, Any], tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    path, _ = dump
    out = str(tmp_path / "out.npy")
    layout = ["--format", "b_fs_yx_fsv16", "--dims", "1x17x5x4", "--dtype"]
    assert (
        "but memory_desc((1, 17, 5, 4), 'f32', 'aBcd16b') takes 2560; it is cut short"
        in refusal(capsys, "decode", path, out, *layout, "f32")
    )
    assert "has 0 bytes from byte 5000 on" in refusal(
        capsys, "decode", path, out, *layout, "f16", "--offset", "5000"
    )
    assert "--ignore-rest" in refusal(capsys, "decode", path, out, *layout, "u8")
    assert "in front of its file" in refusal(
        capsys, "decode", path, out, *layout, "f16", "--offset", "-1"
    )
    assert "does not hold all values of f16" in refusal(
        capsys, "decode", path, out, *layout, "f16", "--to-dtype", "s8"
    )
    assert "No such file" in refusal(capsys, "decode", "none.bin", out, *layout, "f16")
    assert "Is a directory" in refusal(capsys, "decode", str(tmp_path), out, *layout, "f16")
    assert "unknown data type 'f17'" in refusal(capsys, "decode", path, out, *layout, "f17")
    assert "cannot be written" in refusal(
        capsys, "decode", path, str(tmp_path / "none" / "out.npy"), *layout, "f16"
    )
    assert "give --dims and --dtype" in refusal(capsys, "decode", path, out, *layout[:-1])
    assert [file.name for file in tmp_path.iterdir()] == ["dump.bin"]


def test_an_unknown_command_is_one_line_and_exit_code_2(capsys: CaptureFixture[str]) -> None:
    assert "no command 'shw'; did you mean 'show'?" in refusal(capsys, "shw")
    assert "the commands are show, " in refusal(capsys, "xyzzy")
    assert "see memdesc --help" in refusal(capsys)


def test_a_misspelt_flag_gets_suggestions(capsys: CaptureFixture[str]) -> None:
    assert (
        refusal(capsys, "decode", "a", "b", "--fromat", "nchw")
        == "no flag --fromat; did you mean '--format'?; see memdesc decode --help"
    )
    assert "no flag --xyz; see memdesc show" in refusal(capsys, "show", "ab", "2x3", "--xyz=1")
    # no abbreviations: --to is another flag of another command
    assert "did you mean '--to-dtype'" in refusal(capsys, "diff", "ab", "ba", "2x3", "--to", "s8")
    assert "unrecognized arguments: c; see memdesc show" in refusal(
        capsys, "show", "ab", "2x3", "c"
    )


def test_dims_and_strides_are_joined_by_x_or_by_commas(capsys: CaptureFixture[str]) -> None:
    assert facts(capsys, "show", "ab", "2,3") == facts(capsys, "show", "ab", "2x3")
    assert facts(capsys, "show", "4,1@2", "2,3") == facts(capsys, "show", "4x1@2", "2x3")


@pytest.mark.parametrize("command", NAMES)
def test_every_help_shows_an_example_of_the_command(command: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "reorder", command, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"example: memdesc {command}" in ran.stdout
    assert "--json" in ran.stdout


_LONG_WORK = """
import time
from reorder.cli.progress import Progress
with Progress(4) as progress:
    progress.step("start", 1)
    time.sleep(0.6)
    progress.step("half", 1)
"""


def test_a_bar_is_shown_on_terminals_only_and_wiped() -> None:
    quiet = subprocess.run([sys.executable, "-c", _LONG_WORK], capture_output=True, check=True)
    assert quiet.stderr == b""
    terminal, other_end = pty.openpty()
    try:
        subprocess.run([sys.executable, "-c", _LONG_WORK], stderr=other_end, check=True)
        shown = os.read(terminal, 4096).decode()
    finally:
        os.close(terminal)
        os.close(other_end)
    assert "start" not in shown  # work that is not long shows none
    assert "[############............]  50% half" in shown
    assert shown.endswith("\r\033[K")


_COMPILING = """
import sys, time
from reorder.cli.compile_notice import CompileNotice
with CompileNotice(lambda: float(sys.argv[1])):
    time.sleep(0.3)
"""


@pytest.mark.parametrize(("seconds", "is_told"), [("1.1", True), ("0.9", False)])
def test_long_compilation_is_announced_once_in_a_line_on_stderr(
    seconds: str, is_told: bool
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _COMPILING, seconds], capture_output=True, text=True, check=True
    )
    assert ran.stdout == ""
    assert ran.stderr.splitlines() == [NOTICE.rstrip()] * is_told


def test_compilation_without_stderr_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with CompileNotice(lambda: 1.1):
        time.sleep(0.2)


def test_the_command_runs_where_nothing_is_a_terminal(
    dump: tuple[str, Any], tmp_path: Path
) -> None:
    path, _ = dump
    arguments = [
        path,
        str(tmp_path / "o.npy"),
        "--format",
        "b_fs_yx_fsv16",
        "--dims",
        "1x17x5x4",
        "--dtype",
        "f16",
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "reorder", "decode", *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ},
    )
    assert without_notice(ran.stderr) == ""
    assert "padding zero      yes" in ran.stdout


def test_files_that_are_missing_damaged_or_protected_are_refused_and_nothing_is_left(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    whole = tmp_path / "x.npy"
    np.save(whole, np.ones((2, 3), np.float32))
    (tmp_path / "short.npy").write_bytes(whole.read_bytes()[:-4])
    (tmp_path / "empty.npy").write_bytes(b"")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    out = str(tmp_path / "out.npy")
    for name, reason in (
        ("none.npy", "cannot be read: No such file"),
        ("short.npy", "is no .npy file"),
        ("empty.npy", "is no .npy file"),
    ):
        path = str(tmp_path / name)
        assert reason in refusal(capsys, "reorder", path, out, "--to", "ba")
        assert reason in refusal(capsys, "check", path)
    for target in (str(tmp_path / "none" / "out.npy"), str(tmp_path), "/dev/full/out.npy"):
        assert "cannot be written" in refusal(capsys, "reorder", str(whole), target, "--to", "ba")
    assert "is for 4 dims" in refusal(capsys, "reorder", str(whole), out, "--to", "nhwc")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_show_highlights_elements(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    out = tmp_path / "a.svg"
    desc = memdesc.memory_desc((2, 17, 5, 4), "f32", "nChw8c")
    marked = ["--highlight", "1,9,2,3", "--highlight", "0x1x2x3"]
    facts(capsys, "show", "nChw8c", "2x17x5x4", *marked, "--svg", str(out))
    svg = desc.show(highlight=[(1, 9, 2, 3), (0, 1, 2, 3)]).svg
    assert out.read_text(encoding="utf-8") == f"{svg}\n"
    assert "is not in 0 to 4" in refusal(
        capsys, "show", "nChw8c", "2x17x5x4", "--highlight", "1,9,5,3", "--draw"
    )


def test_diff_draws_both_layouts(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    out = tmp_path / "a.svg"
    assert facts(capsys, "diff", "nchw", "nhwc", "2x3x4x5", "--svg", str(out))["wrote"] == str(out)
    a, b = (memdesc.memory_desc((2, 3, 4, 5), "f32", tag) for tag in ("nchw", "nhwc"))
    assert out.read_text(encoding="utf-8") == f"{a.show(beside=b).svg}\n"
    assert "is written as" in refusal(
        capsys, "diff", "nchw", "nhwc", "2x3x4x5", "--svg", str(tmp_path / "a.pdf")
    )
