"""Which rule serves which tensor: the last one that matches."""

from __future__ import annotations

import re
from fnmatch import translate
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

from memdesc.names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reorder.storage.convert.rules import Rule

__all__ = ["matches", "refuse_unmatched", "renamed"]


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern as a regular expression with a group for each ``*``."""
    # fnmatch writes .* for a star, and atomic groups for runs of them, so each is made apart
    parts = [translate(part).removeprefix("(?s:").removesuffix(r")\Z") for part in _stars(pattern)]
    return re.compile("(?s:" + "(.*)".join(parts) + ")")


def _stars(pattern: str) -> list[str]:
    """Split at stars outside of brackets."""
    return re.split(r"\*+(?![^\[]*\])", pattern)


def matches(rule: Rule, name: str) -> bool:
    """Whether the pattern of a rule is that of a name."""
    return _compiled(rule.pattern).fullmatch(name) is not None


def renamed(rule: Rule, name: str) -> str:
    """Return the new name of a tensor, or of a record, that a rule matches."""
    found = _compiled(rule.pattern).fullmatch(name)
    if rule.rename is None or found is None:
        return name
    new = rule.rename
    for held in found.groups():
        new = new.replace("*", held.replace("*", "\0"), 1)
    return new.replace("\0", "*")


def refuse_unmatched(rule: Rule, names: Sequence[str]) -> NoReturn:
    """Refuse a rule that matches nothing, with names that are near."""
    import difflib  # noqa: PLC0415 - only a wrong rule needs it

    near = difflib.get_close_matches(rule.pattern, names, 3, 0.3)
    shown = did_you_mean(tuple(near)) or f"; there are {len(names)}"
    rule.fail(f"no tensor and no record is called {rule.pattern!r}{shown}")
