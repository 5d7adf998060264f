"""Regular expressions from files of others, which must not take long.

`re` backtracks: an expression of a few letters can take it years. One that repeats no group takes
at most as many steps as there are ways to place its repeats in a name and to choose among its
alternatives, so these are counted.
"""

from __future__ import annotations

import re
from math import comb

from memdesc import MemdescError
from memdesc.errors import short_repr

# the most steps that a name may take; expressions of real models need some thousands
_MAX_STEPS = 10**7
# an escape, a class, what a group begins with, a repeat, any other letter
_TOKENS = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\??|(?:[*+?]|\{\d*,?\d*\})[?+]?|.", re.DOTALL
)


class NamePattern:
    """A regular expression that matches as `re.match` does, and is refused if it could take long.

    Fails if it is not a regular expression, or repeats a group.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        try:
            self._found = re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:
            msg = f"{short_repr(text)} is not a regular expression: {error}"
            raise MemdescError(msg) from None
        self._repeats, self._choices = 0, 1
        groups, before = [1], ""
        for part in _TOKENS.findall(text):
            if part[0] in "*+?" or (part[0] == "{" and part[-1] != "{"):
                if before == ")" and part[0] != "?":
                    msg = (
                        f"{short_repr(text)} repeats a group, which is not read in files of others"
                    )
                    raise MemdescError(msg)
                self._repeats += 1
            elif part[0] == "(":
                groups.append(1)
            elif part == "|":
                groups[-1] += 1
            elif part == ")":
                self._choices *= groups.pop()
            before = part
        self._choices *= groups[0]

    def matches(self, name: str) -> bool:
        """Whether it matches at the start of a name. Fails if that could take long."""
        steps = comb(len(name) + self._repeats, self._repeats) * self._choices
        if steps > _MAX_STEPS:
            msg = (
                f"{short_repr(self._text)} could take {steps:.1g} steps to compare with a name of "
                f"{len(name)} letters; write it with fewer repeats and alternatives"
            )
            raise MemdescError(msg)
        return self._found.match(name) is not None
