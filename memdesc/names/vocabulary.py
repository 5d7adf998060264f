"""Vocabulary: the names of a system as a table, for the functions that search them all."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from memdesc.errors import UnknownFormatError, UnsupportedFormatError, short_repr
from memdesc.tags import parse_tag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memdesc.tags import FormatTag

# the example of a type in a message is an unsigned integer up to this width, and a float beyond it
_INTEGER_BITS = 8


def read_names(file: str) -> tuple[str, ...]:
    """Read the file with a system's names: a JSON array of strings, in the order of its source."""
    import json  # layouts spelled in notation need neither
    from pkgutil import get_data

    return tuple(json.loads(get_data(__name__, file) or b"[]"))


def refuse(name: str, reasons: Mapping[str, str]) -> None:
    """Refuse a name that is known, but not a layout of elements, with the reason."""
    if name in reasons:
        raise UnsupportedFormatError(f"{name!r} cannot be described: {reasons[name]}")


# The key of a tag that holds for elements of any width.
ANY_WIDTH = 0


class Row(NamedTuple):
    """A layout: its dims, its tag for each width of elements, and what uses it."""

    # the logical dims in order
    letters: str
    # what it contains: `data`, `weights`, `scales`, ...
    domain: str
    # the canonical notation for each width in bits; `ANY_WIDTH` stands for any width
    tags: Mapping[int, str]
    # the dims that must be whole blocks; other dims are padded with zeros
    whole: str = ""
    # what uses this layout
    source: str = ""
    # whether the stored words have the shape of the tensor, except for its last dim, of which each
    # word holds several elements; otherwise they are in the order of the outermost blocks
    is_in_shape: bool = False


@dataclass(frozen=True)
class Vocabulary:
    """The names of one system: a table of rows, or a subclass where names follow rules."""

    # the value of `Name.vocabulary`
    name: str
    # what the names stand for, in messages: `packing of weights`
    noun: str
    rows: Mapping[str, Row] = field(default_factory=dict)
    # a regular expression for how names start: the reason is this system's for an unknown one
    start: str = ""
    # other names, each with its name in `rows`
    aliases: Mapping[str, str] = field(default_factory=dict)
    # names that are not layouts of elements, with the reason
    refused: Mapping[str, str] = field(default_factory=dict)
    # what letters of dims stand for, in messages
    dims: Mapping[str, str] = field(default_factory=dict)
    # the size that dims of a letter must have
    fixed: Mapping[str, int] = field(default_factory=dict)
    # other spellings of names in `rows`, which are read, but not listed
    spellings: Mapping[str, str] = field(default_factory=dict)
    # a regular expression for what stands before a name in programs, such as `dnnl_`
    scope: str = ""

    def bare(self, name: str) -> str:
        """Return a name without its scope."""
        return re.sub(f"^(?:{self.scope})", "", name) if self.scope else name

    def known(self) -> tuple[str, ...]:
        """Return every name that the system defines; `parse` may read more names than these."""
        return (*self.rows, *self.aliases, *self.refused)

    def is_spelled_like(self, name: str) -> bool:
        """Whether an unknown name is spelled like those of this system."""
        return re.match(self.start, name) is not None

    @cached_property
    def by_bits(self) -> Mapping[int, Mapping[str, str]]:
        """For a width of elements in bits, the names with a tag for this width only."""
        tags: dict[int, dict[str, str]] = {}
        for name in (*self.rows, *self.aliases, *self.spellings):
            for bits, tag in self.rows[self.key(name)].tags.items():
                if bits != ANY_WIDTH:
                    tags.setdefault(bits, {})[name] = tag
        return tags

    def tag(self, name: str, bits: int) -> FormatTag | None:
        """Return the tag that a name has for elements of one width only; None for other names."""
        tags = self.by_bits.get(bits)
        notation = tags.get(self.bare(name)) if tags else None
        return None if notation is None else parse_tag(notation)

    def key(self, name: str) -> str:
        """Return the name in `rows` that another name or spelling stands for."""
        return self.aliases.get(name) or self.spellings.get(name, name)

    def row(self, name: str) -> Row | None:
        """Return the row of a name."""
        return self.rows.get(self.key(name))

    def domain(self, name: str) -> str:
        """Return what a known name describes: `weights`, `scales`, ..."""
        row = self.row(name)
        return row.domain if row else "weights"

    def letters(self, name: str) -> str:
        """Return the logical dims, such as `io`; empty for other strings."""
        row = self.row(name)
        return row.letters if row else ""

    def parse(self, name: str) -> FormatTag:
        """Read a name for elements of any width.

        Raises UnknownFormatError for an unknown name, and UnsupportedFormatError for a known one
        that is not a layout of elements.
        """
        refuse(name, self.refused)
        row = self.row(name)
        if row is None:
            raise UnknownFormatError(f"{short_repr(name)}: no {self.noun} has this name")
        if ANY_WIDTH not in row.tags:
            widths = " or ".join(map(str, row.tags))
            bits = min(row.tags)
            raise UnsupportedFormatError(
                f"{name!r} exists for elements of {widths} bits; give a data type of that width, "
                f"such as {'u' if bits <= _INTEGER_BITS else 'f'}{bits}"
            )
        return parse_tag(row.tags[ANY_WIDTH])

    def check_dims(self, name: str, dims: tuple[int, ...], tag: FormatTag) -> None:
        """Refuse sizes that the name, with this tag, does not allow; say which are."""
        row = self.row(name)
        if row is None or len(dims) != tag.ndims:  # the caller reports a wrong number of dims
            return
        for dim, letter in enumerate(row.letters):
            if dims[dim] != self.fixed.get(letter, dims[dim]):
                raise UnsupportedFormatError(
                    f"{name!r} with dims {dims}: dim {dim} is {self.dims[letter]}, so its size is "
                    f"{self.fixed[letter]}; "
                    f"the dims are {', '.join(self.dims[own] for own in row.letters)}"
                )
        if not row.whole:
            return
        sizes = dict(zip(row.letters, zip(dims, tag.block_sizes, strict=True), strict=True))
        whole = {letter: sizes[letter] for letter in row.whole}
        if any(size % block for size, block in whole.values()):
            stated = ", ".join(
                f"{self.dims.get(letter, letter)} = {size}" for letter, (size, _) in whole.items()
            )
            rule = " and ".join(
                f"{self.dims.get(letter, letter)} must be a multiple of {block}"
                for letter, (_, block) in whole.items()
            )
            padded = tuple(
                -(-size // block) * block if letter in whole else size
                for letter, (size, block) in sizes.items()
            )
            raise UnsupportedFormatError(
                f"{name!r} with {stated}: {rule}; pad the tensor to {padded}"
            )
