"""The steps of a tile: which code runs, what it reads, and where: a pure function of the tile.

A step reads one buffer and writes another. A buffer is the tile in src or in dst, or a slot of
scratch, in which the tile is dense, in the order of its nodes.

A tile takes these steps in this order, each only if needed: move out of src; convert to the working
type; run the post-ops, the first of which may load elements of src and the last may store elements
of dst; convert to the type of dst; move into dst, which writes the padding too.
"""

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.tuples import NamedTuple
from reorder.cpu.schedule.cuts import tile_boxes
from reorder.cpu.schedule.kernel_config import KernelConfig
from reorder.cpu.schedule.operands import (
    OperandRows,
    Sides,
    gather,
    rows_in_place,
    rows_of_operand,
)
from reorder.cpu.schedule.partition import partition_chunks
from reorder.cpu.schedule.post_ops import OperandTable, Operation, PostOp
from reorder.cpu.schedule.program import encode
from reorder.cpu.schedule.select import Kernel, pack_for_kernels
from reorder.cpu.schedule.tile_program import (
    NO_OPERAND,
    SLOT_BITS,
    Base,
    ScheduledTile,
    Side,
    StageTable,
    StageTypes,
    Step,
)
from reorder.cpu.schedule.tile_rows import dense_strides, tile_rows
from reorder.cpu.schedule.tiles import LONG_ROW_BITS, Tile
from reorder.cpu.tables import Array
from reorder.cpu.target import LINE_BITS
from reorder.plan.nodes import DST, Box, Node
from reorder.plan.passes import simplify
from reorder.values.formats import FORMATS, IntegerFormat, narrow_working_type


class _TileBuffer(NamedTuple):
    """A buffer that holds a tile: elements of a type, with a stride for each node of the tile."""

    base: Base
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

    @property
    def side(self) -> Side:
        """The side of a step."""
        return Side(self.base, self.placed_by)

    def reordered(self, order: list[int]) -> "_TileBuffer":
        """Return the buffer for a tile whose nodes are taken in another order."""
        return self._replace(strides=[self.strides[k] for k in order])


class _StepWriter:
    """Writes the steps of tiles of one shape.

    With `is_indirect` the tiles of a box with indirect loops start at any offsets.
    """

    def __init__(self, config: KernelConfig, tile: Tile, *, is_indirect: bool) -> None:
        self.config, self.tile, self.is_indirect = config, tile, is_indirect
        # the data of a tile: moves write its padding
        self.nodes = tuple(node._replace(extent=node.valid) for node in tile.inner)
        self.dense = dense_strides(self.nodes)
        self.steps: list[Step] = []
        # for each operand the offset of the first tile, and the strides of the loops over tiles
        self.offsets = [*tile.offsets]
        self.outer_strides = [
            [node.strides[k] for node in tile.outer] for k in range(len(self.offsets))
        ]

    def reordered(self, nodes: list[Node]) -> "_StepWriter":
        """Return a writer of steps for the same tiles with their inner nodes in another order."""
        tile = self.tile._replace(inner=tuple(nodes))
        writer = _StepWriter(self.config, tile, is_indirect=self.is_indirect)
        writer.steps = self.steps
        return writer

    def scheduled(self) -> ScheduledTile:
        """Return the tiles with the steps that were written."""
        outer = [
            node._replace(strides=tuple(strides[n] for strides in self.outer_strides))
            for n, node in enumerate(self.tile.outer)
        ]
        return ScheduledTile(self.offsets, outer, self.steps)

    def slot(self, base: Base, dtype: str) -> _TileBuffer:
        """Return a slot of scratch that holds the tile."""
        nbits = prod(node.valid for node in self.nodes) * DATA_TYPES[dtype].bits
        # a longer tile would overwrite the next slot
        assert nbits <= SLOT_BITS  # noqa: S101 - tiles are cut to fit
        return _TileBuffer(base, dtype, NO_OPERAND, self.dense)

    def in_place(self, base: Base, dtype: str) -> _TileBuffer:
        """Return the tile in its place in src or dst."""
        return _TileBuffer(base, dtype, int(base), [node.strides[base] for node in self.nodes])

    def end_of(self, buffer: _TileBuffer) -> int:
        """Return how many elements of a buffer may be read."""
        if buffer.is_slot:
            return SLOT_BITS // buffer.bits
        return self.config.ends[buffer.placed_by]

    def streams(self, dst: _TileBuffer, columns: int) -> bool:
        """Whether rows are written to dst by non-temporal stores."""
        is_packed = DATA_TYPES[dst.dtype].is_packed
        if dst.base is not Base.DST or is_packed:
            return False
        nbits = columns * dst.bits
        is_long = self.config.streams_rows and self.tile.reads and nbits >= LONG_ROW_BITS
        return is_long or (self.config.streams and nbits >= LINE_BITS)

    def convert(self, src: _TileBuffer, dst: _TileBuffer, *, as_codes: bool = False) -> _TileBuffer:
        """Convert into another type; with `as_codes` only the width of codes changes."""
        rows = OperandRows(tile_rows(self.nodes, [src.strides, dst.strides]), 0)
        work = "" if as_codes else narrow_working_type(src.dtype, dst.dtype, arithmetic=False)
        return self.run_stage(Operation.CONVERT, (src, dst), work, rows)

    def run_stage(
        self,
        operation: Operation,
        sides: tuple[_TileBuffer, _TileBuffer],
        work: str,
        operand_rows: OperandRows,
        **operand: Any,
    ) -> _TileBuffer:
        """Write the step of a stage from the first side to the second, which is returned."""
        (src, dst), rows = sides, operand_rows.rows
        head = StageTable(operation, rows.rows, rows.columns, operand_rows.mask)
        table = np.array([*head, *(start for each in rows.tables for start in each)], np.int64)
        computes = operation is not Operation.CONVERT
        code = StageTypes(src.dtype, dst.dtype, work, computes, self.streams(dst, rows.columns))
        self.steps.append(Step(code, table, src.side, dst.side, **operand))
        return dst


