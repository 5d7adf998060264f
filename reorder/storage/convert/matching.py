"""Which rule serves which tensor: the last one that matches."""

from __future__ import annotations

import re
from fnmatch import translate
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn

from memdesc.names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reorder.storage.convert.rules import Rule

__all__ = ["matches", "refuse_unmatched", "renamed"]


# letters of a name or a pattern up to which they are compared, which takes long
_MAX_COMPARED = 200
# a set of letters, a run of stars, or one letter
_TOKEN = re.compile(r"\[!?\]?[^\]]*\]|\*+|.", re.DOTALL)


@lru_cache(maxsize=1024)
def _parts(pattern: str) -> tuple[re.Pattern[str], ...]:
    """Return what lies before, between and behind the stars of a pattern."""
    parts = [""]
    for token in _TOKEN.findall(pattern):
        parts[-1:] = [parts[-1], ""] if token.startswith("*") else [parts[-1] + token]
    return tuple(re.compile(translate(part).removesuffix(r"\Z")) for part in parts)


def _held(pattern: str, name: str) -> tuple[str, ...] | None:
    """Return what each star stands for, the first ones as much as they can; None for no match.

    Parts have fixed lengths, so each is put as far behind as it goes, the last one first, and no
    other place needs to be tried.
    """
    first, *others = _parts(pattern)
    head = first.match(name)
    if head is None or not (others or head.end() == len(name)):
        return None
    places: list[re.Match[str]] = []
    for part in reversed(others):
        end = places[-1].start() if places else len(name)
        match = part.match if places else part.fullmatch  # the last one ends where the name does
        tried = (match(name, at, end) for at in range(end, head.end() - 1, -1))
        place = next((each for each in tried if each is not None), None)
        if place is None:
            return None
        places.append(place)
    return tuple(name[a.end() : b.start()] for a, b in pairwise([head, *reversed(places)]))


def matches(rule: Rule, name: str) -> bool:
    """Whether the pattern of a rule is that of a name."""
    return _held(rule.pattern, name) is not None


def renamed(rule: Rule, name: str) -> str:
    """Return the new name of a tensor, or of a record, that a rule matches."""
    held = _held(rule.pattern, name)
    if rule.rename is None or held is None:
        return name
    new = rule.rename
    for each in held:
        new = new.replace("*", each.replace("*", "\0"), 1)
    return new.replace("\0", "*")


def refuse_unmatched(rule: Rule, names: Sequence[str]) -> NoReturn:
    """Refuse a rule that matches nothing, with names that are near."""
    import difflib  # only a wrong rule needs it

    # much longer strings are not compared, since that takes long
    near = (
        difflib.get_close_matches(
            rule.pattern, [name for name in names if len(name) <= _MAX_COMPARED], 3, 0.3
        )
        if len(rule.pattern) <= _MAX_COMPARED
        else []
    )
    shown = did_you_mean(tuple(near)) or f"; there are {len(names)}"
    rule.fail(f"no tensor and no record is called {rule.pattern!r}{shown}")
