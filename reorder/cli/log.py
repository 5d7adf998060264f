"""`memdesc log`: what a log of oneDNN says, as facts for `--json` and as tables for readers."""

from __future__ import annotations

import re
import sys
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import defaultdict
from collections.abc import Callable
from io import TextIOWrapper
from operator import itemgetter

from memdesc import MemdescError
from memdesc.errors import counted
from reorder.bench.measure import measure
from reorder.cli.command import Columns, Command, Facts, Options, facts_of, tabulate
from reorder.disk import as_path, open_file
from reorder.logs import LoggedReorder, LogReport, RoundTrip, VerboseLog, read_layers, report
from reorder.logs.log import read_verbose
from reorder.logs.primitive import VerbosePrimitive
from reorder.logs.reorders import UNKNOWN, Times
from reorder.logs.replay import logged_case
from reorder.messages import first_of
from reorder.system import count_cores

# factor from bytes per millisecond to GB/s
_GB_PER_S = 1e-6
# the last line of what could be saved; a log does not say which framework wrote it
_NEXT = 'what helps: the page "Logs of oneDNN", under "What could be saved"'
_MEASURED = "; --bench measures these reorders here"
# what the report says about reorders that fit nothing else
_NEEDED = "other reorders: needed for the layouts at both ends"
_UNCLEAR = "not understood: what they do, or how their tensors lie, is not known"
# how far the lines below a row of a table are indented: what made and used the tensors
_BELOW = "    "
_RUNS_OR_LAYERS = (
    f"{_BELOW}these are runs of the model, or equal layers of one run; say how many times the "
    "model ran (--runs N)"
)
_ENDS = {"made_by": "from", "used_as": "to", "layers": "in"}
# how files start that are not read, and what they are
_UTF_16 = "text in UTF-16, as PowerShell writes it; convert it to UTF-8, as iconv -f utf-16 does"
_NOT_TEXT = {
    BOM_UTF16_LE: _UTF_16,
    BOM_UTF16_BE: _UTF_16,
    b"\x1f\x8b": "compressed by gzip; decompress it first, as in `zcat LOG | memdesc log -`",
}
# how long --bench measures each reorder
_SECONDS = 0.1


def _answer(options: Options) -> tuple[Facts, int]:
    is_stdin = options.log == "-"
    if is_stdin and isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # bytes that are not text, as in files
    log = read_verbose(sys.stdin if is_stdin else options.log)
    if not (log.entries or log.info or log.skipped):
        _check_text(options.log)
        raise MemdescError(
            f"{'stdin' if is_stdin else options.log}: none of its lines is from oneDNN "
            f"({counted(log.other_lines, 'line')} read); run the program with ONEDNN_VERBOSE=1 "
            "(up to oneDNN 2.4, DNNL_VERBOSE=1), and pass what it prints to stdout"
        )
    layers = read_layers(options.layers) if options.layers else None
    analysis = report(log, layers, steady=options.steady, runs=options.runs)
    foreign = layers.foreign(log.executions, analysis.repetition) if layers else ()
    facts: Facts = {
        "log": options.log,
        "onednn": list(log.versions),
        "steady": options.steady,
        **_report_facts(analysis),
        "not_of_layers": [f"{layer.kind} {layer.problem}" for layer in foreign],
        **facts_of(log, "skipped", "other_lines"),
        "unread": [line._asdict() for line in log.unread],
        "top": options.top,
    }
    if options.bench:
        _measure(facts, analysis, _threads(log))
    return facts, 0


def _check_text(path: str) -> None:
    """Refuse a file that starts as files of other kinds do; stdin is read by now."""
    if path != "-":
        with open_file(as_path(path)) as file:
            if what := _NOT_TEXT.get(file.read(2)):
                raise MemdescError(f"{path}: it is {what}")


