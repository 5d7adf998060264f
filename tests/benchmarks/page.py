"""Make docs/benchmarks.md, .csv and .svg from one run of `tests.benchmarks.peers`.

python -m tests.benchmarks.peers --json --batch tests/benchmarks/activations.txt ... > run.json
python -m tests.benchmarks.page run.json
"""

from __future__ import annotations

import csv
import json
import sys
from math import log
from pathlib import Path
from typing import Any

from reorder.bench.report import LEAST_NBYTES, summarise

_COMMAND = (
    "python -m tests.benchmarks.peers --json $(printf -- ' --batch %s' tests/benchmarks/*.txt) "
    "> run.json"
)
_DOCS = Path(__file__).parents[2] / "docs"
# Okabe and Ito's palette, told apart by dashes too
_LINES = {
    "memdesc": ("#0072B2", ""),
    "onednn 3.2": ("#D55E00", "6 3"),
    "onednn 3.13": ("#CC79A7", "2 3"),
    "torch": ("#009E73", "9 3 2 3"),
    "numpy": ("#888888", "1 2"),
}
# Pixels: a panel, what is left of it, above it and below it, and the right margin. The picture is
# read at 343 pixels on a phone.
_WIDTH, _HEIGHT, _LEFT, _TOP, _BELOW, _MARGIN = 320, 260, 56, 38, 100, 24
_LEVELS = (0.01, 0.03, 0.1, 0.3, 1.0, 2.0)
# colours of the background, text and lines, for the reader's colour scheme
_STYLE = (
    "<style>.paper{fill:#ffffff}text{fill:#000000}.level{stroke:#dddddd}.one{stroke:#888888}"
    "@media (prefers-color-scheme:dark){.paper{fill:#16191d}text{fill:#e8e8e8}"
    ".level{stroke:#3a4047}.one{stroke:#a0a6ad}}</style>"
)
# In the legend: the line of a name with the gaps around it, a letter, and a row.
_LEGEND_LINE, _LEGEND_LETTER, _LEGEND_ROW = 32, 8, 20
# where the part of the page begins that is not made from the run: other machines, what was tried,
# and what `python -m tests.arm.model` prints
_KEPT = "## On 16 cores"
# no case may be slower than that, compared with the code that oneDNN generates
_FLOOR = 0.8


def curves(cases: list[dict[str, Any]], threads: int) -> dict[str, list[float]]:
    """Return the speeds of each library over memcpy, in cases of 64 KiB and more, ascending."""
    found: dict[str, list[float]] = {}
    for case in cases:
        if case["threads"] == threads and case["nbytes"] >= LEAST_NBYTES:
            found.setdefault("memdesc", []).append(case["memcpy"])
            for name, ratio in case["peers"].items():
                library = name.removesuffix(" generated").removesuffix(" reference")
                found.setdefault(library, []).append(case["memcpy"] / ratio)
    return {name: sorted(values) for name, values in found.items()}


def shortfalls(cases: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str, float]]:
    """Return the cases of 64 KiB and more where a peer is faster: the case, the peer, the ratio."""
    found = []
    for case in cases:
        if case["nbytes"] >= LEAST_NBYTES and case["peers"]:
            name, ratio = min(case["peers"].items(), key=lambda item: item[1])
            if ratio < 1:
                found.append((case, name, ratio))
    return sorted(found, key=lambda item: item[2])


def draw(cases: list[dict[str, Any]]) -> str:
    """Draw, for each number of threads, the speeds of the libraries over memcpy, sorted."""
    counts = sorted({case["threads"] for case in cases})
    width, height = _LEFT + _WIDTH + _MARGIN, len(counts) * (_TOP + _HEIGHT + _BELOW)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="sans-serif" font-size="13">'
        ),
        "<title>Speed relative to memcpy, over the cases</title>",
        _STYLE,
        '<rect class="paper" width="100%" height="100%"/>',
    ]
    for k, threads in enumerate(counts):
        title = f"{threads} thread{'s' if threads > 1 else ''}"
        parts += [
            f'<g transform="translate({_LEFT} {k * (_TOP + _HEIGHT + _BELOW)})">',
            *_panel(curves(cases, threads), title),
            "</g>",
        ]
    return "\n".join([*parts, "</svg>", ""])


def _height_of(level: float) -> float:
    low, high = _LEVELS[0], _LEVELS[-1]
    share = (log(min(max(level, low), high)) - log(low)) / (log(high) - log(low))
    return round(_TOP + _HEIGHT * (1 - share), 1)


def _panel(lines: dict[str, list[float]], title: str) -> list[str]:
    bottom = _TOP + _HEIGHT
    parts = [f'<text y="{_TOP - 12}" font-weight="bold">{title}: speed relative to memcpy</text>']
    for level in _LEVELS:
        y = _height_of(level)
        parts.append(
            f'<line x2="{_WIDTH}" y1="{y}" y2="{y}" class="{"one" if level == 1 else "level"}"/>'
        )
        parts.append(f'<text x="-6" y="{y + 4}" text-anchor="end">{level:g}</text>')
    parts += [
        f'<text x="{_WIDTH * share / 100:g}" y="{bottom + 18}" '
        f'text-anchor="middle">{share} %</text>'
        for share in (0, 25, 50, 75, 100)
    ]
    parts.append(
        f'<text x="{_WIDTH / 2:g}" y="{bottom + 36}" '
        'text-anchor="middle">of the cases are slower</text>'
    )
    x, y = 0, bottom + 58
    for name, (color, dashes) in _LINES.items():
        if name not in lines:
            continue
        values = lines[name]
        points = " ".join(
            f"{_WIDTH * i / max(1, len(values) - 1):.1f},{_height_of(value)}"
            for i, value in enumerate(values)
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{color}" '
            f'stroke-width="2" stroke-dasharray="{dashes}">'
            f"<title>{name}, {len(values)} cases</title></polyline>"
        )
        needed = _LEGEND_LINE + len(name) * _LEGEND_LETTER
        if x + needed > _WIDTH + _MARGIN:
            x, y = 0, y + _LEGEND_ROW
        parts.append(
            f'<line x1="{x}" x2="{x + 18}" y1="{y}" y2="{y}" stroke="{color}" '
            f'stroke-width="2" stroke-dasharray="{dashes}"/>'
        )
        parts.append(f'<text x="{x + 22}" y="{y + 4}">{name}</text>')
        x += needed
    return parts