# A type of each width: elements that are not converted share a stage.
_SAME_BITS = {4: "u4", 8: "u8", 16: "bf16", 32: "f32", 64: "f64"}


def schedule_tile(config: KernelConfig, tile: Tile, *, is_indirect: bool) -> ScheduledTile:
    """Return tiles of one shape with their steps; parameters as for `_StepWriter`."""
    writer = _StepWriter(config, tile, is_indirect=is_indirect)
    if config.moves_packed:
        src, dst = writer.in_place(Base.SRC, config.src), writer.in_place(Base.DST, config.dst)
        _move(writer, src, dst, pads=True)
        return writer.scheduled()
    buffer = _read(writer)
    in_dst = writer.in_place(Base.DST, config.dst)
    dtype = _computed(writer, config.dst, in_place=tile.writes)
    is_packed_later = dtype != config.dst
    target = in_dst if tile.writes and not is_packed_later else writer.slot(Base.RESULT, dtype)
    buffer = _run_post_ops(writer, buffer, target)
    # elements that are not converted need no second slot
    is_moved_only = buffer.base is Base.SRC_ELEMENTS and buffer.dtype == target.dtype
    if buffer.base is not target.base and not (is_moved_only and not tile.writes):
        buffer = _change(writer, buffer, target)
    if not tile.writes:
        _move(writer, buffer, in_dst, pads=True)
    elif is_packed_later:
        writer.convert(buffer, in_dst)
    return writer.scheduled()


def _computed(writer: _StepWriter, dtype: str, *, in_place: bool) -> str:
    """Return the type in which a side's elements are computed or moved.

    Integers of 4 bits are bytes then: unpacked before, or packed afterwards. A single conversion
    that does everything needs no bytes.
    """
    config = writer.config
    is_integer = DATA_TYPES[dtype].is_packed and isinstance(FORMATS[dtype], IntegerFormat)
    if not is_integer or (in_place and config.is_direct):
        return dtype
    return narrow_working_type(dtype, dtype, arithmetic=False)


def _read(writer: _StepWriter) -> _TileBuffer:
    """Return the elements of src: in place, or moved into a slot."""
    config, reads = writer.config, writer.tile.reads
    src = writer.in_place(Base.SRC, config.src)
    dtype = _computed(writer, config.src, in_place=reads)
    if reads and dtype == config.src:
        return src
    slot = writer.slot(Base.SRC_ELEMENTS, dtype)
    if reads:
        return writer.convert(src, slot)
    return _move(writer, src, slot)


