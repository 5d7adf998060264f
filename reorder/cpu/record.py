"""Records: rows of int64 that Python writes and compiled code reads, by the names of their fields.

A record is a NamedTuple of ints, and a table is records one after the other, each followed by the
tables of offsets that its fields count. `fields_of(Task)` is a `Task` of indices: a constant that
numba folds, so that a compiled function reads ``load_int(address, TASK.first)`` where Python
wrote ``Task(first=...)``. No index of a field is written as a number anywhere.
"""

from __future__ import annotations

from typing import Any, TypeVar

from reorder.cpu.target import LINE_NBYTES

__all__ = ["WORD_NBYTES", "fields_in_lines", "fields_of", "nbytes_in_lines", "nbytes_of"]

WORD_NBYTES = 8
_LINE_WORDS = LINE_NBYTES // WORD_NBYTES

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


def fields_in_lines(kind: type[_Record], *first_of_line: str) -> _Record:
    """Return a record of indices of which some begin a cache line of their own.

    Words that different threads write share no line, or each write would take the line from
    the cache of the other.

    >>> from typing import NamedTuple
    >>> class Counters(NamedTuple):
    ...     ours: int
    ...     theirs: int
    >>> fields_in_lines(Counters, "theirs").theirs
    8
    """
    names: tuple[str, ...] = vars(kind)["_fields"]
    words: list[int] = []
    for name in names:
        word = words[-1] + 1 if words else 0
        words.append(-(-word // _LINE_WORDS) * _LINE_WORDS if name in first_of_line else word)
    return kind(*words)  # type: ignore[arg-type] # fields are ints


def nbytes_in_lines(fields: tuple[int, ...]) -> int:
    """Return the bytes of the lines that the fields of `fields_in_lines` stand in."""
    return (fields[-1] // _LINE_WORDS + 1) * _LINE_WORDS * WORD_NBYTES


def _length_of(kind: type[_Record]) -> int:
    names: tuple[str, ...] = vars(kind)["_fields"]
    return len(names)
