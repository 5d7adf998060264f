"""Build an emulated 64-bit ARM and run tests on it: `python -m tests.arm PART ...`.

Ends with 0 if all tests pass, with 1 if some fail, and with 3 if this machine cannot be given an
emulated ARM.
"""

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

from tests.arm.root import EmulationError, build, python, variables

_REPOSITORY = Path(__file__).parents[2]
_CPU, _LAWS = "tests/unit/reorder/cpu", "tests/property/reorder"
_KERNELS = f"{_CPU}/kernels/test_kernels.py"

# The parts and what pytest gets; `all` runs each but `smoke`. A part takes at most ten minutes on
# one core, `smoke` five with the making of the folder.
PARTS: dict[str, list[str]] = {
    "smoke": [
        "README.md",
        f"{_KERNELS}::test_matrices_of_every_size_are_transposed[16-cache-resident-0]",
        f"{_KERNELS}::test_runs_of_every_length_are_copied[32-exceeds the cache-0]",
        f"{_LAWS}/test_thread_laws.py",
    ],
    "kernels": [_KERNELS],
    "conversions": [f"{_CPU}/kernels/test_stages.py", "tests/unit/reorder/records/test_decode.py"],
    "values": ["tests/unit/reorder/values"],
    "threads": [
        f"{_CPU}/runtime",
        "tests/unit/reorder/test_stack.py",
        f"{_LAWS}/test_thread_laws.py",
    ],
    "laws": [f"{_LAWS}/test_reorder_laws.py"],
    "views": [f"{_LAWS}/test_memory_laws.py", f"{_LAWS}/test_tile_laws.py"],
}
_NO_EMULATION = 3


def main() -> int:
    """Run the parts that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.arm", description=__doc__)
    parser.add_argument("part", nargs="+", choices=[*PARTS, "all"])
    parser.add_argument("--root", type=Path, default=_REPOSITORY / ".arm64", help="the folder")
    given, options = parser.parse_known_args()
    try:
        build(given.root)
    except EmulationError as error:
        sys.stdout.write(f"64-bit ARM is not emulated here: {error}\n")
        return _NO_EMULATION
    names = [name for name in PARTS if name != "smoke"] if "all" in given.part else given.part
    failed = []
    for name in names:
        sys.stdout.write(f"== {name}, emulated\n")
        sys.stdout.flush()
        start, used = time.perf_counter(), _processor_seconds()
        command = [*python(given.root), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [*PARTS[name], *options]
        ran = subprocess.run(command, cwd=_REPOSITORY, env=variables(given.root), check=False)
        minutes = (time.perf_counter() - start) / 60, (_processor_seconds() - used) / 60
        sys.stdout.write("== {}: {:.1f} minutes, {:.1f} of a processor\n".format(name, *minutes))
        if ran.returncode:
            failed.append(name)
    if failed:
        sys.stdout.write(f"failed under emulation: {', '.join(failed)}\n")
    return int(bool(failed))


def _processor_seconds() -> float:
    """Return the CPU time of ended processes, which other load does not affect."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
