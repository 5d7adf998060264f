"""Compare reorders with other libraries: `memdesc bench` with more peers.

    python -m tests.benchmarks.peers --stag=abcd --dtag=aBcd16b 8x256x56x56
        [--peers 'numpy,onednn 3.2'] [--peer-library libhptt.so] [--json]

It takes cases as benchdnn spells them (`tests.benchmarks.cases`), and prints the table of
`memdesc bench` with a column for each library that is installed: oneDNN (of every version,
generated code and reference apart), and HPTT, which the package `cytnx` contains. `--random N` adds
random cases.

There is a process for each number of threads, since libraries read once how many cores they may
use, and for each oneDNN beyond the first: builds keep threads of their own (OpenMP, TBB), and those
of one would take cores from the other.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

from memdesc import MemdescError
from reorder.bench.measure import measure
from reorder.bench.peers import SHORT_SPIN
from reorder.cli.bench import case_lines
from reorder.cpu import compiled_kernels
from reorder.system import count_cores
from tests.benchmarks.cases import parse_cases
from tests.benchmarks.libraries import all_peers, open_library
from tests.benchmarks.random_cases import CLASSES, random_words
from tests.benchmarks.report import full_report, summary_lines

_PACKAGES = ("onednn-cpu-gomp", "onednn")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--peer-library",
        metavar="FILE",
        action="append",
        default=[],
        help="a library that contains HPTT, measured too, by the name of its file",
    )
    parser.add_argument(
        "--in-process", action="store_true", help="measure all in this process, as workers do"
    )
    parser.add_argument("--random", type=int, metavar="N", help="measure N random cases too")
    parser.add_argument("--seed", type=int, default=0, help="equal seeds make equal random cases")
    parser.add_argument(
        "--classes", metavar="A,B", help=f"classes of random cases: {', '.join(CLASSES)}"
    )
    parser.add_argument("--threads", metavar="N,...", help="default: 1 and all cores")
    parser.add_argument("--peers", metavar="PEER,...", help="default: those that are installed")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each case and library")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Measure, and print the table or JSON."""
    parser = _parser()
    options, words = parser.parse_known_args(arguments)
    options.words = words
    options.known = all_peers(options.peer_library)
    try:
        for path in options.peer_library:
            open_library(path)
        missing = [name for name in _peers(options) if options.known[name] is None]
        if missing and not options.in_process:
            sys.stderr.write(f"left out, as they are not installed: {', '.join(missing)}\n")
        facts = _in_process(options) if options.in_process else _collected(options, arguments)
    except MemdescError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    lines = case_lines(facts) + summary_lines(facts["summary"])
    sys.stdout.write((json.dumps(facts) if options.json else "\n".join(lines)) + "\n")
    return 0


def _in_process(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all cases here."""
    words = options.words
    if options.random is not None:
        classes = options.classes.split(",") if options.classes else None
        words = [*words, "--reset", *random_words(options.random, options.seed, classes)]
    peers = [make for name in _peers(options) if (make := options.known[name])]
    cases = [
        measure(case, count, peers, options.seconds)._asdict()
        for count in map(int, _counts(options))
        for case in parse_cases(words)
    ]
    return full_report(cases, compiled_kernels(), _PACKAGES)


def _counts(options: argparse.Namespace) -> list[str]:
    """Return the numbers of threads."""
    given = options.threads.split(",") if options.threads else sorted({"1", str(count_cores())})
    cores = count_cores()
    if wrong := [each for each in given if not each.isdecimal() or not 1 <= int(each) <= cores]:
        msg = f"--threads {wrong[0]!r} is not a number from 1 to {cores}, the cores of this process"
        raise MemdescError(msg)
    return given


def _peers(options: argparse.Namespace) -> list[str]:
    """Return the names of the libraries to measure."""
    if options.peers is None:
        return [name for name, make in options.known.items() if make]
    names = [name for name in options.peers.split(",") if name]
    if unknown := set(names) - options.known.keys():
        msg = f"no peer {min(unknown)!r}; the peers are {', '.join(options.known)}"
        raise MemdescError(msg)
    return names


def _collected(options: argparse.Namespace, arguments: Sequence[str]) -> dict[str, Any]:
    """Return what the workers measured, all peers of a case together."""
    cases: dict[tuple[str, int], dict[str, Any]] = {}
    kernels: dict[tuple[str, str], dict[str, Any]] = {}
    for count, group in product(_counts(options), _groups(_peers(options))):
        facts = _measured(arguments, count, group)
        for number, case in enumerate(facts["cases"]):
            first = cases.setdefault((count, number), case)
            first["peers"] |= case["peers"]
            first["differs"] += [peer for peer in case["differs"] if peer not in first["differs"]]
        for kernel in facts["kernels"]:
            kernels.setdefault((count, kernel["kernel"]), {"threads": int(count), **kernel})
    return full_report([*cases.values()], [*kernels.values()], _PACKAGES)


def _measured(arguments: Sequence[str], count: str, peers: Sequence[str]) -> dict[str, Any]:
    """Measure in another process, which sees `count` cores.

    Raises
    ------
    MemdescError
        If it ends with an error, which it has printed.
    """
    command = [sys.executable, "-m", "tests.benchmarks.peers", *arguments]
    command += ["--in-process", "--json", f"--threads={count}", f"--peers={','.join(peers)}"]
    names = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
    with _cores(count):
        worker = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            env=os.environ | dict.fromkeys(names, count) | SHORT_SPIN,
        )
    with worker:
        said, _ = worker.communicate()
    if worker.returncode:
        msg = f"the process that measures on {count} threads ended with {worker.returncode}"
        raise MemdescError(msg)
    found: dict[str, Any] = json.loads(said)
    return found


def _groups(names: Sequence[str]) -> list[list[str]]:
    """Return which peers are measured together."""
    versions = [name for name in names if name.startswith("onednn ")]
    return [
        [name for name in names if name not in versions[1:]],
        *([each] for each in versions[1:]),
    ]


@contextmanager
def _cores(count: str) -> Iterator[None]:
    """Let a child that starts meanwhile see `count` cores: some libraries read nothing else."""
    cores = os.sched_getaffinity(0)
    if count.isdecimal() and int(count):
        os.sched_setaffinity(0, set(sorted(cores)[: int(count)]))
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
