"""`memdesc bench`.

Over 300 lines: the options, with their help, and which of them exclude each other.
"""

from __future__ import annotations

import math
import platform
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memdesc import MemdescError
from reorder.bench.attributes import ATTRIBUTES
from reorder.bench.cases import parse_cases
from reorder.bench.peers import LIBRARY, PEERS
from reorder.bench.processes import missing_peers, run_workers
from reorder.bench.random_cases import CLASSES, random_words
from reorder.bench.report import case_lines, summarise, worst_cases
from reorder.bench.transposers import open_library
from reorder.cli.command import Command, Facts
from reorder.cli.device import DEVICE
from reorder.cli.device_bench import device_answer, device_lines
from reorder.cli.layouts import buffer_name
from reorder.cores import count_cores

if TYPE_CHECKING:
    import argparse

__all__ = ["COMMAND"]

# Lines of the slowest random cases, beside memcpy and beside the peers.
_WORST = 10
_SECONDS = 0.3
# Megabytes that no device has.
_MOST_MB = 1e7
# processes that spin; more than any machine has cores for
_MOST_BUSY = 1024
# What chooses and runs cases, by its name in the options; with --device none of it has a meaning.
_OF_CASES = (
    *("dims", "stag", "dtag", "sdt", "ddt", "strides", "batch", "random", "seed", "classes"),
    *("peer_library", "threads", "peers", "busy"),
    *(name.replace("-", "_") for name in ATTRIBUTES),
)
_VALUES = "a number, or mask:M for generated values along the dims whose bits M has"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "dims",
        nargs="*",
        metavar="DIMS",
        help="sizes such as 8x256x56x56; more than one make more cases",
    )
    lists = {
        "stag": "layouts of src, such as abcd or abx",
        "dtag": "layouts of dst, such as aBcd16b or axb",
        "sdt": "dtypes of src (default f32)",
        "ddt": "dtypes of dst (default those of src)",
        "strides": "strides of src, and behind a colon of dst, instead of a tag",
    }
    for name, text in lists.items():
        also = {"sdt": ["--dtype"], "ddt": ["--to-dtype"]}.get(name, [])
        parser.add_argument(f"--{name}", *also, metavar="A,B", help=text)
    for name, role in ATTRIBUTES.items():
        text = "a number: how much of what dst holds is added" if role == "beta" else _VALUES
        parser.add_argument(f"--{name}", metavar="V", help=text)
    parser.add_argument(
        "--batch",
        metavar="FILE",
        action="append",
        default=[],
        help="read cases from a file, in the notation of benchdnn",
    )
    parser.add_argument(
        "--random", type=int, metavar="N", help="measure N random cases of 64 KiB to 256 MiB too"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="equal seeds make equal random cases (default 0)"
    )
    parser.add_argument(
        "--classes", metavar="A,B", help=f"classes of random cases: {', '.join(CLASSES)}"
    )
    parser.add_argument(
        "--peer-library",
        metavar="FILE",
        action="append",
        default=[],
        help="a library with HPTT's C functions, measured beside us too",
    )
    parser.add_argument(
        "--threads",
        default=None,
        metavar="N,M",
        help="numbers of threads (default 1 and all cores)",
    )
    parser.add_argument(
        "--peers",
        metavar="A,B",
        help=f"what to measure beside us, of {', '.join(PEERS)} (default those installed)",
    )
    parser.add_argument(
        "--busy",
        type=int,
        default=0,
        metavar="N",
        help="run N other processes that spin meanwhile (default 0)",
    )
    parser.add_argument(
        "--device", metavar="NAME", help=f"measure a fixed list of reorders on {DEVICE}"
    )
    parser.add_argument(
        "--size",
        type=float,
        metavar="MB",
        help="with --device: the largest tensor (default 1100 on a GPU, 16 on a processor)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        help=f"time for each candidate of a case (default {_SECONDS}; with --device, 11 runs)",
    )


def _check_amounts(options: argparse.Namespace) -> None:
    seconds, busy = options.seconds, options.busy
    if seconds is not None and not 0 < seconds < math.inf:
        msg = f"--seconds {seconds:g}: give a time above 0, such as {_SECONDS}"
        raise MemdescError(msg)
    if not 0 <= busy <= _MOST_BUSY:
        msg = f"--busy {busy}: give a number of processes from 0 to {_MOST_BUSY}"
        raise MemdescError(msg)


