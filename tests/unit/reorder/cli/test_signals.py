"""Commands that signals end: the exit code, the message, and what is resumed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from reorder.checkpoints.writer import partial_folder
from tests.checkpoints import write_safetensors
from tests.programs import run_python

if TYPE_CHECKING:
    from pathlib import Path

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
