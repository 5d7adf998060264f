"""TVM's strings, such as `NCHW16c`: the order of dims, each with at most one block."""

from __future__ import annotations

import re

from memdesc.errors import UnknownFormatError
from memdesc.names import onednn
from memdesc.tags import LETTERS, FormatTag, tag_of_digits

_BLOCK = "[0-9]{1,19}[a-z]"
TVM_STRING = rf"(?=.*[A-Z])(?:[A-Z]|{_BLOCK}|\[(?:{_BLOCK})+\])+"


def tag_of_string(text: str, called: str | None = None) -> tuple[FormatTag, str]:
    """Return the tag of a string such as `NCHW16c`, and the letters of its logical dims in order.

    `called` has these letters if the caller gave them.
    """
    if not re.fullmatch(TVM_STRING, text):
        raise UnknownFormatError(
            "it is NCHW16c, or OIHW[2i4o], or a lambda such as lambda a, b: [a, b // 4, b % 4], or "
            "T.S[(8, 4):(1, 8)]"
        )
    parts = [
        (int(block[:-1]), block[-1]) if block else (0, outer.lower())
        for outer, block in re.findall(rf"([A-Z])|({_BLOCK})", text)
    ]
    letters = _logical(called, [letter for extent, letter in parts if not extent])
    steps: dict[str, int] = {}
    for extent, letter in parts:
        if extent and (letter in steps or letter not in letters):
            raise UnknownFormatError(
                f"{extent}{letter} is not the first block of one of its dims; a string of TVM has "
                "at most one block for each dim; an index map can have more"
            )
        if extent:
            steps[letter] = extent
    digits = [
        ((letters.index(letter),), 1 if extent else steps.get(letter, 1), extent)
        for extent, letter in parts
    ]
    return tag_of_digits(digits), letters


def _logical(called: str | None, outer: list[str]) -> str:
    """Return the letters of the logical dims in order: given, alphabetical, or of a family."""
    alphabet = LETTERS[: len(outer)]
    families = (called, alphabet, None if called else onednn.VOCABULARY.family("".join(outer))[1])
    letters = next((own for own in families if own and sorted(own) == sorted(outer)), None)
    if letters is None:
        raise UnknownFormatError(
            f"it has the dims {', '.join(outer).upper()}; give letters, which are these "
            "in their logical order, each once"
        )
    return letters
