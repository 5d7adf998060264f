"""Vocabulary: the names of a system as a table, for the functions that search them all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from memdesc.errors import UnknownFormatError, UnsupportedFormatError, short_repr
from memdesc.tags import FormatTag, parse_tag
from memdesc.tuples import NamedTuple

# the example of a type in a message is an unsigned integer up to this width, and a float beyond it
_INTEGER_BITS = 8
# the letter of a dim for a pair, such as K and V
_PAIR = "t"
# the key of a tag that holds for elements of any width
ANY_WIDTH = 0
_NONE: Mapping[str, Any] = MappingProxyType({})


def read_names(file: str) -> tuple[str, ...]:
    """Read the file with a system's names: a JSON array of strings, in the order of its source."""
    import json  # layouts spelled in notation need neither
    from pkgutil import get_data

    return tuple(json.loads(get_data(__name__, file) or b"[]"))


def refuse(name: str, reasons: Mapping[str, str]) -> None:
    """Refuse a name that is known but is not a layout of elements, with the reason."""
    if name in reasons:
        raise UnsupportedFormatError(f"{name!r} cannot be described: {reasons[name]}")


class Row(NamedTuple):
    """A layout: its dims, its tag for each width of elements, and what uses it.

    `letters` are the logical dims in order; those in `whole` must be whole blocks, and others are
    padded with zeros. `domain` is what it contains: `data`, `scales`, ... `tags` has the canonical
    notation for each width in bits, or for `ANY_WIDTH`. The stored words are in the order of the
    outermost blocks, or if the row `is_in_shape`, have the shape of the tensor, except for its last
    dim, of which each word holds several elements. Some rows exist for several experts, too.
    """

    letters: str
    domain: str
    tags: Mapping[int, str]
    whole: str = ""
    source: str = ""
    is_in_shape: bool = False
    has_experts: bool = False


def rows_of(table: str) -> dict[str, Row]:
    """Read a table: in each line a name, its dims, its domain, its tag, and what uses it.

    Dims in upper case must be whole blocks. A tag after `4,8:` is for elements of 4 or 8 bits, and
    others may follow. What uses the layout is after `#`; a line of this alone is for those below,
    which may add to it after a comma or colon. `+shape` and `+e` mean `is_in_shape` and
    `has_experts`. For `{8,16}` in a name there is a row for each number, which `{}` stands for.
    """
    rows, about = {}, ""
    for line in table.strip().splitlines():
        text, _, source = line.partition("#")
        if not text.strip():
            about = source.strip()
            continue
        sizes = re.search("{([0-9,]+)}", text)
        for size in sizes[1].split(",") if sizes else [""]:
            part = text.replace(sizes[0], size) if sizes else text
            name, dims, domain, *tokens = part.replace("{}", size).split()
            tags: dict[int, str] = {}
            for token in tokens:
                widths, _, tag = token.rpartition(":")
                if not token.startswith("+"):
                    tags |= dict.fromkeys(map(int, (widths or str(ANY_WIDTH)).split(",")), tag)
            rows[name] = Row(
                dims.lower(),
                domain.replace("_", " "),
                tags,
                "".join(filter(str.isupper, dims)).lower(),
                about + source if source.startswith((",", ":")) else source.strip() or about,
                "+shape" in tokens,
                "+e" in tokens,
            )
    return rows


class Vocabulary(NamedTuple):
    """The names of one system: a table of rows, or a subclass where names follow rules.

    `noun` is what the names stand for in messages: ``packing of weights``. `start` is a regular
    expression for how names start: an unknown one gets this system's reason. `refused` has names
    that are not layouts of elements, with the reason; `aliases` maps other names to names in
    `rows`. `dims` says what letters of dims stand for, and `scopes` what may precede a name in
    programs.
    """

    name: str
    noun: str
    rows: Mapping[str, Row] = _NONE
    start: str = ""
    refused: Mapping[str, str] = _NONE
    aliases: Mapping[str, str] = _NONE
    dims: Mapping[str, str] = _NONE
    scopes: tuple[str, ...] = ()

    def bare(self, name: str) -> str:
        """Return a name without its scope."""
        scope = next(filter(name.startswith, self.scopes), "")
        return name.removeprefix(scope)

    def known(self) -> tuple[str, ...]:
        """Return every name that the system defines; `parse` may read more names than these."""
        return (*self.rows, *self.aliases, *self.refused)

    def is_spelled_like(self, name: str) -> bool:
        """Whether an unknown name is spelled like those of this system."""
        return re.match(self.start, name) is not None

    def key(self, name: str) -> str:
        """Return the name in `rows` that another name stands for."""
        return self.aliases.get(name, name)

    def row(self, name: str) -> Row | None:
        """Return the row of a name."""
        return self.rows.get(self.key(name))

    def family(self, name: str) -> tuple[str, str]:
        """Return what a known name describes (`weights`, `scales`, ...), and the logical dims.

        The dims are letters such as `io`, and empty for names that do not say.
        """
        row = self.row(name)
        return (row.domain, row.letters) if row else ("weights", "")

    def read(self, name: str, bits: int) -> FormatTag:
        """Read a name, with its scope, for elements of a width in bits, or of `ANY_WIDTH`.

        Raises UnknownFormatError for an unknown name, and UnsupportedFormatError for a known one
        that is not a layout of elements.
        """
        bare = self.bare(name)
        refuse(bare, self.refused)
        return self.parse(bare, bits)

    def parse(self, name: str, bits: int) -> FormatTag:
        """Read a name that is not refused."""
        row = self.row(name)
        if row is None:
            raise UnknownFormatError(f"{short_repr(name)}: no {self.noun} has this name")
        notation = row.tags.get(bits) or row.tags.get(ANY_WIDTH)
        if notation is None:
            widths = " or ".join(map(str, row.tags))
            least = min(row.tags)
            raise UnsupportedFormatError(
                f"{name!r} exists for elements of {widths} bits; give a data type of that width, "
                f"such as {'u' if least <= _INTEGER_BITS else 'f'}{least}"
            )
        return parse_tag(notation)

    def check_dims(self, name: str, dims: tuple[int, ...], tag: FormatTag) -> None:
        """Refuse sizes, one for each dim, that the name with this tag does not allow."""
        row = self.row(name)
        if row is None:
            return
        pair = row.letters.find(_PAIR)
        if pair >= 0 and dims[pair] != 2:  # noqa: PLR2004 - two are a pair
            raise UnsupportedFormatError(
                f"{name!r} with dims {dims}: dim {pair} is {self.dims[_PAIR]}, so its size is 2; "
                f"the dims are {', '.join(self.dims[own] for own in row.letters)}"
            )
        if not row.whole:  # and only a row without these may have fused dims
            return
        rows = [*zip(row.letters, dims, tag.block_sizes, strict=True)]
        whole = [(self.dims.get(own, own), size, n) for own, size, n in rows if own in row.whole]
        padded = tuple(-(-size // n) * n if own in row.whole else size for own, size, n in rows)
        if padded != dims:
            stated = ", ".join(f"{called} = {size}" for called, size, _ in whole)
            rule = " and ".join(f"{called} must be a multiple of {n}" for called, _, n in whole)
            raise UnsupportedFormatError(
                f"{name!r} with {stated}: {rule}; pad the tensor to {padded}"
            )
