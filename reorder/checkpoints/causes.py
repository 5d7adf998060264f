"""Explain why the bytes of a tensor are not the expected ones.

Each known cause predicts every byte. A cause that does not predict all of them is not reported, so
nothing is guessed from statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memdesc import MemdescError, MemoryDesc, memory_desc
from memdesc.record import BIT_PLANES, Field, RecordDesc, record_desc
from memdesc.record.gguf import GGUF_TYPES
from reorder.api import reorder
from reorder.memory.arrays import bits_of, logical_array

Bytes = NDArray[np.uint8]
Order = Callable[[NDArray[np.int64]], NDArray[np.int64]]


# how many bytes are compared at a time, and how many of the first ones may refute a cause
_PIECE, _FIRST = 1 << 24, 4096
# sizes of the words whose bytes some machine may store in reverse
_WORDS = (1, 2, 4, 8)
# what may happen to elements along a dim, and their order then; groups are only swapped
_SWAPPED = "the halves of {} are swapped"
_ORDERS: dict[str, Order] = {
    _SWAPPED: lambda at: np.roll(at, len(at) // 2),
    "the rows of the halves of {} are interleaved": lambda at: at.reshape(2, -1).T.reshape(-1),
    "the even and the odd rows of {} are in halves": lambda at: at.reshape(-1, 2).T.reshape(-1),
}


@dataclass(eq=False)
class Part:
    """A tensor of a weight: the bytes found, and those expected."""

    found: Bytes
    wanted: Bytes
    # what they should hold, if that is one field; bytes over the dims, an axis more, for rows of
    # several fields, and for blocks of GGUF
    desc: MemoryDesc | None = None
    # how many adjacent elements of the whole weight along each dim share an element of this part
    groups: tuple[int, ...] = ()
    # whether the elements are scales
    is_scale: bool = False
    # which bytes of a block hold codes
    codes: NDArray[np.bool_] | None = None

    @cached_property
    def expected(self) -> NDArray[Any] | None:
        """The expected elements over the dims, as integers of their bits."""
        return None if self.desc is None else _elements(self.wanted, self.desc)

    @cached_property
    def elements(self) -> NDArray[Any] | None:
        """The elements found, over the dims; None if there are too few bytes for them."""
        if self.desc is None or len(self.found) < self.desc.min_nbytes:
            return None
        return _elements(self.found, self.desc)


def is_equal_bytes(one: Bytes, other: Bytes) -> bool:
    """Whether two buffers hold the same bytes; compared piece by piece."""
    return len(one) == len(other) and all(
        np.array_equal(one[at : at + _PIECE], other[at : at + _PIECE])
        for at in range(0, len(one), _PIECE)
    )


def parts_of_record(
    found: Mapping[str, Bytes], wanted: Mapping[str, Bytes], desc: RecordDesc
) -> list[Part]:
    """Return the tensors of a record as parts."""
    scales = {name for number in desc.rule.scale for name, _ in number.parts}
    parts = []
    for role, data in wanted.items():
        fields = [field for field in desc.fields if field.tensor == role]
        part = Part(found[role], data)
        if len(fields) == 1 and fields[0].kind not in BIT_PLANES:
            part.desc, part.groups = fields[0].desc, fields[0].groups
            part.is_scale = fields[0].name in scales
        elif len(found[role]) == len(data):
            _set_rows(part, desc, fields)
        parts.append(part)
    return parts


def _set_rows(part: Part, desc: RecordDesc, fields: list[Field]) -> None:
    """Describe a part as rows of bytes, or of blocks of bytes, if all of its fields are in rows."""
    *outer, last = desc.dims
    nbytes, rest = divmod(len(part.wanted), prod(outer) or 1)
    if rest or not nbytes or not all(_is_in_rows(field, outer, nbytes) for field in fields):
        return
    row = GGUF_TYPES.get(desc.name)
    block, size = (last, nbytes) if row is None else (row.block, row.nbytes)
    part.desc = memory_desc((*outer, nbytes // size, size), "u8")
    part.groups = (*(1 for _ in outer), block)
    if row is not None:
        part.codes = np.zeros(size, np.bool_)
        of_block = record_desc((block,), desc.name)
        for name, _ in desc.rule.code.parts:
            field = of_block.field(name)
            part.codes[(field.layout.offsets() * field.bits >> 3).reshape(-1)] = True


def _is_in_rows(field: Field, outer: list[int], nbytes: int) -> bool:
    """Whether each index of the outer dims has its own bytes, one index after another."""
    for dim, size in enumerate(outer):
        blocks = [block for block in field.layout.blocks if block.axis == dim]
        pitch = 8 * nbytes * prod(outer[dim + 1 :])
        is_one = len(blocks) == 1 and blocks[0].stride * field.bits == pitch
        if field.groups[dim] > 1 or not (is_one or size == 1):
            return False
    return True


def find_causes(parts: list[Part]) -> tuple[str, ...]:
    """Return what explains every byte that differs; several causes may predict the same bytes.

    A cause explains a weight if each of its tensors is as expected or as the cause predicts. Bytes
    and orders along a dim are compared piece by piece. A cause of the packing needs the elements of
    one tensor, found and expected, and two copies of it in memory.
    """
    wrong = [part for part in parts if not is_equal_bytes(part.found, part.wanted)]
    if not wrong:
        return ()
    return tuple(text for text, explains in _causes(wrong) if all(map(explains, wrong)))


def _causes(parts: list[Part]) -> Iterator[tuple[str, Callable[[Part], bool]]]:
    """Yield the causes that the parts may have, and whether each predicts all bytes of a part."""
    is_scales = all(part.is_scale for part in parts)
    plain = "the scales are plain instead of swizzled" if is_scales else "it is not packed"
    yield plain, _is_unpacked
    yield "it is packed twice", _is_packed_twice
    extents: dict[int, int] = {}
    for part in parts:
        shape = () if part.expected is None else part.expected.shape
        for dim, (size, group) in enumerate(zip(shape, part.groups, strict=False)):
            extents[dim] = max(extents.get(dim, 0), size * group)
    for pair in combinations(extents, 2):
        yield f"dims {pair[0]} and {pair[1]} are transposed", partial(_is_transposed, pair)
    for dim, extent in extents.items():
        for size in _even_divisors(extent):
            of = f"dim {dim}" if size == extent else f"each {size} along dim {dim}"
            # two rows are in one order only
            for text in [*_ORDERS][: None if size > 2 else 1]:  # noqa: PLR2004
                yield text.format(of), partial(_is_in_order, dim, size, text)
    for word in _WORDS:
        if word > 1:
            yield f"the bytes of each {word} are reversed", partial(_is_reversed, word, 0)
        each = f"{word} bytes" if word > 1 else "byte"
        yield f"the nibbles of each {each} are reversed", partial(_is_reversed, word, 4)


def _even_divisors(extent: int) -> list[int]:
    """Return the even divisors, the largest first."""
    counts = range(1, int(extent**0.5) + 1)
    found = {each for k in counts if not extent % k for each in (k, extent // k)}
    return sorted((each for each in found if not each % 2), reverse=True)


def _pieces(count: int, nbytes: int, first: int = _FIRST) -> Iterator[slice]:
    """Yield slices of rows, the smallest first: most causes already fail on those."""
    start, step = 0, max(1, first // nbytes)
    while start < count:
        yield slice(start, start + step)
        start, step = start + step, min(2 * step, max(1, _PIECE // nbytes))


def _is_in_order(dim: int, size: int, text: str, part: Part) -> bool:
    """Whether the elements are the expected ones in another order along a dim."""
    if part.elements is None or part.expected is None or dim >= len(part.groups):
        return False
    group, extent = part.groups[dim], part.expected.shape[dim]
    count = size // group
    # a single element cannot be halved
    if count < 2 or extent % count or (group > 1 and (text != _SWAPPED or size % (2 * group))):  # noqa: PLR2004
        return False
    at = (np.arange(0, extent, count)[:, None] + _ORDERS[text](np.arange(count))).reshape(-1)
    found, wanted = (np.moveaxis(each, dim, 0) for each in (part.elements, part.expected))
    pieces = _pieces(extent, max(1, found[:1].nbytes), 1)
    return all(np.array_equal(found[rows], wanted[at[rows]]) for rows in pieces)


def _is_reversed(word: int, shift: int, part: Part) -> bool:
    """Whether the bytes of each word, and with a shift the nibbles, are reversed."""
    if len(part.found) != len(part.wanted):
        return False
    masks = [np.ones(word, np.bool_)]
    if part.codes is not None and not np.count_nonzero(part.codes) % word:
        masks.append(part.codes)

    def predicted(rows: Bytes, mask: NDArray[np.bool_]) -> Bytes:
        made = rows.copy()
        turned = rows[:, mask].reshape(-1, word)[:, ::-1]
        if shift:
            turned = (turned << shift | turned >> shift).astype(np.uint8)
        made[:, mask] = turned.reshape(len(rows), -1)
        return made

    for mask in masks:
        width = len(mask)
        if len(part.found) % width == 0:
            found, wanted = (data.reshape(-1, width) for data in (part.found, part.wanted))
            pieces = _pieces(len(found), width)
            if all(np.array_equal(found[at], predicted(wanted[at], mask)) for at in pieces):
                return True
    return False


# --- packings ---


def _elements(data: Bytes, desc: MemoryDesc) -> NDArray[Any]:
    """Return the elements over the dims, as unsigned integers of their bits."""
    array = logical_array(data, desc.with_extra(None).with_dtype(_bits(desc)))
    return array.view(np.uint8) if desc.dtype.is_packed else array


def _packed(elements: NDArray[Any], desc: MemoryDesc) -> Bytes:
    """Return the bytes of elements, given as bits over the dims, in a layout."""
    return reorder(elements, desc.with_extra(None).with_dtype(_bits(desc))).data


def _bits(desc: MemoryDesc) -> str:
    return "u4" if desc.dtype.is_packed else f"u{desc.dtype.bits_dtype.itemsize * 8}"


def _is_row_major(desc: MemoryDesc) -> bool:
    return desc.with_extra(None) == memory_desc(desc.dims, desc.dtype)


def _is_unpacked(part: Part) -> bool:
    """Whether the elements are row by row, or codes of 4 bits one per byte."""
    desc, expected = part.desc, part.expected
    if desc is None or expected is None:
        return False
    if desc.dtype.is_packed:
        codes = np.ascontiguousarray(expected).reshape(-1)
        # unsigned ones, or those of pack_to_int32 before it makes them unsigned
        if any(is_equal_bytes(part.found, codes - np.uint8(low)) for low in (0, 8)):
            return True
    if _is_row_major(desc):
        return False
    rows = _packed(expected, memory_desc(desc.dims, desc.dtype))
    found, rest = part.found[: len(rows)], part.found[len(rows) :]
    return is_equal_bytes(found, rows) and not rest.any()


def _is_packed_twice(part: Part) -> bool:
    """Whether the packed bytes were taken to be rows and packed again."""
    desc = part.desc
    if desc is None or _is_row_major(desc) or len(part.found) != len(part.wanted):
        return False
    again = _like(desc, desc.padded_dims, len(part.found), desc.spelling)
    if again is None or desc.offset0:
        return False
    flat = bits_of(part.wanted, desc)[: again.nelems]
    return flat.size == again.nelems and is_equal_bytes(
        part.found, _packed(flat.reshape(again.dims), again)
    )


def _is_transposed(pair: tuple[int, int], part: Part) -> bool:
    """Whether two dims were swapped before the packing."""
    if max(pair) >= len(part.groups) or part.expected is None or part.desc is None:
        return False
    elements = part.expected.swapaxes(*pair)
    desc = _like(part.desc, elements.shape, len(part.found), part.desc.spelling)
    return desc is not None and is_equal_bytes(part.found, _packed(elements, desc))


@lru_cache(maxsize=64)
def _like(
    desc: MemoryDesc, dims: tuple[int, ...], nbytes: int, _spelling: str
) -> MemoryDesc | None:
    """Return the layout of the same name for other dims; None if none or several take `nbytes`."""
    if desc.dims == dims:
        found = {desc}
    elif _is_row_major(desc):
        found = {memory_desc(dims, desc.dtype)}
    else:
        found = set()
        for name in desc.names():
            with suppress(MemdescError):
                found.add(memory_desc(dims, desc.dtype, name.text))
    # a dim of size 1 can be anywhere in memory: names that differ there say nothing about others
    fitting = [each for each in found if each.nbytes == nbytes]
    return fitting[0] if len(fitting) == 1 else None