def _report_facts(analysis: LogReport) -> Facts:
    before, spent_before = analysis.before_runs
    created, spent_created = analysis.created
    return {
        "executions": sum(kind.executions for kind in analysis.kinds),
        "milliseconds": analysis.milliseconds,
        "reorder_share": _share(analysis, sum(logged.times.cost for logged in analysis.reorders)),
        "runs": analysis.repetition and analysis.repetition._asdict(),
        "undecided_runs": analysis.undecided and analysis.undecided._asdict(),
        "set_up": {
            "executions": before,
            "execution_milliseconds": spent_before,
            "creations": created,
            "creation_milliseconds": spent_created,
        },
        "skewed": [
            facts_of(primitive, "kind", "problem") | _times(times)
            for primitive, times in analysis.skewed
        ],
        "primitives": [kind._asdict() for kind in analysis.kinds],
        "reorders": [
            {
                **_facts_of(logged, logged.primitive),
                **facts_of(logged.primitive, "implementation"),
                **facts_of(logged, "in_each_run", "relation", "why", "is_of_weights"),
                "generated_code": logged.is_generated,
                "attributes": logged.primitive.attribute_text.strip(),
                "not_understood": logged.primitive.attributes.not_understood,
                "share": _share(analysis, logged.times.cost),
                "bytes": logged.nbytes,
            }
            for logged in analysis.reorders
        ],
        "round_trips": [
            _facts_of(trip, trip.there) | {"between": trip.between} for trip in analysis.round_trips
        ],
        "layers": [layer._asdict() | {"layer": layer.layer._asdict()} for layer in analysis.layers],
        "not_understood": [
            {"attribute": text, "executions": count} for text, count in analysis.not_understood
        ],
    }


def _facts_of(logged: LoggedReorder | RoundTrip, first: VerbosePrimitive) -> Facts:
    """Return what reorders and round trips have: tensors, times, neighbours and layers."""
    return {
        "problem": first.problem,
        **{side: first.tensors[side].text for side in ("src", "dst")},
        **_times(logged.times),
        **{side: [*map(str, getattr(logged, side))] for side in _ENDS},
    }


def _times(times: Times) -> Facts:
    keys = ("milliseconds", "executions", "median", "min", "max", "sum")
    return dict(zip(keys, (times.cost, *times), strict=True))


def _measure(facts: Facts, analysis: LogReport, threads: int) -> None:
    facts["bench_threads"] = threads
    for row, logged in zip(facts["reorders"], analysis.reorders[: facts["top"]], strict=False):
        try:
            result = measure(logged_case(logged.primitive), threads, (), _SECONDS)
        except MemdescError as error:
            row["not_measured"] = str(error)
            continue
        ours = result.seconds * 1e3
        row["here"] = {"memdesc": ours, "memcpy": ours * result.memcpy}


def _threads(log: VerboseLog) -> int:
    """Return how many threads the log used, but at most one for each core."""
    said = [int(count) for line in log.info for count in re.findall(r"nthr:([0-9]{1,6})", line)]
    return min(next(filter(None, said), count_cores()), count_cores())


def _share(analysis: LogReport, milliseconds: float) -> float:
    return round(milliseconds / analysis.milliseconds, 4) if analysis.milliseconds else 0.0


def _lay_out(facts: Facts) -> list[str]:
    lines = [*_head(facts), *_warnings(facts), *_unread(facts), "", *_primitives(facts)]
    for key, section in (
        ("reorders", _reorders),
        ("round_trips", _round_trips),
        ("reorders", _savings),
        ("layers", lambda facts: _top(facts, "layers", _LAYERS)),
    ):
        if facts[key]:
            lines += ["", *section(facts)]
    return lines


def _head(facts: Facts) -> list[str]:
    """Return lines that say how long the log takes, and how much of it is set-up."""
    versions = " and ".join(facts["onednn"]) or "of unknown version"
    runs, set_up = facts["runs"], facts["set_up"]
    which = f"one of {runs['runs']} equal runs, " if facts["steady"] else ""
    spent = f"{counted(facts['executions'], 'execution')}, {_ms(facts['milliseconds'])} ms"
    share = f"by medians, of which reorders {facts['reorder_share']:.0%}"
    lines = [f"oneDNN {versions}: {which}{spent} in oneDNN {share}"]
    if runs and not facts["steady"]:
        lines.append(
            f"the log repeats itself: {runs['runs']} runs of {runs['length']} executions, from "
            f"execution {runs['start'] + 1} on; --steady shows one (if wrong: --runs N)"
        )
    if maybe := facts["undecided_runs"]:
        what = f"{maybe['length']} executions in a row repeat {maybe['runs']} times"
        lines += [f"{what}, from execution {maybe['start'] + 1} on:", _RUNS_OR_LAYERS]
    parts = [
        f"{set_up[f'{what}s']} {what}s {when}, {_ms(set_up[f'{what}_milliseconds'])} ms"
        for what, when in (("execution", "before the first run"), ("creation", "in the whole log"))
        if set_up[f"{what}s"]
    ]
    return lines + ([f"set-up: {'; '.join(parts)}"] if parts else [])


