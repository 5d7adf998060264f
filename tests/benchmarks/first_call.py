"""What the first calls of a process cost, in parts: python -m tests.benchmarks.first_call.

The package is built as a wheel and installed in an environment of its own, with its .pyc files, as
users have it. Each part is CPU time of a new process, and a multiple of that of `import numpy`,
which is measured in turns with it. `--python` takes an environment in which a version is installed
already, such as an older one.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

_ROOT = Path(__file__).parents[2]
_ROUNDS = 7

# CPU time since the process has started to run Python, and that of all its threads.
_CLOCK = """
import resource, time
def spent(rest=0.0):
    time.sleep(rest)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
"""
_NUMPY = "start = spent()\nimport numpy\nprint(spent(rest=0.1) - start)\n"
_PARTS = """
start = spent()
import numpy as np
x = np.ones((1, 64, 56, 56), np.float32)
numpy_at = spent(rest=0.1)
import memdesc, reorder
import_at = spent()
import reorder.cpu
cpu_at = spent()
m = reorder.reorder(x, "nChw16c")
first_at = spent()
for _ in range(2):
    reorder.reorder(x, "nChw16c")
second_at = spent()
reorder.reorder(x, "nChw16c", dtype="s8", attr=reorder.Attr(dst_scale=0.5))
convert_at = spent()
print(import_at - numpy_at, cpu_at - import_at, first_at - cpu_at, first_at - start)
print(second_at - first_at, second_at - start, convert_at - second_at)
"""
_NAMES = (
    "import memdesc, reorder",
    "import reorder.cpu",
    "first move, with LLVM if the folder is empty",
    "all of the first call, numpy too",
    "calls 2 and 3",
    "all of calls 1 to 3, numpy too",
    "first conversion after them",
)


def _new_environment(folder: Path) -> Path:
    """Return the Python of a new environment in which the package is installed."""
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder)]
    subprocess.run([*build, str(_ROOT)], check=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", folder / "environment"], check=True)
    python = folder / "environment/bin/python"
    subprocess.run([python, "-m", "pip", "install", "-q", wheel], check=True)
    return python


def _numbers(python: Path, program: str, **variables: str) -> list[float]:
    environment = {**os.environ, **variables}
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "MEMDESC_MACHINE"):
        environment.pop(name, None)
    command: list[str | Path] = [python, "-P", "-c", _CLOCK + program]
    ran = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return [float(number) for number in ran.stdout.split()]


def measure(python: Path, threads: int, rounds: int) -> list[tuple[float, float]]:
    """Return each part with an empty and with a filled folder, in imports of numpy."""
    with tempfile.TemporaryDirectory() as name:
        found: list[list[list[float]]] = [[], []]
        for number in range(rounds):
            folder = str(Path(name) / str(number))
            for times in found:
                (unit,) = _numbers(python, _NUMPY)
                variables = {"NUMBA_CACHE_DIR": folder, "NUMBA_NUM_THREADS": str(threads)}
                parts = _numbers(python, _PARTS, **variables)
                times.append([part / unit for part in parts])
    empty, filled = ([median(part) for part in zip(*times, strict=True)] for times in found)
    return list(zip(empty, filled, strict=True))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        python = given.python or _new_environment(Path(name))
        # the first process writes the .pyc files of what is imported
        measure(python, given.threads, 1)
        parts = measure(python, given.threads, given.rounds)
    print(f"{given.threads} thread(s); medians of {given.rounds}, in imports of numpy\n")
    print("| part | empty folder | filled |\n| --- | ---: | ---: |")
    for name, (empty, filled) in zip(_NAMES, parts, strict=True):
        print(f"| {name} | {empty:.2f} | {filled:.2f} |")


if __name__ == "__main__":
    main()
