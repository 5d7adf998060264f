"""Commands in processes of their own: pipes, terminals, signals, memory, and outputs that fail."""

import json
import os
import pty
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import memdesc
import reorder
from reorder.checkpoints.writer import partial_folder
from tests.checkpoints import write_safetensors
from tests.notice import without_notice
from tests.programs import run_python
from tests.unit.reorder.cli.shell import Shell

# Terminals.


def test_a_terminal_gets_colours_unless_it_has_none() -> None:
    words = ["show", "ab", "2x3", "--draw"]
    picture = memdesc.memory_desc((2, 3), "f32", "ab").show()
    for environment, last in (
        ({"TERM": "xterm"}, picture.coloured),
        ({"TERM": "dumb"}, picture.text),
        ({"TERM": "xterm", "NO_COLOR": "1"}, picture.text),
    ):
        assert _in_a_terminal(*words, **environment)[-1] == last.splitlines()[-1]


def _in_a_terminal(*words: str, **environment: str) -> list[str]:
    """Return the lines that a command prints into a terminal of 80 columns."""
    terminal, other_end = pty.openpty()
    command = [sys.executable, "-m", "reorder", *words]
    env = os.environ | {"COLUMNS": "80", "NO_COLOR": ""} | environment
    with subprocess.Popen(command, stdout=other_end, env=env) as running:
        os.close(other_end)
        shown = b""
        with suppress(OSError):  # the other end is closed
            while part := os.read(terminal, 1 << 16):
                shown += part
    os.close(terminal)
    assert running.returncode == 0
    return shown.decode().splitlines()


def test_a_command_runs_where_nothing_is_a_terminal_or_utf_8(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "é.safetensors", {"é": np.ones(4, np.float32)})
    path, out = tmp_path / "é.safetensors", tmp_path / "o.npy"
    ran = run_python("-m", "reorder", "reorder", path, out, PYTHONIOENCODING="ascii")
    assert without_notice(ran.stderr) == ""
    assert "\nbytes   16\n" in ran.stdout
    assert np.array_equal(np.load(out), np.ones(4))
    ran = run_python("-m", "memdesc", "inspect", path, PYTHONIOENCODING="ascii")
    assert r"\xe9" in ran.stdout
    ascii_only = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "POSIX"}
    out = tmp_path / "o.safetensors"
    ran = run_python("-m", "memdesc", "reorder", path, out, **ascii_only)
    assert without_notice(ran.stderr) == ""
    assert [*reorder.load_all(out)] == ["é"]


def test_stdin_may_hold_bytes_that_are_not_text() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "reorder", "log", "-"],
        input=b"\xff\xfe\nonednn_verbose,info,oneDNN v3.13.2\n",
        env=os.environ | {"PYTHONUTF8": "1"},
        capture_output=True,
        check=True,
    )
    assert b"other lines: 1 not from oneDNN" in ran.stdout


