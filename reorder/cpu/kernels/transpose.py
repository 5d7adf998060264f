"""Micro-kernel: transpose a loop group contiguous in src and a loop group contiguous in dst.

The columns are contiguous in src, the rows in dst. Each group has a table of its offsets on the
other side: where a column starts in dst, where a row starts in src. The schedule says if the groups
are few columns, a block whose columns follow each other, or permuted. Others are moved in the first
of these ways that fits: interleaved, for groups of two to four elements; as tiles transposed in
registers, of the first height that fits the rows, in the widest shape that fits the columns.
"""

from collections.abc import Iterator
from itertools import islice
from operator import itemgetter

from llvmlite import ir

from memdesc.dtypes import BYTE_BITS
from memdesc.tuples import NamedTuple
from reorder.cpu.kernels.elements import Elements, Location, emit_clear, first_vector
from reorder.cpu.llvm.emit import (
    BYTE,
    I64,
    Value,
    call,
    either,
    kept,
    load_fields,
    loop,
    maximum,
    minimum,
    phi,
    prefetch_to_read,
    prefetch_to_write,
    shared_constant,
    stack_space,
    when,
    where,
)
from reorder.cpu.llvm.shuffle import concatenate, exchange, pick, transpose
from reorder.cpu.machine import LANE_BITS, LINE_BITS, LINE_NBYTES, PAGE_NBYTES
from reorder.cpu.schedule.program import WAYS, KernelLoop
from reorder.cpu.schedule.select import (
    MAX_INTERLEAVED,
    TILE,
    TILE_REGISTERS,
    Part,
)
from reorder.cpu.tables import WORD_NBYTES
from reorder.cpu.target import register_bits
from reorder.plan.nodes import NOWHERE
from reorder.system import is_x86

# Columns of one sweep over all rows: two cache lines of src, which are read completely before the
# next sweep.
_SWEEP_NBYTES = 128
# The most columns of a sweep: two lines written and one prefetched for each column, plus the lines
# of the rows, take half of the first-level cache.
_SWEEP_COLUMNS = 64
# Rows of at least this many wide tiles are moved in narrow ones up to the first line of src: a load
# that crosses the end of a line takes twice as long, and reads each line twice.
_LEAST_WIDE_TILES = 4
# With non-temporal stores, few columns are moved in this many tiles of rows at a time.
_STREAMED_TOGETHER = 4
# Lines of src are prefetched this many bytes ahead, in the same row.
_PREFETCHED_NBYTES = 2 * LINE_NBYTES


class _TileShape(NamedTuple):
    """Rows and columns of a tile that is transposed in registers."""

    height: int
    width: int

    def registers(self, bits: int) -> int:
        """Return how many registers of a cache line hold a tile."""
        return self.height * self.width * bits // LINE_BITS


class Transposition(NamedTuple):
    """Two loop groups to move from src to dst."""

    elements: Elements
    src: Location
    dst: Location
    # a `TransposeHead`: its valid columns are those of the box, its flags are conditions
    head: Value
    # addresses of the offsets of columns in dst, and of rows in src, in bytes
    column_table: Value
    row_table: Value
    # the columns to move: the first, and one past the last
    first: Value
    last: Value
    # elements of src from this address on must not be read
    src_end: Value
    # address of the `KernelLoop`: it is loaded where its loop begins, to save registers until then
    kernel_loop_at: Value

    def column(self, index: Value) -> Location:
        """Return where a column starts in dst."""
        return self.elements.moved(self.dst, self.column_table[index])

    def row(self, index: Value) -> Location:
        """Return where a row starts in src."""
        return self.elements.moved(self.src, self.row_table[index])

    def each_step(self, extent: Value | None = None) -> Iterator["Transposition"]:
        """Emit the loop around both groups, or some steps; yields the transposition of each."""
        kernel_loop = load_fields(self.kernel_loop_at, KernelLoop)
        with loop(0, kernel_loop.extent if extent is None else extent) as i:
            yield self._replace(
                src=self.elements.moved(self.src, i * kernel_loop.src_stride),
                dst=self.elements.moved(self.dst, i * kernel_loop.dst_stride),
            )


