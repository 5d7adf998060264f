"""`python -m reorder.bench.worker`: measure cases in a process of their own, one JSON object a line.

A number of threads is a process: libraries ask once how many cores they may use, and
not all can be told later.
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
    parser.add_argument("--peers", required=True)
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    for case in parse_cases(options.words):
        result = measure(case, options.threads, tuple(options.peers.split(",")), options.seconds)
        _say({"case": result._asdict()})
    _say({"kernels": compiled_kernels()})


def _say(fact: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main()
