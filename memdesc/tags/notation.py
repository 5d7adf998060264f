"""Parse the canonical notation of a tag, such as `aBcd16b`; the package explains it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from memdesc.errors import UnknownFormatError, excerpt, short_repr
from memdesc.int64 import INT64_MAX
from memdesc.tags.tag import LETTERS, Digit, FormatTag

# A tag of a tensor whose elements int64 can count is shorter: it has at most 63 blocks.
_MAX_TEXT = 4096

# Patterns are compiled on first use: compiling them here would take most of the import time.
# An outer letter has neither an extent nor a step; numbers of 19 digits may fit int64.
_LETTER_OR_BLOCK = (
    r"(?P<extent>[0-9]{0,19})(?P<axis>[A-Za-z]|\([A-Za-z]+\))(?:/(?P<step>[0-9]{1,19})\.?)?"
)
_ALIGN = r"__(?P<axis>[a-z]|\([a-z]+\))(?P<align>[0-9]{1,19})"


def parse_tag(text: str, letters: str = LETTERS) -> FormatTag:
    """Read the canonical notation of a tag.

    Parameters
    ----------
    text : str
        Such as ``"aBcd16b"`` or ``"ABcd4b16a4b"``. Blocks of 1 are dropped, as in oneDNN.
    letters : str
        ``letters[k]`` stands for logical dim k.

    Raises
    ------
    UnknownFormatError
        If a rule of the notation is broken; the message names the rule and the character.

    Examples
    --------
    >>> import memdesc
    >>> memdesc.tags.parse_tag("aBcd16c")
    Traceback (most recent call last):
        ...
    memdesc.errors.UnknownFormatError: 'aBcd16c', at character 5: block 16c, \
