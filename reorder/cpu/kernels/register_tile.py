"""One tile transposed in registers: loaded along src, stored along dst.

Each row of a tile is loaded as one vector, up to a cache line. The vectors are interleaved within
their 128-bit lanes in log2(n) rounds (`shuffle.transpose`), then the lanes are exchanged, and each
column is stored as one vector.
"""

from collections.abc import Iterator

from reorder.cpu.kernels.elements import Elements, Location
from reorder.cpu.kernels.loop_group import TileShape
from reorder.cpu.llvm.emit import Value, when
from reorder.cpu.llvm.shuffle import LANE_BITS, concatenate, exchange, pick, transpose
from reorder.cpu.target import LINE_BITS, register_bits

# Most registers of a cache line that hold a tile. Its transposition needs as many again; only
# AVX-512 has registers of this width, and it has 32.
_TILE_REGISTERS = 16
# Number of heights: from a cache line down to a sixteenth of it.
_HEIGHTS = 5
# Columns of fewer bits than this are stored element by element, without tiles.
_MIN_COLUMN_BITS = 32


def tile_heights(bits: int) -> tuple[int, ...]:
    """Return how many rows tiles may have, most first: from a cache line down to 32 bits."""
    line, least = LINE_BITS // bits, max(2, _MIN_COLUMN_BITS // bits)
    return tuple(line >> k for k in range(_HEIGHTS) if least <= line >> k)


def tile_shapes(bits: int, height: int) -> list[TileShape]:
    """Return the shapes of tiles of a height, widest first.

    The widest rows are a cache line, or less where the tile would need too many registers. Where
    registers are narrower, or columns are shorter than a line, rows have one 128-bit lane.
    """
    if register_bits() < LINE_BITS or height * bits < LINE_BITS:
        return [TileShape(height, LANE_BITS // bits)]
    widest = min(LINE_BITS, _TILE_REGISTERS * LINE_BITS // height)
    widths = [width for width in (widest, widest // 2) if width > LANE_BITS] or [LANE_BITS]
    return [TileShape(height, width // bits) for width in widths]


def emit_tile(
    elements: Elements,
    src: Location,
    dst: Location,
    tables: tuple[Value, Value],
    shape: TileShape,
    first_column: Value | None = None,
) -> None:
    """Move one tile; `tables` hold the offsets of its rows in src and of its columns in dst.

    Columns before `first_column`, which the previous tile has stored, are left out.
    """
    row_table, column_table = tables
    lines = [
        elements.load_vector(elements.moved(src, row_table[k]), shape.width)
        for k in range(shape.height)
    ]
    for k, column in enumerate(_columns(elements, lines)):
        target = elements.moved(dst, column_table[k])
        if first_column is None or k == shape.width - 1:
            elements.store_lines(column, target)
            continue
        with when(first_column <= k):
            elements.store_lines(column, target)


def _columns(elements: Elements, lines: list[Value]) -> Iterator[Value]:
    """Yield the columns of a tile, which is given as rows."""
    height, width = len(lines), lines[0].type.count
    lane = LANE_BITS // elements.bits
    across = min(height, lane)
    # the lanes of a joined vector hold rows that are `across` apart
    parts = width // lane
    rows_per_part = height // parts
    groups = []
    for first in range(0, height, rows_per_part):
        joined = [
            concatenate(lines[first + k : first + rows_per_part : across]) for k in range(across)
        ]
        groups.append(transpose(joined))
    exchanged = [exchange(list(vectors), lane) for vectors in zip(*groups, strict=True)]
    vectors = [vector for part in zip(*exchanged, strict=True) for vector in part]
    for vector in vectors:
        if across == lane:
            yield vector
            continue
        for i in range(0, lane, across):
            yield pick(vector, range(i, i + across))
