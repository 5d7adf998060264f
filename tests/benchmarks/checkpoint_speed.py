"""How fast `memdesc convert` is beside `cp`, and what memory it takes.

`python -m tests.benchmarks.checkpoint_speed FOLDER --gigabytes 8` writes a checkpoint of that size
for each kind of conversion, and runs both in turn; each run ends when the bytes are on disk.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tests.checkpoints import write_safetensors

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHAPE, _GROUP = (4096, 8192), 128
_MAX_BYTES = 200 << 20


class Case(NamedTuple):
    """A conversion: what is converted, and by which rule."""

    kind: str
    rule: str


_CASES = (
    Case("f16", "*: AB16a8b"),
    Case("f16", "*: OI16i64o"),
    Case("f16", "*: ba"),
    Case("awq", "*: awq -> gptq"),
    Case("awq", "*: awq -> marlin"),
)


def tensors_of(kind: str, nbytes: int) -> dict[str, NDArray[Any]]:
    """Return tensors of that many bytes; those of one name share their memory."""
    rng = np.random.default_rng(0)
    rows, columns = _SHAPE
    if kind == "f16":
        layer = {"weight": rng.integers(0, 1 << 16, _SHAPE, np.uint16).view(np.float16)}
    else:
        zeros = np.full((rows // _GROUP, columns // 8), 0x88888888, np.uint32)
        layer = {
            "qweight": rng.integers(0, 1 << 32, (rows, columns // 8), np.uint32).view(np.int32),
            "qzeros": zeros.view(np.int32),
            "scales": rng.random((rows // _GROUP, columns)).astype(np.float16),
        }
    count = max(round(nbytes / sum(array.nbytes for array in layer.values())), 1)
    return {f"layers.{k}.{name}": array for k in range(count) for name, array in layer.items()}


class Run(NamedTuple):
    """Seconds until the output is on disk, seconds of all cores, and bytes of memory at most."""

    seconds: float
    cpu: float
    peak: int


def timed(command: list[str], target: Path) -> Run:
    """Run a command."""
    target.unlink(missing_ok=True)
    start = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    with target.open("rb") as file:
        os.fsync(file.fileno())
    cpu = usage.ru_utime + usage.ru_stime
    return Run(time.monotonic() - start, cpu, usage.ru_maxrss << 10)


def main() -> None:
    """Print a line for each conversion."""
    parser = argparse.ArgumentParser(description="times of memdesc convert beside cp")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    source, target = options.folder / "in.safetensors", options.folder / "out.safetensors"
    held = ""
    for case in _CASES:
        if case.kind != held:
            write_safetensors(source, tensors_of(case.kind, int(options.gigabytes * 1e9)))
            held = case.kind
        convert = [
            *(sys.executable, "-m", "memdesc", "convert", str(source), str(target)),
            *("--map", case.rule, "--max-bytes", str(_MAX_BYTES)),
        ]
        runs = [
            (timed(["cp", str(source), str(target)], target), timed(convert, target))
            for _ in range(options.rounds)
        ]
        target.unlink()
        copied, moved = (min(run[k].seconds for run in runs) for k in range(2))
        cpu = [min(run[k].cpu for run in runs) for k in range(2)]
        peak = max(run[1].peak for run in runs)
        size = source.stat().st_size / 1e9
        sys.stdout.write(
            f"{case.kind} {case.rule:16} cp {size / copied:.2f} GB/s, convert {size / moved:.2f} "
            f"GB/s, {copied / moved:.2f} of cp; on all cores {cpu[0]:.1f} and {cpu[1]:.1f} s; peak "
            f"{peak / 1e6:.0f} MB of {(_MAX_BYTES + 300e6) / 1e6:.0f}\n"
        )
        sys.stdout.flush()
    source.unlink()


if __name__ == "__main__":
    main()