but dim c is lower-case in 'aBcd'; blocked dims are upper-case
    """
    if not isinstance(text, str):
        raise UnknownFormatError(f"a tag is a string such as 'aBcd16b', not {short_repr(text)}")
    if len(text) > _MAX_TEXT:
        raise UnknownFormatError(f"{short_repr(text)}: a tag has at most {_MAX_TEXT} characters")
    if not isinstance(letters, str) or len(letters) > len(LETTERS):
        raise UnknownFormatError(
            f"letters must be a string of at most {len(LETTERS)}, not {short_repr(letters)}"
        )
    return _parse(text, letters)


def count_digits(part: str) -> int | None:
    """Return the number of digits in a part of a tag; None if it is not made of whole tokens."""
    tokens = list(re.finditer(_LETTER_OR_BLOCK, part))
    if sum(len(token[0]) for token in tokens) < len(part):
        return None
    return sum(1 for token in tokens if token["extent"] != "1")


@lru_cache(maxsize=4096)
def _parse(text: str, letters: str) -> FormatTag:
    return _Parser(text, letters).parse()


class _Token(NamedTuple):
    """An outer letter (extent None), or a block; `at` counts characters from 0."""

    at: int
    text: str
    dims: tuple[int, ...]
    is_upper: bool
    extent: int | None
    step: int | None


class _Parser:
    """Reads tokens, checks the rules, then computes steps; each error gives the character."""

    def __init__(self, text: str, letters: str) -> None:
        self.text = text
        self.letters = letters
        self.body = text.partition("__")[0]
        self.tokens = self._tokens()
        self.outer = {token.dims: token for token in self.tokens if token.extent is None}
        self.blocks = [token for token in self.tokens if token.extent is not None]

    def parse(self) -> FormatTag:
        self._check_outer_letters()
        self._check_blocks()
        axes = tuple(sorted(self.outer))
        index = {dims: k for k, dims in enumerate(axes)}
        steps = {token.at: step for dims in self.outer for token, step in self._steps(dims)}
        digits = tuple(
            Digit(index[token.dims], steps[token.at], token.extent or 0)
            for token in self.tokens
            if token.extent != 1
        )
        align = [1] * len(axes)
        for dims, count in self._alignments().items():
            align[index[dims]] = count
        return FormatTag(axes, digits, tuple(align))

    def error(self, at: int, reason: str) -> UnknownFormatError:
        return UnknownFormatError(f"{short_repr(self.text)}, at character {at + 1}: {reason}")

    def _tokens(self) -> list[_Token]:
        tokens = []
        at = 0
        while at < len(self.body):
            match = re.compile(_LETTER_OR_BLOCK).match(self.body, at)
            if match is None:
                rest = excerpt(self.body[at:])
                raise self.error(at, f"expected a letter or a block such as 16b, found {rest}")
            tokens.append(self._token(match))
            at = match.end()
        return tokens

    def _token(self, match: re.Match[str]) -> _Token:
        at, name, extent, step = match.start(), match["axis"], match["extent"], match["step"]
        dims = self._dims(at, name)
        if extent and (int(extent) == 0 or (step and int(step) == 0)):
            raise self.error(at, f"block {match[0]} has a size of zero")
        if extent and not name.islower():
            reason = f"names its dim in upper case; blocks are written {match[0].lower()}"
            raise self.error(at, f"block {match[0]} {reason}")
        if step and not extent:
            raise self.error(at, f"{short_repr(match[0])} gives a step to an outer letter")
        if not (name.isupper() or name.islower()):
            raise self.error(at, f"{short_repr(name)} mixes upper and lower case")
        numbers = (int(number) if number else None for number in (extent, step))
        return _Token(at, match[0], dims, name.isupper(), *numbers)

    def _dims(self, at: int, name: str) -> tuple[int, ...]:
        dims = []
        for letter in name.strip("()").lower():
            if letter not in self.letters:
                reason = f"no dim is called {letter!r}; the dims are {', '.join(self.letters)}"
                raise self.error(at, reason)
            dims.append(self.letters.index(letter))
        return tuple(dims)

    def _name(self, dims: tuple[int, ...]) -> str:
        name = "".join(self.letters[dim] for dim in dims)
        return f"({name})" if len(dims) > 1 else name

    def _check_outer_letters(self) -> None:
        """Check that the outer letters are the first dims without a gap, each once."""
        outer = [token for token in self.tokens if token.extent is None]
        dims = [dim for token in outer for dim in token.dims]
        for token in outer:
            if any(dims.count(dim) > 1 for dim in token.dims):
                reason = f"dim {self._name(token.dims)} appears twice among the outer letters"
                raise self.error(token.at, reason)
        if not dims:
            raise self.error(0, "a tag starts with the letters of its dims, such as 'abcd'")
        missing = sorted(set(range(max(dims) + 1)) - set(dims))
        # an alias of oneDNN has all letters of its family
        if missing or (self.letters != LETTERS and len(dims) != len(self.letters)):
            absent = self.letters[missing[0] if missing else max(dims) + 1]
            first = self.letters[0]
            reason = f"the dims run from {first!r} without a gap, but {absent!r} is missing"
            raise self.error(0, reason)

    def _check_blocks(self) -> None:
        """Check that exactly the upper-case dims have blocks."""
        for token in self.blocks:
            name = self._name(token.dims)
            if token.dims not in self.outer:
                reason = f"block {token.text}, but there is no outer letter for {name}"
                raise self.error(token.at, reason)
            if not self.outer[token.dims].is_upper:
                outer = "".join(other.text for other in self.outer.values())
                reason = f"dim {name} is lower-case in {outer!r}; blocked dims are upper-case"
                raise self.error(token.at, f"block {token.text}, but {reason}")
        blocked = {token.dims for token in self.blocks}
        for dims, token in self.outer.items():
            if token.is_upper and dims not in blocked:
                reason = f"dim {self._name(dims)} is upper-case, but no block of it follows"
                raise self.error(token.at, reason)

    def _steps(self, dims: tuple[int, ...]) -> list[tuple[_Token, int]]:
        """Return the tokens of an axis with their steps.

        The step of a block is the product of the blocks inside it: those that follow, or those
        with smaller steps if steps are written. Written steps are checked.
        """
        blocks = [token for token in self.blocks if token.dims == dims]
        written = [token for token in blocks if token.step is not None]
        if written and len(written) != len(blocks):
            reason = f"some blocks of dim {self._name(dims)} give a step and some do not"
            raise self.error(written[0].at, reason)
        if written:
            blocks.sort(key=lambda token: (-(token.step or 0), -(token.extent or 0)))
        steps = []
        step = 1
        for token in reversed(blocks):
            if token.step not in (None, step):
                reason = (
                    f"step {token.step} of dim {self._name(dims)}: the blocks inside make {step}"
                )
                raise self.error(token.at, reason)
            steps.append((token, step))
            step *= token.extent or 1
            if step > INT64_MAX:
                reason = f"the blocks of dim {self._name(dims)} multiply to more than int64 holds"
                raise self.error(token.at, reason)
        return [*steps, (self.outer[dims], step)]

    def _alignments(self) -> dict[tuple[int, ...], int]:
        """Return the multiple to which each aligned axis is rounded up."""
        aligned: dict[tuple[int, ...], int] = {}
        at = len(self.body)
        while at < len(self.text):
            match = re.compile(_ALIGN).match(self.text, at)
            dims = self._dims(at, match["axis"]) if match else ()
            if (
                match is None
                or dims not in self.outer
                or dims in aligned
                or int(match["align"]) == 0
            ):
                reason = "expected an alignment such as __b8, once for each axis"
                raise self.error(at, f"{reason}, found {excerpt(self.text[at:])}")
            aligned[dims] = int(match["align"])
            if aligned[dims] > INT64_MAX:
                reason = f"alignment {aligned[dims]} is more than int64 holds"
                raise self.error(at, reason)
            at = match.end()
        return aligned
