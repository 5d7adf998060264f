"""The steps of a tile: which code runs, what it reads, and where: a pure function of the tile.

A step reads one buffer and writes another. A buffer is the tile in src or in dst, or a slot of
scratch, in which the tile is dense, in the order of its nodes.

A tile takes these steps in this order, each only if needed: move out of src; convert to the working
type; run the post-ops, the first of which may load elements of src and the last may store elements
of dst; convert to the type of dst; move into dst, which writes the padding too.
"""

from math import prod
from typing import Any

import numpy as np

from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.tuples import NamedTuple
from reorder.cpu.machine import LINE_BITS, LINE_NBYTES
from reorder.cpu.schedule.batches import BatchBuilder
from reorder.cpu.schedule.cuts import tile_boxes
from reorder.cpu.schedule.operands import TileRows, dense_strides, find_rows, gathered, rows_of
from reorder.cpu.schedule.partition import partition_chunks
from reorder.cpu.schedule.permuted import permuted_boxes
from reorder.cpu.schedule.post_ops import (
    Conversion,
    Stage,
    as_bytes,
    convert,
    tables_of,
)
from reorder.cpu.schedule.program import encode
from reorder.cpu.schedule.select import Kernel, pack_for_kernels
from reorder.cpu.schedule.tile_program import (
    NO_OPERAND,
    SLOT_BITS,
    SLOT_NBYTES,
    Base,
    Operation,
    StageTable,
    StageTypes,
    TileStep,
    encode_tile,
)
from reorder.cpu.schedule.tiles import LONG_ROW_BITS, Tile
from reorder.cpu.tables import Array, joined_in_lines
from reorder.plan.nodes import DST, SRC, Box, Node
from reorder.plan.passes import simplify
from reorder.values.binding import BETA


class _Buffer(NamedTuple):
    """A buffer that holds a tile: elements of a type, with a stride for each node of the tile."""

    base: Base
    dtype: str
    strides: list[int]

    @property
    def is_packed(self) -> bool:
        """Whether elements share bytes."""
        return DATA_TYPES[self.dtype].is_packed

    @property
    def bits(self) -> int:
        """Width of an element."""
        return DATA_TYPES[self.dtype].bits


def _order(strides: list[int]) -> list[int]:
    """Return nodes in the order of their strides, outermost first."""
    return sorted(range(len(strides)), key=lambda k: -abs(strides[k]))