def _on_device(options: argparse.Namespace) -> Facts:
    if options.device is None:
        msg = "--size is for an OpenCL device: say --device NAME"
        raise MemdescError(msg)
    if options.size is not None and not 0 < options.size < _MOST_MB:
        msg = f"--size {options.size:g}: give megabytes above 0, such as 16"
        raise MemdescError(msg)
    given = [name for name in _OF_CASES if getattr(options, name) not in (None, [], 0)]
    if given:
        named = ", ".join("DIMS" if n == "dims" else f"--{n.replace('_', '-')}" for n in given)
        msg = f"--device measures a fixed list of reorders, so leave out {named}"
        raise MemdescError(msg)
    nbytes = None if options.size is None else int(options.size * 1e6)
    return device_answer(options.device, nbytes, options.seconds)


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    _check_amounts(options)
    if options.device is not None or options.size is not None:
        return _on_device(options), 0
    words = [
        f"--{name}={getattr(options, name)}"
        for name in ("stag", "dtag", "sdt", "ddt", "strides")
        if getattr(options, name)
    ]
    given = {name: getattr(options, name.replace("-", "_")) for name in ATTRIBUTES}
    words += [f"--{name}={value}" for name, value in given.items() if value is not None]
    words += map(_with_x, options.dims)
    words += [f"--batch={file}" for file in options.batch]
    if options.random is not None:
        classes = options.classes.split(",") if options.classes else None
        words += random_words(options.random, options.seed, classes)
    for tag in f"{options.stag or ''},{options.dtag or ''}".split(","):
        buffer_name(tag)
    cases = list(parse_cases(words))
    if not cases:
        msg = "nothing to measure: give dims, such as 8x256x56x56, or --batch with a file of cases"
        raise MemdescError(msg)
    peers = (
        list(PEERS)
        if options.peers is None
        else [peer for peer in options.peers.split(",") if peer]
    )
    if unknown := set(peers) - set(PEERS):
        msg = f"no peer {min(unknown)!r}; there are {', '.join(PEERS)}"
        raise MemdescError(msg)
    threads = _threads(options.threads)
    if options.peers is not None and (missing := missing_peers(peers)):
        sys.stderr.write(f"memdesc: {', '.join(missing)}: not installed, so not measured\n")
    for path in options.peer_library:
        open_library(path)
        peers.append(f"{LIBRARY}{path}")
    measured: dict[tuple[int, str], dict[str, Any]] = {}
    kernels: dict[tuple[int, str], dict[str, Any]] = {}
    seconds = options.seconds or _SECONDS
    for count, message in run_workers(words, threads, peers, seconds, options.busy):
        if "case" in message:
            case = message["case"]
            first = measured.setdefault((count, case["name"]), case)
            for part in ("peers", "details"):
                first[part] |= case[part]
            first["differs"] += [peer for peer in case["differs"] if peer not in first["differs"]]
            _progress(f"{len(measured)} of {len(cases) * len(threads)}: {case['name']}")
        else:
            for kernel in message["kernels"]:
                kernels.setdefault((count, kernel["kernel"]), {"threads": count, **kernel})
    _progress("")
    return {
        "machine": _machine(),
        "cases": [*measured.values()],
        "kernels": [*kernels.values()],
        "summary": summarise([*measured.values()]),
        "worst": worst_cases([*measured.values()], _WORST) if options.random else [],
    }, 0


def _with_x(problem: str) -> str:
    """Return dims joined by x, as benchdnn joins them; a name behind them is kept."""
    dims, quote, name = problem.partition('n"')
    return f"{dims.replace(',', 'x')}{quote}{name}"


def _machine() -> dict[str, str]:
    """Return the machine and the versions that the figures are valid for."""
    facts = {
        "machine": platform.machine(),
        "cores": str(count_cores()),
        "Python": platform.python_version(),
    }
    with suppress(OSError):
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        lines = (line.partition(":") for line in info.splitlines())
        known = {name.strip(): value.strip() for name, _, value in lines}
        flags = known.get("flags", "").split()
        bits = next(
            (
                bits
                for bits, flag in ((512, "avx512bw"), (256, "avx2"), (128, "sse2"))
                if flag in flags
            ),
            None,
        )
        facts |= {
            "processor": known.get("model name", "unknown"),
            "vectors": f"{bits} bits" if bits else "unknown",
        }
    for package in (
        "memdesc",
        "numpy",
        "numba",
        "llvmlite",
        "torch",
        "onednn-cpu-gomp",
        "onednn",
    ):
        with suppress(PackageNotFoundError):
            facts[package] = version(package)
    return facts


def _threads(text: str | None) -> list[int]:
    cores = count_cores()
    if text is None:
        return sorted({1, cores})
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = [0]
    if not all(1 <= count <= cores for count in counts):
        numbers = f"numbers from 1 to {cores}, the cores of this process, joined by commas"
        msg = f"--threads {text!r}: give {numbers}"
        raise MemdescError(msg)
    return counts


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text[:100]}")
        sys.stderr.flush()


def _lay_out(facts: Facts) -> list[str]:
    if "device" in facts:
        return device_lines(facts)
    lines = [line for case in facts["cases"] for line in case_lines(case)]
    compiled = sum(kernel["seconds"] for kernel in facts["kernels"])
    lines += ["", f"kernels compiled or loaded: {len(facts['kernels'])} in {compiled:.2f} s"]
    lines += [
        f"  {kernel['threads']}t {kernel['kernel']}: {kernel['seconds']:.2f} s"
        for kernel in facts["kernels"]
    ]
    if facts["summary"]:
        lines += ["", "times faster than, over cases of 64 KiB and more:"]
        lines += [
            f"  {row['threads']}t {row['beside']:24} {row['cases']:4} cases  "
            f"geometric mean {row['geomean']:8.2f}  5th percentile {row['p5']:7.2f}  "
            f"median {row['p50']:7.2f}  95th {row['p95']:7.2f}  "
            f"least {row['least']:6.2f}  slower in {row['slower']}"
            for row in facts["summary"]
        ]
    if facts["worst"]:
        lines += ["", "slowest of all, beside memcpy and beside the fastest peer:"]
        lines += [
            f"  {row['threads']}t x{row['ratio']:<6.2f} {row['beside']:14} {row['case']}"
            for row in facts["worst"]
        ]
    return lines


COMMAND = Command(
    "bench",
    "Measure reorders beside memcpy, numpy, torch and oneDNN, in the notation of benchdnn.",
    "bench --stag abcd --dtag aBcd16b --sdt f32 8x256x56x56",
    _add_arguments,
    _answer,
    _lay_out,
)
