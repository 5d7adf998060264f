"""Records: rows of int64 that Python writes and compiled code reads, by the names of their fields.

A record is a NamedTuple of ints, and a table is records one after the other, each followed by the
tables of offsets that its fields count. `fields_of(Task)` is a `Task` of indices: a constant that
numba folds, so that a compiled function reads ``load_int(address, TASK.first)`` where Python
wrote ``Task(first=...)``. No index of a field is written as a number anywhere.
"""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["WORD_NBYTES", "fields_of", "nbytes_of"]

WORD_NBYTES = 8

_Record = TypeVar("_Record", bound=tuple[Any, ...])


def fields_of(kind: type[_Record]) -> _Record:
    """Return a record that holds the index of each of its fields.

    >>> from typing import NamedTuple
    >>> class Task(NamedTuple):
    ...     first: int
    ...     last: int
    >>> fields_of(Task).last
    1
    """
    return kind(*range(_length_of(kind)))


def nbytes_of(kind: type[_Record]) -> int:
    """Return the bytes of the fields of a record: where what follows them begins."""
    return WORD_NBYTES * _length_of(kind)


def _length_of(kind: type[_Record]) -> int:
    names: tuple[str, ...] = vars(kind)["_fields"]
    return len(names)