def _read_old(writer: _StepWriter) -> _TileBuffer:
    """Return the values that dst holds before the reorder."""
    config = writer.config
    old = writer.in_place(Base.DST, config.dst)
    if not writer.tile.writes:
        old = _move(writer, old, writer.slot(Base.OLD_ELEMENTS, config.dst))
    if config.dst == config.work:
        return old
    return _change(writer, old, writer.slot(Base.OLD_VALUES, config.work))


def _change(writer: _StepWriter, src: _TileBuffer, dst: _TileBuffer) -> _TileBuffer:
    """Convert, or move if the types are equal: by whole lines if dst is streamed."""
    if src.dtype != dst.dtype:
        return writer.convert(src, dst)
    if src.is_slot and dst.base is Base.DST and writer.config.streams:
        bits = _SAME_BITS[src.bits]
        return writer.convert(src._replace(dtype=bits), dst._replace(dtype=bits), as_codes=True)
    return _move(writer, src, dst)


def _run_post_ops(writer: _StepWriter, buffer: _TileBuffer, target: _TileBuffer) -> _TileBuffer:
    """Convert to values if needed, and run all post-ops; the last one may write the target."""
    config, work = writer.config, writer.config.work
    post_ops = config.post_ops
    old = _read_old(writer) if config.bound.beta else None
    if config.subtracts_wide:
        # the difference of numbers of more than 24 bits is exact in f64 only
        buffer = _change(writer, buffer, writer.slot(Base.RESULT, config.difference))
        buffer = _combine(writer, _Buffers(buffer, buffer, config.difference), post_ops.pop(0))
        buffer = _change(writer, buffer, writer.slot(Base.VALUES, work))
    else:
        has_values = _loads(buffer.dtype) if post_ops else config.is_direct
        if buffer.dtype != work and not has_values:
            buffer = _change(writer, buffer, writer.slot(Base.VALUES, work))
    for k, post_op in enumerate(post_ops):
        is_last = k == len(post_ops) - 1
        has_stage = buffer.dtype == work or config.has_stage(buffer.dtype, target.dtype)
        stores = target.dtype == work or (_loads(target.dtype) and has_stage)
        dst = target if is_last and stores else writer.slot(Base.VALUES, work)
        buffer = _combine(writer, _Buffers(buffer, dst, work), post_op, old)
    return buffer


def _loads(dtype: str) -> bool:
    """Whether operations load and store elements of a type: not 4-bit ones, which share bytes."""
    return not DATA_TYPES[dtype].is_packed


