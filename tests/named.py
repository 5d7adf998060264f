"""Descriptors with any known name, in sizes that the name allows."""

import contextlib
from random import Random

from memdesc import (
    MemoryDesc,
    UnsupportedFormatError,
    data_type,
    known_names,
    memory_desc,
    parse_layout,
)
from memdesc.names import resolve

NAMES = [name for name in known_names() if "image" not in name.text]


def uneven_desc(name: str, random: Random) -> MemoryDesc | None:
    """Describe sizes of which few are whole blocks; None where the name is refused for them.

    Packings that take whole blocks only get these.
    """
    dtype = data_type(random.choice(("f32", "f16", "s8", "s4")))
    with contextlib.suppress(UnsupportedFormatError):
        tag = resolve(name, (), dtype.bits)
        dims = [random.choice((1, 2, 3, 5, 17)) for _ in range(tag.ndims)]
        with contextlib.suppress(UnsupportedFormatError):
            return memory_desc(dims, dtype, name)
        dims = [size * block for size, block in zip(dims, tag.block_sizes, strict=True)]
        return memory_desc(dims, dtype, name)
    return None


def buffer_layout(text: str, dims: tuple[int, ...] | None = None) -> MemoryDesc:
    """Read a layout that is not an image."""
    found = parse_layout(text, dims)
    assert isinstance(found, MemoryDesc)
    return found
