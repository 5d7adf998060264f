"""Vocabularies as systems: their strings are names, and dims are given beside them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from memdesc.build import layout_by_tag
from memdesc.create import memory_desc
from memdesc.desc import MemoryDesc
from memdesc.exchange.system import System, cannot, tag_of
from memdesc.names.onednn import CANONICAL
from memdesc.notation import parse_tag

if TYPE_CHECKING:
    from memdesc.exchange.system import Given
    from memdesc.names.vocabulary import Vocabulary

__all__ = ["NOTATION", "system_of"]


def system_of(vocabulary: Vocabulary) -> System:
    """Return a vocabulary as a system: its names of a layout, canonical tags first."""
    return System(
        vocabulary.name,
        f"names of {vocabulary.name}",
        partial(_write, vocabulary),
        partial(_read, vocabulary),
    )


def _write(vocabulary: Vocabulary, desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
    names = [name for name in desc.tags() if name.vocabulary == vocabulary.name]
    if not names:
        tag = tag_of(vocabulary.name, desc)
        raise cannot(vocabulary.name, desc, f"it has no name for {tag} of {desc.dtype}")
    names.sort(key=lambda name: name.domain != CANONICAL)
    return tuple(name.text for name in names)


def _read(vocabulary: Vocabulary, given: Given) -> MemoryDesc:
    dims, dtype = given.sizes(), given.type()
    notation = vocabulary.by_bits.get(dtype.bits, {}).get(given.text)
    tag = parse_tag(notation) if notation else vocabulary.parse(given.text)
    if vocabulary.check_dims is not None and len(dims) == tag.ndims:
        vocabulary.check_dims(given.text, dims, tag)
    return MemoryDesc(dtype, layout_by_tag(tag, dims, given.text))


def _write_notation(desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
    return (str(tag_of("memdesc", desc)),)


def _read_any(given: Given) -> MemoryDesc:
    return memory_desc(given.sizes(), given.type(), given.text)


# what `memory_desc` reads, and str(FormatTag) writes
NOTATION = System("memdesc", "any name, and the notation of FormatTag", _write_notation, _read_any)
