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

_MAX_SHOWN = 120


class MemdescError(ValueError):
    """Base of every error that memdesc and reorder raise on bad input."""


class UnknownFormatError(MemdescError):
    """A text is no format name of any vocabulary."""


class UnsupportedFormatError(MemdescError):
    """A name is known, but what it stands for is not a layout of elements."""


class NotBlockedError(MemdescError):
    """A question in oneDNN's fields was put to a layout outside them."""


class OverlapError(MemdescError):
    """Two elements, or two buffers, share bytes that must be apart."""


class PaddingError(MemdescError):
    """The padding of a buffer holds something other than zeros."""


def short_repr(value: object) -> str:
    """Return what was given as messages show it: its repr, cut where it is long.

    >>> short_repr("a" * 1000)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa... (1002 characters)"
    """
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers of more than 4300 digits
        return f"a {type(value).__name__} with a number too long to print"
    return (
        text
        if len(text) <= _MAX_SHOWN
        else f"{text[: _MAX_SHOWN // 2]}... ({len(text)} characters)"
    )