def _warnings(facts: Facts) -> list[str]:
    """Warn of layers of another log, and of times that cannot be trusted."""
    lines = []
    if foreign := facts["not_of_layers"]:
        lines += [
            "warning: the layers are of another model, or of other shapes: none executes",
            f"{_BELOW}{first_of(foreign, 1)}",
        ]
    if skewed := facts["skewed"]:
        total, usual = (_ms(sum(row[key] for row in skewed)) for key in ("sum", "milliseconds"))
        which = f"the mean of {counted(len(skewed), 'primitive')} is above three times the median"
        lines += [
            f"warning: {which}, most of all {skewed[0]['kind']} {skewed[0]['problem']}:",
            f"{_BELOW}{total} ms in all, {usual} by medians; the machine was probably busy",
        ]
    return lines


def _unread(facts: Facts) -> list[str]:
    others = [f"{count} {category}" for category, count in facts["skipped"].items()]
    others += [f"{facts['other_lines']} not from oneDNN"] if facts["other_lines"] else []
    return [
        *([f"other lines: {', '.join(others)}"] if others else []),
        *(
            f"attribute not understood, in {counted(row['executions'], 'execution')}: "
            f"{row['attribute'][:80]}"
            for row in facts["not_understood"]
        ),
        *(
            f"  not read, line {row['line']}: {row['why']}: {row['text'][:80]}"
            for row in facts["unread"]
        ),
    ]


def _time(key: str, part: str = "") -> Callable[[Facts], str]:
    return lambda row: _ms((row.get(part, {}) if part else row).get(key))


_TIMES: Columns = {
    "ms": _time("milliseconds"),
    "count": "{executions}",
    **{key: _time(key) for key in ("median", "min", "max")},
}
_HERE: Columns = {
    "here, ms": _time("memdesc", "here"),
    "memcpy, ms": _time("memcpy", "here"),
}
_LAYERS: Columns = {
    "oneDNN, ms": _time("milliseconds"),
    "in all, ms": _time("milliseconds", "layer"),
    **{key: f"{{layer[{key}]}}" for key in ("kind", "layout")},
    "layer": "{layer[name]}",
}
# columns of text, which stand left
_TEXTS = {"primitive", "reorder", "round trip", "kind", "layout", "layer"}


def _top(facts: Facts, key: str, columns: Columns) -> list[str]:
    """Return the first rows of a table, what made and used their tensors, and how many are left."""
    shown = facts[key][: facts["top"]]
    head, *others = tabulate(columns, shown, _TEXTS)
    lines = [head]
    for line, row in zip(others, shown, strict=True):
        ends = ((word, row[end]) for end, word in _ENDS.items() if row.get(end))
        lines += [line, *(f"{_BELOW}{word} {first_of(names, 1)}" for word, names in ends)]
    hidden = len(facts[key]) - len(shown)
    return lines + ([f"and {hidden} more (--top {len(facts[key])} shows all)"] if hidden else [])


def _primitives(facts: Facts) -> list[str]:
    total = facts["milliseconds"] or 1.0
    columns: Columns = {
        "primitive": "{kind}",
        "count": "{executions}",
        "ms": _time("milliseconds"),
        "share of oneDNN": lambda row: f"{row['milliseconds'] / total:.0%}",
        "by reference": lambda row: str(row["by_reference"] or ""),
    }
    return tabulate(columns, facts["primitives"], _TEXTS)


