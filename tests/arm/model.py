"""The cycles of micro-kernels on 64-bit ARM by the model of llvm-mca: `python -m tests.arm.model`.

It needs llvm-mca 19 (`apt-get install llvm-19`): 14 has no model of neoverse-v1. The argument
is its path.
"""

from __future__ import annotations

import re
import subprocess
import sys

from tests.arm.kernels import KERNELS, Loop, assembly

_PROCESSORS = ("cortex-a76", "neoverse-v1", "apple-m1")
_ROUNDS = 200
# a load or store of vectors, or an instruction that computes with them; and an address
_VECTORS = re.compile(r"\w+\s+(?:\{ )?[qdvs]\d+")
_ADDRESS = re.compile(r"\[.*\]!?(?:, #\d+)?$")


def main(program: str) -> None:
    """Print a row for each kernel."""
    loops = assembly(_PROCESSORS)
    sys.stdout.write(f"| | {' | '.join(_PROCESSORS)} |\n| --- |{' ---: |' * len(_PROCESSORS)}\n")
    first = next(iter(KERNELS))
    copies = {name: _cycles(loops[name][first], name, program)[0] for name in _PROCESSORS}
    for kernel in KERNELS:
        cells = []
        for name in _PROCESSORS:
            cycles, bound = _cycles(loops[name][kernel], name, program)
            copy = copies[name]
            cells.append(f"{cycles:.1f}, {copy / cycles:.2f} of {copy / bound:.2f}")
        sys.stdout.write(f"| {kernel} | {' | '.join(cells)} |\n")


def _cycles(found: Loop, processor: str, program: str) -> tuple[float, float]:
    """Return the cycles for 64 bytes of src and dst together, and the fewest that ports allow.

    The latter is for the same loads, stores and computations of vectors, if nothing computes
    addresses, keeps registers on the stack, counts, or waits for a result.
    """
    lines = [line for line in found.lines if _VECTORS.match(line) and "[sp" not in line]
    alone = [_ADDRESS.sub("[x0]", line) for line in lines]
    total = _measure("Total Cycles", found.lines, processor, program) / _ROUNDS
    bound = _measure("Block RThroughput", alone, processor, program)
    return total * 64 / found.nbytes, bound * 64 / found.nbytes


def _measure(what: str, lines: list[str], processor: str, program: str) -> float:
    """Return a number of the summary of llvm-mca."""
    command = [program, "-mtriple=aarch64", f"-mcpu={processor}", f"-iterations={_ROUNDS}"]
    text = "\n".join(lines)
    ran = subprocess.run(command, input=text, check=True, stdout=subprocess.PIPE, text=True)
    number = re.search(rf"{what}:\s+([\d.]+)", ran.stdout)
    assert number is not None
    return float(number[1])


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["llvm-mca"]))
