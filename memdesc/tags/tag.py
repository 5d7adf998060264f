"""FormatTag: the order of dims and their blocks; it writes its notation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from memdesc.checked import Checked
from memdesc.errors import MemdescError, short_repr
from memdesc.immutable import immutable
from memdesc.int64 import entries_of, exact_ints, exact_rows

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
    >>> import memdesc
    >>> memdesc.tags.parse_tag("aB8b").digits[1:]
    (Digit(axis=1, step=8, extent=0), Digit(axis=1, step=1, extent=8))
    """

    axis: int
    step: int
    extent: int

    def text(self, name: str) -> str:
        """Write the digit of an index of this name, such as ``b/8`` or ``b%8``.

        Examples
        --------
        >>> import memdesc
        >>> [digit.text("b") for digit in memdesc.tags.parse_tag("aB8b").digits[1:]]
        ['b/8', 'b%8']
        """
        whole = f"%{self.step * self.extent}" if self.extent else ""
        return f"{name}{whole}{f'/{self.step}' if self.step > 1 else ''}"


@immutable
@dataclass(frozen=True)
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
    >>> from memdesc.tags import parse_tag
    >>> parse_tag("aBcd16b").digits[-1]
    Digit(axis=1, step=1, extent=16)
    >>> str(parse_tag("aBcd16b"))
    'aBcd16b'
    """

    axes: tuple[tuple[int, ...], ...]
    digits: tuple[Digit, ...]
    align: tuple[int, ...]

    def __post_init__(self) -> None:
        try:
            axes = tuple(exact_ints("dims of axes", dims) for dims in entries_of("axes", self.axes))
        except TypeError:
            raise MemdescError(
                f"axes must be a tuple of tuples, not {short_repr(self.axes)}"
            ) from None
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "digits", exact_rows("digits", Digit, self.digits))
        object.__setattr__(self, "align", exact_ints("align", self.align))
        if not (self._are_axes_legal() and self._are_digits_legal()):
            raise MemdescError(
                f"not a tag: axes {short_repr(self.axes)} must be a sorted partition of the dims, "
                f"and digits {short_repr(self.digits)} must divide each down to step 1"
            )

    def _are_axes_legal(self) -> bool:
        """Whether the axes are a sorted partition of the dims, each with an alignment."""
        dims = sorted(dim for axis in self.axes for dim in axis)
        return (
            dims == list(range(min(len(dims), MAX_NDIMS)))
            and all(self.axes)
            and list(self.axes) == sorted(self.axes)
            and len(self.align) == len(self.axes)
            and min(self.align, default=0) >= 1
        )

    def _are_digits_legal(self) -> bool:
        """Whether the digits of each axis divide its outer step down to 1.

        The loop goes axis by axis: the outer digit, then the others, largest step first. Each
        of these must divide the step before it exactly.
        """
        step, axis = 1, -1
        for digit in sorted(self.digits, key=lambda d: (d.axis, d.extent != 0, -d.step)):
            if digit.axis == axis:
                is_legal = digit.extent > 1 and digit.step * digit.extent == step
            else:
                is_legal = step == 1 and digit.axis == axis + 1 and digit.extent == 0
            if not is_legal or digit.step < 1:
                return False
            step, axis = digit.step, digit.axis
        return step == 1 and axis == len(self.axes) - 1

    @cached_property
    def ndims(self) -> int:
        """Number of logical dims."""
        return sum(len(dims) for dims in self.axes)

    @cached_property
    def block_sizes(self) -> tuple[int, ...]:
        """The product of the inner extents of each axis."""
        sizes = [1] * len(self.axes)
        for digit in self.digits:
            sizes[digit.axis] *= digit.extent or 1
        return tuple(sizes)

    def memory_order(self, letters: str = LETTERS) -> str:
        """Write what the elements are ordered by, outermost first.

        Parameters
        ----------
        letters : str
            What to call the dims.

        Examples
        --------
        >>> import memdesc
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
            elif digit.axis in nested:
                parts.append(f"{digit.extent}{name}")
            else:
                parts.append(f"{digit.extent}{name}/{digit.step}.")
        # the `.` after a step is needed only before a number
        text = re.sub(r"\.(?![0-9])", "", "".join(parts))
        for dims, align in zip(self.axes, self.align, strict=True):
            text += f"__{axis_name(dims, letters)}{align}" if align > 1 else ""
        return text


def axis_name(dims: tuple[int, ...], letters: str) -> str:
    """Return the letters of the dims of an axis, in parentheses if there are several."""
    name = "".join(letters[dim] for dim in dims)
    return f"({name})" if len(dims) > 1 else name


def check_letters(letters: str, ndims: int) -> None:
    """Refuse anything but a different letter for each dim."""
    if not isinstance(letters, str) or len(letters) != ndims or len(set(letters)) != ndims:
        raise MemdescError(
            f"letters {short_repr(letters)} must name {ndims} dims, each by a different letter"
        )
