"""`memdesc verbose`."""

from __future__ import annotations

import re
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from memdesc import MemdescError, read_verbose
from reorder.bench.report import is_jit
from reorder.cli.command import Command, Facts
from reorder.cli.verbose_table import lay_out
from reorder.cores import count_cores
from reorder.logs import report
from reorder.logs.replay import replay

if TYPE_CHECKING:
    import argparse
    from typing import TextIO

    from memdesc.verbose import VerboseLog, VerbosePrimitive
    from reorder.logs import LoggedReorder, LogReport, RoundTrip

__all__ = ["COMMAND"]

_PEERS = ("onednn",)
_DIGITS = 6


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "log", metavar="LOG", help="what a program printed with ONEDNN_VERBOSE=1 or 2; - for stdin"
    )
    parser.add_argument(
        "--top",
        type=int,
        default=10,
        metavar="N",
        help="how many reorders the table has, and --bench measures (default 10)",
    )
    parser.add_argument(
        "--bench", action="store_true", help="measure these reorders here, beside oneDNN's"
    )
    parser.add_argument(
        "--threads", type=int, metavar="N", help="threads for --bench (default as in the log)"
    )
    parser.add_argument(
        "--seconds", type=float, default=0.1, help="time for each candidate (default 0.1)"
    )


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    if options.top < 0 or not 0 < options.seconds < float("inf"):
        msg = f"--top {options.top} and --seconds {options.seconds:g} must be above 0"
        raise MemdescError(msg)
    log = read_verbose(_stdin() if options.log == "-" else options.log)
    if not (log.entries or log.info or log.skipped):
        msg = (
            f"{'stdin' if options.log == '-' else options.log} has no line of oneDNN in "
            f"{log.other_lines} lines; run the program with ONEDNN_VERBOSE=1 (up to oneDNN 2.4 "
            "DNNL_VERBOSE=1), and give what it prints to stdout"
        )
        raise MemdescError(msg)
    found = report(log)
    facts: Facts = {
        "log": options.log,
        "onednn": list(log.versions),
        "executions": len(log.executions),
        "creations": len(log.entries) - len(log.executions),
        "milliseconds": _round(found.milliseconds),
        "reorder_share": _share(found, sum(each.milliseconds for each in found.reorders)),
        "runs": found.repetition._asdict() if found.repetition else None,
        "primitives": [
            each._asdict() | {"milliseconds": _round(each.milliseconds)} for each in found.kinds
        ],
        "creation_milliseconds": _round(sum(each.milliseconds for each in found.created)),
        "reorders": [_reorder_facts(each, found) for each in found.reorders],
        "round_trips": [_trip_facts(each) for each in found.round_trips],
        "skipped": log.skipped,
        "unread": [{"line": number, "text": text} for number, text in log.unread],
        "other_lines": log.other_lines,
        "top": options.top,
    }
    if options.bench:
        _measure(facts, found, options, log)
    return facts, 0


def _stdin() -> TextIO:
    """Return stdin; bytes that are no text are replaced, as in files."""
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    return sys.stdin


def _reorder_facts(logged: LoggedReorder, found: LogReport) -> Facts:
    primitive = logged.primitive
    return {
        **_names(primitive),
        "implementation": primitive.implementation,
        "generated_code": is_jit(primitive.implementation),
        "attributes": primitive.attribute_text.strip(),
        "executions": logged.executions,
        "in_each_run": logged.in_each_run,
        "milliseconds": _round(logged.milliseconds),
        "share": _share(found, logged.milliseconds),
        "bytes": logged.nbytes,
        "relation": logged.relation,
        "why": logged.why,
        "made_by": logged.made_by,
        "used_as": logged.used_as,
        "is_of_weights": logged.is_of_weights,
    }


def _trip_facts(trip: RoundTrip) -> Facts:
    return {
        **_names(trip.there),
        "executions": trip.executions,
        "milliseconds": _round(trip.milliseconds),
        "between": list(trip.between),
    }


def _names(primitive: VerbosePrimitive) -> Facts:
    tensors = primitive.tensors
    return {
        "problem": primitive.problem,
        "src": tensors["src"].text,
        "dst": tensors["dst"].text,
    }


def _measure(facts: Facts, found: LogReport, options: argparse.Namespace, log: VerboseLog) -> None:
    """Add what the reorders at the top take here."""
    threads = _threads(options.threads, log)
    facts["bench_threads"] = threads
    rows = facts["reorders"]
    for number, result in replay(found.reorders[: options.top], threads, _PEERS, options.seconds):
        if isinstance(result, str):
            rows[number]["not_measured"] = result
        else:
            _add_case(rows[number].setdefault("here", {}), result)


def _add_case(here: dict[str, Any], case: dict[str, Any]) -> None:
    """Add the times of a case, in milliseconds; each version of oneDNN has a worker of its own."""
    ours = case["seconds"] * 1e3
    here.setdefault("memdesc", _round(ours))
    here.setdefault("memcpy", _round(ours * case["memcpy"]))
    for peer, ratio in case["peers"].items():
        here[peer] = _round(ours * ratio)


def _threads(given: int | None, log: VerboseLog) -> int:
    cores = count_cores()
    if given is not None:
        if not 1 <= given <= cores:
            msg = f"--threads {given}: give 1 to {cores}, the cores of this process"
            raise MemdescError(msg)
        return given
    said = [int(count) for line in log.info for count in re.findall(r"nthr:([0-9]{1,6})", line)]
    return min(said[0], cores) if said and said[0] else cores


def _round(milliseconds: float) -> float:
    return round(milliseconds, _DIGITS)


def _share(found: LogReport, milliseconds: float) -> float:
    return round(milliseconds / found.milliseconds, 4) if found.milliseconds else 0.0


COMMAND = Command(
    "verbose",
    "Report what a log of oneDNN's verbose mode says: time by primitive, and what reorders cost.",
    "verbose torch.log",
    _add_arguments,
    _answer,
    lay_out,
)
