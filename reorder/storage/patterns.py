"""Regular expressions from untrusted files, matched in polynomial time.

`re` backtracks: an expression of a few letters can take it years. Here the places that an
expression can reach in a text are one integer, with a bit for each place, and each part of the
expression moves them all at once. What that cannot express, such as backreferences, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

from memdesc import MemdescError
from memdesc.errors import short_repr

# no public function returns the tree of an expression
_tree: Any = import_module("re._parser")
_op: Any = import_module("re._constants")

# the most letters in an expression, and in a name
_MAX_LETTERS, _MAX_NAME = 1000, 300
# the most levels of repeats and lookaheads; each level multiplies the steps
_MAX_DEPTH = 2
_CLASSES = {
    _op.CATEGORY_DIGIT: re.compile(r"\d"),
    _op.CATEGORY_NOT_DIGIT: re.compile(r"\D"),
    _op.CATEGORY_SPACE: re.compile(r"\s"),
    _op.CATEGORY_NOT_SPACE: re.compile(r"\S"),
    _op.CATEGORY_WORD: re.compile(r"\w"),
    _op.CATEGORY_NOT_WORD: re.compile(r"\W"),
}
_REPEATS = {_op.MAX_REPEAT, _op.MIN_REPEAT}
_LETTERS = {_op.LITERAL, _op.NOT_LITERAL, _op.ANY, _op.IN}
_AHEAD = {_op.ASSERT, _op.ASSERT_NOT}
_Node = tuple[Any, Any]


class NamePattern:
    """A regular expression that matches as `re.match` does, and is safe even if it is hostile.

    Fails if it is not a regular expression, or has a part of a kind that is not read.
    """

    def __init__(self, text: str) -> None:
        if len(text) > _MAX_LETTERS:
            msg = f"{short_repr(text)} has more than {_MAX_LETTERS} letters"
            raise MemdescError(msg)
        try:
            found = _tree.parse(text)
        except (re.error, RecursionError, OverflowError) as error:
            msg = f"{short_repr(text)} is not a regular expression: {error}"
            raise MemdescError(msg) from None
        problem = "flags" if found.state.flags != re.UNICODE else _problem(found, 0)
        if problem:
            msg = f"{short_repr(text)} has {problem}, which are not read in files of others"
            raise MemdescError(msg)
        self._nodes: Sequence[_Node] = list(found)

    def matches(self, name: str) -> bool:
        """Whether it matches at the start of a name.

        Fails if the name is too long.
        """
        if len(name) > _MAX_NAME:
            msg = f"{short_repr(name)} has more than {_MAX_NAME} letters, and is not compared"
            raise MemdescError(msg)
        return bool(_ends(self._nodes, 1, _text(name)))


def _problem(nodes: Iterable[_Node], depth: int) -> str:
    """Return the part of an expression that is not read; empty if there is none."""
    for op, value in nodes:
        if op in _REPEATS:
            found = _problem(value[2], depth + 1)
        elif op in _AHEAD and value[0] > 0:
            found = _problem(value[1], depth + 1)
        elif op is _op.SUBPATTERN:
            _, more, less, part = value
            found = "flags" if more or less else _problem(part, depth)
        elif op is _op.BRANCH:
            parts = (_problem(part, depth) for part in value[1])
            found = next(filter(None, parts), "")
        else:
            is_read = op in _LETTERS or (op is _op.AT and value in _PLACES)
            found = "" if is_read else f"parts of the kind {str(op).lower()}"
        if depth > _MAX_DEPTH:
            found = f"more than {_MAX_DEPTH} repeats or lookaheads in each other"
        if found:
            return found
    return ""


class _Text(NamedTuple):
    """A name: its length, and for each letter an integer with a bit for each of its places."""

    size: int
    letters: Mapping[str, int]

    def where(self, node: _Node) -> int:
        """Return the places of the letters that a part of an expression matches."""
        if node[0] is _op.LITERAL:
            return self.letters.get(chr(node[1]), 0)
        return sum(bits for letter, bits in self.letters.items() if _is_in(node, letter))


@lru_cache(maxsize=16)  # one name is compared with several expressions
def _text(name: str) -> _Text:
    letters: dict[str, int] = {}
    for k, letter in enumerate(name):
        letters[letter] = letters.get(letter, 0) | 1 << k
    return _Text(len(name), letters)


def _ends(nodes: Iterable[_Node], places: int, text: _Text) -> int:
    """Return the places at which a sequence that starts at one of `places` can end."""
    for op, value in nodes:
        if not places:
            break
        if op in _LETTERS:
            places = (places & text.where((op, value))) << 1
        elif op in _REPEATS:
            places = _repeat(value, places, text)
        elif op is _op.SUBPATTERN:
            places = _ends(value[3], places, text)
        elif op is _op.BRANCH:
            start, places = places, 0
            for part in value[1]:
                places |= _ends(part, start, text)
        elif op is _op.AT:
            places &= _PLACES[value](text)
        else:
            is_wanted = op is _op.ASSERT
            places = sum(
                bit for bit in _bits(places) if bool(_ends(value[1], bit, text)) == is_wanted
            )
    return places


def _repeat(value: tuple[int, int, Sequence[_Node]], places: int, text: _Text) -> int:
    """Return the places at which a repeated part that starts at one of `places` can end."""
    least, most, part = value
    # after more rounds than letters, those that are left match nothing at all, again and again
    for _ in range(min(least, text.size + 2)):
        places = _ends(part, places, text)
    if most == _op.MAXREPEAT and len(part) == 1 and part[0][0] in _LETTERS:
        # the sum carries each place through the letters that follow it, as in Parabix's MatchStar
        letters = text.where(part[0])
        return ((places & letters) + letters) ^ letters | places
    new, left = places, most - least
    while new and left:
        new = _ends(part, new, text) & ~places
        places |= new
        left -= 1
    return places


def _bits(places: int) -> Iterator[int]:
    """Yield the places one by one, the first one first."""
    while places:
        bit = places & -places
        yield bit
        places ^= bit


def _is_in(node: _Node, letter: str) -> bool:
    """Whether a letter matches a part of an expression."""
    op, value = node
    if op is _op.ANY:
        return letter != "\n"
    if op is _op.NOT_LITERAL:
        return bool(ord(letter) != value)
    found = False
    for kind, each in value:
        if kind is _op.LITERAL:
            found |= ord(letter) == each
        elif kind is _op.RANGE:
            found |= each[0] <= ord(letter) <= each[1]
        elif kind is _op.CATEGORY:
            found |= _CLASSES[each].match(letter) is not None
    return bool(found != (value[0][0] is _op.NEGATE))


def _last(text: _Text) -> int:
    """Return where ``$`` matches: at the end, and before a line feed there."""
    return 1 << text.size | text.letters.get("\n", 0) & (1 << text.size >> 1)


def _edges(text: _Text) -> int:
    """Return the places at the edges of words."""
    words = text.where((_op.IN, [(_op.CATEGORY, _op.CATEGORY_WORD)]))
    return words ^ words << 1


# without \B: versions of Python differ in where it matches
_PLACES: Mapping[Any, Any] = {
    _op.AT_BEGINNING: lambda _: 1,
    _op.AT_BEGINNING_STRING: lambda _: 1,
    _op.AT_BOUNDARY: _edges,
    _op.AT_END: _last,
    _op.AT_END_STRING: lambda text: 1 << text.size,
}
