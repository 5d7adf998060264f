"""How fast `memdesc convert` is compared with `cp`, and what memory it takes.

`python -m tests.benchmarks.checkpoint_speed FOLDER --gigabytes 8` writes a checkpoint of that size
for each kind of conversion, and runs both in turn; each run ends when the bytes are on disk.
Kernels are compiled before. `--only ba` runs one case, by the last word of its rule.
"""

from __future__ import annotations

import argparse
import mmap
import os
import subprocess
import sys
import time
from multiprocessing import get_context
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

    @property
    def name(self) -> str:
        """What is made."""
        return self.rule.rpartition(" ")[2]


_CASES = (
    Case("f16", "*: AB16a8b"),
    Case("f16", "*: OI16i64o"),
    Case("f16", "*: ba"),
    Case("awq", "*: awq -> gptq"),
    Case("awq", "*: awq -> marlin"),
)


def tensors_of(kind: str, nbytes: int) -> dict[str, NDArray[Any]]:
    """Return tensors of about this many bytes; those of one role share their memory."""
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
    user: float
    system: float
    peak: int


def touch(nbytes: int) -> None:
    """Write to free memory: a virtual machine may have given it back, and waits when it is used."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemFree"))
    with mmap.mmap(-1, min(nbytes, free * 3 // 4)) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for page in range(0, len(memory), mmap.PAGESIZE):
            memory[page] = 1


def run_to_disk(command: list[str], target: Path) -> Run:
    """Run a command that writes a file or a folder, until its bytes are on disk."""
    start = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    for path in target.iterdir() if target.is_dir() else [target]:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    seconds = time.monotonic() - start
    return Run(seconds, usage.ru_utime, usage.ru_stime, usage.ru_maxrss << 10)


def timed(command: list[str], target: Path, nbytes: int) -> Run:
    """Run a command that writes this many bytes."""
    target.unlink(missing_ok=True)
    # in another process: the peak of this one would count as that of the command
    child = get_context("fork").Process(target=touch, args=(nbytes,))
    child.start()
    child.join()
    return run_to_disk(command, target)


def convert_command(source: Path, target: Path, case: Case) -> list[str]:
    """Return the command of a case."""
    return [
        *(sys.executable, "-m", "memdesc", "convert", str(source), str(target), "--overwrite"),
        *("--map", case.rule, "--max-bytes", str(_MAX_BYTES)),
    ]


def line(runs: list[tuple[Run, Run]], nbytes: int) -> str:
    """Return what rounds of both say: the fastest of each, and the largest peak."""
    copied, moved = (min(each) for each in zip(*runs, strict=True))
    peak = max(run.peak for _, run in runs)
    return (
        f"cp {nbytes / 1e9 / copied.seconds:.2f} GB/s, convert {nbytes / 1e9 / moved.seconds:.2f} "
        f"GB/s, {copied.seconds / moved.seconds:.2f} of cp; on all cores user and system "
        f"{copied.user:.1f} + {copied.system:.1f} and {moved.user:.1f} + {moved.system:.1f} s; "
        f"peak {peak / 1e6:.0f} MB of {(_MAX_BYTES + 300e6) / 1e6:.0f}"
    )


def main() -> None:
    """Print a line for each conversion."""
    parser = argparse.ArgumentParser(description="times of memdesc convert compared with cp")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", choices=[case.name for case in _CASES])
    options = parser.parse_args()
    small, source, target = (options.folder / f"{name}.safetensors" for name in ("1", "in", "out"))
    held = ""
    for case in _CASES:
        if options.only not in {None, case.name}:
            continue
        write_safetensors(small, tensors_of(case.kind, 1))
        subprocess.run(convert_command(small, target, case), check=True, capture_output=True)
        command = convert_command(source, target, case)
        if case.kind != held:
            write_safetensors(source, tensors_of(case.kind, int(options.gigabytes * 1e9)))
            held = case.kind
        nbytes = source.stat().st_size
        runs = [
            (
                timed(["cp", str(source), str(target)], target, nbytes),
                timed(command, target, nbytes),
            )
            for _ in range(options.rounds)
        ]
        target.unlink()
        sys.stdout.write(f"{case.kind} {case.rule:16} {line(runs, nbytes)}\n")
        sys.stdout.flush()
    small.unlink()
    source.unlink()


if __name__ == "__main__":
    main()