def emit_transposed(move: Transposition) -> None:
    """Move two loop groups; steps that are not valid in either write zeros."""
    elements, rows, stop = move.elements, move.head.rows, move.last
    builder = elements.builder
    data = move._replace(last=minimum(stop, move.head.valid_columns))
    done = builder.append_basic_block("moved")
    ways = {
        Part.FEW_COLUMNS: _emit_few_columns,
        Part.BLOCKS: _emit_blocks,
        Part.PERMUTED: _emit_permuted,
    }
    for part, emit in ways.items():
        if part in elements.parts:
            with when(move.head.way == WAYS.index(part)):
                emit(data)
                builder.branch(done)
    if Part.INTERLEAVED in elements.parts:
        shorter = minimum(rows, move.head.columns)
        with when(shorter <= MAX_INTERLEAVED):
            emit_interleaved(data, done)
    if Part.TILES in elements.parts:
        line = LINE_BITS // elements.bits
        for height in (line >> k for k in range(line.bit_length())):
            _emit_tiles(data, height, done)
    builder.branch(done)
    builder.position_at_end(done)
    first = maximum(move.first, move.head.valid_columns)
    with when(first < stop):
        # contiguous columns are cleared at once
        run = maximum(move.head.column_run, 1)
        step = where((first % run | stop % run) == 0, run, 1)
        step = where(run >= stop, stop - first, step)
        for at_step in move.each_step():
            with loop(first, stop, step) as column:
                emit_clear(elements, at_step.column(column), step * rows)


def _emit_tiles(move: Transposition, height: int, done: Value) -> None:
    """Move tiles of a height, then branch to `done`, if the rows suit that height."""
    elements, extent = move.elements, move.head.rows
    builder = elements.builder
    # the last tile overlaps the one before it, so it moves some rows twice
    repeated = -extent & (height - 1)
    limit: Value | int = height
    if height * elements.bits == LINE_BITS:
        limit = move.head.repeated
    shapes = _tile_shapes(elements.bits, height)
    with when((extent >= height) & (repeated <= limit)):
        *wider, narrowest = shapes
        for shape in wider:
            fits = move.last - move.first >= shape.width
            if shape.registers(elements.bits) > TILE_REGISTERS:
                if Part.WIDE_TILES not in elements.parts:
                    continue
                fits &= move.head.rows_collide
            with when(fits):
                _emit_sweeps(move, shape)
                builder.branch(done)
        _emit_sweeps(move, narrowest)
        builder.branch(done)


