"""Micro-kernel: a nest contiguous in src against a nest contiguous in dst.

The columns are the elements of a nest that is contiguous in src, the rows those of one
that is contiguous in dst; two tables tell where each row starts in src and each
column in dst. A tile is loaded as 128 bits along src for each of its rows, transposed in
registers, and stored as one vector along dst for each of its columns.

Tiles are always whole. Where the rows or columns of a nest fill none, the tile in
question reads rows from a table that points to zeros for those that hold no data, and to
copies for those that end with src, and stores columns that do not exist to a dump.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils

from reorder.cpu.kernels.emit import I64, int64, loop, maximum, minimum
from reorder.cpu.kernels.interleave import emit_interleaved
from reorder.cpu.kernels.shuffle import LANE_BITS, concatenate, exchange, pick, transpose
from reorder.cpu.target import LINE_BITS, register_bits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.cpu.kernels.emit import Elements, Place

__all__ = ["MAX_COLUMNS", "Nest", "emit_transposed", "heights"]

_BYTE = ir.IntType(8)
# Columns of a tile that is swept row block after row block: two cache lines of src.
_SWEEP_NBYTES = 128
# Registers that hold a tile: half of them, as many are made of it.
_TILE_REGISTERS = 16
# How many heights of a tile further on rows are asked for.
_AHEAD = 8
# As many columns as a call may have: a row of zeros is that long.
MAX_COLUMNS = 1 << 11


class Nest(NamedTuple):
    """One of the two nests: elements, valid ones, and the table of the other side's offsets.

    `run` is how many of its first elements, and of each as many that follow, lie on the other side
    with no gap but the other nest's size, or 0. `is_far` tells of columns that they are in no cache.
    """

    extent: Any
    valid: Any
    run: Any
    table: Any
    is_far: Any = None

    def at(self, builder: Any, place: Place, index: Any) -> Place:
        """Return where an element lies on the side where the nest is not contiguous."""
        return place[0], builder.add(place[1], builder.load(_pointer(builder, self.table, index)))

    def around(self, builder: Any, src: Place, dst: Place) -> Iterator[tuple[Place, Place]]:
        """Emit the loop that stands behind the table of the rows: both nests once more, elsewhere."""
        extent, *strides = (
            builder.load(_pointer(builder, self.table, builder.add(self.extent, int64(k))))
            for k in range(3)
        )
        with loop(builder, int64(0), extent) as i:
            fro, to = (
                (place[0], builder.add(place[1], builder.mul(i, stride)))
                for place, stride in zip((src, dst), strides, strict=True)
            )
            yield fro, to


def heights(bits: int) -> tuple[int, ...]:
    """Return how many rows tiles may have: a cache line, a half of it and so on down to 32 bits."""
    line = LINE_BITS // bits
    return tuple(line >> k for k in range(5) if line >> k >= max(2, 32 // bits))


def emit_transposed(
    elements: Elements,
    src: Place,
    dst: Place,
    columns: Nest,
    rows: Nest,
    span: tuple[Any, Any, Any, Any],
) -> None:
    """Move two nests; what is not valid in either is written zero.

    `span` is the range of columns to write, the end of what may be read of src, and how far
    the last row starts behind the first.
    """
    builder = elements.builder
    if elements.is_nibble:
        for fro, to in rows.around(builder, src, dst):
            _emit_scalar(elements, fro, to, columns, rows, span[:2])
        return
    first, stop, _, _ = span
    last = minimum(builder, stop, columns.valid)
    done = builder.append_basic_block("moved")
    emit_interleaved(elements, src, dst, columns, rows, (first, last), done)
    for height in heights(elements.bits):
        # whole lines are best where few of their rows are moved twice
        twice = builder.and_(builder.neg(rows.extent), int64(height - 1))
        most = (
            builder.lshr(rows.extent, int64(3))
            if height * elements.bits == LINE_BITS
            else int64(height)
        )
        fits = builder.and_(
            builder.icmp_signed(">=", rows.extent, int64(height)),
            builder.icmp_signed("<=", twice, most),
        )
        with builder.if_then(fits):
            *wider, least = _widths(elements.bits, height)
            for across in wider:
                with builder.if_then(
                    builder.icmp_signed(">=", builder.sub(last, first), int64(across))
                ):
                    _emit_strips(
                        elements,
                        src,
                        dst,
                        columns,
                        rows,
                        (first, last, *span[2:]),
                        (height, across),
                    )
                    builder.branch(done)
            _emit_strips(
                elements, src, dst, columns, rows, (first, last, *span[2:]), (height, least)
            )
            builder.branch(done)
    for fro, to in rows.around(builder, src, dst):
        _emit_scalar(elements, fro, to, columns, rows, (first, last))
    builder.branch(done)
    builder.position_at_end(done)
    first = maximum(builder, first, columns.valid)
    with builder.if_then(builder.icmp_signed("<", first, stop)):
        for _, to in rows.around(builder, src, dst):
            with loop(builder, first, stop) as column:
                _clear(elements, columns.at(builder, to, column), rows.extent)


def _emit_strips(
    elements: Elements,
    src: Place,
    dst: Place,
    columns: Nest,
    rows: Nest,
    span: tuple[Any, Any, Any, Any],
    shape: tuple[int, int],
) -> None:
    """Move whole tiles of some height and width, in sweeps that use what they load of src at once."""
    builder = elements.builder
    height, across = shape
    first, last, end, reach = span
    wide = LANE_BITS // elements.bits
    room = _Room(elements, height, wide)
    is_narrow = room.is_narrow(first, last)
    back_column = maximum(builder, builder.sub(last, int64(wide)), first)
    # numbers instead of conditions: LLVM would make loops of their own for each
    table = builder.select(is_narrow, room.columns, columns.table)
    entry = builder.select(is_narrow, int64(0), int64(8))
    back_row = builder.sub(rows.extent, int64(height))
    # one block of rows needs no sweeps
    step = builder.select(
        builder.icmp_signed("==", back_row, int64(0)),
        int64(MAX_COLUMNS),
        int64(_SWEEP_NBYTES * 8 // elements.bits),
    )
    is_padded = builder.icmp_signed("<", rows.valid, rows.extent)
    # most nests have whole tiles, and nothing to list
    is_special = builder.or_(builder.or_(is_narrow, is_padded), columns.is_far)
    for fro, target in rows.around(builder, src, dst):
        place = elements.at(fro)
        with loop(builder, first, last, step) as start:
            stop = minimum(builder, builder.add(start, step), last)
            with loop(builder, int64(0), rows.extent, height) as next_row:
                row = minimum(builder, next_row, back_row)
                to = elements.at((target[0], builder.add(target[1], row)))
                own_rows = _entry(builder, rows.table, row)
                before = builder.block
                with builder.if_then(is_special):
                    sweep = _Sweep(first, last, start, stop, builder.sub(end, fro[1]), reach)
                    listed = _list(room, place, to, (columns, rows, row), sweep)
                    special = builder.block
                row_table = builder.phi(I64)
                row_table.add_incoming(own_rows, before)
                row_table.add_incoming(listed, special)
                at = start
                # those of one lane are for the rest
                if across > wide:
                    at = builder.add(start, builder.and_(builder.sub(stop, start), int64(-across)))
                    with loop(builder, start, at, across) as column:
                        column_table = _entry(builder, columns.table, column)
                        _emit_tile(
                            elements,
                            elements.at((place[0], column)),
                            to,
                            (row_table, column_table),
                            shape,
                        )
                with loop(builder, at, stop, wide) as next_column:
                    column = minimum(builder, next_column, back_column)
                    column_table = builder.add(table, builder.mul(column, entry))
                    _emit_tile(
                        elements,
                        elements.at((place[0], column)),
                        to,
                        (row_table, column_table),
                        (height, wide),
                    )


class _Sweep(NamedTuple):
    """Columns from `start` to `stop` of those from `first` to `last`, and how far src and the last row go."""

    first: Any
    last: Any
    start: Any
    stop: Any
    end: Any
    reach: Any


def _list(room: _Room, src: Place, dst: Place, nests: tuple[Nest, Nest, Any], sweep: _Sweep) -> Any:
    """List what has no tiles of its own, and ask for what is far; returns the table of the rows from a row on."""
    builder = room.elements.builder
    columns, rows, row = nests
    first, last, start, stop, end, reach = sweep
    height = int64(room.height)
    is_narrow = room.is_narrow(first, last)
    # rows may be read beyond the last column, but not beyond the end of src
    is_over = builder.icmp_signed(
        ">", builder.add(reach, builder.add(first, int64(room.wide))), end
    )
    is_tight = builder.and_(is_narrow, is_over)
    must_list = builder.or_(
        builder.icmp_signed(">", builder.add(row, height), rows.valid), is_tight
    )
    with builder.if_then(must_list):
        room.list_rows(src, rows, row, (first, last, end), is_tight)
    listed = builder.select(must_list, room.rows, _entry(builder, rows.table, row))
    # what comes next: the rest of these rows, or, where they have none, rows further on
    goes_on = builder.icmp_signed("<", stop, last)
    further = builder.add(row, int64(_AHEAD * room.height))
    is_next = builder.icmp_signed("<=", builder.add(further, height), rows.extent)
    with builder.if_then(builder.and_(columns.is_far, builder.or_(goes_on, is_next))):
        column = builder.select(goes_on, stop, start)
        asked = builder.select(goes_on, listed, _entry(builder, rows.table, further))
        _prefetch(room.elements, (src[0], builder.add(src[1], column)), asked, room.height)
    with builder.if_then(is_narrow):
        room.list_columns(dst, columns, first, last)
    return listed


def _prefetch(elements: Elements, src: Place, row_table: Any, height: int) -> None:
    """Ask for what the next sweep reads of some rows: they are more than the machine can foresee."""
    builder = elements.builder
    byte = _BYTE.as_pointer()
    bits = ir.IntType(32)
    function = ir.FunctionType(ir.VoidType(), [byte, bits, bits, bits])
    name = "llvm.prefetch.p0i8"
    prefetch = builder.module.globals.get(name) or ir.Function(builder.module, function, name)
    with loop(builder, int64(0), int64(height)) as k:
        index = builder.add(src[1], builder.load(_pointer(builder, row_table, k)))
        for line in range(_SWEEP_NBYTES * 8 // LINE_BITS):
            at = builder.bitcast(
                elements.pointer(
                    src[0], builder.add(index, int64(line * LINE_BITS // elements.bits))
                ),
                byte,
            )
            builder.call(prefetch, [at, bits(0), bits(3), bits(1)])


def _widths(bits: int, height: int) -> list[int]:
    """Return how many columns tiles of so many rows may have, most first.

    A line of each row is best, as far as there are registers, but not for nests that have fewer columns.
    """
    if register_bits() < LINE_BITS or height * bits < LINE_BITS:
        return [LANE_BITS // bits]
    widest = min(LINE_BITS, _TILE_REGISTERS * LINE_BITS // height)
    return [width // bits for width in (widest, widest // 2) if width > LANE_BITS] or [
        LANE_BITS // bits
    ]


def _emit_tile(
    elements: Elements, src: Place, dst: Place, tables: tuple[Any, Any], shape: tuple[int, int]
) -> None:
    """Move one tile."""
    builder = elements.builder
    height, wide = shape
    lane = LANE_BITS // elements.bits
    across = min(height, lane)
    lines = [
        elements.load_vector(src[0], builder.add(src[1], _load(builder, tables[0], k)), wide)
        for k in range(height)
    ]
    # vectors begin with rows `each` apart: their lanes are rows `across` apart, and columns
    parts = wide // lane
    each = height // parts
    groups = []
    for first in range(0, height, each):
        joined = [
            concatenate(builder, lines[first + k : first + each : across]) for k in range(across)
        ]
        groups.append(transpose(builder, joined))
    exchanged = [exchange(builder, list(vectors), lane) for vectors in zip(*groups, strict=True)]
    vectors = [vector for part in zip(*exchanged, strict=True) for vector in part]
    each = lane // across
    for k, vector in enumerate(vectors):
        for i in range(each):
            column = (
                pick(builder, vector, range(i * across, (i + 1) * across)) if each > 1 else vector
            )
            elements.store_line(
                column, dst[0], builder.add(dst[1], _load(builder, tables[1], k * each + i))
            )


class _Room:
    """Room on the stack for tables of rows and columns that a nest does not have as they are needed."""

    def __init__(self, elements: Elements, height: int, wide: int) -> None:
        self.elements = elements
        self.height, self.wide = height, wide
        builder = elements.builder
        self.rows = builder.ptrtoint(cgutils.alloca_once(builder, I64, size=height), I64)
        self.columns = builder.ptrtoint(cgutils.alloca_once(builder, I64, size=wide), I64)
        size = elements.bits // 8
        # a row, and room to move it to where src has its elements within their own size
        self.copies = builder.ptrtoint(
            cgutils.alloca_once(builder, _BYTE, size=(height * wide + 1) * size), I64
        )
        dump = cgutils.alloca_once(builder, _BYTE, size=(height + 1) * size)
        dump.align = LINE_BITS // 8
        self.dump = builder.ptrtoint(dump, I64)
        self.zeros = builder.ptrtoint(_zeros(builder, (MAX_COLUMNS + wide + 1) * 8), I64)

    def _offset(self, address: Any, place: Place) -> Any:
        """Return how many elements behind a place some room begins; room is larger by one element than used."""
        builder = self.elements.builder
        size = self.elements.bits // 8
        apart = builder.sub(address, builder.add(place[0], builder.mul(place[1], int64(size))))
        return builder.ashr(builder.add(apart, int64(size - 1)), int64(size.bit_length() - 1))

    def is_narrow(self, first: Any, last: Any) -> Any:
        """Whether a tile is wider than all columns."""
        builder = self.elements.builder
        return builder.icmp_signed("<", builder.sub(last, first), int64(self.wide))

    def list_columns(self, dst: Place, columns: Nest, first: Any, last: Any) -> None:
        """List the columns from `first` on, the dump for those from `last` on."""
        builder = self.elements.builder
        dump = self._offset(self.dump, dst)
        with loop(builder, int64(0), int64(self.wide)) as k:
            column = builder.add(first, k)
            is_real = builder.icmp_signed("<", column, last)
            real = builder.load(
                _pointer(builder, columns.table, builder.select(is_real, column, first))
            )
            builder.store(builder.select(is_real, real, dump), _pointer(builder, self.columns, k))

    def list_rows(
        self, src: Place, rows: Nest, row: Any, ends: tuple[Any, Any, Any], is_tight: Any
    ) -> None:
        """List rows: zeros for those that are not valid, copies of those that end with src."""
        builder = self.elements.builder
        first, last, end = ends
        count = builder.sub(last, first)
        with loop(builder, int64(0), int64(self.height)) as k:
            at = builder.add(row, k)
            is_real = builder.icmp_signed("<", at, rows.valid)
            slot = _pointer(builder, self.rows, k)
            with builder.if_else(is_real) as (real, zero):
                with real:
                    offset = builder.load(_pointer(builder, rows.table, at))
                    builder.store(offset, slot)
                    begin = builder.add(builder.add(src[1], offset), first)
                    is_over = builder.icmp_signed(">", builder.add(begin, int64(self.wide)), end)
                    with builder.if_then(builder.and_(is_tight, is_over)):
                        own = self._offset(self.copies, (src[0], builder.add(src[1], first)))
                        own = builder.add(own, builder.mul(k, int64(self.wide)))
                        builder.store(own, slot)
                        to = src[0], builder.add(builder.add(src[1], own), first)
                        with loop(builder, int64(0), count) as i:
                            value = self.elements.load(src[0], builder.add(begin, i))
                            self.elements.store(value, to[0], builder.add(to[1], i))
                with zero:
                    builder.store(self._offset(self.zeros, src), slot)


def _zeros(builder: Any, nbytes: int) -> Any:
    """Return the address of constant zeros, shared by all kernels of a module."""
    name = f"memdesc.zeros.{nbytes}"
    module = builder.module
    if name not in module.globals:
        kind = ir.ArrayType(_BYTE, nbytes)
        zeros = ir.GlobalVariable(module, kind, name)
        zeros.initializer, zeros.global_constant, zeros.linkage, zeros.align = (
            ir.Constant(kind, None),
            True,
            "private",
            64,
        )
    return module.globals[name]


def _pointer(builder: Any, table: Any, index: Any) -> Any:
    return builder.gep(builder.inttoptr(table, I64.as_pointer()), [index])


def _load(builder: Any, table: Any, index: int) -> Any:
    return builder.load(_pointer(builder, table, int64(index)))


def _entry(builder: Any, table: Any, index: Any) -> Any:
    """Return the address of an entry."""
    return builder.add(table, builder.shl(index, int64(3)))


def _clear(elements: Elements, place: Place, count: Any) -> None:
    """Write zeros with vectors, the rest one by one."""
    builder = elements.builder
    lanes = LANE_BITS // elements.bits
    whole = builder.and_(count, int64(-lanes))
    with loop(builder, int64(0), whole, lanes) as i:
        elements.store_vector(
            ir.Constant(elements.vector(lanes), None), place[0], builder.add(place[1], i)
        )
    with loop(builder, whole, count) as i:
        elements.store(elements.zero, place[0], builder.add(place[1], i))


def _emit_scalar(
    elements: Elements, src: Place, dst: Place, columns: Nest, rows: Nest, span: tuple[Any, Any]
) -> None:
    """Move element by element: 4-bit ones have no vectors, and fewer rows than the least tile has are no work."""
    builder = elements.builder
    zero = int64(0)
    with loop(builder, *span) as column:
        valid = builder.select(builder.icmp_signed("<", column, columns.valid), rows.valid, zero)
        to = columns.at(builder, dst, column)
        with loop(builder, zero, valid) as row:
            fro, index = rows.at(builder, src, row)
            elements.store(
                elements.load(fro, builder.add(index, column)), to[0], builder.add(to[1], row)
            )
        with loop(builder, valid, rows.extent) as row:
            elements.store(elements.zero, to[0], builder.add(to[1], row))
