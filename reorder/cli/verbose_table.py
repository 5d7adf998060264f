"""The report of `memdesc verbose` as lines: tables, and what could be saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from reorder.cli.facts import Facts

__all__ = ["lay_out"]

_MS_OF_BYTES = 1e-6


def lay_out(facts: Facts) -> list[str]:
    """Return the report as lines."""
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
    return _table(("primitive", "count", "ms", "share", "by reference"), rows, left=1)


def _reorders(facts: Facts) -> list[str]:
    shown = facts["reorders"][: facts["top"]]
    peers = list(dict.fromkeys(peer for row in shown for peer in row.get("here", {})))
    head = ("ms", "count", "ms each", "GB/s", *(f"{peer}, ms" for peer in peers))
    rows = []
    for row in shown:
        each = row["milliseconds"] / row["executions"]
        speed = f"{row['bytes'] / each * _MS_OF_BYTES:.2f}" if row["bytes"] and each else ""
        here = [_ms(row["here"][peer]) if peer in row.get("here", {}) else "" for peer in peers]
        rows.append((_ms(row["milliseconds"]), str(row["executions"]), _ms(each), speed, *here))
    texts = [_text(row) for row in shown]
    lines = _table(
        (*head, "reorder"), [(*row, text) for row, text in zip(rows, texts, strict=True)]
    )
    hidden = len(facts["reorders"]) - len(shown)
    lines += [f"and {hidden} more (--top {len(facts['reorders'])} shows all)"] if hidden else []
    if "bench_threads" in facts:
        lines.append(f"measured here on {facts['bench_threads']} threads: {', '.join(peers)}")
        lines += [
            f"  not measured, {row['problem']}: {row['not_measured']}"
            for row in shown
            if "not_measured" in row
        ]
    return lines


def _savings(facts: Facts) -> list[str]:
    """Return what could be saved, a line for each kind of reorder that need not be."""
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
    lines.append(_saving("round trips: to a layout, and soon back", trips, facts["milliseconds"]))
    found = [line for line in lines if line]
    return ["what could be saved:", *found] if found else ["no reorder that could be left out"]


def _saving(what: str, rows: Sequence[dict[str, Any]], total: float) -> str:
    if not rows:
        return ""
    spent = sum(row["milliseconds"] for row in rows)
    count = sum(row["executions"] for row in rows)
    share = spent / total if total else 0.0
    return f"  {_ms(spent):>10} ms {share:4.0%}  {what} ({count} executions, {len(rows)} different)"


def _text(row: dict[str, Any]) -> str:
    """Return dims, layouts, attributes, and what the tensors are to other primitives."""
    words = [row["problem"], _short(row["src"]), "->", _short(row["dst"])]
    # where its scratchpad is changes nothing
    words += [word for word in row["attributes"].split() if not word.startswith("attr-scratchpad")]
    ends = [f"from {row['made_by']}"] if row["made_by"] else []
    ends += [f"to {row['used_as']}"] if row["used_as"] else []
    return " ".join(words) + (f" ({', '.join(ends)})" if ends else "")


def _short(text: str) -> str:
    """Return type, tag, and strides and compensation if there are any, of a printed descriptor."""
    dtype, flags, _, tag, *rest = [*text.split(":"), "", "", ""]
    others = [part for part in rest if part not in {"", "f0"}]
    view = "view " if "0" in flags else ""
    return f"{dtype} {view}{':'.join([tag, *others])}"


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.4g}" if milliseconds < 1 else f"{milliseconds:.2f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 0) -> list[str]:
    """Return rows with a head; the first `left` columns and the last one are left-aligned."""
    table = [head, *rows]
    widths = [max(len(row[k]) for row in table) for k in range(len(head))]
    lines = []
    for row in table:
        cells = [
            f"{cell:<{width}}" if k < left or k == len(head) - 1 else f"{cell:>{width}}"
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
