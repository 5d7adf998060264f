"""Tables of calls that are refused: the call, two blanks and #, then part of what the error says.

Several parts have " ... " between them. An error that is not a plain `MemdescError` has the name of
its class in front of that. Indented calls below it follow the hint of the error, and work. A
section starts with ## and its name.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from memdesc import MemdescError

_LINE = re.compile(r"(?P<call>.*)  # (?:(?P<kind>\w+Error): )?(?P<says>.*)")


def sections(path: Path) -> dict[str, list[str]]:
    """Return the lines of each section of a table."""
    parts = f"\n{path.read_text(encoding='utf-8')}".split("\n## ")[1:]
    cut = [part.partition("\n") for part in parts]
    table = {name: [line for line in rest.split("\n") if line] for name, _, rest in cut}
    assert len(table) == len(cut), "a section has the name of another one"
    return table


def check(lines: Iterable[str], names: dict[str, Any]) -> list[str]:
    """Make each call, compare its error with what the table says, and return what errors say."""
    messages = []
    for line in lines:
        if line.startswith(" "):
            eval(line.strip(), dict(names))
            continue
        match = _LINE.fullmatch(line)
        assert match, line
        error = _refusal(match["call"], names)
        assert type(error).__name__ == (match["kind"] or "MemdescError"), line
        assert all(part in str(error) for part in match["says"].split(" ... ")), line
        messages.append(str(error))
    return messages


def _refusal(call: str, names: dict[str, Any]) -> Exception | None:
    try:
        eval(call, dict(names))
    except (MemdescError, AttributeError, TypeError) as error:
        return error
    return None
