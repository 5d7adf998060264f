"""Tags: how dims are divided into blocks and ordered, without sizes; and their notation.

The notation is oneDNN's: in `aBcd16b` letter k is logical dim k, in upper case if the dim is
blocked; the inner blocks `<extent><letter>` follow, outermost first. Four additions describe
layouts that oneDNN's notation cannot:

* `(cd)` is one axis made of several dims, indexed row-major over them;
* `4a/1` gives the step of a digit, (index / step) % extent, if the steps of an axis's digits
  are not in descending order (`.` separates the step from a number that follows);
* an inner digit may come before an outer letter;
* `__b8` at the end rounds the extent of an axis up to a multiple of 8.

`str(tag)` writes this notation, `parse_tag` reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from memdesc.checked import Checked
from memdesc.errors import MemdescError, UnknownFormatError, excerpt, short_repr
from memdesc.immutable import immutable, value_class
from memdesc.int64 import INT64_MAX, checked_ints, entries_of, exact_rows
from memdesc.lazy import cached_property
from memdesc.tuples import NamedTuple

__all__ = [
    "LETTERS",
    "MAX_NDIMS",
    "Digit",
    "FormatTag",
    "axis_name",
    "check_letters",
    "count_digits",
    "parse_tag",
    "tag_of_digits",
]

MAX_NDIMS = 12
LETTERS = "abcdefghijkl"


@immutable
class Digit(NamedTuple):
    """One digit of a mixed-radix index: (index of axis / step) % extent.

    The outer digit, which counts whole blocks, is unbounded: its extent is 0.

    Parameters
    ----------
    axis : int
        Which of the tag's axes.
    step : int
        How many elements of the axis one step of this digit covers.
    extent : int
        How many values the digit has; 0 for the outer digit, which is unbounded.

    Examples
    --------
    >>> memdesc.tags.parse_tag("aB8b").digits[1:]
    (Digit(axis=1, step=8, extent=0), Digit(axis=1, step=1, extent=8))
    """

    axis: int
    step: int
    extent: int

    def text(self, name: str) -> str:
        """Write the digit of an index of this name, such as ``b/8`` or ``b%8``.

        >>> [digit.text("b") for digit in memdesc.tags.parse_tag("aB8b").digits[1:]]
        ['b/8', 'b%8']
        """
        whole = f"%{self.step * self.extent}" if self.extent else ""
        return f"{name}{whole}{f'/{self.step}' if self.step > 1 else ''}"


@value_class
class FormatTag(Checked):
    """A layout without sizes: axes, and their digits in memory order.

    Parameters
    ----------
    axes : tuple of tuple of int
        The dims of each axis, nearly always one each.
    digits : tuple of Digit
        Outermost in memory first. Each axis has one outer digit (extent 0), whose step the
        other digits divide down to 1.
    align : tuple of int
        For each axis, the multiple to which its padded extent is rounded up, in addition to whole
        blocks; 1 for no alignment.

    Raises
    ------
    MemdescError
        If a rule above is broken.

    Examples
    --------
    >>> str(memdesc.tags.parse_tag("aBcd16b")), memdesc.tags.parse_tag("aBcd16b").block_sizes
    ('aBcd16b', (1, 16, 1, 1))
    """

    axes: tuple[tuple[int, ...], ...]
    digits: tuple[Digit, ...]
    align: tuple[int, ...]

    def __post_init__(self) -> None:
        try:
            entries = entries_of("axes", self.axes)
        except TypeError:
            raise MemdescError(
                f"axes must be a tuple of tuples, not {short_repr(self.axes)}"
            ) from None
        axes = tuple(checked_ints("dims of axes", dims) for dims in entries)
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "digits", exact_rows("digits", Digit, self.digits))
        object.__setattr__(self, "align", checked_ints("align", self.align))
        if not (self._are_axes_legal() and self._are_digits_legal()):
            raise MemdescError(
                f"not a tag: axes {short_repr(self.axes)} must be a sorted partition of the dims, "
                f"and digits {short_repr(self.digits)} must divide each down to step 1"
            )

    def _are_axes_legal(self) -> bool:
        """Whether the axes are a sorted partition of the dims, each with an alignment."""
        return (
            is_partition(self.axes, min(self.ndims, MAX_NDIMS))
            and len(self.align) == len(self.axes)
            and min(self.align, default=0) >= 1
        )

    def _are_digits_legal(self) -> bool:
        """Whether the digits of each axis divide its outer step down to 1."""
        covered = [1] * len(self.axes)
        # smallest step first; then the outer digits, whose extent of 0 makes the product 0
        for axis, step, extent in sorted(self.digits, key=lambda d: (d.extent == 0, d.step)):
            is_digit = axis in range(len(covered)) and step == covered[axis]
            if not is_digit or extent == 1 or extent < 0:
                return False
            covered[axis] *= extent
        return not any(covered)

    @cached_property
    def ndims(self) -> int:
        """Number of logical dims."""
        return sum(len(dims) for dims in self.axes)

    @cached_property
    def block_sizes(self) -> tuple[int, ...]:
        """The product of the inner extents of each axis."""
        return tuple(digit.step for digit in sorted(self.digits) if not digit.extent)

    def memory_order(self, letters: str = LETTERS) -> str:
        """Write the loops that order the elements in memory, outermost first.

        Parameters
        ----------
        letters : str
            What to call the dims.

        Examples
        --------
        >>> memdesc.tags.parse_tag("aBcd16b").memory_order("bfyx")
        'b, f/16, y, x, f%16'
        """
        return ", ".join(
            digit.text(axis_name(self.axes[digit.axis], letters)) for digit in self.digits
        )

    def __str__(self) -> str:
        return self.spelled(LETTERS)

    def spelled(self, letters: str) -> str:
        """Write the tag with other letters for the dims."""
        # axes whose steps descend from the outside in, like those of nested blocks
        steps = [[d.step for d in self.digits if d.axis == k] for k in range(len(self.axes))]
        nested = {k for k, own in enumerate(steps) if own == sorted(own, reverse=True)}
        parts = []
        for digit in self.digits:
            name = axis_name(self.axes[digit.axis], letters)
            if not digit.extent:
                parts.append(name.upper() if digit.step > 1 else name)
            else:
                step = "" if digit.axis in nested else f"/{digit.step}."
                parts.append(f"{digit.extent}{name}{step}")
        # the `.` after a step is needed only before a number
        text = re.sub(r"\.(?![0-9])", "", "".join(parts))
        for dims, align in zip(self.axes, self.align, strict=True):
            text += f"__{axis_name(dims, letters)}{align}" if align > 1 else ""
        return text


def is_partition(axes: Sequence[tuple[int, ...]], ndims: int) -> bool:
    """Whether the axes are a sorted partition of the first `ndims` dims, none of them empty."""
    dims = sorted(dim for axis in axes for dim in axis)
    return dims == [*range(ndims)] and all(axes) and [*axes] == sorted(axes)


def tag_of_digits(
    digits: Iterable[tuple[tuple[int, ...], int, int]],
    align: Mapping[tuple[int, ...], int] = MappingProxyType({}),
) -> FormatTag:
    """Return the tag of digits, outermost first.

    Each has the dims of its axis, its step, and its extent, 0 if unbounded; one of 1 is left out.
    """
    read = [digit for digit in digits if digit[2] != 1]
    axes = tuple(sorted({dims for dims, _, _ in read}))
    made = tuple(Digit(axes.index(dims), step, extent) for dims, step, extent in read)
    return FormatTag(axes, made, tuple(align.get(dims, 1) for dims in axes))


def axis_name(dims: tuple[int, ...], letters: str) -> str:
    """Return the letters of the dims of an axis, in parentheses if there are several."""
    name = "".join(letters[dim] for dim in dims)
    return f"({name})" if len(dims) > 1 else name


def check_letters(letters: object, ndims: int | None) -> str:
    """Return a different letter for each dim, of `LETTERS` the first; refuse anything else."""
    own = letters if isinstance(letters, str) and letters.isascii() and letters.isalpha() else ""
    own = LETTERS[:ndims] if own == LETTERS else own
    if not own or len(own) != len({*own}) or ndims not in {None, len(own)}:
        count = "" if ndims is None else f"{ndims} "
        raise MemdescError(
            f"letters {short_repr(letters)} must be {count}different letters, one for each dim"
        )
    return own


# A tag of a tensor whose elements int64 can count is shorter: it has at most 63 blocks.
_MAX_TEXT = 4096

# Patterns are compiled on first use: compiling them here would take most of the import time.
# Extent, axis and step; an outer letter has only an axis. Numbers of 19 digits may fit int64.
_LETTER_OR_BLOCK = r"([0-9]{0,19})([A-Za-z]|\([A-Za-z]+\))(?:/([0-9]{1,19})\.?)?"
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
    return sum(1 for token in tokens if token[1] != "1")


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
        self.tokens = list(self._tokens())
        self.outer = {token.dims: token for token in self.tokens if token.extent is None}
        self.blocks = [token for token in self.tokens if token.extent is not None]

    def parse(self) -> FormatTag:
        if fault := next(self._faults(), None):
            raise self.error(*fault)
        steps = {token.at: step for dims in sorted(self.outer) for token, step in self._steps(dims)}
        digits = ((token.dims, steps[token.at], token.extent or 0) for token in self.tokens)
        return tag_of_digits(digits, self._alignments())

    def error(self, at: int, reason: str) -> UnknownFormatError:
        return UnknownFormatError(f"{short_repr(self.text)}, at character {at + 1}: {reason}")

    def _tokens(self) -> Iterator[_Token]:
        at = 0
        while at < len(self.body):
            match = re.compile(_LETTER_OR_BLOCK).match(self.body, at)
            if match is None:
                rest = excerpt(self.body[at:])
                raise self.error(at, f"expected a letter or a block such as 16b, found {rest}")
            extent, name, step = match.groups()
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
            yield _Token(at, match[0], dims, name.isupper(), *numbers)
            at = match.end()

    def _dims(self, at: int, name: str) -> tuple[int, ...]:
        names = name.strip("()").lower()
        if unknown := next((letter for letter in names if letter not in self.letters), ""):
            reason = f"no dim is called {unknown!r}; the dims are {', '.join(self.letters)}"
            raise self.error(at, reason)
        return tuple(map(self.letters.index, names))

    def _name(self, dims: tuple[int, ...]) -> str:
        return axis_name(dims, self.letters)

    def _faults(self) -> Iterator[tuple[int, str]]:
        """Yield outer letters that are not the first dims, or upper-case but not blocked."""
        dims = [dim for own in self.tokens if own.extent is None for dim in own.dims]
        for token in self.tokens:
            if token.extent is None and any(dims.count(dim) > 1 for dim in token.dims):
                name = self._name(token.dims)
                yield token.at, f"dim {name} appears twice among the outer letters"
        if not dims:
            yield 0, "a tag starts with the letters of its dims, such as 'abcd'"
        # an alias of oneDNN has all letters of its family
        count = max(dims) + 1 if self.letters == LETTERS else len(self.letters)
        if missing := [self.letters[dim] for dim in range(count) if dim not in dims]:
            reason = f"from {self.letters[0]!r} without a gap, but {missing[0]!r} is missing"
            yield 0, f"the dims run {reason}"
        for token in self.blocks:
            what, name = f"block {token.text}, but", self._name(token.dims)
            if token.dims not in self.outer:
                yield token.at, f"{what} there is no outer letter for {name}"
            if not self.outer[token.dims].is_upper:
                outer = "".join(other.text for other in self.outer.values())
                reason = f"is lower-case in {outer!r}; blocked dims are upper-case"
                yield token.at, f"{what} dim {name} {reason}"
        blocked = {token.dims for token in self.blocks}
        for own, token in self.outer.items():
            if token.is_upper and own not in blocked:
                name = self._name(own)
                yield token.at, f"dim {name} is upper-case, but no block of it follows"

    def _steps(self, dims: tuple[int, ...]) -> list[tuple[_Token, int]]:
        """Return the tokens of an axis, each with its step.

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
                reason = f"dim {self._name(dims)}: the blocks inside make {step}"
                raise self.error(token.at, f"step {token.step} of {reason}")
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
            is_first = dims in self.outer and dims not in aligned
            if match is None or not is_first or int(match["align"]) == 0:
                reason = "expected an alignment such as __b8, once for each axis"
                raise self.error(at, f"{reason}, found {excerpt(self.text[at:])}")
            aligned[dims] = int(match["align"])
            if aligned[dims] > INT64_MAX:
                raise self.error(at, f"alignment {aligned[dims]} is more than int64 holds")
            at = match.end()
        return aligned