def _move(
    writer: _StepWriter, src: _TileBuffer, dst: _TileBuffer, *, pads: bool = False
) -> _TileBuffer:
    """Move a tile; with `pads` zeros are written to its padding."""
    if any(DATA_TYPES[buffer.dtype].is_packed for buffer in (src, dst)):
        return _move_as_bytes(writer, src, dst, pads=pads)
    nodes = writer.tile.inner if pads else writer.nodes
    inner = tuple(
        Node(node.extent, node.valid, strides)
        for node, strides in zip(nodes, zip(src.strides, dst.strides, strict=True), strict=True)
    )
    (box,) = simplify((Box((0, 0), inner),))
    packed, bits, element_stride = pack_for_kernels(box, src.bits)
    boxes = tile_boxes((packed,), bits, element_stride)
    program, workloads = encode(boxes, bits, writer.end_of(src) * src.bits // BYTE_BITS)
    ranges, _ = partition_chunks(workloads, 1)
    # moves take offsets in bytes
    shift = (src.bits // BYTE_BITS).bit_length() - 1
    writer.steps.append(Step(Kernel(bits), program, src.side, dst.side, ranges, shift))
    return dst


def _move_as_bytes(
    writer: _StepWriter, src: _TileBuffer, dst: _TileBuffer, *, pads: bool
) -> _TileBuffer:
    """Move 4-bit elements as bytes: unpacked in the order of src, packed in that of dst.

    If only one side is packed, the other one holds the same numbers in a byte type.
    """
    data = list(writer.nodes)
    whole = [node._replace(valid=node.extent) for node in writer.tile.inner] if pads else data
    # elements of equal types are codes that are not converted
    as_codes = src.dtype == dst.dtype
    if DATA_TYPES[src.dtype].is_packed:
        order = _order(src)
        unpack = writer.reordered([data[k] for k in order])
        unpacked = unpack.slot(Base.UNPACKED, "u8" if as_codes else dst.dtype)
        unpack.convert(src.reordered(order), unpacked, as_codes=as_codes)
        src = unpacked.reordered(_inverse(order))
    if not DATA_TYPES[dst.dtype].is_packed:
        return _move(writer, src, dst, pads=pads)
    order = _order(dst)
    pack = writer.reordered([whole[k] for k in order])
    moved = pack.slot(Base.PACKED, src.dtype)
    _move(writer, src, moved.reordered(_inverse(order)), pads=pads)
    pack.convert(moved, dst.reordered(order), as_codes=as_codes)
    return dst


def _order(buffer: _TileBuffer) -> list[int]:
    """Return the nodes in the order of their strides in a buffer, outermost first."""
    return sorted(range(len(buffer.strides)), key=lambda k: -abs(buffer.strides[k]))


def _inverse(order: list[int]) -> list[int]:
    return [order.index(k) for k in range(len(order))]


class _Buffers(NamedTuple):
    """What an operation reads and writes."""

    src: _TileBuffer
    dst: _TileBuffer
    # the working type
    work: str


def _combine(
    writer: _StepWriter, buffers: _Buffers, post_op: PostOp, old: _TileBuffer | None = None
) -> _TileBuffer:
    """Write the step of an operation; `old` holds the values of dst, for `ADD_PRODUCT`."""
    src, dst, work = buffers
    operation, tables = writer.config.operation_of(post_op, work, dst.dtype)
    number = np.array([post_op.number], DATA_TYPES[work].numpy)
    factor: Base | Array = Base.SRC
    if post_op.role is not None:
        operand_rows, operand, factor = _with_values(writer, buffers, post_op.role, tables)
    elif operation is Operation.ADD_PRODUCT:
        assert old is not None  # noqa: S101 - there are values to add
        operand_rows = rows_in_place(writer.nodes, Sides(src.strides, dst.strides, old.strides))
        operand, factor = old.side, number
    else:
        operand_rows = rows_in_place(writer.nodes, _with_one(writer, buffers))
        operand = Side(number)
    return writer.run_stage(
        operation, (src, dst), work, operand_rows, operand=operand, factor=factor
    )


def _with_one(writer: _StepWriter, buffers: _Buffers) -> Sides:
    """Return the sides of an operation whose operand is one number."""
    return Sides(buffers.src.strides, buffers.dst.strides, [0] * len(writer.nodes))


def _with_values(
    writer: _StepWriter, buffers: _Buffers, role: str, tables: Iterable[OperandTable]
) -> tuple[OperandRows, Side, Array]:
    """Return the rows for the values of a role, where they are, and those of the last table."""
    config, sides = writer.config, _with_one(writer, buffers)
    dtype = DATA_TYPES[buffers.work].numpy
    values = [config.numbers(role, table).astype(dtype).reshape(-1) for table in tables]
    if role not in config.varying:
        return rows_in_place(writer.nodes, sides), Side(values[0]), values[-1]
    # operands follow src and dst
    k = DST + 1 + config.varying.index(role)
    sides = sides._replace(operand=[node.strides[k] for node in writer.nodes])
    if writer.is_indirect:
        return rows_in_place(writer.nodes, sides), Side(values[0], k), values[-1]
    extents = [node.extent for node in writer.tile.outer]
    loops = [*zip(extents, writer.outer_strides[k], strict=True)]
    operand_rows = rows_of_operand(writer.nodes, sides, loops)
    if operand_rows.block is not None:
        gathered = [gather(table, writer.offsets[k], loops, operand_rows.block) for table in values]
        values = [table for table, _ in gathered]
        writer.offsets[k], writer.outer_strides[k] = 0, gathered[0][1]
    return operand_rows, Side(values[0], k), values[-1]
