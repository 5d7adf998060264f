from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memdesc import __version__
from reorder import Memory, load, save
from reorder.cli import main
from tests.unit.reorder.cli.results import facts, refusal

if TYPE_CHECKING:
    from pathlib import Path

    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture


@pytest.fixture
def tensor(tmp_path: Path) -> tuple[str, str]:
    """A saved array, and where its reorder goes."""
    np.save(tmp_path / "in.npy", np.random.default_rng(0).random((2, 17, 5, 4), np.float32))
    return str(tmp_path / "in.npy"), str(tmp_path / "out.npz")


def test_show_says_sizes_strides_blocks_padding_and_names(capsys: CaptureFixture[str]) -> None:
    shown = facts(capsys, "show", "nChw8c", "2x17x5x4", "--dtype", "f32")
    assert shown["padded_dims"] == [2, 24, 5, 4]
    assert shown["strides"] == [480, 160, 32, 8]
    assert (shown["inner_blks"], shown["inner_idxs"]) == ([8], [1])
    assert (shown["bytes"], shown["unpadded_bytes"], shown["padding_overhead"]) == (
        3840,
        2720,
        1.4118,
    )
    assert {"vocabulary": "cldnn", "text": "b_fs_yx_fsv8", "domain": "data"} in shown["names"]