class StepWriter:
    """Writes the steps of tiles of one shape.

    With `is_indirect`, the tiles belong to a box with indirect loops, and start at any offsets.
    """

    def __init__(
        self, builder: BatchBuilder, conversion: Conversion, tile: Tile, *, is_indirect: bool
    ) -> None:
        self.builder, self.conversion = builder, conversion
        self.tile, self.is_indirect = tile, is_indirect
        # the data of a tile, and the tile with its padding, which moves write
        self.nodes = tuple(node._replace(extent=node.valid) for node in tile.inner)
        self.padded = tuple(node._replace(valid=node.extent) for node in tile.inner)
        self.steps: list[TileStep] = []
        # for each operand the offset of the first tile, and the strides of the loops over tiles
        self.offsets = [*tile.offsets]
        self.outer_strides = [
            [node.strides[k] for node in tile.outer] for k in range(len(self.offsets))
        ]

    def write(self) -> list[Any]:
        """Write all steps; return the instruction of the tiles, as `encode_tile` does."""
        tile, conversion = self.tile, self.conversion
        buffer = self.in_place(Base.SRC, conversion.src)
        in_dst = self.in_place(Base.DST, conversion.dst)
        stages = conversion.stages(reads=tile.reads, writes=tile.writes)
        if stages and not tile.reads:
            buffer = self.move(buffer, self.slot(Base.VALUES, stages[0].src))
        old = self.read_old() if BETA in conversion.values else None
        for k, stage in enumerate(stages, 1):
            is_last = tile.writes and k == len(stages)
            other = Base.OTHERS if buffer.base is Base.VALUES else Base.VALUES
            dst = in_dst if is_last else self.slot(other, stage.dst)
            buffer = self.run(stage, buffer, dst, old)
        if not tile.writes or not stages:
            self.move(buffer, in_dst, pads=not tile.writes)
        outer = [
            node._replace(strides=tuple(strides[n] for strides in self.outer_strides))
            for n, node in enumerate(tile.outer)
        ]
        return encode_tile(self.offsets, outer, self.steps)

    def slot(
        self, base: Base, dtype: str, like: _Buffer | None = None, *, padded: bool = False
    ) -> _Buffer:
        """Return a slot that holds the tile, in the order of its nodes or of a buffer."""
        extents = [node.valid for node in (self.padded if padded else self.nodes)]
        # a longer tile would overwrite the next slot
        assert prod(extents) * DATA_TYPES[dtype].bits <= SLOT_BITS  # noqa: S101 - tiles are cut to fit
        order = [*range(len(extents))] if like is None else _order(like.strides)
        strides = dict(zip(order, dense_strides([extents[k] for k in order]), strict=True))
        return _Buffer(base, dtype, [strides[k] for k in range(len(extents))])

    def in_place(self, base: Base, dtype: str) -> _Buffer:
        """Return the tile in its place in src or dst."""
        return _Buffer(base, dtype, [node.strides[base] for node in self.nodes])

    def read_old(self) -> _Buffer:
        """Return the values that dst holds before the reorder."""
        old = self.in_place(Base.DST, self.conversion.dst)
        if not self.tile.writes:
            old = self.move(old, self.slot(Base.OLD_ELEMENTS, old.dtype))
        if old.dtype == self.conversion.work:
            return old
        return self.convert(old, self.slot(Base.OLD_VALUES, self.conversion.work))

    def convert(self, src: _Buffer, dst: _Buffer, *, padded: bool = False) -> _Buffer:
        """Convert into another type."""
        return self.run(convert(src.dtype, dst.dtype), src, dst, padded=padded)

    def run(
        self,
        stage: Stage,
        src: _Buffer,
        dst: _Buffer,
        old: _Buffer | None = None,
        *,
        padded: bool = False,
    ) -> _Buffer:
        """Write the step of a stage into a buffer, in its order; return the buffer.

        `old` holds the operands of `ACCUMULATE`.
        """
        order, nodes = _order(dst.strides), self.padded if padded else self.nodes
        operation = stage.operation
        base: Any = Base.SRC
        values: list[Array] = []
        if stage.role:
            given = self.conversion.values[stage.role]
            operation, values = tables_of(stage, given, self.builder.machine.instructions)
        strides, loops, operand, beta = [0] * len(nodes), None, NO_OPERAND, 0
        if operation is Operation.ACCUMULATE:
            assert old is not None  # noqa: S101 - there are values to add
            beta = int.from_bytes(values[0].tobytes(), "little", signed=True)
            strides, values, base = old.strides, [], old.base
            operand = DST if old.base is Base.DST else NO_OPERAND
        elif stage.role in self.conversion.varying:
            # operands follow src and dst
            operand = DST + 1 + self.conversion.varying.index(stage.role)
            strides = [node.strides[operand] for node in nodes]
            extents = [node.extent for node in self.tile.outer]
            loops = [*zip(extents, self.outer_strides[operand], strict=True)]
        sides = [*zip(src.strides, dst.strides, strides, strict=True)]
        ordered = tuple(nodes[n]._replace(strides=sides[n]) for n in order)
        rows = find_rows(ordered, None if self.is_indirect else loops)
        if loops is not None and rows.block is not None:
            start = self.offsets[operand]
            places, self.outer_strides[operand] = gathered(start, loops, rows.block)
            self.offsets[operand], values = 0, [table[places] for table in values]
        streams = self._streams(dst, rows)
        if rows.period and values:
            is_long = dst.bits >= src.bits and rows.columns * dst.bits >= LONG_ROW_BITS
            first = self._first_line(dst) if streams or is_long else 0
            values = self._aligned(values, operand, first)
        if values:
            base = joined_in_lines(values)
        inverses = len(values[0]) if len(values) > 1 else 0
        tables = rows.tables
        found = rows.columns, rows.period, rows.reciprocal, rows.shift
        head = StageTable(len(tables[0]), *found, inverses, beta)
        words = [start for starts in tables for start in starts]
        lines = self._prefetched_lines(order)
        program = np.array([*head, *words, *lines], np.int64)
        bits = DATA_TYPES[self.conversion.src].bits if lines else 0
        how = streams, bits, rows.operands
        code = StageTypes(src.dtype, dst.dtype, stage.work, operation, *how)
        self.steps.append(TileStep(code, program, 0, 1, src.base, dst.base, base, operand))
        return dst

    def _prefetched_lines(self, order: list[int]) -> list[int]:
        """Return where lines start that the next stage prefetches, in bytes from a tile in src.

        The first stage of a tile prefetches the tile that follows, unless the data fit into the
        thread's share of the caches. The model: a core can wait for few lines at once, and its
        prefetchers follow few rows. They start to follow each row that is read or prefetched as a
        whole before the next one, which costs time; so one line of each row is prefetched, then the
        next line of each.
        """
        has_stage = any(isinstance(step.interpreter, StageTypes) for step in self.steps)
        if not self.builder.streams_rows or has_stage:
            return []
        src = self.in_place(Base.SRC, self.conversion.src)
        nodes = tuple(self.nodes[k] for k in _order(src.strides))
        starts, columns = rows_of(nodes, SRC)
        bits = src.bits
        is_in_order = len(starts) == 1 and self.tile.reads and order == _order(src.strides)
        if is_in_order or columns * bits < LINE_BITS:
            return []
        starts = [start * bits // BYTE_BITS for start in starts]
        count = -(-columns * bits // LINE_BITS)
        # the last byte of each line: if a row starts within a line, the tile before has read that
        # line
        lines = [start + LINE_NBYTES * (k + 1) - 1 for k in range(count) for start in starts]
        # the stage takes one for each line that the elements of the tile fill
        size = -(-prod(node.valid for node in nodes) * bits // LINE_BITS)
        return [*lines, *[0] * (size + 1)][: size + 1]

    def _aligned(self, tables: list[Array], operand: int, first: int) -> list[Array]:
        """Move operands so that those from element `first` of a row start a cache line.

        The vectors that start lines of dst then load whole lines of operands. Groups may load the
        operand after their last one, too.
        """
        lanes = LINE_NBYTES // tables[0].itemsize
        before = -(self.offsets[operand] + first) % lanes
        self.offsets[operand] += before
        after = lanes - (before + len(tables[0])) % lanes
        return [np.pad(table, (before, after), "edge") for table in tables]

    def _first_line(self, dst: _Buffer) -> int:
        """Return how many elements of the first tile are before its first whole line of dst."""
        place = self.builder.place_of_tiles
        if dst.base is not Base.DST or place is None:
            return 0
        return -(place + self.offsets[DST]) % (LINE_BITS // dst.bits)

    def _streams(self, dst: _Buffer, rows: TileRows) -> bool:
        """Whether non-temporal stores write rows to dst; rows of groups only beyond the caches."""
        if dst.base is not Base.DST or dst.is_packed:
            return False
        nbits = rows.columns * dst.bits
        is_long = self.builder.streams_rows and self.tile.reads and nbits >= LONG_ROW_BITS
        return (is_long and not rows.shift) or (self.builder.exceeds and nbits >= LINE_BITS)

    def _starts_lines(self) -> bool:
        """Whether dst is written by non-temporal stores, and all tiles start a line of it."""
        place = self.builder.place_of_tiles
        if place is None or self.is_indirect or not self.builder.exceeds:
            return False
        line = LINE_BITS // DATA_TYPES[self.conversion.dst].bits
        return not any(
            start % line for start in (place + self.offsets[DST], *self.outer_strides[DST])
        )

    def move(self, src: _Buffer, dst: _Buffer, *, pads: bool = False) -> _Buffer:
        """Move a tile; with `pads` zeros are written to its padding."""
        if src.is_packed or dst.is_packed:
            self._move_as_bytes(src, dst, pads=pads)
            return dst
        nodes = self.tile.inner if pads else self.nodes
        inner = tuple(
            Node(node.extent, node.valid, (from_, to))
            for node, from_, to in zip(nodes, src.strides, dst.strides, strict=True)
        )
        (box,) = simplify((Box((0, 0), inner),))
        box, bits = pack_for_kernels(box, src.bits)
        instructions = self.builder.machine.instructions
        boxes = permuted_boxes(box, bits, instructions) or tile_boxes((box,), bits)
        end = self.builder.ends[src.base] if src.base <= Base.DST else SLOT_NBYTES
        program, workloads, parts = encode(boxes, end, instructions)
        ranges, _ = partition_chunks(workloads, 1)
        # moves take offsets in bytes
        shift = (src.bits // BYTE_BITS).bit_length() - 1
        is_aligned = dst.base is Base.DST and self._starts_lines()
        streams = is_aligned and all(box.fills_lines() for box in boxes)
        code = Kernel(boxes[0].bits, streams, parts), program, ranges, len(ranges)
        self.steps.append(TileStep(*code, src.base, dst.base, shift=shift))
        return dst

    def _move_as_bytes(self, src: _Buffer, dst: _Buffer, *, pads: bool) -> None:
        """Move 4-bit elements as bytes: unpacked in the order of src, packed in that of dst.

        If only one side is packed, the other one holds the same numbers in a byte type.
        """
        if src.dtype == dst.dtype:
            # codes, which are not converted
            src, dst = src._replace(dtype="u4"), dst._replace(dtype="u4")
        if src.is_packed:
            src = self.convert(src, self.slot(Base.UNPACKED, as_bytes(src.dtype), src))
        if not dst.is_packed:
            self.move(src, dst, pads=pads)
            return
        packed = self.move(src, self.slot(Base.PACKED, src.dtype, dst, padded=pads), pads=pads)
        self.convert(packed, dst, padded=pads)
