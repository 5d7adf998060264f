"""The cycles of micro-kernels on 64-bit ARM by the model of llvm-mca: `python -m tests.arm.model`.

Prints the table of docs/benchmarks.md. It needs llvm-mca (`apt-get install llvm`), or the path of
one as the argument.
"""

from __future__ import annotations

import re
import subprocess
import sys

from tests.arm.kernels import KERNELS, Loop, assembly

_PROCESSORS = ("cortex-a76", "neoverse-v1", "apple-m1")
_ROUNDS = 200


def main(program: str) -> None:
    """Print a row for each kernel."""
    loops = assembly(_PROCESSORS)
    sys.stdout.write(f"| | {' | '.join(_PROCESSORS)} |\n| --- |{' ---: |' * len(_PROCESSORS)}\n")
    first = next(iter(KERNELS))
    speeds = {name: _speed(loops[name][first], name, program)[1] for name in _PROCESSORS}
    for kernel in KERNELS:
        cells = []
        for name in _PROCESSORS:
            cycles, speed = _speed(loops[name][kernel], name, program)
            cells.append(f"{cycles:.1f}, {speed / speeds[name]:.2f}")
        sys.stdout.write(f"| {kernel} | {' | '.join(cells)} |\n")


def _speed(found: Loop, processor: str, program: str) -> tuple[float, float]:
    """Return the cycles for 64 bytes of src and dst together, and the bytes of a cycle."""
    command = [program, "-mtriple=aarch64", f"-mcpu={processor}", f"-iterations={_ROUNDS}"]
    text = "\n".join(found.lines)
    ran = subprocess.run(command, input=text, check=True, stdout=subprocess.PIPE, text=True)
    total = re.search(r"Total Cycles:\s+(\d+)", ran.stdout)
    assert total is not None
    cycles = int(total[1]) / _ROUNDS
    return cycles * 64 / found.nbytes, found.nbytes / cycles


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["llvm-mca"]))
