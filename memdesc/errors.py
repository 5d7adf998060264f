"""The error classes of memdesc and reorder, and the functions that put values into messages.

There is one base class, and a subclass only where a caller would branch on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# The longest repr in a message: about one line of a terminal, so that the reason stays visible.
_MAX_REPR = 120
# The most characters quoted from a wrong string.
_MAX_EXCERPT = 24


class MemdescError(ValueError):
    """Base class of all errors that memdesc and reorder raise for bad input.

    >>> memdesc.memory_desc((2, -1), "f32", "ab")
    Traceback (most recent call last):
        ...
    memdesc.errors.MemdescError: dim b (dim 1) has size -1; sizes are 0 to 9223372036854775807
    """


class UnknownFormatError(MemdescError):
    """A string is not a format name in any vocabulary.

    >>> memdesc.memory_desc((2, 3), "f32", "aB")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    memdesc.errors.UnknownFormatError: unknown format 'aB', at character 2: dim b is upper-case, ...
    """


class UnsupportedFormatError(MemdescError):
    """A name is known, but does not name a layout of elements.

    >>> memdesc.memory_desc((1, 3, 4, 4), "f32", "nv12")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    memdesc.errors.UnsupportedFormatError: 'nv12' cannot be described: it is a video surface ...
    """


class NotBlockedError(MemdescError):
    """One of oneDNN's fields was requested for a layout that these fields cannot describe.

    >>> memdesc.memory_desc((1, 3, 5, 5), "f32", "bf8_xy16").strides  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    memdesc.errors.NotBlockedError: dims y (dim 2), x (dim 3) are fused into one index, ...
    """


class OutOfRangeError(MemdescError, IndexError):
    """An index is out of range; also an IndexError, which ends iteration over a sequence.

    >>> memdesc.memory_desc((2, 3), "f32", "ab").offset((2, 0))
    Traceback (most recent call last):
        ...
    memdesc.errors.OutOfRangeError: index 2 of a (dim 0) is not in 0 to 1
    """


class OutOfMemoryError(MemdescError, MemoryError):
    """The request needs more memory than is available.

    >>> import reorder
    >>> reorder.Memory(memdesc.memory_desc((1 << 60,), "u8", "a"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    memdesc.errors.OutOfMemoryError: 1152921504606846976 bytes are more memory than ...
    """


class OverlapError(MemdescError):
    """Two elements, or two buffers, share bytes.

    >>> memdesc.memory_desc((2, 3), "f32", strides=(1, 1))
    Traceback (most recent call last):
        ...
    memdesc.errors.OverlapError: two indices share one element, (1, 0) and (0, 1)
    """


class PaddingError(MemdescError):
    """The padding of a buffer holds something other than zeros.

    >>> import reorder
    >>> desc = memdesc.memory_desc((3,), "u8", "A4a")
    >>> memory = reorder.Memory(desc, np.ones(4, np.uint8), zero_pad=False)
    >>> memory.check_padding()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    memdesc.errors.PaddingError: padding of memory_desc((3,), 'u8', 'A4a') is not zero at ...
    """


@contextmanager
def about(what: object) -> Iterator[None]:
    """Begin the messages of errors with their subject: a file, a tensor, a step."""
    try:
        yield
    except MemdescError as error:
        error.args = (f"{what}: {error}",)
        raise


def allocates(function: Callable[P, R]) -> Callable[P, R]:
    """Raise OutOfMemoryError where a function that allocates memory raises MemoryError."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except MemoryError as error:
            if isinstance(error, MemdescError):
                raise
            raise OutOfMemoryError(
                f"{function.__qualname__}() needs more memory than is available: {error}"
            ) from None

    return wrapped


def short_repr(value: object) -> str:
    """Return the repr of a value for a message, cut if it is long.

    An array that does not fit on one line is described by its shape and dtype.

    >>> short_repr("a" * 1000)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa... (1002 characters)"
    >>> short_repr(np.zeros((2, 17), np.float32))
    'an ndarray of shape (2, 17) and dtype float32'
    """
    title = type(value).__name__
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers with more than 4300 digits
        return f"a {title} with a number too long to print"
    except Exception:  # noqa: BLE001 - nested too deeply, or the caller's own repr fails
        return f"a {title} that cannot be printed"
    if len(text) <= _MAX_REPR and "\n" not in text:
        return text
    shape, dtype = getattr(value, "shape", ()), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and shape and dtype is not None:
        article = "an" if title.startswith(("nd", "A", "E", "I", "O", "U")) else "a"
        return f"{article} {title} of shape {tuple(shape)} and dtype {dtype}"
    if len(text) <= _MAX_REPR:
        return text
    return f"{text[: _MAX_REPR // 2]}... ({len(text)} characters)"


def excerpt(text: str) -> str:
    """Return the repr of the wrong part of a string, cut if it is long."""
    return f"{text[:_MAX_EXCERPT]!r}{'...' if len(text) > _MAX_EXCERPT else ''}"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: 1 size, 2 sizes."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
