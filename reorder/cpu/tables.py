"""Tables: int64 words that Python writes and compiled code reads, by field name.

An entry of a table is a NamedTuple of ints. Offset tables may follow it; their lengths are fields
of the entry. `fields_of(Task)` is a `Task` that holds the index of each field, which numba folds to
a constant: a compiled function reads ``load_int(address, TASK.first)`` where Python wrote
``Task(first=...)``. So no code spells out the index of a field.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from reorder.cpu.machine import LINE_NBYTES, SHARED_NBYTES
from reorder.memory.buffers import address_of

# An array of numbers, and one of a table's words; `numpy.typing` would have to be loaded for these.
Array = np.ndarray[Any, np.dtype[Any]]
Words = np.ndarray[Any, np.dtype[np.int64]]

WORD_NBYTES = 8
_LINE_WORDS = SHARED_NBYTES // WORD_NBYTES

_Fields = TypeVar("_Fields", bound=tuple[Any, ...])


def fields_of(cls: type[_Fields]) -> _Fields:
    """Return an entry that holds the index of each of its fields.

    >>> from typing import NamedTuple
    >>> class Task(NamedTuple):
    ...     first: int
    ...     last: int
    >>> fields_of(Task).last
    1
    """
    return cls(*range(len(_names_of(cls))))


def nbytes_of(cls: type[_Fields]) -> int:
    """Return the size of an entry in bytes, without the tables that follow it."""
    return WORD_NBYTES * len(_names_of(cls))


def fields_in_lines(cls: type[_Fields], *first_of_line: str) -> _Fields:
    """Return the index of each field, where some fields start a new cache line.

    Fields that different threads write must not share a line: each write would remove the line
    from the cache of the other thread (false sharing).

    >>> from typing import NamedTuple
    >>> class Counters(NamedTuple):
    ...     ours: int
    ...     theirs: int
    >>> fields_in_lines(Counters, "theirs").theirs * WORD_NBYTES == SHARED_NBYTES
    True
    """
    words: list[int] = []
    for name in _names_of(cls):
        word = words[-1] + 1 if words else 0
        words.append(-(-word // _LINE_WORDS) * _LINE_WORDS if name in first_of_line else word)
    return cls(*words)  # type: ignore[arg-type] # fields are ints


def nbytes_in_lines(fields: tuple[int, ...]) -> int:
    """Return the size in bytes, in whole cache lines, of the fields of `fields_in_lines`."""
    return (fields[-1] // _LINE_WORDS + 1) * _LINE_WORDS * WORD_NBYTES


def joined_in_lines(arrays: Sequence[Array]) -> Array:
    """Concatenate arrays of one dtype to one that starts a cache line."""
    nbytes = sum(array.nbytes for array in arrays)
    space = np.empty(nbytes + LINE_NBYTES, np.uint8)
    start = -address_of(space) % LINE_NBYTES
    table: Array = space[start : start + nbytes].view(arrays[0].dtype)
    return np.concatenate(arrays, out=table)


def _names_of(cls: type[_Fields]) -> tuple[str, ...]:
    names: tuple[str, ...] = vars(cls)["_fields"]
    return names
