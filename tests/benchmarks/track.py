"""Record how fast a commit is: one line of JSON for it, and a plot of all lines.

    python -m tests.benchmarks.track FILE.jsonl [options of tests.benchmarks.peers]
    python -m tests.benchmarks.track FILE.jsonl --plot FILE.svg

The first form measures the whole set, unless options name other cases, and appends a line: the
commit (or the version, in an sdist), the date, the machine, the median seconds of each case, and
how fast the set is beside memcpy and each library. Lines of different machines may be in one file;
the plot shows those of the last line's machine.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

import memdesc

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ROOT = Path(__file__).parents[2]
_SET = sorted(Path(__file__).parent.glob("*.txt"))
_MACHINE = ("processor", "machine", "cores", "vectors")
_WIDTH, _HEIGHT, _MARGIN, _LEGEND = 640, 300, 48, 250
# Okabe and Ito's palette
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("none", "6 3", "2 2", "9 2 2 2")
_LABEL = 56  # the width of a commit


def line_of(facts: dict[str, Any], commit: str, date: str) -> dict[str, Any]:
    """Return the line of a run of `tests.benchmarks.peers --json`."""
    return {
        "commit": commit,
        "date": date,
        "machine": facts["machine"],
        "seconds": {
            f"{case['name']}, {case['threads']}": case["seconds"] for case in facts["cases"]
        },
        "ratios": {
            f"{row['beside']}, {row['threads']}": {"geomean": row["geomean"], "p50": row["p50"]}
            for row in facts["summary"]
        },
    }


def plot(lines: Sequence[dict[str, Any]]) -> str:
    """Return an SVG: the geometric means of the ratios of each commit, in the order of the lines.

    Raises
    ------
    ValueError
        If there are fewer than two lines of the last one's machine.
    """
    last = _machine(lines[-1]) if lines else {}
    chosen = [line for line in lines if _machine(line) == last]
    if len(chosen) < 2:
        msg = f"a plot needs two lines of one machine; there are {len(chosen)}"
        raise ValueError(msg)
    names = {name for line in chosen for name in line["ratios"]}
    # in the order in which the lines end, as far as they do
    names_down = sorted(names, key=lambda name: (-(_geomean(chosen[-1], name) or 0), name))
    values = [[_geomean(line, name) for line in chosen] for name in names_down]
    logs = [math.log2(value) for row in values for value in row if value is not None]
    low = math.floor(min(logs))
    high = max(math.ceil(max(logs)), low + 1)
    step = (_WIDTH - 2 * _MARGIN) / (len(chosen) - 1)

    def y(log: float) -> float:
        return _HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * (log - low) / (high - low)

    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + _LEGEND} {_HEIGHT}" '
        'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>'
    )
    parts = [head]
    parts += [
        f'<path d="M{_MARGIN} {y(log):.1f}H{_WIDTH - _MARGIN}" '
        f'stroke="{"#ddd" if log else "#777"}"/>'
        f'<text x="{_MARGIN - 6}" y="{y(log) + 4:.1f}" text-anchor="end">{2.0**log:g}</text>'
        for log in range(low, high + 1)
    ]
    every = math.ceil(_LABEL / step)
    for k, line in enumerate(chosen):
        if (len(chosen) - 1 - k) % every == 0:
            parts.append(
                f'<text x="{_MARGIN + k * step:.1f}" y="{_HEIGHT - _MARGIN + 16}" '
                f'text-anchor="middle">{escape(_short(line["commit"]))}</text>'
            )
    # a colour for each peer, a dash for each number of threads
    peers = sorted({name.rpartition(", ")[0] for name in names})
    counts = sorted({name.rpartition(", ")[2] for name in names}, key=int)
    for k, (name, row) in enumerate(zip(names_down, values, strict=True)):
        peer, _, threads = name.rpartition(", ")
        colour = _COLOURS[peers.index(peer) % len(_COLOURS)]
        look = f'fill="none" stroke="{colour}" stroke-width="2"'
        look += f' stroke-dasharray="{_DASHES[counts.index(threads) % len(_DASHES)]}"'
        points = " ".join(
            f"{_MARGIN + at * step:.1f},{y(math.log2(value)):.1f}"
            for at, value in enumerate(row)
            if value is not None
        )
        at = _MARGIN + 16 * k
        parts.append(
            f'<polyline points="{points}" {look}/>'
            f'<path d="M{_WIDTH - 32} {at - 4}h26" {look}/>'
            f'<text x="{_WIDTH}" y="{at}">times {escape(peer)}, {threads} '
            f"{'thread' if threads == '1' else 'threads'}</text>"
        )
    return "\n".join([*parts, "</svg>", ""])


def _machine(line: dict[str, Any]) -> dict[str, Any]:
    """Return what must be equal for two lines to be comparable."""
    return {name: line["machine"].get(name) for name in _MACHINE}


def _short(commit: str) -> str:
    return commit[:7] + ("+" if commit.endswith("+") else "")


def _geomean(line: dict[str, Any], name: str) -> float | None:
    found = line["ratios"].get(name)
    return None if found is None else float(found["geomean"])


def _measured(arguments: Iterable[str]) -> dict[str, Any]:
    """Run `tests.benchmarks.peers` in a process of its own."""
    given = [*arguments]
    if not any(word.startswith(("--batch", "--dtag", "--random")) for word in given):
        given += [word for file in _SET for word in ("--batch", str(file))]
    command = [sys.executable, "-m", "tests.benchmarks.peers", "--json", *given]
    ran = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def commit() -> str:
    """Return the commit, and `+` if tracked files differ from it; in an sdist, the version."""
    if not (_ROOT / ".git").exists():
        return memdesc.__version__

    def git(*arguments: str) -> str:
        # whoever owns this tree (in a container, often another user): Python runs its code already
        command = ["git", "-c", "safe.directory=*", *arguments]
        ran = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True)
        return ran.stdout.strip()

    return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")


def main(arguments: Sequence[str]) -> int:
    """Measure and append a line, or plot all."""
    if not arguments or arguments[0].startswith("-"):
        sys.stderr.write(f"{__doc__}\n")
        return 2
    file, *rest = arguments
    path = Path(file)
    if rest[:1] == ["--plot"] and len(rest) == 2:
        lines = path.read_text(encoding="utf-8").splitlines()
        try:
            picture = plot([json.loads(line) for line in lines])
        except ValueError as error:
            sys.stderr.write(f"{path}: {error}\n")
            return 2
        Path(rest[1]).write_text(picture, encoding="utf-8")
        return 0
    date = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        line = line_of(_measured(rest), commit(), date)
    except subprocess.CalledProcessError as error:
        return error.returncode  # the command has said why
    with path.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(line) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
