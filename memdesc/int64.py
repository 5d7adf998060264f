"""Integers of callers, as Python ints that int64 holds, and their flags."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index as to_int

import numpy as np

from memdesc.errors import MemdescError, short_repr

__all__ = [
    "INT64_MAX",
    "RUNTIME",
    "checked_flag",
    "checked_int",
    "checked_ints",
    "checked_sizes",
    "exact_ints",
]

INT64_MAX = 2**63 - 1
# A size that is known at execution only: oneDNN's DNNL_RUNTIME_DIM_VAL, the least int64.
# All other integers of callers must be at least -INT64_MAX, so they differ from it.
RUNTIME = -(2**63)
# Characters, and what has no order, or an order of something else.
_NOT_SEQUENCES = (str, bytes, bytearray, set, frozenset, dict)


def checked_ints(name: str, values: Iterable[int]) -> tuple[int, ...]:
    """Return a tuple of Python ints; refuse what is no integer, bools too, or exceeds int64."""
    try:
        if isinstance(values, _NOT_SEQUENCES):
            raise TypeError  # noqa: TRY301 - refused below
        given = (values,) if isinstance(values, np.ndarray) and not values.ndim else tuple(values)
        if bool in map(type, given):
            msg = (
                f"{name} must be integers that int64 holds, not {short_repr(given)}: a bool is no "
                "size and no index"
            )
            raise MemdescError(msg)
        found = tuple(map(to_int, given))
    except TypeError:
        msg = f"{name} must be a sequence of integers, not {short_repr(values)}"
        raise MemdescError(msg) from None
    if found and (max(found) > INT64_MAX or min(found) < -INT64_MAX):
        hint = (
            "; sizes that are not known yet are for runtime_desc()"
            if RUNTIME in found and name == "dims"
            else ""
        )
        msg = (
            f"{name} must be integers that int64 holds (up to {INT64_MAX}), "
            f"not {short_repr(found)}{hint}"
        )
        raise MemdescError(msg)
    return found


def checked_sizes(values: Iterable[int]) -> tuple[int, ...]:
    """Return dims as a tuple of Python ints, of which some may be RUNTIME."""
    if not isinstance(values, Iterable):
        return checked_ints("dims", values)  # type: ignore[unreachable] # callers without types
    given = tuple(values)
    unknown = [isinstance(size, int | np.integer) and size == RUNTIME for size in given]
    known = checked_ints(
        "dims", tuple(0 if skip else size for size, skip in zip(given, unknown, strict=True))
    )
    return tuple(RUNTIME if skip else size for size, skip in zip(known, unknown, strict=True))


def checked_int(name: str, value: object) -> int:
    """Return a Python int; refuse what is not an integer, or exceeds int64."""
    try:
        return checked_ints(name, (value,))[0]  # type: ignore[arg-type] # checked there
    except MemdescError:
        msg = f"{name} must be an integer that int64 holds, not {short_repr(value)}"
        raise MemdescError(msg) from None


def exact_ints(name: str, values: object) -> tuple[int, ...]:
    """Return Python ints, as `checked_ints`, for a field that was set by hand: a tuple or list."""
    if not isinstance(values, tuple | list):
        msg = f"{name} must be a tuple of integers, not {short_repr(values)}"
        raise MemdescError(msg)
    return checked_ints(name, values)


def checked_flag(name: str, value: object) -> bool:
    """Return a bool of Python or of numpy as one of Python; refuse all else."""
    if not isinstance(value, bool | np.bool_):
        msg = f"{name} must be True or False, not {short_repr(value)}"
        raise MemdescError(msg)
    return bool(value)
