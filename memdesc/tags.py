"""FormatTag: how a layout is cut and ordered, sizes unknown; text to value and back.

The text is oneDNN's notation (`aBcd16b`: letter k is logical dim k, upper case
where the dim is blocked, then `<extent><letter>` from the outermost inner block
to the innermost) with four additions for layouts it cannot say:

* `(cd)` is one axis made of several dims, its index row-major over them;
* `4a/1` says the step of a digit, (index / step) % extent, where an axis's
  digits are not in falling order (`.` parts it from a number that follows);
* an inner digit may stand before an outer letter;
* `__b8` at the end rounds the extent of an axis up to a multiple.

Over 300 lines: the notation is written and read here, and nowhere else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import NamedTuple

from memdesc.errors import MemdescError, UnknownFormatError, short_repr
from memdesc.int64 import INT64_MAX

__all__ = ["LETTERS", "MAX_NDIMS", "Digit", "FormatTag", "count_digits", "parse_tag"]

MAX_NDIMS = 12
LETTERS = "abcdefghijkl"

# No tag of a tensor that int64 can count is longer: it has at most 63 blocks.
_MAX_TEXT = 4096

# compiled when first used, as all patterns here: most of what importing them would cost
_PIECE = r"(?P<extent>[0-9]{0,18})(?P<axis>[A-Za-z]|\([A-Za-z]+\))(?:/(?P<step>[0-9]{1,18})\.?)?"
_ALIGN = r"__(?P<axis>[a-z]|\([a-z]+\))(?P<align>[0-9]{1,18})"


class Digit(NamedTuple):
    """One place of a mixed-radix index: (index of axis / step) % extent.

    An extent of 0 is the rest: the outer digit, which counts whole blocks.
    """

    axis: int
    step: int
    extent: int


@dataclass(frozen=True)
class FormatTag:
    """A format without sizes: axes, and their digits in memory order.

    Parameters
    ----------
    axes : tuple of tuple of int
        The dims of each axis, nearly always one each.
    digits : tuple of Digit
        Outermost in memory first. Each axis has one outer digit (extent 0); its
        other digits cut the step of that one completely.
    align : tuple of int
        For each axis, the multiple that its padded extent is rounded up to, in
        addition to whole blocks; 1 where nothing is asked.

    Raises
    ------
    MemdescError
        If a rule above is broken.

    Examples
    --------
    >>> from memdesc import parse_tag
    >>> parse_tag("aBcd16b").digits[-1]
    Digit(axis=1, step=1, extent=16)
    >>> str(parse_tag("aBcd16b"))
    'aBcd16b'
    """

    axes: tuple[tuple[int, ...], ...]
    digits: tuple[Digit, ...]
    align: tuple[int, ...]

    def __post_init__(self) -> None:
        dims = sorted(dim for axis in self.axes for dim in axis)
        legal = (
            dims == list(range(min(len(dims), MAX_NDIMS)))
            and all(self.axes)
            and list(self.axes) == sorted(self.axes)
        )
        legal = legal and len(self.align) == len(self.axes) and min(self.align, default=0) >= 1
        # falling steps, and before its equals the outer digit: all others must cut its step down to 1
        step, axis = 1, -1
        for digit in sorted(self.digits, key=lambda d: (d.axis, d.extent != 0, -d.step)):
            if digit.axis == axis:
                legal = (
                    legal
                    and digit.extent > 1
                    and digit.step >= 1
                    and digit.step * digit.extent == step
                )
            else:
                legal = (
                    legal
                    and step == 1
                    and digit.axis == axis + 1
                    and digit.extent == 0
                    and digit.step >= 1
                )
            step, axis = digit.step, digit.axis
        if not legal or step != 1 or axis != len(self.axes) - 1:
            msg = (
                f"no tag: axes {short_repr(self.axes)} must part the dims, sorted, "
                f"and digits {short_repr(self.digits)} cut each down to step 1"
            )
            raise MemdescError(msg)

    @cached_property
    def ndims(self) -> int:
        """Number of logical dims."""
        return sum(len(dims) for dims in self.axes)

    @cached_property
    def block_sizes(self) -> tuple[int, ...]:
        """For each axis, the product of its inner extents."""
        sizes = [1] * len(self.axes)
        for digit in self.digits:
            sizes[digit.axis] *= digit.extent or 1
        return tuple(sizes)

    def __str__(self) -> str:
        parts = []
        for digit in self.digits:
            name = _axis_name(self.axes[digit.axis])
            if not digit.extent:
                parts.append(name.upper() if digit.step > 1 else name)
            elif self._falls(digit.axis):
                parts.append(f"{digit.extent}{name}")
            else:
                parts.append(f"{digit.extent}{name}/{digit.step}.")
        text = re.sub(r"\.(?![0-9])", "", "".join(parts))
        for dims, align in zip(self.axes, self.align, strict=True):
            text += f"__{_axis_name(dims)}{align}" if align > 1 else ""
        return text

    def _falls(self, axis: int) -> bool:
        """Whether the steps of an axis fall from the outside in, as nested blocks do."""
        steps = [digit.step for digit in self.digits if digit.axis == axis]
        return steps == sorted(steps, reverse=True)


def _axis_name(dims: tuple[int, ...]) -> str:
    name = "".join(LETTERS[dim] for dim in dims)
    return f"({name})" if len(dims) > 1 else name


def parse_tag(text: str, letters: str = LETTERS) -> FormatTag:
    """Read the canonical notation of a tag.

    Parameters
    ----------
    text : str
        Such as ``"aBcd16b"`` or ``"ABcd4b16a4b"``. A block of 1 is dropped, as
        oneDNN does.
    letters : str
        ``letters[k]`` stands for logical dim k.

    Raises
    ------
    UnknownFormatError
        If the text breaks a rule; the message says which, and where.

    Examples
    --------
    >>> import memdesc
    >>> memdesc.parse_tag("aBcd16c")
    Traceback (most recent call last):
        ...
    memdesc.errors.UnknownFormatError: 'aBcd16c', at character 5: block 16c, but dim c is lower-case in 'aBcd'; blocked dims are upper-case
    """
    if not isinstance(text, str):
        msg = f"a tag is a text such as 'aBcd16b', not {short_repr(text)}"  # type: ignore[unreachable] # callers without types
        raise UnknownFormatError(msg)
    if len(text) > _MAX_TEXT:
        msg = f"{short_repr(text)}: a tag has at most {_MAX_TEXT} characters"
        raise UnknownFormatError(msg)
    return _parse(text, letters)


def count_digits(part: str) -> int | None:
    """Return how many digits a part of a tag stands for; None if it is no run of whole tokens."""
    tokens = list(re.finditer(_PIECE, part))
    if sum(len(token[0]) for token in tokens) < len(part):
        return None
    return sum(1 for token in tokens if token["extent"] != "1")


@lru_cache(maxsize=4096)
def _parse(text: str, letters: str) -> FormatTag:
    return _Reader(text, letters).read()


class _Piece(NamedTuple):
    """One token of a tag: an outer letter (extent None) or a block."""

    at: int
    text: str
    dims: tuple[int, ...]
    upper: bool
    extent: int | None
    step: int | None


class _Reader:
    """One pass over the text of a tag; every refusal says the character."""

    def __init__(self, text: str, letters: str) -> None:
        self.text = text
        self.letters = letters
        body, *_ = text.partition("__")
        self.body = body
        self.pieces = self._pieces()
        self.outer = {piece.dims: piece for piece in self.pieces if piece.extent is None}

    def error(self, at: int, reason: str) -> UnknownFormatError:
        return UnknownFormatError(f"{short_repr(self.text)}, at character {at + 1}: {reason}")

    def read(self) -> FormatTag:
        self._check_outer()
        axes = tuple(sorted(self.outer))
        index = {dims: k for k, dims in enumerate(axes)}
        digits = []
        for piece, step in zip(self.pieces, self._steps(), strict=True):
            if piece.extent != 1:
                digits.append(Digit(index[piece.dims], step, piece.extent or 0))
        align = [1] * len(axes)
        for dims, count in self._aligns().items():
            align[index[dims]] = count
        return FormatTag(axes, tuple(digits), tuple(align))

    def _dims(self, at: int, name: str) -> tuple[int, ...]:
        dims = []
        for letter in name.strip("()").lower():
            if letter not in self.letters:
                raise self.error(
                    at, f"no dim is called {letter!r}; the dims are {', '.join(self.letters)}"
                )
            dims.append(self.letters.index(letter))
        return tuple(dims)

    def _pieces(self) -> list[_Piece]:
        pieces = []
        at = 0
        while at < len(self.body):
            match = re.compile(_PIECE).match(self.body, at)
            if match is None:
                raise self.error(
                    at,
                    f"expected a letter or a block such as 16b, found {self.body[at : at + 24]!r}",
                )
            name, extent, step = match["axis"], match["extent"], match["step"]
            dims = self._dims(at, name)
            if extent and (int(extent) == 0 or (step and int(step) == 0)):
                raise self.error(at, f"block {match[0]} has a size of zero")
            if extent and not name.islower():
                raise self.error(
                    at,
                    (
                        f"block {match[0]} names its dim in upper case; "
                        f"blocks are written {match[0].lower()}"
                    ),
                )
            if step and not extent:
                raise self.error(at, f"{short_repr(match[0])} gives a step to an outer letter")
            upper = name.isupper()
            if not upper and not name.islower():
                raise self.error(at, f"{short_repr(name)} mixes upper and lower case")
            pieces.append(
                _Piece(
                    at,
                    match[0],
                    dims,
                    upper,
                    int(extent) if extent else None,
                    int(step) if step else None,
                )
            )
            at = match.end()
        return pieces

    def _check_outer(self) -> None:
        names = [letter for piece in self.pieces if piece.extent is None for letter in piece.dims]
        for piece in self.pieces:
            if piece.extent is None and any(names.count(dim) > 1 for dim in piece.dims):
                raise self.error(
                    piece.at, f"dim {self._name(piece.dims)} stands twice among the outer letters"
                )
        if not names:
            raise self.error(0, "a tag starts with the letters of its dims, such as 'abcd'")
        missing = sorted(set(range(max(names) + 1)) - set(names))
        if missing or (self.letters != LETTERS and len(names) != len(self.letters)):
            absent = self.letters[missing[0] if missing else max(names) + 1]
            raise self.error(
                0, f"the dims run from {self.letters[0]!r} without a gap, but {absent!r} is missing"
            )
        blocked = set()
        for piece in self.pieces:
            if piece.extent is None:
                continue
            blocked.add(piece.dims)
            name = self._name(piece.dims)
            if piece.dims not in self.outer:
                raise self.error(
                    piece.at, f"block {piece.text}, but there is no outer letter for {name}"
                )
            if not self.outer[piece.dims].upper:
                outer = "".join(other.text for other in self.outer.values())
                reason = (
                    f"block {piece.text}, but dim {name} is lower-case in {outer!r}; "
                    "blocked dims are upper-case"
                )
                raise self.error(piece.at, reason)
        for dims, piece in self.outer.items():
            if piece.upper and dims not in blocked:
                raise self.error(
                    piece.at, f"dim {self._name(dims)} is upper-case, but no block of it follows"
                )

    def _name(self, dims: tuple[int, ...]) -> str:
        name = "".join(self.letters[dim] for dim in dims)
        return f"({name})" if len(dims) > 1 else name

    def _steps(self) -> list[int]:
        """Return the steps of all pieces: written ones checked, others by nesting."""
        steps = [0] * len(self.pieces)
        for dims in self.outer:
            own = [k for k, piece in enumerate(self.pieces) if piece.dims == dims]
            inner = [k for k in own if self.pieces[k].extent is not None]
            written = [k for k in inner if self.pieces[k].step is not None]
            if written and len(written) != len(inner):
                piece = self.pieces[written[0]]
                raise self.error(
                    piece.at, f"some blocks of dim {self._name(dims)} give a step and some do not"
                )
            if written:
                inner.sort(
                    key=lambda k: (-(self.pieces[k].step or 0), -(self.pieces[k].extent or 0))
                )
            step = 1
            for k in reversed(inner):
                piece = self.pieces[k]
                if piece.step not in (None, step):
                    raise self.error(
                        piece.at,
                        (
                            f"step {piece.step} of dim {self._name(dims)}: "
                            f"the blocks inside make {step}"
                        ),
                    )
                steps[k] = step
                step *= piece.extent or 1
                if step > INT64_MAX:
                    raise self.error(
                        piece.at,
                        f"the blocks of dim {self._name(dims)} multiply to more than int64 holds",
                    )
            steps[next(k for k in own if k not in inner)] = prod(
                self.pieces[k].extent or 1 for k in inner
            )
        return steps

    def _aligns(self) -> dict[tuple[int, ...], int]:
        found: dict[tuple[int, ...], int] = {}
        at = len(self.body)
        while at < len(self.text):
            match = re.compile(_ALIGN).match(self.text, at)
            dims = self._dims(at, match["axis"]) if match else ()
            if match is None or dims not in self.outer or dims in found or int(match["align"]) == 0:
                raise self.error(
                    at,
                    (
                        "expected an alignment such as __b8, once for each axis, "
                        f"found {self.text[at : at + 24]!r}"
                    ),
                )
            found[dims] = int(match["align"])
            at = match.end()
        return found
