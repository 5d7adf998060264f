"""The stages of a tile that convert rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc.dtypes import BYTE_BITS
from reorder.cpu.codecs.codec import Codec
from reorder.cpu.kernels.elements import Location
from reorder.cpu.kernels.rows import (
    Row,
    each_line,
    each_vector,
    emit_short,
    load_stage,
    table_addresses,
    vector_lanes,
)
from reorder.cpu.llvm.emit import Value, loop, minimum, when
from reorder.cpu.schedule.tile_program import ConvertTable, ConvertTypes
from reorder.values.formats import FORMATS, IntegerFormat

if TYPE_CHECKING:
    from reorder.cpu.kernels.interpreter import InterpreterCall
    from reorder.cpu.kernels.rows import EmitVector

# Registers of one vector of a conversion; more do not help.
_REGISTERS = 2


def emit_convert(call: InterpreterCall, types: ConvertTypes) -> None:
    """Emit the conversion of all rows of a `ConvertTable`; dst must not overlap src."""
    table, placement = load_stage(call, ConvertTable)
    src_table, dst_table = table_addresses(call, ConvertTable, table.rows, 2)
    builder = call.src_at.builder
    with loop(0, table.rows) as row:
        src = Location(call.src_at, placement.src_offset) + src_table[row]
        dst = Location(call.dst_at, placement.dst_offset) + dst_table[row]
        _emit_row(
            Row.at(builder, types.src, src),
            Row.at(builder, types.dst, dst, streams=types.streams),
            table,
            types.work,
        )


def _emit_row(src: Row, dst: Row, table: ConvertTable, work: str | None) -> None:
    """Convert one row."""

    def emit() -> None:
        codes = _converted(src, dst, src.load_first(table.columns, 0), work)
        dst.store_first(codes, 0, table.columns)

    if dst.elements.streams:
        _emit_data(src, dst, table, work)
        return
    with emit_short((src.dtype, dst.dtype), table, emit):
        _emit_data(src, dst, table, work)


def _converted(src: Row, dst: Row, codes: Value, work: str | None) -> Value:
    """Return a vector of codes of src as codes of dst."""
    if work is None:
        return codes
    codec = Codec(src.elements.builder, codes.type.count)
    values = codec.decode(codes, src.dtype, work)
    is_float = not isinstance(FORMATS[src.dtype], IntegerFormat)
    return codec.encode(values, work, dst.dtype, may_be_nan=is_float, may_be_denormal=is_float)


def _emit_data(src: Row, dst: Row, table: ConvertTable, work: str | None) -> None:
    """Convert the elements of one row."""
    count: Value = table.columns
    sizes = vector_lanes(work, _registers(src, dst))
    prefetches = table.prefetch_distance != 0

    def convert(i: Value, lanes: int, *, non_temporal: bool = False) -> None:
        if src.elements.fills_line(lanes) or lanes == sizes[0]:
            with when(prefetches):
                src.prefetch(i, lanes, table.prefetch_distance)
        codes = _converted(src, dst, src.load(i, lanes), work)
        dst.store(codes, i, non_temporal=non_temporal)

    packed = next((row for row in (src, dst) if row.elements.is_nibble), None)
    if packed is not None:
        _each_pair(packed, count, (*sizes[:-1], 2), convert)
    elif dst.elements.streams:
        each_line(dst, count, sizes, convert, overlaps=True)
    else:
        # of loads and stores, the more bytes should not cross lines
        aligned = dst if dst.elements.bits >= src.elements.bits else None
        each_vector((0, count), sizes, convert, overlaps=True, dst=aligned)


def _registers(src: Row, dst: Row) -> int:
    """Return how many registers a vector of the working type fills; see `_REGISTERS`."""
    return _REGISTERS if min(src.elements.bits, dst.elements.bits) > BYTE_BITS else 2 * _REGISTERS


def _each_pair(packed: Row, count: Value, sizes: tuple[int, ...], emit: EmitVector) -> None:
    """Emit vectors that start at whole bytes of a row of 4-bit elements.

    The element before the first whole byte, and the one after the last, are emitted alone.
    """
    start = count.like(packed.start.index)
    head = minimum(start & 1, count)
    with loop(0, head) as i:
        emit(i, 1)
    last = count - ((count - head) & 1)
    each_vector((head, last), sizes, emit, overlaps=True)
    with loop(last, count) as i:
        emit(i, 1)
