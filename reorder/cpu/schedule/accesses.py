"""How much work a transposition of two loop groups is: a model of its kernel, a pure function.

The kernel moves tiles in registers. Its work is mostly loads and stores of vectors, so groups are
compared by their number. The weights of what else takes time were measured.
"""

from __future__ import annotations

from functools import lru_cache

from reorder.cpu.target import BYTE_BITS, LINE_BITS

__all__ = ["count_accesses"]

# Bits of the narrowest tile, and of what a tile holds at most.
_LANE_BITS, _TILE_BITS = 128, 16 * LINE_BITS
# Bits of the shortest piece of a column that a tile stores, and the most rows of a tile.
_MIN_PIECE_BITS, _MAX_ROWS = 32, 64
# Tiles of a line are used if at most this part of the rows is moved twice.
_REPEATED_PART = 8
# The highest tile that may be higher than all rows, which fill more than five eighths of it.
_MASKED_ROWS, _MASKED_EIGHTHS = 32, 5
# What tiles of one height cost for each two lines of columns, beside loads and stores: as much as
# they have rows, up to this.
_MAX_TILE_COST = 16
# Lines of dst are prefetched for rows of at least so many; shorter ones that end within a line
# cost a store more for each column.
_PREFETCHED_LINES = 2


@lru_cache(maxsize=1 << 12)
def count_accesses(width: int, height: int, bits: int) -> int:
    """Return what it costs to transpose columns and rows, as a number of vectors moved.

    The model: each row of a tile is loaded in vectors of up to a line, its tail in vectors of 128
    bits, and each column is stored in pieces as long as the tile is high; tiles at the end overlap
    those before them. Columns of less than 128 bits need tables and loads of lines that are used in
    part, rows of less than 128 bits are extracted one by one.

    Parameters
    ----------
    width, height : int
        Columns, which are contiguous in src, and rows, which are contiguous in dst.
    bits : int
        The width of an element.

    Examples
    --------
    16 x 16 tiles of 32 bits have 16 loads and 16 stores:

    >>> count_accesses(16, 256, 32) - count_accesses(16, 128, 32)
    384
    >>> count_accesses(9, 64, 32) / (9 * 64) > count_accesses(72, 8, 32) / (72 * 8)
    True
    """
    bits = max(bits, BYTE_BITS)
    line, lane = LINE_BITS // bits, _LANE_BITS // bits
    tile = _tile_height(height, line)
    if tile == 1:
        return 2 * width * height
    tiles = -(-height // tile)
    widths = [lane]
    if tile == line <= height:
        widest = min(line, _TILE_BITS // bits // tile)
        widths = [columns for columns in (widest, widest // 2) if columns > lane] or widths
    whole = next((columns for columns in widths if columns <= width), lane)
    tails = -(-(width % whole) // lane)
    columns = width // whole * whole + tails * lane
    accesses = tiles * tile * (width // whole + tails) + tiles * columns
    if height < _PREFETCHED_LINES * line and height % line and line % height:
        accesses += width
    if height < lane:
        accesses += 2 * width
    if width < lane:
        accesses *= 2
    sweeps = 1 if height <= line else -(-width // (2 * line))
    return accesses + min(line, _MAX_TILE_COST) * -(-height // line) * sweeps


def _tile_height(height: int, line: int) -> int:
    """Return how many rows the tiles have with which the kernel moves some rows; 1: it has none.

    `line` is the elements of a cache line.
    """
    least = max(2, _MIN_PIECE_BITS * line // LINE_BITS)
    tile = min(line, _MAX_ROWS)
    while tile >= least:
        is_masked = tile == min(line, _MASKED_ROWS) and 8 * height > _MASKED_EIGHTHS * tile
        most = height // _REPEATED_PART if tile == line else tile
        if (is_masked and height < tile) or (height >= tile and -height % tile <= most):
            return tile
        tile //= 2
    return 1