def test_show_prints_one_fact_a_line_for_a_reader(capsys: CaptureFixture[str]) -> None:
    assert main(["show", "nChw8c", "2x17x5x4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "padded dims       2 24 5 4" in lines
    assert "b_fs_yx_fsv8 (cldnn)" in lines[-1]


def test_show_says_why_a_swizzle_has_no_inner_blocks(capsys: CaptureFixture[str]) -> None:
    assert (
        main(["show", "os_is_yx_osa4_isa8_osv8_isv4_swizzled_by_4", "35x37x2x3", "--dtype", "s8"])
        == 0
    )
    shown = capsys.readouterr().out
    assert "swizzled" in shown
    assert "axis 0, step 32, extent 2, stride 12288" in shown


def test_show_knows_images(capsys: CaptureFixture[str]) -> None:
    shown = facts(capsys, "show", "in_out_channel", "1x64x56x56")
    assert (shown["width"], shown["height"], shown["channels"]) == (896, 56, 4)


def test_a_reorder_and_the_way_back_restore_the_file(
    tensor: tuple[str, str], tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    source, target = tensor
    wrote = facts(
        capsys, "reorder", source, target, "--from", "nchw", "--to", "nChw16c", "--threads", "2"
    )
    assert wrote["bytes"] == 5120
    back = str(tmp_path / "back.npy")
    facts(capsys, "reorder", target, back, "--from", "nChw16c", "--to", "nchw")
    assert np.array_equal(np.load(back), np.load(source))


def test_a_reorder_quantises_and_back(
    tensor: tuple[str, str], tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    source, target = tensor
    scales, back = str(tmp_path / "scales.npy"), str(tmp_path / "back.npy")
    np.save(scales, np.linspace(0.004, 0.02, 17).astype(np.float32))
    quantised = facts(
        capsys,
        "reorder",
        source,
        target,
        "--to",
        "nChw16c",
        "--to-dtype",
        "u8",
        "--scale",
        f"{scales}:2",
        "--zero-point",
        "3",
    )
    assert (quantised["dtype"], quantised["bytes"]) == ("u8", 2 * 32 * 5 * 4)
    facts(
        capsys,
        "reorder",
        target,
        back,
        "--to",
        "nchw",
        "--to-dtype",
        "f32",
        "--src-scale",
        f"{scales}:2",
        "--src-zero-point",
        "3",
    )
    step = np.load(scales)[:, None, None]
    assert (abs(np.load(back) - np.load(source)) <= step * 0.501).all()
    once = np.load(back)
    facts(capsys, "reorder", back, back, "--to", "nchw", "--beta", "1", "--saturate")
    assert np.array_equal(np.load(back), 2 * once)


def test_check_finds_what_does_not_belong_into_the_padding(
    tensor: tuple[str, str], capsys: CaptureFixture[str]
) -> None:
    source, target = tensor
    facts(capsys, "reorder", source, target, "--to", "nChw16c")
    assert facts(capsys, "check", target)["zero"] is True
    memory = load(target)
    assert isinstance(memory, Memory)
    memory.data[-4] = 1
    save(target, memory)
    assert main(["check", target]) == 1
    assert "(1, 31, 4, 3), byte 5116" in capsys.readouterr().out


def test_doctor_says_versions_threads_and_the_cache(capsys: CaptureFixture[str]) -> None:
    shown = facts(capsys, "doctor")
    assert shown["memdesc"] == __version__
    assert shown["numpy"] == np.__version__
    assert "kernel_cache" in shown


def test_bad_input_is_one_line_on_stderr_and_exit_code_2(
    tensor: tuple[str, str], capsys: CaptureFixture[str]
) -> None:
    source, target = tensor
    assert "did you mean 'nChw8c'" in refusal(capsys, "show", "nChw8d", "2x17x5x4")
    assert "not integers joined by x or commas" in refusal(capsys, "show", "nChw8c", "2.17")
    assert "2 sizes" in refusal(capsys, "show", "nChw8c", "2x17")
    assert "unknown data type 'f31'" in refusal(
        capsys, "show", "nChw8c", "2x17x5x4", "--dtype", "f31"
    )
    assert "'none.npy' cannot be read: No such file" in refusal(
        capsys, "reorder", "none.npy", target, "--to", "nhwc"
    )
    assert "nothing says what is padding" in refusal(capsys, "check", source)
    assert "threads must be" in refusal(
        capsys, "reorder", source, target, "--to", "nhwc", "--threads", "0"
    )
    assert "holds f32, not s32" in refusal(
        capsys, "reorder", source, target, "--to", "nhwc", "--dtype", "s32"
    )
    assert "--scale 'x' is neither a number nor FILE.npy:MASK" in refusal(
        capsys, "reorder", source, target, "--to", "nhwc", "--scale", "x"
    )
    assert "scales are finite and not 0" in refusal(
        capsys, "reorder", source, target, "--to", "nhwc", "--scale", "0"
    )
    assert "but dst and dtype ask for" in refusal(
        capsys, "reorder", source, source, "--to", "nhwc", "--beta", "1"
    )
    facts(capsys, "reorder", source, target, "--to", "nChw16c")
    assert "leave --from out" in refusal(
        capsys, "reorder", target, source, "--from", "nhwc", "--to", "nchw"
    )


def test_the_command_is_installed_and_its_help_shows_an_example() -> None:
    for command in ("show", "reorder", "reorder", "check", "doctor"):
        ran = subprocess.run(
            [sys.executable, "-m", "reorder", command, "--help"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"example: memdesc {command}" in ran.stdout


def test_a_reader_that_closes_the_pipe_early_is_no_error() -> None:
    command = f"{sys.executable} -m reorder show nChw8c 2x17x5x4 | head -c 1"
    ran = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""


@pytest.mark.parametrize(
    ("command", "error", "code"),
    [
        ("show ab 2x3 >/dev/full", "the answer cannot be written: No space left on device", 2),
        ("show ab 2x3 >&-", "the answer cannot be written: Bad file descriptor", 2),
        ("show ab 2x3 --json >/dev/full", "the answer cannot be written: No space left", 2),
        ("show xx 2x3 2>/dev/full", "", 2),
        ("show xx 2x3 2>&-", "", 2),
    ],
)
def test_output_that_cannot_be_written_is_one_line(command: str, error: str, code: int) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m reorder {command}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert error in done.stderr
    assert done.stderr.count("\n") == bool(error)


def test_a_command_that_is_interrupted_says_so_in_one_line() -> None:
    # the command waits for a log on its standard input; an alarm interrupts it
    program = """
import signal, sys
from reorder.cli import main
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.2)
sys.exit(main(["log", "-"]))
"""
    read, write = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], stdin=read, capture_output=True, text=True, check=False
        )
    finally:
        os.close(read)
        os.close(write)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "memdesc: interrupted\n"
