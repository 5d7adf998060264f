"""Every layout of given dims and data type that some system has a name for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from itertools import permutations
from math import prod

from memdesc import DataType, MemdescError, MemoryDesc, UnsupportedFormatError, memory_desc
from memdesc.desc import desc_of
from memdesc.dtypes import BYTE_BITS
from memdesc.layout import layout_by_tag
from memdesc.names import known_images, resolve_image
from memdesc.names.registry import names_for
from memdesc.tags import LETTERS, FormatTag, parse_tag
from memdesc.tuples import NamedTuple

# All orders of at most this many dims are tried for every name: 24 of them.
MAX_ORDERED = 4
# The most elements of a matrix that swizzles are tried for: tiles are small.
_MAX_SWIZZLED = 1 << 16
_MATRIX = 2
# All permutations of at most this many dims are tried: 120 of them.
_MAX_PERMUTED = 5


class Known(NamedTuple):
    """Descriptors that put every element at the same offset.

    Dim k of `descs` is dim ``order[k]`` of the caller; those with fewest blocks come first. `key`
    identifies the offsets in terms of the caller's dims.
    """

    order: tuple[int, ...]
    descs: list[MemoryDesc]
    key: tuple[object, ...]

    @property
    def by_caller(self) -> MemoryDesc:
        """The layout in terms of the caller's dims."""
        return self.descs[0].permute_axes(self.order)

    def with_dtype(self, dtype: DataType) -> Known:
        """Return the same layouts of elements of another type of the same width."""
        key = (dtype.name, *self.key[1:])
        return Known(self.order, [desc.with_dtype(dtype) for desc in self.descs], key)


def known_layouts(
    dims: tuple[int, ...], dtype: DataType, order: tuple[int, ...], nbytes: int
) -> tuple[list[Known], set[int]]:
    """Return every known layout of a size once: named ones, and row-major ones in any order.

    `dims` are the logical sizes in the caller's order; dim k of a name is dim ``order[k]`` of the
    caller. Some names exist only for some widths of the type.

    Returns the layouts of `nbytes`, and the sizes of all known layouts, in bytes.
    """
    ordered = tuple(dims[k] for k in order)
    found: dict[tuple[object, ...], list[MemoryDesc]] = {}
    sizes = set()
    for tag in _known_tags(ordered, dtype.bits):
        try:
            layout = layout_by_tag(tag, ordered)
        except MemdescError:  # padded beyond int64
            continue
        sizes.add(dtype.nbytes(layout.span))
        if dtype.nbytes(layout.span) == nbytes:
            desc = desc_of(dtype, layout)
            found.setdefault(_key(desc.permute_axes(order)), []).append(desc)
    for desc in _swizzled_tiles(ordered, dtype):
        sizes.add(desc.nbytes)
        if desc.nbytes == nbytes:
            found.setdefault(_key(desc.permute_axes(order)), []).append(desc)
    layouts = [Known(order, sorted(descs, key=_count_blocks), key) for key, descs in found.items()]
    return layouts, sizes


# enough for one tensor with its dims in any order, in several widths
@lru_cache(maxsize=32)
def _known_tags(dims: tuple[int, ...], bits: int) -> tuple[FormatTag, ...]:
    """Return the tags of all names that exist for these sizes and this width, without repeats."""
    letters = LETTERS[: len(dims)]
    plain = map("".join, permutations(letters)) if len(dims) <= _MAX_PERMUTED else [letters]
    found = dict.fromkeys(parse_tag(text) for text in plain)
    for known, parsed in names_for(len(dims), bits):
        with suppress(UnsupportedFormatError):  # a name for other sizes
            parsed.vocabulary.check_dims(known.text, dims, parsed.tag)
            found[parsed.tag] = None
    for name in known_images():
        with suppress(MemdescError):  # a name for other dims
            tag = resolve_image(name.text, dims).tag
            # one of a fused index puts elements where row-major does, and pads only the end
            if tag.ndims == len(dims) and not any(len(each) > 1 for each in tag.axes):
                found[tag] = None
    return tuple(found)


def _swizzled_tiles(dims: tuple[int, ...], dtype: DataType) -> Iterator[MemoryDesc]:
    """Yield the usual swizzles of a matrix: CUTLASS's atoms and Triton's tiles."""
    if len(dims) != _MATRIX or not 0 < prod(dims) <= _MAX_SWIZZLED or dtype.bits < BYTE_BITS:
        return
    chunk = 128 // dtype.bits
    texts = [f"{major}_SW{width}" for major in ("K", "MN") for width in (32, 64, 128)]
    texts += [f"NVMMASharedLayout({width}, {dtype.bits})" for width in (32, 64, 128)]
    texts += [
        f"SwizzledSharedLayout({chunk}, {per}, {most}, {order})"
        for per, most in ((1, 8), (2, 4), (4, 2))
        for order in ([1, 0], [0, 1])
    ]
    for text in texts:
        with suppress(MemdescError):  # dims that are not whole tiles
            desc = memory_desc(dims, dtype, text)
            if desc.layout.xor:
                yield desc


def _count_blocks(desc: MemoryDesc) -> int:
    return len(desc.layout.blocks)


def _key(desc: MemoryDesc) -> tuple[object, ...]:
    """Return a value that descriptors of the same dims and dtype share if all offsets are equal."""
    layout = desc.layout
    tables = [layout.offsets()] if layout.xor else layout.tables()
    offsets = b"".join(table.tobytes() for table in tables)
    axes = tuple(axis.dims for axis in layout.axes)
    return (desc.dtype.name, desc.nbytes, axes, blake2b(offsets, digest_size=16).digest())
