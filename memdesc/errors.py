"""Every error class of memdesc and reorder.

One base class; a subclass only where a caller would branch on it.
"""

from __future__ import annotations

__all__ = [
    "MemdescError",
    "NotBlockedError",
    "OverlapError",
    "PaddingError",
    "UnknownFormatError",
    "UnsupportedFormatError",
    "short_repr",
]

# Characters of a value in a message: about a line of a terminal, so that the reason stays in sight.
_MAX_REPR = 120


class MemdescError(ValueError):
    """Base of every error that memdesc and reorder raise on bad input."""


class UnknownFormatError(MemdescError):
    """A string is no format name of any vocabulary."""


class UnsupportedFormatError(MemdescError):
    """A name is known, but it is no layout of elements."""


class NotBlockedError(MemdescError):
    """A field of oneDNN was requested of a layout that these fields cannot describe."""


class OverlapError(MemdescError):
    """Two elements, or two buffers, share bytes."""


class PaddingError(MemdescError):
    """The padding of a buffer holds something other than zeros."""


def short_repr(value: object) -> str:
    """Return the repr of a value for a message, cut where it is long.

    >>> short_repr("a" * 1000)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa... (1002 characters)"
    """
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers of more than 4300 digits
        return f"a {type(value).__name__} with a number too long to print"
    return (
        text if len(text) <= _MAX_REPR else f"{text[: _MAX_REPR // 2]}... ({len(text)} characters)"
    )