# Outputs.


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        ("show ab 2x3 >/dev/full", 2, "the answer cannot be written: No space left on device"),
        ("show ab 2x3 >&-", 2, "the answer cannot be written: Bad file descriptor"),
        ("show xx 2x3 2>/dev/full", 2, ""),
        ("show xx 2x3 2>&-", 2, ""),
        # a reader that closes the pipe early is not an error, nor is a warning that nobody reads
        ("show nChw8c 2x17x5x4 | head -c 1", None, ""),
        ("convert in.npz out.npz 2>&-", 0, ""),
        ("convert in.npz out.npz 2>/dev/full", 0, ""),
    ],
)
def test_output_that_cannot_be_written_is_one_line(
    command: str, code: int | None, error: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "in.npz", x=np.ones(3))
    program = f"set -o pipefail; {sys.executable} -m reorder {command}"
    ran = subprocess.run(
        ["bash", "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert code in (None, ran.returncode)
    assert error in ran.stderr
    assert ran.stderr.count("\n") == bool(error)
    assert (tmp_path / "out.npz").exists() == command.startswith("convert")


# Signals.


_RULE = "*: f16"
# a conversion that waits after its third task
_PROGRAM = """
import sys, time
from reorder.cli import convert, main

convert_checkpoint, count = convert.convert, 0

def slowly(*given, progress, **named):
    def wait(now):
        global count
        count += now.stage == "converting"
        if count == 3:
            open(sys.argv[1], "w").close()
        if count >= 3:
            time.sleep(0.5)
        progress(now)

    return convert_checkpoint(*given, progress=wait, **named)

convert.convert = slowly
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGTERM, "ended by SIGTERM"),
        pytest.param(signal.SIGHUP, "ended by SIGHUP", marks=pytest.mark.campaign),
        (signal.SIGINT, "interrupted"),
    ],
)
def test_a_conversion_that_a_signal_ends_says_how_to_resume(
    tmp_path: Path, number: signal.Signals, said: str
) -> None:
    source, target = tmp_path / "in.safetensors", tmp_path / "out"
    write_safetensors(source, {f"t{k}": np.full(1000, k, np.float32) for k in range(20)})
    command = ["convert", str(source), str(target), "--map", _RULE, "--threads", "1"]
    command += ["--shard-size", "2000"]
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(tmp_path / "ready"), *command],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not (tmp_path / "ready").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        error = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number
    left = partial_folder(target)
    hint = f"--resume keeps the finished files, which are in {str(left)!r}"
    assert error.splitlines()[-1] == f"memdesc: {said}; {hint}"
    assert not target.exists()
    found = run_python("-m", "memdesc", *command, "--resume", "--json")
    assert json.loads(found.stdout)["resumed"] >= 3


def test_a_signal_that_is_ignored_stays_so() -> None:
    program = """
import os, signal, sys
from reorder.cli import main
signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as by nohup
assert main(["names", "--json"]) == 0
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
os.kill(os.getpid(), signal.SIGHUP)
"""
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode == 0


# Memory.

# what getrusage has is at least what the parent had
_PEAK = """
import re, sys
from pathlib import Path
from reorder.cli import main
code = main(sys.argv[1:])
sys.stderr.write(re.search(r"VmHWM:\\s+([0-9]+) kB", Path("/proc/self/status").read_text())[1])
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("mebibytes", "limit"), [(120, 16), pytest.param(4096, 1024, marks=pytest.mark.campaign)]
)
def test_memory_is_bounded(tmp_path: Path, mebibytes: int, limit: int) -> None:
    path, out = tmp_path / "x.npy", tmp_path / "y.safetensors"
    rows = mebibytes * 8
    # a sparse file: zeros take no room
    header = np.lib.format.open_memmap(path, "w+", np.float32, (rows, 64, 16, 32))
    header[5, 7] = np.arange(512).reshape(16, 32)
    header.flush()
    options = ("--to", "nChw16c", "--max-bytes", f"{limit}MiB")
    ran = run_python("-c", _PEAK, "reorder", path, out, *options)
    peak = int(ran.stderr.split()[-1]) / 1024
    sys.stdout.write(f"{mebibytes} MiB with --max-bytes {limit}MiB: {peak:.0f} MiB at the most\n")
    assert peak < limit + 300
    found = reorder.load(out, mmap=True)
    assert (found[5, 7] == header[5, 7]).all()


@pytest.mark.campaign
def test_fifty_killed_processes_leave_whole_files(shell: Shell, tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((32, 64, 48, 48), np.float32)
    path, out = tmp_path / "in.npy", tmp_path / "out.safetensors"
    np.save(path, x)
    reorder.save(out, reorder.reorder(x, "nhwc"))
    chance, whole = random.Random(0), 0.0
    for k in range(51):
        tag = ("nChw16c", "nChw8c", "nhwc")[k % 3]
        arguments = ["reorder", str(path), str(out), "--to", tag, "--max-bytes", "1MiB"]
        command = [sys.executable, "-m", "memdesc", *arguments]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
            while run.poll() is None and not partial_folder(out).exists():
                time.sleep(0.001)
            start = time.monotonic()
            if not whole:  # the first one ends
                run.wait()
                whole = time.monotonic() - start
            time.sleep(chance.random() * 1.2 * whole)
            run.kill()
        assert (reorder.load(out).numpy() == x).all()
    shell.facts(f"reorder {path} {out} --to nchw --max-bytes 16KiB")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.npy", "out.safetensors"]