def page(facts: dict[str, Any]) -> str:
    """Write the page."""
    cases, compiled = (
        facts["cases"],
        [kernel for kernel in facts["kernels"] if kernel["kernel"].startswith("interpreter")],
    )
    moved = [case for case in cases if not converts(case)]
    count = max(
        (
            sum(kernel["threads"] == n for kernel in compiled)
            for n in {kernel["threads"] for kernel in compiled}
        ),
        default=0,
    )
    slowest = max((kernel["seconds"] for kernel in compiled), default=0)
    lines = [
        "# Measured speed",
        "",
        (
            "This page, its picture and [`benchmarks.csv`](benchmarks.csv), which has every case, "
            "come from one run of `tests.benchmarks.peers` over the "
            f"{len({case['name'] for case in cases})} cases in `tests/benchmarks/`:"
        ),
        "",
        "```text",
        _COMMAND,
        "python -m tests.benchmarks.page run.json",
        "```",
        "",
        *(f"* {name}: {value}" for name, value in facts["machine"].items()),
        "",
        (
            "Times are medians over rounds in which all candidates run in turn on the same "
            "buffers; ratios are taken within a round. A ratio above 1 means that memdesc is "
            "faster. memcpy copies the same bytes on the same number of threads. oneDNN runs with "
            "a primitive created beforehand, called through ctypes like ours; *generated* marks "
            "code from its JIT, *reference* other code. Cases below 64 KiB are left out, because "
            f"the time of a call dominates them. {count} compiled functions moved the elements of "
            "all cases on one thread count (conversions add a stage for each type); "
            f"the slowest took {slowest:.2f} s to compile, or to load from disk."
        ),
        "",
        "![The speed of each library relative to memcpy](benchmarks.svg)",
        "",
        "## Reorders",
        "",
        *_summary(moved),
        "",
        "## Conversions",
        "",
        "Here, memcpy copies half the bytes of src and dst together.",
        "",
        *_summary([case for case in cases if converts(case)]),
        "",
        "## Where something else is faster",
        "",
        *_shortfall_lines(cases),
    ]
    return "\n".join([*lines, ""])


def converts(case: dict[str, Any]) -> bool:
    """Whether a case has two types."""
    return "->" in case["name"].partition(" ")[0]


def _summary(cases: list[dict[str, Any]]) -> list[str]:
    return [
        "| threads | compared with | cases | geometric mean | 5th percentile | least | slower in |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: |",
        *(
            f"| {row['threads']} | {row['beside']} | {row['cases']} "
            f"| {row['geomean']:.2f} | {row['p5']:.2f} | {row['least']:.2f} | {row['slower']} |"
            for row in summarise(cases)
        ),
    ]


def _shortfall_lines(cases: list[dict[str, Any]]) -> list[str]:
    short = shortfalls(cases)
    under = sum(ratio < _FLOOR for _, _, ratio in short)
    total = sum(case["nbytes"] >= LEAST_NBYTES for case in cases)
    return [
        (
            f"A peer is faster in {len(short)} of {total} measurements; in {under} of them "
            f"memdesc is below {_FLOOR} of its speed. The table has the fastest peer, and the "
            "speed of memdesc relative to it and to memcpy:"
        ),
        "",
        "| case | threads | faster | ratio | of memcpy |",
        "| --- | ---: | --- | ---: | ---: |",
        *(
            f"| `{case['name']}` | {case['threads']} | {name} "
            f"| {ratio:.2f} | {case['memcpy']:.2f} |"
            for case, name, ratio in short
        ),
    ]


def _write_table(cases: list[dict[str, Any]], file: Path) -> None:
    peers = sorted({name for case in cases for name in case["peers"]})
    with file.open("w", encoding="utf-8", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow(
            [
                "case",
                "threads",
                "bytes",
                "microseconds",
                "p90",
                "first_ms",
                "kernels",
                "memcpy",
                *peers,
            ]
        )
        for case in cases:
            times = [
                f"{case['seconds'] * 1e6:.2f}",
                f"{case['p90'] * 1e6:.2f}",
                f"{case['first_seconds'] * 1e3:.2f}",
            ]
            ratios = [
                f"{case['memcpy']:.3f}",
                *(f"{case['peers'][p]:.3f}" if p in case["peers"] else "" for p in peers),
            ]
            table.writerow(
                [
                    case["name"],
                    case["threads"],
                    case["nbytes"],
                    *times,
                    case["kernels"],
                    *ratios,
                ]
            )


def _main() -> None:
    facts = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    file = _DOCS / "benchmarks.md"
    _, heading, kept = file.read_text(encoding="utf-8").partition(_KEPT)
    file.write_text(f"{page(facts)}\n{heading}{kept}", encoding="utf-8")
    moved = [case for case in facts["cases"] if not converts(case)]
    (_DOCS / "benchmarks.svg").write_text(draw(moved), encoding="utf-8")
    _write_table(facts["cases"], _DOCS / "benchmarks.csv")


if __name__ == "__main__":
    _main()
