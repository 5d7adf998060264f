"""Where compiled code finds the fields of a record: a pattern in each block, and a table of starts.

The last dim is cut into blocks that all have the same pattern. Along a segment of a row each field
advances by a constant number of bytes from block to block; a table holds the starts of the
segments. A kernel is compiled for the pattern of a block, so records of one format share it,
whatever their dims.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.tuples import NamedTuple
from reorder.cpu.machine import LINE_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc.record import Field, Number, RecordDesc, Rule

# Elements of one vector: a 512-bit register of f32.
MAX_LANES = 16
# Block sizes in the order in which they are tried: fewer than 64 elements leave loops short, and
# more than 256 make much code.
_BLOCKS = (64, 128, 256, 32, 16, 8, 4, 2, 1)
# Types whose numbers f32 does not hold.
_WIDE = frozenset(("s32", "u32", "s64", "u64", "f64", "boolean"))


class FieldPattern(NamedTuple):
    """A field in a block."""

    name: str
    kind: str
    bits: int
    # for each element of the block: the bit at which its value in this field starts
    offsets: tuple[int, ...]


class Pattern(NamedTuple):
    """Everything that the code of a kernel depends on besides the type that it writes."""

    block: int
    fields: tuple[FieldPattern, ...]
    rule: Rule
    # hash of the others: 0.0 equals -0.0, but not in code
    key: str

    def run_of_codes(self, number: Number) -> int:
        """Return how many adjacent elements share a code: a power of two that divides the block."""
        names = {name for name, _ in number.parts}
        return _run([field.offsets for field in self.fields if field.name in names], self.block)

    def run_of(self, number: Number) -> int:
        """Return how many adjacent elements share a value."""
        return self.run_of_codes(number) if number.codebook is None else 1


class PlacedPattern(NamedTuple):
    """A pattern, and where its blocks are in one record."""

    pattern: Pattern
    # the tensor of each field, and its bytes from one block to the next
    tensors: tuple[str, ...]
    advances: tuple[int, ...]
    # blocks of a segment; for each segment and field the byte at which it starts
    blocks: int
    starts: NDArray[np.int64]
    # bytes of all tensors together, whichever fields share one
    nbytes: int

    def part(self, first: int, last: int) -> PlacedPattern:
        """Return how compiled code reads the segments from `first` to before `last`."""
        starts = self.starts[first:last]
        nbytes = self.nbytes * len(starts) // len(self.starts)
        return self._replace(starts=starts, nbytes=nbytes)


class DecodeKernel(NamedTuple):
    """What the code depends on."""

    pattern: Pattern
    # name of the type that it writes
    dtype: str
    # whether dst, which is aligned to cache lines, is written by non-temporal stores
    streams: bool = False

    @property
    def fills_lines(self) -> bool:
        """Whether the elements of a block are whole cache lines."""
        return self.pattern.block * DATA_TYPES[self.dtype].bits % LINE_BITS == 0

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return min(MAX_LANES, self.pattern.block)


class DecodeHead(NamedTuple):
    """The instruction that decodes a record; a `FieldHead` for each field follows."""

    # blocks of a segment
    blocks: int
    # address of the table of starts: for each segment, the byte at which each field starts
    starts: int


class FieldHead(NamedTuple):
    """A field: the address of its tensor, and its bytes from one block to the next."""

    tensor: int
    advance: int


@lru_cache(maxsize=32)
def place_pattern(desc: RecordDesc) -> PlacedPattern | None:
    """Return how compiled code reads a record; None without common blocks, or beyond f32."""
    columns = desc.dims[-1]
    if not prod(desc.dims) or any(
        part.kind in _WIDE or part.layout.fused() for part in desc.fields
    ):
        return None
    # bits from the start of a row to each element, for each field
    rows = [part.layout.tables()[-1][part.along_last(columns)] * part.bits for part in desc.fields]
    periods = [len(number.codebook.lanes) for number in desc.rule.numbers if number.codebook]
    patterns = [
        (block, _segment([row[::block] for row in rows]))
        for block in _BLOCKS
        if columns % block == 0
        and not any(block % period for period in periods)
        and all(_repeats(row, block) for row in rows)
    ]
    if not patterns:
        return None
    # the block with the longest segments; if several are equal, the first
    return _placed(desc, rows, *max(patterns, key=lambda pattern: pattern[0] * pattern[1]))


def _repeats(row: NDArray[np.int64], block: int) -> bool:
    """Whether all blocks of a row have the same pattern in a field, whole bytes apart."""
    blocks = row.reshape(-1, block)
    inside = blocks - blocks[:, :1]
    return bool(
        (inside == inside[0]).all() and not ((blocks[:, 0] - blocks[0, 0]) % BYTE_BITS).any()
    )


def _placed(
    desc: RecordDesc, rows: list[NDArray[np.int64]], block: int, segment: int
) -> PlacedPattern | None:
    starts = [row[::block] for row in rows]
    advances = [int(start[1] - start[0]) if segment > 1 else 0 for start in starts]
    table = np.stack(
        [
            (_rows_of(part, desc.dims)[:, None] + start[::segment]).reshape(-1)
            for part, start in zip(desc.fields, starts, strict=True)
        ],
        axis=1,
    )
    # bits below a byte belong to the pattern, and must be the same everywhere
    rest = table[0] % BYTE_BITS
    if (table % BYTE_BITS != rest).any():
        return None
    fields = tuple(
        FieldPattern(part.name, part.kind, part.bits, tuple((row[:block] - row[0] + bit).tolist()))
        for part, row, bit in zip(desc.fields, rows, rest, strict=True)
    )
    key = sha256(repr((block, fields, desc.rule)).encode()).hexdigest()[:14]
    return PlacedPattern(
        Pattern(block, fields, desc.rule, key),
        tuple(part.tensor for part in desc.fields),
        tuple(advance // BYTE_BITS for advance in advances),
        segment,
        np.ascontiguousarray(table // BYTE_BITS),
        desc.bare.nbytes,
    )


def _segment(starts: list[NDArray[np.int64]]) -> int:
    """Return the most blocks in a row for which all fields advance evenly."""
    count = len(starts[0])
    steps = np.stack([np.diff(start) for start in starts])
    uneven = np.flatnonzero((steps != steps[:, :1]).any(0))
    if not len(uneven):
        return count
    segment = int(uneven[0]) + 1
    if count % segment:
        return 1
    inside = np.stack([np.diff(start.reshape(-1, segment), axis=1) for start in starts])
    return segment if (inside == inside[:, :1, :1]).all() else 1


def _rows_of(part: Field, dims: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the bit at which each row of a field starts, rows in row-major order."""
    total = np.full((1,), part.layout.offset0, np.int64)
    for dim, table in enumerate(part.layout.tables()[:-1]):
        along = table[np.arange(dims[dim]) // part.groups[dim]]
        total = (total[:, None] + along).reshape(-1)
    return total * part.bits


def _run(offsets: list[tuple[int, ...]], block: int) -> int:
    """Return how many adjacent elements have one place in all fields: the largest power of two."""
    run = 1
    while (
        2 * run <= block
        and block % (2 * run) == 0
        and all(
            len(set(field[start : start + 2 * run])) == 1
            for field in offsets
            for start in range(0, block, 2 * run)
        )
    ):
        run *= 2
    return run
