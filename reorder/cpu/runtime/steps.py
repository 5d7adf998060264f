"""The steps of a tile, and the tables that the interpreter of tiles reads for them.

A step reads one buffer and writes another. A buffer is the tile in src or in dst, or a slot of
scratch, in which the tile is dense, in the order of its nodes.

A tile takes these steps in this order, each only if needed: move out of src; convert to the working
type; run the post-ops, the first of which may load elements of src and the last may store elements
of dst; convert to the type of dst; move into dst, which writes the padding too.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from reorder.cpu.machine import OWN_CACHE_NBYTES
from reorder.cpu.runtime.interpreters import interpreter_at
from reorder.cpu.runtime.stages import combine_stage, convert_stage
from reorder.cpu.schedule.partition import partition_chunks
from reorder.cpu.schedule.post_ops import (
    KernelConfig,
    Numbers,
    Operation,
    PostOp,
    has_exact_inverses,
    has_quotient,
)
from reorder.cpu.schedule.program import encode
from reorder.cpu.schedule.select import Kernel, pack_for_kernels
from reorder.cpu.schedule.tile_program import (
    NO_OPERAND,
    SLOT_BITS,
    Base,
    CombineTable,
    ConvertTable,
    TileStep,
)
from reorder.cpu.schedule.tile_rows import (
    TileRows,
    dense_strides,
    gathered_operands,
    operand_period,
    operand_rows,
    row_offsets,
    spread_operands,
    tile_rows,
)
from reorder.cpu.schedule.tiles import LONG_ROW_BITS, Tile
from reorder.cpu.schedule.tiling import tile_boxes
from reorder.cpu.target import LINE_BITS
from reorder.memory.buffers import address_of
from reorder.plan.nodes import Box, Node
from reorder.plan.passes import simplify
from reorder.values.formats import FORMATS, IntegerFormat, narrow_working_type

# Rows are prefetched this many bytes before they are read, all rows of a tile together.
_PREFETCH_NBYTES = 8192


class _TileBuffer(NamedTuple):
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

    def reordered(self, order: list[int]) -> _TileBuffer:
        """Return the buffer for a tile whose nodes are taken in another order."""
        return self._replace(strides=[self.strides[k] for k in order])


class _Code(NamedTuple):
    """The code that a step calls, and its arguments: fields of a `TileStep`."""

    interpreter: int
    program: int
    ranges: int = 0
    range_count: int = 1


class _StepOperand(NamedTuple):
    """The third side of a step, which only arithmetic has: fields of a `TileStep`."""

    base: int = Base.SRC
    placed_by: int = NO_OPERAND
    shift: int = 0
    factor_base: int = Base.SRC


class _StepWriter:
    """Writes the steps of tiles of one shape.

    `outer_strides` has for each operand the offset of the first tile and the strides of the loops
    over tiles. 4-bit elements are moved as whole bytes only if all of these are even.
    """

    def __init__(
        self, config: KernelConfig, tile: Tile, outer_strides: list[tuple[int, ...]]
    ) -> None:
        self.config, self.tile, self.outer_strides = config, tile, outer_strides
        # the data of a tile: moves write its padding
        self.nodes = tuple(node._replace(extent=node.valid) for node in tile.inner)
        self.dense = dense_strides(self.nodes)
        self.steps: list[TileStep] = []

    def reordered(self, nodes: list[Node]) -> _StepWriter:
        """Return a writer of steps for the same tiles with their inner nodes in another order."""
        writer = _StepWriter(
            self.config, self.tile._replace(inner=tuple(nodes)), self.outer_strides
        )
        writer.steps = self.steps
        return writer

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

    def prefetch_distance(self, src: _TileBuffer, rows: TileRows) -> int:
        """Return how many bytes ahead rows are prefetched; 0: not at all."""
        if src.base is not Base.SRC or not self.config.prefetches:
            return 0
        if rows.rows == 1:
            return _PREFETCH_NBYTES  # it continues in the next tile
        # what follows each row, if that is read soon, or the row of the next tile
        nbytes = rows.columns * src.bits // BYTE_BITS
        if not self._is_followed_soon(src, rows.columns) and self.tile.outer:
            return abs(self.tile.outer[-1].strides[src.base]) * src.bits // BYTE_BITS
        return max(nbytes, _PREFETCH_NBYTES // rows.rows)

    def _is_followed_soon(self, src: _TileBuffer, columns: int) -> bool:
        """Whether what follows rows of src is read while it is still in the caches of the core."""
        if any(abs(stride) == columns for stride in src.strides):
            return True
        outer = [node for node in self.tile.outer if node.extent > 1]
        followed = [k for k, node in enumerate(outer) if abs(node.strides[src.base]) == columns]
        if not followed:
            return False
        tiles = prod(node.extent for node in outer[followed[-1] + 1 :])
        bits = DATA_TYPES[self.config.src].bits + DATA_TYPES[self.config.dst].bits
        nbytes = tiles * prod(node.valid for node in self.nodes) * bits // BYTE_BITS
        return nbytes <= OWN_CACHE_NBYTES // 2

    def convert(self, src: _TileBuffer, dst: _TileBuffer, *, as_codes: bool = False) -> _TileBuffer:
        """Convert into another type; with `as_codes` only the width of codes changes."""
        rows = tile_rows(self.nodes, [src.strides, dst.strides])
        distance = self.prefetch_distance(src, rows)
        head = ConvertTable(rows.rows, rows.columns, distance)
        src_table, dst_table = rows.tables
        program = self.config.keep([*head, *src_table, *dst_table])
        streams = self.streams(dst, rows.columns)
        stage = convert_stage(src.dtype, dst.dtype, streams=streams, as_codes=as_codes)
        return self.step(_Code(stage, program), src, dst)

    def step(
        self,
        code: _Code,
        src: _TileBuffer,
        dst: _TileBuffer,
        *,
        shift: int = 0,
        operand: _StepOperand = _StepOperand(),  # noqa: B008 - a constant
    ) -> _TileBuffer:
        """Write a step; returns where it leaves the tile."""
        src_side, dst_side = (src.base, src.placed_by, shift), (dst.base, dst.placed_by, shift)
        self.steps.append(TileStep(*code, *src_side, *dst_side, *operand))
        return dst


# A type of each width: elements that are not converted share a stage.
_SAME_BITS = {4: "u4", 8: "u8", 16: "bf16", 32: "f32", 64: "f64"}


def steps_of(
    config: KernelConfig, tile: Tile, outer_strides: list[tuple[int, ...]]
) -> list[TileStep]:
    """Return the steps for tiles of one shape; parameters as for `_StepWriter`."""
    writer = _StepWriter(config, tile, outer_strides)
    if config.moves_packed:
        src, dst = writer.in_place(Base.SRC, config.src), writer.in_place(Base.DST, config.dst)
        _move(writer, src, dst, pads=True)
        return writer.steps
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
    return writer.steps


def _computed(writer: _StepWriter, dtype: str, *, in_place: bool) -> str:
    """Return the type in which a side's elements are computed or moved.

    Integers of 4 bits are bytes then: unpacked before, or packed afterwards. A single conversion
    that does everything needs no bytes.
    """
    config = writer.config
    is_integer = DATA_TYPES[dtype].is_packed and isinstance(FORMATS[dtype], IntegerFormat)
    if not is_integer or (in_place and config.is_direct):
        return dtype
    if not _has_byte_slots(config):
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
        buffer = _combine(writer, _Sides(buffer, buffer, config.difference), post_ops.pop(0))
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
        buffer = _combine(writer, _Sides(buffer, dst, work), post_op, old)
    return buffer


def _loads(dtype: str) -> bool:
    """Whether operations load and store elements of a type: not 4-bit ones, which share bytes."""
    return not DATA_TYPES[dtype].is_packed


# Slots for 4-bit elements unpacked to bytes; a move uses up to two that are neither src nor dst.
_BYTE_SLOTS = Base.SRC_ELEMENTS, Base.VALUES, Base.RESULT
# 4-bit elements of a byte.
_PER_BYTE = 2


def _move(
    writer: _StepWriter, src: _TileBuffer, dst: _TileBuffer, *, pads: bool = False
) -> _TileBuffer:
    """Move a tile; with `pads` zeros are written to its padding."""
    is_packed = any(DATA_TYPES[buffer.dtype].is_packed for buffer in (src, dst))
    if is_packed and (src.dtype != dst.dtype or _has_byte_slots(writer.config)):
        return _move_as_bytes(writer, src, dst, pads=pads)
    config = writer.config
    nodes = writer.tile.inner if pads else writer.nodes
    inner = tuple(
        Node(node.extent, node.valid, strides)
        for node, strides in zip(nodes, zip(src.strides, dst.strides, strict=True), strict=True)
    )
    (box,) = simplify((Box((0, 0), inner),))
    # moves take offsets in bytes
    shift = 1 - max(1, src.bits // BYTE_BITS).bit_length()
    packed, bits, element_stride = pack_for_kernels(box, src.bits)
    if is_packed and bits >= BYTE_BITS:
        # 4-bit elements, joined to whole bytes
        outer = [writer.outer_strides[side.placed_by] for side in (src, dst) if not side.is_slot]
        if any(stride % _PER_BYTE for strides in outer for stride in strides):
            packed, bits, element_stride = box, src.bits, 1
        else:
            shift = _PER_BYTE.bit_length() - 1
    program, workloads = encode(
        tile_boxes((packed,), bits, element_stride),
        bits,
        writer.end_of(src) * src.bits // BYTE_BITS,
    )
    ranges, _ = partition_chunks(workloads, 1)
    config.kept += [program, ranges]
    code = _Code(interpreter_at(Kernel(bits)), address_of(program), address_of(ranges), len(ranges))
    return writer.step(code, src, dst, shift=shift)


def _has_byte_slots(config: KernelConfig) -> bool:
    """Whether enough slots are free for elements unpacked to bytes: the old dst takes two."""
    return not config.bound.beta


def _move_as_bytes(
    writer: _StepWriter, src: _TileBuffer, dst: _TileBuffer, *, pads: bool
) -> _TileBuffer:
    """Move 4-bit elements as bytes: unpacked in the order of src, packed in that of dst.

    If only one side is packed, the other one holds the same numbers in a byte type.
    """
    data = list(writer.nodes)
    whole = [node._replace(valid=node.extent) for node in writer.tile.inner] if pads else data
    free = [base for base in _BYTE_SLOTS if base not in {src.base, dst.base}]
    # elements of equal types are codes that are not converted
    as_codes = src.dtype == dst.dtype
    if DATA_TYPES[src.dtype].is_packed:
        order = _order(src)
        unpack = writer.reordered([data[k] for k in order])
        unpacked = unpack.slot(free.pop(), "u8" if as_codes else dst.dtype)
        unpack.convert(src.reordered(order), unpacked, as_codes=as_codes)
        src = unpacked.reordered(_inverse(order))
    if not DATA_TYPES[dst.dtype].is_packed:
        return _move(writer, src, dst, pads=pads)
    order = _order(dst)
    pack = writer.reordered([whole[k] for k in order])
    moved = pack.slot(free.pop(), src.dtype)
    _move(writer, src, moved.reordered(_inverse(order)), pads=pads)
    pack.convert(moved, dst.reordered(order), as_codes=as_codes)
    return dst


def _order(buffer: _TileBuffer) -> list[int]:
    """Return the nodes in the order of their strides in a buffer, outermost first."""
    return sorted(range(len(buffer.strides)), key=lambda k: -abs(buffer.strides[k]))


def _inverse(order: list[int]) -> list[int]:
    return [order.index(k) for k in range(len(order))]


# Operands with more values than this are not stored repeatedly in periods, which takes up to 16
# times the memory (2 * PERIOD / 8).
_MAX_REPEATED_VALUES = 1 << 14


class _Sides(NamedTuple):
    """What an operation reads and writes."""

    src: _TileBuffer
    dst: _TileBuffer
    # the working type
    work: str


def _combine(
    writer: _StepWriter, sides: _Sides, post_op: PostOp, old: _TileBuffer | None = None
) -> _TileBuffer:
    """Write the step of an operation; `old` holds the values of dst, for `ADD_PRODUCT`."""
    operation, kinds = _operation_of(writer, post_op, sides)
    src, dst, work = sides
    if post_op.role is not None:
        rows, operand = _with_values(writer, sides, post_op.role, kinds)
    elif operation is Operation.ADD_PRODUCT:
        assert old is not None  # noqa: S101 - there are values to add
        rows = operand_rows(writer.nodes, (src.strides, dst.strides, old.strides), 0)
        factor = writer.config.keep([post_op.number], work)
        operand = _StepOperand(old.base, old.placed_by, 0, factor)
    else:
        rows = operand_rows(writer.nodes, (src.strides, dst.strides, [0] * len(writer.nodes)), 0)
        operand = _StepOperand(writer.config.keep([post_op.number], work))
    distance = writer.prefetch_distance(src, rows)
    head = CombineTable(operation, rows.rows, rows.columns, rows.mask, distance)
    program = writer.config.keep([*head, *(start for table in rows.tables for start in table)])
    streams = writer.streams(dst, rows.columns)
    stage = combine_stage(src.dtype, dst.dtype, work, streams=streams)
    return writer.step(_Code(stage, program), src, dst, operand=operand)


def _operation_of(
    writer: _StepWriter, post_op: PostOp, sides: _Sides
) -> tuple[Operation, tuple[Numbers, ...]]:
    """Return the operation that runs, and what each table of its numbers holds.

    Only `NARROW_QUOTIENT` has a second table.
    """
    operation, role, _ = post_op
    if operation is Operation.DIVIDE and role is not None:
        values = writer.config.values[role]
        if has_exact_inverses(values):
            return Operation.MULTIPLY, (Numbers.INVERSES,)
        if has_quotient(values, sides.work, sides.dst.dtype):
            return Operation.NARROW_QUOTIENT, (Numbers.RESIDUES, Numbers.INVERSES)
    return operation, (Numbers.VALUES,)


def _with_values(
    writer: _StepWriter, sides: _Sides, role: str, kinds: tuple[Numbers, ...]
) -> tuple[TileRows, _StepOperand]:
    """Return the rows and the operand for the values of a role; `kinds` from `_operation_of`."""
    config, nodes = writer.config, writer.nodes
    values = config.values[role]
    placed_by, period, strides = NO_OPERAND, 0, [0] * len(nodes)
    if role in config.varying:
        # operands follow src and dst
        placed_by = 2 + config.varying.index(role)
        strides = [node.strides[placed_by] for node in nodes]
        if values.size <= _MAX_REPEATED_VALUES:
            period = operand_period(nodes, strides, writer.outer_strides[placed_by])
    strided = (sides.src.strides, sides.dst.strides, strides)
    rows = operand_rows(nodes, strided, period)
    spread = spread_operands(nodes, strided, rows)
    if spread is not None and not any(writer.outer_strides[placed_by][1:]):
        # all tiles have the same operands
        start = writer.outer_strides[placed_by][0]
        places = [start + place for place in row_offsets(nodes, strides, 1)]
        bases = [config.address_of_places(role, sides.work, places, kind) for kind in kinds]
        return spread, _StepOperand(bases[0], factor_base=bases[-1])
    streams = writer.config.streams and sides.dst.base is Base.DST
    gathered = gathered_operands(nodes, strided, rows, streams=streams)
    if gathered is not None:
        for kind, slot in zip(kinds, (Base.OPERANDS, Base.RECIPROCALS), strict=False):
            address = config.address_of_values(role, sides.work, 0, kind)
            operand = _TileBuffer(address, sides.work, placed_by, strides)
            _gather(writer, operand, slot)
        return gathered, _StepOperand(Base.OPERANDS, factor_base=Base.RECIPROCALS)
    bases = [config.address_of_values(role, sides.work, rows.period, kind) for kind in kinds]
    return rows, _StepOperand(bases[0], placed_by, -rows.shift, bases[-1])


def _gather(writer: _StepWriter, operand: _TileBuffer, slot: Base) -> None:
    """Write the step that moves the operands of a tile into a slot."""
    kept = [k for k, stride in enumerate(operand.strides) if stride]
    parts = writer.reordered([writer.nodes[k] for k in kept])
    _move(parts, operand.reordered(kept), parts.slot(slot, operand.dtype))
