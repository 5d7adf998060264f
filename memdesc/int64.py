"""Check numbers and flags of callers; integers become Python ints within int64, flags bools."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from itertools import islice
from operator import index as to_int
from typing import Any, TypeVar

import numpy as np

from memdesc.errors import MemdescError, short_repr

T = TypeVar("T")

INT64_MAX = 2**63 - 1
# A size that is known only at execution: oneDNN's DNNL_RUNTIME_DIM_VAL, the least int64.
# All other integers must be at least -INT64_MAX, so none is confused with it.
RUNTIME = -(2**63)
# The most entries read from an iterable, which may be endless. No field has this many.
_MAX_ENTRIES = 2**16
# The most characters quoted from the message of another error.
_MAX_REASON = 200
# Iterables that are not sequences of integers: strings, sets (which have no order), mappings.
NOT_SEQUENCES = (str, bytes, bytearray, set, frozenset, dict)


def entries_of(name: str, values: Any) -> tuple[Any, ...]:
    """Return the entries of an iterable; refuse one that raises or does not end.

    The error is a TypeError for what is not iterable, whose caller says what is needed.
    """
    if type(values) is tuple:
        return values
    try:
        entries = tuple(islice(values, _MAX_ENTRIES + 1))
    except TypeError:
        raise
    except Exception as error:  # raised by the caller's own iterator
        raise MemdescError(
            f"{name} must be a sequence, not {short_repr(values)}: {_reason(error)}"
        ) from error
    if len(entries) > _MAX_ENTRIES:
        raise MemdescError(f"{name} has more than {_MAX_ENTRIES} entries: {short_repr(values)}")
    return entries


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_MAX_REASON]


def checked_ints(name: str, values: Iterable[int], *, least: int = -INT64_MAX) -> tuple[int, ...]:
    """Return a tuple of Python ints; refuse anything else, bools, and what exceeds int64.

    With `least` of `RUNTIME`, sizes may be known only at execution.
    """
    if type(values) is tuple and not values:
        return ()
    try:
        if isinstance(values, NOT_SEQUENCES):
            raise TypeError  # noqa: TRY301 - refused below
        is_scalar = isinstance(values, np.ndarray) and not values.ndim
        entries = (values,) if is_scalar else entries_of(name, values)
        has_flag = bool in map(type, entries)
        numbers = () if has_flag else tuple(map(to_int, entries))
    except MemdescError:
        raise
    except Exception as error:
        msg = f"{name} must be a sequence of integers, not {short_repr(values)}"
        text: object = values
        if isinstance(text, str) and re.fullmatch("[0-9]{1,18}([x,][0-9]{1,18})*", text):
            msg += f"; pass {tuple(map(int, re.split('[x,]', text)))}"
        if isinstance(error, TypeError):
            raise MemdescError(msg) from None
        raise MemdescError(f"{msg}: {_reason(error)}") from error  # from the caller's own __index__
    if has_flag:
        raise MemdescError(
            f"{name} must be integers that int64 holds, not {short_repr(entries)}: a bool is "
            "neither a size nor an index"
        )
    if numbers and (max(numbers) > INT64_MAX or min(numbers) < least):
        hint = (
            "; sizes that are not known yet are for runtime_desc()"
            if RUNTIME in numbers and name == "dims" and least > RUNTIME
            else ""
        )
        raise MemdescError(
            f"{name} must be integers that int64 holds (up to {INT64_MAX}), "
            f"not {short_repr(numbers)}{hint}"
        )
    return numbers


def checked_int(name: str, value: object) -> int:
    """Return a Python int; refuse anything else, and what exceeds int64."""
    if type(value) is int and -INT64_MAX <= value <= INT64_MAX:
        return value
    try:
        return checked_ints(name, (value,))[0]  # type: ignore[arg-type] # checked there
    except MemdescError:
        raise MemdescError(
            f"{name} must be an integer that int64 holds, not {short_repr(value)}"
        ) from None


def exact_rows(name: str, cls: type[T], values: Any) -> tuple[T, ...]:
    """Return rows of a named tuple of integers and of tuples of these; refuse anything else."""
    try:
        rows = [
            row if type(row) is cls else cls(*entries_of(name, row))
            for row in entries_of(name, values)
        ]
    except (TypeError, ValueError, NotImplementedError):
        row = f"{cls.__name__}({', '.join(cls._fields)})"  # type: ignore[attr-defined] # a named tuple
        raise MemdescError(f"{name} must be a tuple of {row}, not {short_repr(values)}") from None
    return tuple(cls(*map(partial(_exact, name), cls._fields, row)) for row in rows)  # type: ignore[attr-defined,call-overload] # likewise


def _exact(name: str, field: str, value: Any) -> int | tuple[int, ...]:
    what = f"{field} of {name}"
    return checked_ints(what, value) if field == "dims" else checked_int(what, value)


def check_length(name: str, values: tuple[Any, ...], ndims: int) -> None:
    """Refuse values unless there is one for each dim."""
    if len(values) != ndims:
        raise MemdescError(f"{name} {short_repr(values)} must be {ndims} numbers, one for each dim")


def checked_flag(name: str, value: object) -> bool:
    """Return a Python or numpy bool as a Python bool; refuse anything else."""
    if not isinstance(value, bool | np.bool_):
        raise MemdescError(f"{name} must be True or False, not {short_repr(value)}")
    return bool(value)
