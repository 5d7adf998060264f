"""Micro-kernel: a nest contiguous in src against a nest contiguous in dst.

The columns are the elements of a nest that is contiguous in src, the rows those of one
that is contiguous in dst; two tables tell where each row starts in src and each
column in dst. A tile of rows x columns is loaded as one vector along src for each row,
transposed in registers, and stored as one vector along dst for each column. LLVM
splits vectors where the machine's are shorter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from llvmlite import ir

from reorder.cpu.emit import I64, int64, loop, maximum, minimum, register_bits
from reorder.cpu.registers import LANE_BITS, concatenate, mask, transpose

if TYPE_CHECKING:
    from reorder.cpu.emit import Elements, Place

__all__ = ["Nest", "emit_transposed", "tile_side"]

# Elements on the short side of a tile for nests that are no longer.
_SHORT = 4


class Nest(NamedTuple):
    """One of the two nests: elements, valid ones, and the table of the other side's offsets.

    `packed` is its extent if it is all data and its copies follow each other without a gap
    on the side where it is contiguous, else 0.
    """

    extent: Any
    valid: Any
    packed: Any
    table: Any


def tile_side(bits: int, register: int) -> int:
    """Return the side of a tile whose rows fit half the vector registers of a machine.

    `register` is their width in bits. 512-bit machines have 32 of them, others 16.
    """
    fit = register // bits
    return max(2, min(fit, 16 if register > 2 * LANE_BITS else max(8, LANE_BITS // bits)))


def emit_transposed(elements: Elements, src: Place, dst: Place, columns: Nest, rows: Nest, span: tuple[Any, Any, Any]) -> None:
    """Move two nests; what is not valid in either is written zero.

    `span` is the range of columns to write, and the end of what may be read of src.
    """
    builder = elements.builder
    if elements.is_nibble:
        _emit_scalar(elements, src, dst, columns, rows, span)
        return
    side = tile_side(elements.bits, register_bits())
    done = builder.append_basic_block("moved")
    last = minimum(builder, span[1], columns.valid)
    for count in range(2, _SHORT + 1):
        has_room = builder.icmp_signed(">=", builder.sub(last, span[0]), int64(side))
        with builder.if_then(builder.and_(builder.icmp_signed("==", rows.packed, int64(count)), has_room)):
            _emit_interleave(elements, src, dst, columns, rows, (span[0], last), (count, side))
            builder.branch(done)
        is_all = builder.and_(builder.icmp_signed("==", span[0], int64(0)), builder.icmp_signed("==", last, columns.packed))
        has_room = builder.and_(builder.icmp_signed("==", rows.valid, rows.extent), builder.icmp_signed(">=", rows.valid, int64(side)))
        with builder.if_then(builder.and_(builder.icmp_signed("==", columns.packed, int64(count)), builder.and_(is_all, has_room))):
            _emit_deinterleave(elements, src, dst, columns, rows, (count, side))
            builder.branch(done)
    is_narrow = builder.icmp_signed("<=", columns.valid, int64(_SHORT))
    is_flat = builder.icmp_signed("<=", rows.extent, int64(_SHORT))
    with builder.if_else(is_narrow) as (narrow, wide):
        with narrow:
            _emit_tiles(elements, src, dst, columns, rows, span, (side, _SHORT))
        with wide, builder.if_else(is_flat) as (flat, square):
            with flat:
                _emit_tiles(elements, src, dst, columns, rows, span, (_SHORT, side))
            with square:
                _emit_tiles(elements, src, dst, columns, rows, span, (side, side))
    builder.branch(done)
    builder.position_at_end(done)
    with loop(builder, maximum(builder, span[0], columns.valid), span[1]) as column:
        _clear(elements, _at(builder, dst, columns, column, int64(0)), rows.extent, side)


def _clear(elements: Elements, place: Place, count: Any, lanes: int) -> None:
    """Write zeros with vectors, the rest one by one."""
    builder = elements.builder
    whole = builder.and_(count, int64(-lanes))
    with loop(builder, int64(0), whole, lanes) as i:
        elements.store_vector(ir.Constant(elements.vector(lanes), None), place[0], builder.add(place[1], i))
    with loop(builder, whole, count) as i:
        elements.store(elements.zero, place[0], builder.add(place[1], i))


def _at(builder: Any, place: Place, nest: Nest, index: Any, along: Any) -> Place:
    """Return where an element of a nest lies on the side where it is not contiguous."""
    offset = builder.load(builder.gep(builder.inttoptr(nest.table, I64.as_pointer()), [index]))
    return place[0], builder.add(builder.add(place[1], offset), along)


def _emit_tiles(
    elements: Elements, src: Place, dst: Place, columns: Nest, rows: Nest, span: tuple[Any, Any, Any], shape: tuple[int, int]
) -> None:
    builder = elements.builder
    high, wide = shape
    first, last, end = span
    last = minimum(builder, last, columns.valid)
    # a ragged end is met by moving the last tile back, where there is room
    back_row = builder.sub(rows.valid, int64(high))
    can_move_row = builder.and_(builder.icmp_signed("==", rows.valid, rows.extent), builder.icmp_signed(">=", back_row, int64(0)))
    back_column = builder.sub(last, int64(wide))
    can_move_column = builder.icmp_signed(">=", back_column, first)
    scratch = elements.scratch(max(high, wide))
    # tiles without any data are only cleared
    filled = minimum(builder, builder.and_(builder.add(rows.valid, int64(high - 1)), int64(-high)), rows.extent)
    with builder.if_then(builder.icmp_signed("<", filled, rows.extent)), loop(builder, first, last) as column:
        _clear(elements, _at(builder, dst, columns, column, filled), builder.sub(rows.extent, filled), high)
    with loop(builder, first, last, wide) as next_column, loop(builder, int64(0), filled, high) as next_row:
        column = builder.select(can_move_column, minimum(builder, next_column, back_column), next_column)
        row = builder.select(can_move_row, minimum(builder, next_row, back_row), next_row)
        is_full = builder.and_(
            builder.icmp_signed("<=", builder.add(row, int64(high)), rows.valid),
            builder.icmp_signed("<=", builder.add(column, int64(wide)), last),
        )
        with builder.if_else(is_full) as (full, ragged):
            with full:
                lines = [elements.load_vector(*_at(builder, src, rows, builder.add(row, int64(k)), column), wide) for k in range(high)]
                for k, line in enumerate(transpose(builder, lines, wide)):
                    elements.store_vector(line, *_at(builder, dst, columns, builder.add(column, int64(k)), row))
            with ragged:
                lines = []
                for k in range(high):
                    lines.append(_load_ragged(elements, src, rows, (builder.add(row, int64(k)), column), (last, end), (wide, scratch)))
                count = minimum(builder, builder.sub(rows.extent, row), int64(high))
                for k, line in enumerate(transpose(builder, lines, wide)):
                    at = builder.add(column, int64(k))
                    with builder.if_then(builder.icmp_signed("<", at, last)):
                        to = _at(builder, dst, columns, at, row)
                        # what a packed column spills into the next one is written over by that
                        spills = builder.and_(
                            builder.icmp_signed("!=", rows.packed, int64(0)), builder.icmp_signed("<", at, builder.sub(last, int64(high)))
                        )
                        is_whole = builder.icmp_signed("==", count, int64(high))
                        with builder.if_else(builder.or_(is_whole, spills)) as (whole, part):
                            with whole:
                                elements.store_vector(line, *to)
                            with part:
                                elements.store_vector(line, *scratch)
                                elements.copy_part(scratch, to, count, high)


def _emit_interleave(
    elements: Elements, src: Place, dst: Place, columns: Nest, rows: Nest, span: tuple[Any, Any], shape: tuple[int, int]
) -> None:
    """Move 2 to 4 rows whose columns follow each other in dst: c0 c1 c2 c0 c1 c2 ..."""
    builder = elements.builder
    count, side = shape
    end = builder.sub(span[1], int64(side))
    with loop(builder, *span, side) as next_column:
        column = minimum(builder, next_column, end)
        lines = [elements.load_vector(*_at(builder, src, rows, int64(k), column), side) for k in range(count)]
        together = concatenate(builder, [*lines, *lines[: 4 - count]] if count > 2 else lines)  # noqa: PLR2004 - in pairs
        picks = mask(j % count * side + j // count for j in range(count * side))
        undefined = ir.Constant(together.type, ir.Undefined)
        elements.store_vector(builder.shuffle_vector(together, undefined, picks), *_at(builder, dst, columns, column, int64(0)))


def _emit_deinterleave(elements: Elements, src: Place, dst: Place, columns: Nest, rows: Nest, shape: tuple[int, int]) -> None:
    """Move 2 to 4 columns whose rows follow each other in src."""
    builder = elements.builder
    count, side = shape
    end = builder.sub(rows.valid, int64(side))
    with loop(builder, int64(0), rows.valid, side) as next_row:
        row = minimum(builder, next_row, end)
        together = elements.load_vector(*_at(builder, src, rows, row, int64(0)), count * side)
        undefined = ir.Constant(together.type, ir.Undefined)
        for k in range(count):
            picks = mask(j * count + k for j in range(side))
            elements.store_vector(builder.shuffle_vector(together, undefined, picks), *_at(builder, dst, columns, int64(k), row))


def _load_ragged(elements: Elements, src: Place, rows: Nest, tile: tuple[Any, Any], ends: tuple[Any, Any], room: tuple[int, Place]) -> Any:
    """Return one row of a tile: zeros beyond the valid rows, anything beyond the last column."""
    builder = elements.builder
    (row, column), (last, end), (wide, scratch) = tile, ends, room
    zero = ir.Constant(elements.vector(wide), None)
    before = builder.block
    with builder.if_then(builder.icmp_signed("<", row, rows.valid)):
        fro = _at(builder, src, rows, row, column)
        fits = builder.icmp_signed("<=", builder.add(fro[1], int64(wide)), end)
        with builder.if_else(fits) as (inside, outside):
            with inside:
                whole = elements.load_vector(*fro, wide)
                whole_block = builder.block
            with outside:
                elements.copy_part(fro, scratch, builder.sub(last, column), wide)
                part = elements.load_vector(*scratch, wide)
                part_block = builder.block
        found = builder.phi(zero.type)
        found.add_incoming(whole, whole_block)
        found.add_incoming(part, part_block)
        found_block = builder.block
    line = builder.phi(zero.type)
    line.add_incoming(zero, before)
    line.add_incoming(found, found_block)
    return line


def _emit_scalar(elements: Elements, src: Place, dst: Place, columns: Nest, rows: Nest, span: tuple[Any, Any, Any]) -> None:
    """Move element by element: 4-bit ones have no vectors."""
    builder = elements.builder
    zero = int64(0)
    with loop(builder, span[0], span[1]) as column:
        valid = builder.select(builder.icmp_signed("<", column, columns.valid), rows.valid, zero)
        to = _at(builder, dst, columns, column, zero)
        with loop(builder, zero, valid) as row:
            elements.store(elements.load(*_at(builder, src, rows, row, column)), to[0], builder.add(to[1], row))
        with loop(builder, valid, rows.extent) as row:
            elements.store(elements.zero, to[0], builder.add(to[1], row))
