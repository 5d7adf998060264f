"""`memdesc log`."""

from __future__ import annotations

import re
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from memdesc import MemdescError, read_verbose
from reorder.bench.measure import measure
from reorder.cli.command import Command, Facts, arguments, flag, table, value
from reorder.cores import count_cores
from reorder.logs import report
from reorder.logs.replay import logged_case

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from typing import TextIO

    from memdesc.verbose import VerboseLog, VerbosePrimitive
    from reorder.logs import LoggedReorder, LogReport, RoundTrip

_DIGITS = 6
_MS_OF_BYTES = 1e-6


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    if options.top < 0 or not 0 < options.seconds < float("inf"):
        msg = f"--top {options.top} and --seconds {options.seconds:g} must be above 0"
        raise MemdescError(msg)
    log = read_verbose(_stdin() if options.log == "-" else options.log)
    if not (log.entries or log.info or log.skipped):
        msg = (
            f"{'stdin' if options.log == '-' else options.log} has no line of oneDNN in "
            f"{log.other_lines} lines; run the program with ONEDNN_VERBOSE=1 (up to oneDNN 2.4, "
            "DNNL_VERBOSE=1), and pass what it prints to stdout"
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
    """Return stdin; bytes that are not text are replaced, as in files."""
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    return sys.stdin


def _reorder_facts(logged: LoggedReorder, found: LogReport) -> Facts:
    primitive = logged.primitive
    return {
        **_names(primitive),
        "implementation": primitive.implementation,
        "generated_code": logged.is_generated,
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
    """Measure the most expensive reorders here."""
    threads = _threads(options.threads, log)
    facts["bench_threads"] = threads
    for row, logged in zip(facts["reorders"], found.reorders[: options.top], strict=False):
        try:
            result = measure(logged_case(logged.primitive), threads, (), options.seconds)
        except MemdescError as error:
            row["not_measured"] = str(error)
            continue
        ours = result.seconds * 1e3
        row["here"] = {"memdesc": _round(ours), "memcpy": _round(ours * result.memcpy)}


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


def _lay_out(facts: Facts) -> list[str]:
    """Return the report as lines: tables, then what could be saved."""
    versions = " and ".join(facts["onednn"]) or "of unknown version"
    executed = f"{facts['executions']} executions, {_ms(facts['milliseconds'])} ms"
    created = f"{facts['creations']} creations, {_ms(facts['creation_milliseconds'])} ms"
    share = f"of which reorders {facts['reorder_share']:.0%}"
    lines = [f"oneDNN {versions}: {executed}, {share}; {created}"]
    if runs := facts["runs"]:
        lines.append(
            f"the log repeats itself: {runs['runs']} runs of {runs['length']} executions, "
            f"from execution {runs['start'] + 1} on"
        )
    lines += _unread(facts)
    lines += ["", *_primitives(facts)]
    if facts["reorders"]:
        lines += ["", *_reorders(facts), "", *_savings(facts)]
    return lines


def _unread(facts: Facts) -> list[str]:
    others = [f"{count} {kind}" for kind, count in facts["skipped"].items()]
    others += [f"{facts['other_lines']} not of oneDNN"] if facts["other_lines"] else []
    lines = [f"other lines: {', '.join(others)}"] if others else []
    return lines + [
        f"  not read, line {row['line']}: {row['text'][:80]}" for row in facts["unread"]
    ]


def _primitives(facts: Facts) -> list[str]:
    total = facts["milliseconds"] or 1.0
    rows = [
        (
            row["kind"],
            str(row["executions"]),
            _ms(row["milliseconds"]),
            f"{row['milliseconds'] / total:.0%}",
            str(row["by_reference"] or ""),
        )
        for row in facts["primitives"]
    ]
    return table([("primitive", "count", "ms", "share", "by reference"), *rows], (1, 2, 3))


def _reorders(facts: Facts) -> list[str]:
    shown = facts["reorders"][: facts["top"]]
    head = ["ms", "count", "ms each", "GB/s"]
    head += ["here, ms", "memcpy, ms", "times faster"] if "bench_threads" in facts else []
    rows = []
    for row in shown:
        each = row["milliseconds"] / row["executions"]
        speed = f"{row['bytes'] / each * _MS_OF_BYTES:.2f}" if row["bytes"] and each else ""
        cells = [_ms(row["milliseconds"]), str(row["executions"]), _ms(each), speed]
        if "here" in row:
            here = row["here"]
            cells += [_ms(here["memdesc"]), _ms(here["memcpy"]), f"{each / here['memdesc']:.2f}"]
        rows.append([*cells, *[""] * (len(head) - len(cells)), _text(row)])
    lines = table([[*head, "reorder"], *rows], range(len(head)))
    hidden = len(facts["reorders"]) - len(shown)
    lines += [f"and {hidden} more (--top {len(facts['reorders'])} shows all)"] if hidden else []
    if "bench_threads" in facts:
        said = "times faster is the time in the log divided by that of memdesc"
        lines.append(f"measured here on {facts['bench_threads']} threads; {said}")
        lines += [
            f"  not measured, {row['problem']}: {row['not_measured']}"
            for row in shown
            if "not_measured" in row
        ]
    return lines


def _savings(facts: Facts) -> list[str]:
    """Return what could be saved: a line for each kind of unnecessary reorder."""
    rows = facts["reorders"]
    runs = facts["runs"]
    parts: list[tuple[str, Callable[[dict[str, Any]], bool]]] = [
        ("no-ops: src and dst are the same layout", lambda row: row["relation"] == "no-op"),
        ("views: dst starts at another element of src", lambda row: row["relation"] == "view"),
        (
            "weights, reordered again in each run: reorder them once",
            lambda row: bool(runs and row["is_of_weights"] and row["in_each_run"]),
        ),
        ("without generated code", lambda row: not row["generated_code"]),
    ]
    lines = [
        _saving(what, [row for row in rows if chosen(row)], facts["milliseconds"])
        for what, chosen in parts
    ]
    trips = facts["round_trips"]
    lines.append(_saving("round trips: into a layout and soon back", trips, facts["milliseconds"]))
    found = [line for line in lines if line]
    return ["what could be saved:", *found] if found else ["no unnecessary reorder found"]


def _saving(what: str, rows: Sequence[dict[str, Any]], total: float) -> str:
    if not rows:
        return ""
    spent = sum(row["milliseconds"] for row in rows)
    count = sum(row["executions"] for row in rows)
    share = spent / total if total else 0.0
    return f"  {_ms(spent):>10} ms {share:4.0%}  {what} ({count} executions, {len(rows)} different)"


def _text(row: dict[str, Any]) -> str:
    """Return dims, layouts, attributes, and the primitives that made and used the tensors."""
    words = [row["problem"], _short(row["src"]), "->", _short(row["dst"])]
    # the place of the scratchpad does not matter
    words += [word for word in row["attributes"].split() if not word.startswith("attr-scratchpad")]
    ends = [f"from {row['made_by']}"] if row["made_by"] else []
    ends += [f"to {row['used_as']}"] if row["used_as"] else []
    return " ".join(words) + (f" ({', '.join(ends)})" if ends else "")


def _short(text: str) -> str:
    """Return type, tag and any strides and compensation of a printed descriptor."""
    dtype, flags, _, tag, *rest = [*text.split(":"), "", "", ""]
    others = [part for part in rest if part not in {"", "f0"}]
    view = "view " if "0" in flags else ""
    return f"{dtype} {view}{':'.join([tag, *others])}"


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.4g}" if milliseconds < 1 else f"{milliseconds:.2f}"


COMMAND = Command(
    "log",
    "Report what a log of oneDNN's verbose mode says: time by primitive, and the cost of reorders.",
    "log torch.log",
    arguments(
        value("log LOG", "what a program printed with ONEDNN_VERBOSE=1 or 2; - for stdin"),
        value("--top N", "how many reorders are listed and measured (default 10)", default=10),
        flag("--bench", "measure these reorders here, and compare with the times of the log"),
        value("--threads N", "threads for --bench (default as in the log)", type=int),
        value("--seconds S", "time for each reorder (default 0.1)", default=0.1),
    ),
    _answer,
    _lay_out,
)
