"""The error classes of memdesc and reorder.

There is one base class, and a subclass only where a caller would branch on it.
"""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

P = ParamSpec("P")
R = TypeVar("R")

# Characters of a value in a message: about a line of a terminal, so the reason stays visible.
_MAX_REPR = 120
# Characters of the wrong part of a string.
_MAX_EXCERPT = 24
# numbers between dots
_NUMBERS = re.compile(r"(?<![^.])[0-9]+(?![^.])")


class MemdescError(ValueError):
    """Base class of all errors that memdesc and reorder raise for bad input."""


class UnknownFormatError(MemdescError):
    """A string is not a format name in any vocabulary."""


class UnsupportedFormatError(MemdescError):
    """A name is known, but does not name a layout of elements."""


class NotBlockedError(MemdescError):
    """One of oneDNN's fields was requested for a layout that these fields cannot describe."""


class OutOfRangeError(MemdescError, IndexError):
    """An index is out of range; also an IndexError, which ends iteration over a sequence."""


class OutOfMemoryError(MemdescError, MemoryError):
    """The request needs more memory than is available."""


class OverlapError(MemdescError):
    """Two elements, or two buffers, share bytes."""


class PaddingError(MemdescError):
    """The padding of a buffer holds something other than zeros."""


def allocates(function: Callable[P, R]) -> Callable[P, R]:
    """Turn the MemoryError of a function that allocates what its arguments ask for into ours."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except MemoryError as error:
            if isinstance(error, MemdescError):
                raise
            msg = f"{function.__qualname__}() needs more memory than is available: {error}"
            raise OutOfMemoryError(msg) from None

    return wrapped


def short_repr(value: object) -> str:
    """Return the repr of a value for a message, or the start of a long one.

    An array that does not fit on one line is described by its shape and dtype.

    >>> short_repr("a" * 1000)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa... (1002 characters)"
    >>> import numpy as np
    >>> short_repr(np.zeros((2, 17), np.float32))
    'an ndarray of shape (2, 17) and dtype float32'
    """
    kind = type(value).__name__
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers with more than 4300 digits
        return f"a {kind} with a number too long to print"
    except Exception:  # noqa: BLE001 - nested too deeply, or the caller's own repr fails
        return f"a {kind} that cannot be printed"
    if len(text) <= _MAX_REPR and "\n" not in text:
        return text
    shape, dtype = getattr(value, "shape", ()), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and shape and dtype is not None:
        article = "an" if kind.startswith(("nd", "A", "E", "I", "O", "U")) else "a"
        return f"{article} {kind} of shape {tuple(shape)} and dtype {dtype}"
    if len(text) <= _MAX_REPR:
        return text
    return f"{text[: _MAX_REPR // 2]}... ({len(text)} characters)"


def first_of(names: Iterable[str], count: int) -> str:
    """Return the first few names for a message, and how many more there are."""
    listed = [*names]
    more = f" and {len(listed) - count} more" if len(listed) > count else ""
    return ", ".join(listed[:count]) + more


def starred(name: str) -> str:
    """Return the name of a tensor with a star for each number in it, which groups equal layers.

    >>> starred("model.layers.17.mlp.w1")
    'model.layers.*.mlp.w1'
    """
    return _NUMBERS.sub("*", name)


def excerpt(text: str) -> str:
    """Return the repr of the wrong part of a string, cut if it is long.

    >>> excerpt("4x"), excerpt("4x" * 20)
    ("'4x'", "'4x4x4x4x4x4x4x4x4x4x4x4x'...")
    """
    return f"{text[:_MAX_EXCERPT]!r}{'...' if len(text) > _MAX_EXCERPT else ''}"
