"""Vocabulary: the interface of the file of one system for the functions that search all systems."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pkgutil import get_data
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from memdesc.tags import FormatTag

__all__ = ["Vocabulary", "read_names"]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The names of one system.

    Parameters
    ----------
    name : str
        What `Name.vocabulary` is, such as ``onednn``.
    known : callable, () -> iterable of str
        Every name that the system defines. `parse` may read more names than these.
    parse : callable, (name) -> FormatTag
        Raises UnknownFormatError for what is no name, and UnsupportedFormatError for a
        name that is known, but no layout of elements.
    domain : callable, (name) -> str
        What a known name describes: ``data``, ``weights``, ...
    letters : callable, (name) -> str
        What a name calls the logical dims, such as ``nchw``; empty where it says nothing.
    is_spelled_like : callable, (name) -> bool
        Whether an unknown name follows the spelling of this system, so that its
        `parse` gives the best reason.
    check_dims : callable, (name, dims, tag) -> None, optional
        Raises UnsupportedFormatError for sizes that the name does not exist for. `tag` is what
        the name was read as.
    by_bits : mapping of int to mappings of str to str
        For a width of elements in bits, the names that lay these out in another way than
        `parse` says, each with the canonical notation of that layout.
    """

    name: str
    known: Callable[[], Iterable[str]]
    parse: Callable[[str], FormatTag]
    domain: Callable[[str], str]
    letters: Callable[[str], str]
    is_spelled_like: Callable[[str], bool]
    check_dims: Callable[[str, tuple[int, ...], FormatTag], None] | None = None
    by_bits: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


def read_names(file: str) -> tuple[str, ...]:
    """Read a table of names: a JSON array of strings, in the order of the system's source."""
    return tuple(json.loads(get_data(__name__, file) or b"[]"))