def _emit_sweeps(move: Transposition, shape: _TileShape) -> None:
    """Move tiles of one shape, in sweeps: some columns of all rows, then the next columns.

    A sweep uses whole cache lines of src while they are in the cache. The columns that wide tiles
    leave over are moved by tiles of one lane.
    """
    elements, builder = move.elements, move.elements.builder
    height, width = shape
    lane = _TileShape(height, LANE_BITS // elements.bits)
    edge = _EdgeTables(elements, lane)
    is_narrow = edge.is_narrow(move)
    # a call has few wide tiles of bytes
    is_wide = width > lane.width and elements.bits > BYTE_BITS
    last_column = maximum(move.last - lane.width, move.first)
    # a select, since LLVM would duplicate the loop for a branch; a narrow tile starts with the
    # first column of the call, which is the first entry of its own table
    narrow_table = edge.columns - move.first * WORD_NBYTES
    last_row = move.head.rows - height
    # one block of rows needs no sweeps
    sweep = min(_SWEEP_NBYTES * BYTE_BITS // elements.bits, _SWEEP_COLUMNS)
    step = where(last_row <= 0, _MAX_COLUMNS, sweep)
    # most calls have whole tiles only
    has_edges = is_narrow | (move.head.valid_rows < move.head.rows)
    for at_step in move.each_step():
        with when(is_narrow), loop(0, move.last - move.first) as k:
            edge.columns[k] = at_step.column_table[move.first + k]
        column_tables = where(is_narrow, narrow_table, at_step.column_table)
        src = elements.rebased(at_step.src)
        origin = move.first
        if is_wide:
            skipped = _skipped_columns(at_step._replace(src=src), shape)
            origin += where(skipped > 0, skipped - step, 0)
        with loop(origin, move.last, step) as begin:
            start = maximum(begin, move.first) if is_wide else begin
            stop = minimum(begin + step, move.last)
            with loop(0, move.head.rows, height) as next_row:
                row = minimum(next_row, last_row)
                dst = elements.rebased(at_step.dst + row)
                whole_table = at_step.row_table + row * WORD_NBYTES
                before = builder.block
                with when(has_edges):
                    edge_table = edge.prepare(at_step._replace(src=src, dst=dst), row)
                    prepared = builder.block
                row_table = phi((whole_table, before), (edge_table, prepared))
                block = move._replace(src=src, dst=dst)
                rest = start
                if width > lane.width:
                    rest = start + ((stop - start) & -width)
                    with loop(start, rest, width) as column:
                        table = at_step.column_table + column * WORD_NBYTES
                        _emit_tile(block, column, (row_table, table), shape)
                with loop(rest, stop, lane.width) as next_column:
                    column = minimum(next_column, last_column)
                    table = column_tables + column * WORD_NBYTES
                    _emit_tile(block, column, (row_table, table), lane, next_column)


def _skipped_columns(move: Transposition, shape: _TileShape) -> Value:
    """Return how many columns tiles of one lane move, so that wide ones start lines of src."""
    elements, table = move.elements, move.row_table
    size = elements.bits // BYTE_BITS
    address = elements.address_of(move.src + move.first)
    skipped = (-address & (shape.width * size - 1)) // size
    is_long = move.last - move.first >= _LEAST_WIDE_TILES * shape.width
    # rows that are not a multiple of a line apart gain nothing
    starts = is_long & ((table[1] & (LINE_NBYTES - 1)) == 0)
    return where(starts, skipped, 0)


def _emit_tile(
    move: Transposition,
    column: Value,
    tables: tuple[Value, Value],
    shape: _TileShape,
    next_column: Value | None = None,
) -> None:
    """Move a tile by the tables of its rows in src and of its columns in dst.

    The columns before `next_column` were moved by the tile before it.
    """
    elements, (row_table, table) = move.elements, tables
    src = elements.rebased(Location(move.src.address, column))
    _prefetch_rows(move, src, column, row_table, shape)
    rows = (
        elements.load_vector(elements.moved(src, row_table[k]), shape.width)
        for k in range(shape.height)
    )
    stored = None if next_column is None else next_column - column
    for k, vector in _columns_to_store(elements, rows, shape, stored):
        elements.store_lines(vector, elements.moved(move.dst, table[k]))
    _prefetch_columns(move, move.dst, table, shape)


def _prefetch_columns(move: Transposition, dst: Location, table: Value, shape: _TileShape) -> None:
    """Prefetch the lines of dst that the next tile of the same columns writes first."""
    elements = move.elements
    # if tiles are as high as lines, that tile ends in them; measured on x86 only
    if elements.streams or shape.height * elements.bits < LINE_BITS or not is_x86():
        return
    with when(move.head.prefetches_dst):
        for k in range(shape.width):
            column = elements.moved(dst, table[k])
            prefetch_to_write(elements.address_of(column) + (2 * LINE_NBYTES - 1))


def _prefetch_rows(
    move: Transposition, src: Location, column: Value, table: Value, shape: _TileShape
) -> None:
    """Prefetch lines of the rows of a tile that starts at a column: a part of each line's rows.

    This is for non-temporal stores: their data is in memory, and prefetchers follow few rows.
    """
    elements = move.elements
    if not elements.streams or not is_x86():
        return
    ahead = _PREFETCHED_NBYTES * BYTE_BITS // elements.bits
    tiles = LINE_BITS // (shape.width * elements.bits)
    count = shape.height // tiles
    first = elements.address_of(src) // (LINE_NBYTES // tiles) % tiles * count
    with when(~move.head.rows_collide & (column + ahead < move.last)):
        start = elements.address_of(src + ahead)
        for k in range(count):
            prefetch_to_read(start + table[first + k])


# These loops need as many columns as a tile has, without padding; rows of few columns have none
# either.
# Nothing but tiles is in the innermost loops: what a sweep does around its tiles takes as long as
# one or two of them.


def _emit_few_columns(move: Transposition) -> None:
    """Move one tile of columns after the other, each in all rows; one tile of rows in all steps."""
    elements, rows = move.elements, move.head.rows
    line, lane = LINE_BITS // elements.bits, LANE_BITS // elements.bits
    kernel_loop = load_fields(move.kernel_loop_at, KernelLoop)
    is_single = rows == line
    count = where(is_single, kernel_loop.extent, (rows + (line - 1)) // line)
    src_stride = where(is_single, kernel_loop.src_stride, 0)
    dst_stride = where(is_single, kernel_loop.dst_stride, 0)
    wide = [
        shape
        for shape in _tile_shapes(elements.bits, line)
        if shape.width > lane and shape.registers(elements.bits) <= TILE_REGISTERS
    ]
    # lines of src stay in the first-level cache until all tiles have read them; non-temporal stores
    # need loads from memory between them
    together = _STREAMED_TOGETHER if elements.streams else TILE // line
    for at_step in move.each_step(where(is_single, 1, kernel_loop.extent)):
        src, dst = map(elements.rebased, (at_step.src, at_step.dst))
        with loop(0, count, together) as begin:
            end = minimum(begin + together, count)
            for first, shape, stored in _each_tile(move, line, wide):
                start = elements.rebased(src + first)
                table = move.column_table + first * WORD_NBYTES
                with loop(begin, end) as i:
                    row = minimum(i * line, rows - line)
                    row_table = move.row_table + row * WORD_NBYTES
                    source = elements.moved(start, i * src_stride)
                    target = elements.rebased(elements.moved(dst, i * dst_stride) + row)
                    # otherwise LLVM adds two registers in each store
                    target = Location(kept(target.address), 0)
                    lines = (
                        elements.load_vector(elements.moved(source, row_table[k]), shape.width)
                        for k in range(line)
                    )
                    for k, column in _columns_to_store(elements, lines, shape, stored):
                        elements.store_lines(column, elements.moved(target, table[k]))
                    _prefetch_columns(move, target, table, shape)


def _emit_blocks(move: Transposition) -> None:
    """Move the rows of one tile, whose columns follow each other in dst; rows may be padding."""
    zeros = _zeros(move.elements)
    elements, lane = move.elements, LANE_BITS // move.elements.bits
    is_wide = elements.bits > BYTE_BITS and register_bits() == LINE_BITS
    for height in (LINE_BITS // elements.bits >> k for k in range(lane.bit_length())):
        if height <= MAX_INTERLEAVED:
            continue
        has_wide = height == lane or (height > lane and is_wide)
        wide = [_TileShape(height, 2 * lane)] * has_wide
        own_table = stack_space(elements.builder, I64, height)
        with when(move.head.rows == height):
            is_padded = move.head.valid_rows < height
            row_table = where(is_padded, own_table, move.row_table)
            for at_step in move.each_step():
                src, dst = map(elements.rebased, (at_step.src, at_step.dst))
                with when(is_padded), loop(0, move.head.rows) as row:
                    offset, nowhere = move.row_table[row], zeros - elements.address_of(src)
                    own_table[row] = where(offset == NOWHERE, nowhere, offset)
                rows = [elements.moved(src, row_table[k]) for k in range(height)]
                starts = [*map(elements.rebased, rows)]
                for first, shape, stored in _each_tile(move, height, wide):
                    lines = (elements.load_vector(start + first, shape.width) for start in starts)
                    target = elements.rebased(dst + first * height)
                    for k, column in _columns_to_store(elements, lines, shape, stored):
                        elements.store_lines(column, target + k * height)


def _each_tile(
    move: Transposition, height: int, wide: list[_TileShape]
) -> Iterator[tuple[Value, _TileShape, Value | None]]:
    """Emit loops over tiles of all columns.

    Tiles of one lane move the columns that wide ones leave over; the last one may overlap the one
    before it. Yields the first column, the shape, and for the former how many columns overlap.
    """
    first, last = move.first, move.last
    lane = _TileShape(height, LANE_BITS // move.elements.bits)
    for shape in wide:
        stop = first + ((last - first) & -shape.width)
        with loop(first, stop, shape.width) as column:
            yield column, shape, None
        first = stop
    with loop(first, last, lane.width) as next_column:
        column = minimum(next_column, last - lane.width)
        yield column, lane, next_column - column


# Upper bound of the columns of a call, and length of the row of zeros. Tiling cuts loop groups to
# fewer elements.
_MAX_COLUMNS = 1 << 11
# Bytes of the widest elements: all kernels of a module share the zeros.
_MAX_ELEMENT_NBYTES = 8


def _zeros(elements: Elements) -> Value:
    """Return the address of a row of zeros: a tile may read beyond the end of its columns."""
    array = ir.ArrayType(BYTE, (_MAX_COLUMNS + LANE_BITS // elements.bits) * _MAX_ELEMENT_NBYTES)
    name, content = f"memdesc.zeros.{array.count}", ir.Constant(array, None)
    return shared_constant(elements.builder, name, content, LINE_NBYTES)


class _EdgeTables:
    """Tables and buffers of edge tiles, on the stack of the kernel.

    There is code for whole tiles only. An edge tile reads its rows through a table: rows without
    data point to zeros, and rows that a whole tile would read beyond the end of src point to
    copies. It writes its columns through a table: columns that do not exist point to a buffer that
    is never read.
    """

    def __init__(self, elements: Elements, shape: _TileShape) -> None:
        self.elements = elements
        self.height, self.width = shape
        builder = elements.builder
        size = elements.bits // BYTE_BITS
        self.rows = stack_space(builder, I64, self.height)
        self.columns = stack_space(builder, I64, self.width)
        self.copies = stack_space(builder, BYTE, self.height * self.width * size)
        self.unread = stack_space(builder, BYTE, self.height * size, LINE_NBYTES)
        self.zeros = _zeros(elements)

    def is_narrow(self, move: Transposition) -> Value:
        """Whether there are fewer columns than in a tile."""
        return move.last - move.first < self.width

    def prepare(self, move: Transposition, row: Value) -> Value:
        """Write the tables that the edge tiles at a row need; returns the table of the rows."""
        elements, head = self.elements, move.head
        is_narrow = self.is_narrow(move)
        # a tile may read rows beyond the last column, but not beyond the end of src
        columns = elements.nbytes(move.first + self.width)
        last_read = elements.address_of(move.src) + columns + head.src_span
        copies = is_narrow & (last_read > move.src_end)
        # padding rows must be read from zeros, not from src
        has_padding = (row + self.height > head.valid_rows) & (head.valid_rows < head.rows)
        needs_table = has_padding | copies
        with when(needs_table):
            self._write_rows(move, row, copies)
        table = where(needs_table, self.rows, move.row_table + row * WORD_NBYTES)
        with when(is_narrow):
            unread = self._offset(self.unread, move.dst)
            with loop(move.last - move.first, self.width) as k:
                self.columns[k] = unread
        return table

    def _write_rows(self, move: Transposition, row: Value, copies: Value) -> None:
        """Write the table of the rows of a tile at a row; `copies`: some may have to be copied."""
        elements, src = self.elements, move.src
        with loop(0, row.like(self.height)) as k:
            offset = move.row_table[row + k]
            with either(offset != NOWHERE) as (data, padding):
                with data:
                    self.rows[k] = offset
                    start = elements.moved(src, offset) + move.first
                    stop = elements.address_of(start + self.width)
                    with when(copies & (stop > move.src_end)):
                        copy = Location(self.copies, k * self.width)
                        with loop(0, move.last - move.first) as i:
                            elements.store(elements.load(start + i), copy + i)
                        address = elements.address_of(copy)
                        self.rows[k] = self._offset(address, src + move.first)
                with padding:
                    self.rows[k] = self._offset(self.zeros, src)

    def _offset(self, address: Value, start: Location) -> Value:
        """Return the offset of a buffer from a location, in bytes."""
        return address - self.elements.address_of(start)


# Two to four rows interleaved into one, and one row split into two to four: whole vectors, as
# c0 c1 c2 c0 c1 c2 ...

# Vectors are concatenated in powers of two: two or four; if there are three, the first is repeated.
_PAIR, _ODD, _QUAD = 2, 3, MAX_INTERLEAVED
# Rows or columns, and the share of the longest vectors that is moved at once.
_SHAPES = (_PAIR, 1), (_PAIR, 2), (_ODD, 1), (_QUAD, 1), (_QUAD, 2)


def emit_interleaved(move: Transposition, done: Value) -> None:
    """Move both groups if one of them has two to four elements, then branch to `done`."""
    head, builder, bits = move.head, move.elements.builder, move.elements.bits
    columns, rows = (move.first, move.last), (head.rows.like(0), head.rows)
    has_all_rows = head.valid_rows == head.rows
    has_all_columns = (move.first == 0) & (move.last == head.columns)
    # two 128-bit vectors are moved at once, or one of bytes; half of that from short runs
    most = (LANE_BITS if bits == BYTE_BITS else 2 * LANE_BITS) // bits
    for count, share in _SHAPES:
        lanes = most // share
        joins = (head.rows == count) & _is_run(head.column_run, columns, lanes)
        with when(has_all_rows & joins):
            _emit_joins(move, count, lanes)
            builder.branch(done)
        splits = has_all_columns & (head.columns == count) & _is_run(head.row_run, rows, lanes)
        with when(has_all_rows & splits):
            for at_step in move.each_step():
                _emit_split(at_step, count, lanes)
            builder.branch(done)


def _is_run(run: Value, span: tuple[Value, Value], lanes: int) -> Value:
    """Whether vectors cover a span of a group without crossing the end of a run."""
    first, last = span
    length = last - first
    is_aligned = ((run | length | first) & (lanes - 1)) == 0
    return (run > 0) & (is_aligned | (run >= last)) & (length >= lanes)


def _emit_joins(move: Transposition, count: int, lanes: int) -> None:
    """Interleave `count` rows in all steps of the loop around them."""
    elements, first, last = move.elements, move.first, move.last
    with either(move.head.column_run < last) as (pieces, run):
        with pieces:
            # a line of each row in all steps, then the next line: the next step of the loop often
            # continues a piece of dst
            width = max(lanes, LINE_BITS // elements.bits)
            stop = first + ((last - first) & -width)
            if count * lanes * elements.bits < LINE_BITS:
                # but piece by piece if the pieces share a set of the first-level cache and the
                # steps of the loop do not
                apart = move.column_table[first + lanes] - move.column_table[first]
                step = load_fields(move.kernel_loop_at, KernelLoop).src_stride
                in_page = PAGE_NBYTES - 1
                stop = where(((apart & in_page) == 0) & ((step & in_page) != 0), first, stop)
            _emit_pieces(move, (first, stop), (count, lanes), width // lanes)
            _emit_pieces(move, (stop, last), (count, lanes), 1)
        with run:
            for at_step in move.each_step():
                _emit_join(at_step, count, lanes)


def _emit_pieces(
    move: Transposition, span: tuple[Value, Value], shape: tuple[int, int], vectors: int
) -> None:
    """Interleave some columns of `count` rows, as many vectors at once in all steps."""
    elements, (count, lanes) = move.elements, shape
    kernel_loop = load_fields(move.kernel_loop_at, KernelLoop)
    rows = [elements.rebased(move.row(k)) for k in range(count)]
    is_line = count * lanes * elements.bits >= LINE_BITS
    with loop(*span, vectors * lanes) as column:
        starts = [elements.rebased(row + column) for row in rows]
        targets = [move.column(column + k * lanes) for k in range(vectors)]
        with loop(0, kernel_loop.extent) as i:
            lines = [elements.moved(start, i * kernel_loop.src_stride) for start in starts]
            for k, target in enumerate(targets):
                parts = [elements.load_vector(line + k * lanes, lanes) for line in lines]
                piece = elements.moved(target, i * kernel_loop.dst_stride)
                elements.store_lines(_interleaved(parts), piece)
                if is_line and not elements.streams and is_x86():
                    # the line that the next step is the first to need
                    prefetch_to_write(elements.address_of(piece) + (2 * LINE_NBYTES - 1))


def _emit_join(move: Transposition, count: int, lanes: int) -> None:
    """Interleave `count` rows of one run; the last vectors overlap those before them."""
    elements, first, last = move.elements, move.first, move.last
    target = move.column(first)
    start = first_vector(elements, target, lanes, last - first, count)
    rows = [elements.rebased(move.row(k)) for k in range(count)]
    with loop(first + start, last, lanes) as next_column:
        column = maximum(minimum(next_column, last - lanes), first)
        lines = [elements.load_vector(row + column, lanes) for row in rows]
        elements.store_lines(_interleaved(lines), move.column(column))


def _interleaved(lines: list[Value]) -> Value:
    """Return a vector of the first lanes of all vectors, then of their second ones, and so on."""
    count, lanes = len(lines), lines[0].type.count
    joined = concatenate(lines if count == _PAIR else [*lines, *lines[: _QUAD - count]])
    return pick(joined, (j % count * lanes + j // count for j in range(count * lanes)))


def _emit_split(move: Transposition, count: int, lanes: int) -> None:
    """Split one row into `count` columns; the last vectors overlap those before them."""
    elements, extent = move.elements, move.head.rows
    end = extent - lanes
    start = first_vector(elements, move.column(0), lanes, extent)
    start = where(move.head.row_run >= extent, start, 0)  # otherwise runs end where vectors do
    columns = [elements.rebased(move.column(k)) for k in range(count)]
    with loop(start, extent, lanes) as next_row:
        row = maximum(minimum(next_row, end), 0)
        joined = elements.load_vector(move.row(row), count * lanes)
        for k, column in enumerate(columns):
            part = pick(joined, (j * count + k for j in range(lanes)))
            elements.store_lines(part, column + row)


# Tiles of elements that are pairs or quads on one side only. On the other side a row of them, of up
# to a line, has all first parts, then all next parts, so one instruction permutes its bytes.

_PERMUTE, _LINE = "llvm.x86.avx512.permvar.qi.512", ir.VectorType(BYTE, LINE_NBYTES)


def _emit_permuted(move: Transposition) -> None:
    """Move tiles whose rows are permuted when loaded, or whose columns when stored.

    The model: stores that cross the ends of lines cost twice as much. So if columns are whole lines
    that follow each other in dst, tiles start lines, and the last one has the rows at both ends.
    """
    elements, head = move.elements, move.head
    height, width = shape = _TileShape(*[LINE_BITS // elements.bits] * 2)
    picks = (move.row_table + (head.rows + height) * WORD_NBYTES).load_at(_LINE)

    def permuted(line: Value) -> Value:
        bytes_of_line = call(elements.builder, _PERMUTE, _LINE, line.bitcast(_LINE), picks)
        return bytes_of_line.bitcast(line.type)

    with either(head.permuted == 1) as (rows, columns):
        with rows:
            mask = elements.lane_mask(head.columns, width)

            def columns_at(step: Transposition, first: Value) -> Iterator[tuple[Location, Value]]:
                starts = [step.row(first + k) for k in range(height)]
                lines = (permuted(elements.load_masked(start, mask)) for start in starts)
                for k, column in _columns(elements, lines, shape):
                    with when(head.columns > k):
                        yield step.column(k) + first, column

            follow = (head.column_run >= head.columns) & ((head.rows & (height - 1)) == 0)
            skipped = -elements.address_of(move.column(0)) & (LINE_NBYTES - 1)
            skipped //= elements.bits // BYTE_BITS
            begin = where(follow & (head.rows > height), skipped, 0)
            last = head.rows - height
            stop = where(begin > 0, last + 1, head.rows)
            inside = elements.lane_mask(height - begin, height)
            for at_step in move.each_step():
                with loop(begin, stop, height) as next_row:
                    for target, column in columns_at(at_step, minimum(next_row, last)):
                        elements.store_lines(column, target)
                if not elements.streams:
                    with when(begin > 0):
                        for target, column in columns_at(at_step, last + begin):
                            elements.store_masked(column, target, inside)
                            elements.store_masked(column, target + (-head.rows), ~inside)
        with columns:
            mask = elements.lane_mask(head.rows, height)
            for at_step in move.each_step():
                with loop(move.first, move.last, width) as next_column:
                    first = minimum(next_column, move.last - width)
                    # rows after the last one are not stored
                    starts = [at_step.row(minimum(head.rows - 1, k)) for k in range(height)]
                    lines = (elements.load_vector(start + first, width) for start in starts)
                    for k, column in _columns(elements, lines, shape):
                        elements.store_masked(permuted(column), at_step.column(first + k), mask)


# One tile transposed in registers: each row is loaded as one vector, up to a cache line. Vectors
# are interleaved within their 128-bit lanes in log2(n) rounds (`shuffle.transpose`), then the lanes
# are exchanged, and each column is stored as one vector.


def _tile_shapes(bits: int, height: int) -> list[_TileShape]:
    """Return the shapes of tiles of a height, widest first.

    The widest rows are a cache line. Where such a tile needs more registers than there are, it is
    for rows that collide: it reads each line once. Where registers are narrower, or columns are
    shorter than a line, rows have one 128-bit lane.
    """
    if register_bits() < LINE_BITS or height * bits < LINE_BITS:
        return [_TileShape(height, LANE_BITS // bits)]
    widest = min(LINE_BITS, TILE_REGISTERS * LINE_BITS // height)
    narrowest = widest if widest == LANE_BITS else widest // 2
    widths = dict.fromkeys((LINE_BITS, widest, narrowest))
    return [_TileShape(height, width // bits) for width in widths]


def _columns_to_store(
    elements: Elements, lines: Iterator[Value], shape: _TileShape, stored: Value | None
) -> Iterator[tuple[int, Value]]:
    """Yield the columns of a tile, in order if registers hold it: prefetchers follow the stores.

    Of the first ones, `stored` are in the tile before it too.
    """
    columns = _columns(elements, lines, shape)
    if shape.registers(elements.bits) <= TILE_REGISTERS:
        columns = iter(sorted(columns, key=itemgetter(0)))
    for k, column in columns:
        # a line that non-temporal stores write twice goes to memory twice
        if not elements.streams or stored is None or k == shape.width - 1:
            yield k, column
            continue
        with when(stored <= k):
            yield k, column


def _columns(
    elements: Elements, lines: Iterator[Value], shape: _TileShape
) -> Iterator[tuple[int, Value]]:
    """Yield the columns of a tile, which is given as rows, with their indices.

    Rows are taken, and columns yielded, as soon as possible: if a tile needs more registers than
    there are, LLVM then keeps each line on the stack only once.
    """
    height, width = shape
    lane = LANE_BITS // elements.bits
    across = min(height, lane)
    # the lanes of a joined vector hold rows that are `across` apart
    parts = width // lane
    if parts > 1 and height == lane:
        # vectors of as many columns as rows have lanes
        joined = transpose([*lines])
        for j in range(0, lane, parts):
            for k, vector in enumerate(exchange(joined[j : j + parts], lane)):
                yield k * lane + j, vector
        return
    groups = []
    for _ in range(parts):
        rows = [*islice(lines, height // parts)]
        groups.append(transpose([concatenate(rows[k::across]) for k in range(across)]))
    for j, vectors in enumerate(zip(*groups, strict=True)):
        for k, vector in enumerate(exchange(list(vectors), lane)):
            if across == lane:
                yield k * lane + j, vector
                continue
            for i in range(0, lane, across):
                yield j * lane // across + i // across, pick(vector, range(i, i + across))
