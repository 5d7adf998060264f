"""Every error class of memdesc and reorder.

One base class; a subclass only where a caller would branch on it.
"""

__all__ = [
    "MemdescError",
    "NotBlockedError",
    "OverlapError",
    "PaddingError",
    "UnknownFormatError",
    "UnsupportedFormatError",
]


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
