"""Record how fast a commit is, as one line of JSON.

    python -m tests.benchmarks.track FILE.jsonl [options of tests.benchmarks.peers]

Measures the whole set, unless options name other cases, and appends a line: the commit (or the
version, in an sdist), the date, the machine, the median seconds of each case, and how fast the set
is beside memcpy and each library.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import memdesc

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ROOT = Path(__file__).parents[2]
_SET = sorted(Path(__file__).parent.glob("*.txt"))


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
    """Measure and append a line."""
    if not arguments or arguments[0].startswith("-"):
        sys.stderr.write(f"{__doc__}\n")
        return 2
    file, *rest = arguments
    date = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        line = line_of(_measured(rest), commit(), date)
    except subprocess.CalledProcessError as error:
        return error.returncode  # the command has said why
    with Path(file).open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(line) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
