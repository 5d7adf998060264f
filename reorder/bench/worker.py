"""`python -m reorder.bench.worker`: measure cases in this process, one JSON object a line.

Each number of threads has its own process: libraries read once how many cores they may use, and
not all can change it later.
"""

from __future__ import annotations

import argparse
import json
import sys

from reorder.bench.cases import parse_cases
from reorder.bench.measure import measure
from reorder.cpu import compiled_kernels


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    for case in parse_cases(options.words):
        result = measure(case, options.threads, tuple(options.peer), options.seconds)
        _write({"case": result._asdict()})
    _write({"kernels": compiled_kernels()})


def _write(fact: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main()
