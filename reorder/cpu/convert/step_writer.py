"""Steps of a tile, as the records that the walker over tiles reads.

A step reads one buffer and writes another. A buffer is the tile in src or in dst, or a slot of
scratch, in which the tile is dense, in the order of its nodes.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from memdesc import DATA_TYPES
from reorder.cpu.caches import OWN_CACHE_NBYTES
from reorder.cpu.convert.records import (
    NO_OPERAND,
    ZEROED_LANES,
    Base,
    ConvertRecord,
    PrefetchRecord,
    Step,
)
from reorder.cpu.convert.row_tables import dense_strides, row_tables
from reorder.cpu.convert.scratch import SLOT_BITS
from reorder.cpu.convert.stages import convert_stage, prefetch_stage
from reorder.cpu.convert.tile_counts import LONG_ROW_BITS
from reorder.cpu.target import BYTE_BITS, LINE_BITS

if TYPE_CHECKING:
    from reorder.cpu.convert.recipe import Recipe
    from reorder.cpu.convert.row_tables import RowTables
    from reorder.cpu.convert.tiling import Tile
    from reorder.plan.nodes import Node

__all__ = ["Code", "StepOperand", "StepWriter", "TileBuffer"]

# Rows are prefetched this many bytes before they are read, all rows of a tile together.
_PREFETCH_NBYTES = 8192
# The hardware prefetches longer rows by itself: the limit is 256 bytes.
_MAX_PREFETCHED_BITS = 2048


class TileBuffer(NamedTuple):
    """A buffer that holds a tile: elements of a type, with a stride for each node of the tile."""

    # a `Base` or an address
    base: int
    dtype: str
    # operand whose offset places the tile, `NO_OPERAND` for slots
    placed_by: int
    strides: list[int]

    @property
    def is_slot(self) -> bool:
        """Whether it is a slot of scratch."""
        return self.placed_by < 0

    @property
    def bits(self) -> int:
        """Width of an element."""
        return DATA_TYPES[self.dtype].bits

    def reordered(self, order: list[int]) -> TileBuffer:
        """Return the buffer for a tile whose nodes are taken in another order."""
        return self._replace(strides=[self.strides[k] for k in order])


class Code(NamedTuple):
    """The code that a step calls, and its arguments: fields of a `Step`."""

    walker: int
    program: int
    tasks: int = 0
    task_count: int = 1


class StepOperand(NamedTuple):
    """The third side of a step, which arithmetic has: fields of a `Step`."""

    base: int = Base.SRC
    placed_by: int = NO_OPERAND
    shift: int = 0
    number_base: int = Base.SRC


class StepWriter:
    """Writes the steps of tiles of one shape.

    Parameters
    ----------
    recipe : Recipe
        What all tiles of a plan share.
    tile : Tile
        The tiles.
    outer_strides : list of tuple of int
        For each operand the offset of the first tile and the strides of the loops over tiles.
        Elements are packed into wider ones only if all of these are multiples of the wider
        element.
    """

    def __init__(self, recipe: Recipe, tile: Tile, outer_strides: list[tuple[int, ...]]) -> None:
        self.recipe, self.tile, self.outer_strides = recipe, tile, outer_strides
        # the data of a tile: moves write its padding, or masked stores behind rows
        self.nodes = tuple(node._replace(extent=node.valid) for node in tile.inner)
        self.dense = dense_strides(self.nodes)
        self.steps: list[Step] = []

    def reordered(self, nodes: list[Node]) -> StepWriter:
        """Return a writer of steps for the same tiles with their inner nodes in another order."""
        writer = StepWriter(self.recipe, self.tile._replace(inner=tuple(nodes)), self.outer_strides)
        writer.steps = self.steps
        return writer

    def slot(self, base: Base, dtype: str) -> TileBuffer:
        """Return a slot of scratch that holds the tile."""
        nbits = prod(node.valid for node in self.nodes) * DATA_TYPES[dtype].bits
        # a longer tile would overwrite the next slot
        assert nbits <= SLOT_BITS  # noqa: S101 - tiles are cut to fit
        return TileBuffer(base, dtype, NO_OPERAND, self.dense)

    def in_place(self, base: Base, dtype: str) -> TileBuffer:
        """Return the tile where it lies in src, or in dst."""
        return TileBuffer(base, dtype, int(base), [node.strides[base] for node in self.nodes])

    def end_of(self, buffer: TileBuffer) -> int:
        """Return how many elements of a buffer may be read."""
        if buffer.is_slot:
            return SLOT_BITS // buffer.bits
        return self.recipe.ends[buffer.placed_by]

    def streams(self, dst: TileBuffer, columns: int) -> bool:
        """Whether rows are written to dst by non-temporal stores."""
        is_packed = DATA_TYPES[dst.dtype].is_packed
        if dst.base is not Base.DST or is_packed or self.zeroed_extent(dst):
            return False
        nbits = columns * dst.bits
        is_long = self.recipe.streams_rows and self.tile.reads and nbits >= LONG_ROW_BITS
        return is_long or (self.recipe.streams and nbits >= LINE_BITS)

    def zeroed_extent(self, dst: TileBuffer) -> int:
        """Return how many elements a row of dst has with the zeros behind it; 0: no zeros."""
        padded = [node for node in self.tile.inner if node.valid < node.extent]
        # a tile that is written in place has no others than the innermost one
        return padded[0].extent if padded and self.tile.writes and dst.base is Base.DST else 0

    def masked_extent(self, dst: TileBuffer, columns: int) -> int:
        """Return how many elements masked stores write for a row: short ones, and zeros behind."""
        return self.zeroed_extent(dst) or (columns if columns < ZEROED_LANES else 0)

    def prefetch_distance(self, src: TileBuffer, rows: RowTables) -> int:
        """Return how many bytes ahead rows are prefetched; 0: not at all."""
        if src.base is not Base.SRC or not self.recipe.prefetches:
            return 0
        if rows.rows == 1:
            return _PREFETCH_NBYTES  # it goes on in the next tile
        # what follows each row, if that is read soon, or the row of the next tile
        nbytes = rows.columns * src.bits // BYTE_BITS
        if not self._is_followed_soon(src, rows.columns) and self.tile.outer:
            return abs(self.tile.outer[-1].strides[src.base]) * src.bits // BYTE_BITS
        return max(nbytes, _PREFETCH_NBYTES // rows.rows)

    def _is_followed_soon(self, src: TileBuffer, columns: int) -> bool:
        """Whether what follows rows of src is read while it is still in the caches of the core."""
        if any(abs(stride) == columns for stride in src.strides):
            return True
        outer = [node for node in self.tile.outer if node.extent > 1]
        followed = [k for k, node in enumerate(outer) if abs(node.strides[src.base]) == columns]
        if not followed:
            return False
        tiles = prod(node.extent for node in outer[followed[-1] + 1 :])
        bits = DATA_TYPES[self.recipe.src].bits + DATA_TYPES[self.recipe.dst].bits
        nbytes = tiles * prod(node.valid for node in self.nodes) * bits // BYTE_BITS
        return nbytes <= OWN_CACHE_NBYTES // 2

    def convert(self, src: TileBuffer, dst: TileBuffer, *, as_codes: bool = False) -> TileBuffer:
        """Convert into another type; with `as_codes` only the width of codes changes."""
        rows = row_tables(self.nodes, [src.strides, dst.strides])
        distance = self.prefetch_distance(src, rows)
        extent = self.masked_extent(dst, rows.columns)
        record = ConvertRecord(rows.rows, rows.columns, extent, distance)
        src_table, dst_table = rows.tables
        program = self.recipe.keep([*record, *src_table, *dst_table])
        streams = self.streams(dst, rows.columns)
        stage = convert_stage(src.dtype, dst.dtype, streams=streams, as_codes=as_codes)
        return self.step(Code(stage, program), src, dst)

    def prefetch(self, src: TileBuffer) -> None:
        """Prefetch what follows each row of the tile: the rows of a later tile."""
        order = sorted(range(len(self.nodes)), key=lambda k: -abs(src.strides[k]))
        nodes = tuple(self.nodes[k] for k in order)
        rows = row_tables(nodes, [src.reordered(order).strides])
        (table,) = rows.tables
        if rows.columns * src.bits > _MAX_PREFETCHED_BITS:
            return
        record = PrefetchRecord(rows.rows, rows.columns * src.bits // BYTE_BITS, src.bits)
        following = (start + rows.columns for start in table)
        self.step(Code(prefetch_stage(), self.recipe.keep([*record, *following])), src, src)

    def step(
        self,
        code: Code,
        src: TileBuffer,
        dst: TileBuffer,
        *,
        shift: int = 0,
        operand: StepOperand = StepOperand(),  # noqa: B008 - a constant
    ) -> TileBuffer:
        """Write a step; returns where it leaves the tile."""
        src_side, dst_side = (src.base, src.placed_by, shift), (dst.base, dst.placed_by, shift)
        self.steps.append(Step(*code, *src_side, *dst_side, *operand))
        return dst