def _reorders(facts: Facts) -> list[str]:
    def speed(row: Facts) -> str:
        is_known = row["bytes"] and row["median"]
        return f"{row['bytes'] / row['median'] * _GB_PER_S:.2f}" if is_known else ""

    def text(row: Facts) -> str:
        once = "" if row["in_each_run"] or not facts["runs"] else ", not in each run"
        return _text(row) + once + (", not understood" if row["not_understood"] else "")

    here = _HERE if "bench_threads" in facts else {}
    columns = {**_TIMES, "GB/s": speed, **here, "reorder": text}
    lines = _top(facts, "reorders", columns)
    if not here:
        return lines
    threads = counted(facts["bench_threads"], "thread")
    return [
        *lines,
        f"here: on {threads}, into memory that was written before; oneDNN's may have been new",
        *(
            f"  not measured, {row['problem']}: {row['not_measured']}"
            for row in facts["reorders"]
            if "not_measured" in row
        ),
    ]


def _round_trips(facts: Facts) -> list[str]:
    def text(row: Facts) -> str:
        after = f" after {', '.join(row['between'])}" if row["between"] else ""
        return f"{row['problem']} {_short(row['src'])} -> {_short(row['dst'])} -> back{after}"

    return _top(facts, "round_trips", {**_TIMES, "round trip": text})


def _savings(facts: Facts) -> list[str]:
    """Return what could be saved: a line for each reason, the most expensive first."""
    trips, runs, savings = facts["round_trips"], facts["runs"], defaultdict[str, list[Facts]](list)
    unsure = ", unless they cross from one run to the next" if facts["undecided_runs"] else ""
    in_trips = {_both_ways(row) for row in trips}
    for row in facts["reorders"]:
        is_once = runs and not row["in_each_run"]
        reasons = {
            "no-ops: src and dst are the same layout": row["relation"] == "no-op",
            "views: dst starts at another element of src": row["relation"] == "view",
            "weights, reordered again in each run: once is enough": (
                runs and row["is_of_weights"] and not is_once
            ),
            "without generated code": not row["generated_code"],
            "not in each run: set-up, which more runs do not repeat": is_once,
        }
        if not any(reasons.values()) and _both_ways(row) not in in_trips:
            reasons[_UNCLEAR if row["relation"] == UNKNOWN else _NEEDED] = True
        for reason in filter(reasons.get, reasons):
            savings[reason].append(row)
    if trips:
        savings[f"round trips, into a layout and soon back{unsure}"] = trips
    lines = []
    for what, rows in savings.items():
        spent, count = (sum(row[key] for row in rows) for key in ("milliseconds", "executions"))
        share = spent / facts["milliseconds"] if facts["milliseconds"] else 0.0
        amount = f"{counted(count, 'execution')}, {len(rows)} different"
        lines.append((-spent, f"  {_ms(spent):>10} ms {share:4.0%}  {what} ({amount})"))
    last = _NEXT if "bench_threads" in facts else _NEXT + _MEASURED
    return ["what could be saved:", *(line for _, line in sorted(lines, key=itemgetter(0))), last]


def _both_ways(row: Facts) -> tuple[str, ...]:
    return row["problem"], *sorted((row["src"], row["dst"]))


def _text(row: Facts) -> str:
    words = [row["problem"], _short(row["src"]), "->", _short(row["dst"])]
    # it does not matter who allocates the scratchpad
    words += [word for word in row["attributes"].split() if not word.startswith("attr-scratchpad")]
    return " ".join(words)


def _short(text: str) -> str:
    """Return type, tag and any strides and compensation of a printed descriptor."""
    dtype, flags, _, tag, *rest = [*text.split(":"), "", "", ""]
    others = [part for part in rest if part not in {"", "f0"}]
    view = "view " if "0" in flags else ""
    return f"{dtype} {view}{':'.join([tag, *others])}"


def _ms(milliseconds: float | None) -> str:
    if milliseconds is None:
        return ""
    return f"{milliseconds:.4g}" if milliseconds < 1 else f"{milliseconds:.2f}"


COMMAND = Command(_answer, _lay_out)
