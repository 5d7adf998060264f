"""Micro-kernels: two to four rows interleaved into one, and one row split into two to four.

They replace the transposition if one loop group has two to four elements and the other one comes in
runs (see `LoopGroup.run`): whole vectors are interleaved, as c0 c1 c2 c0 c1 c2 ...
"""

from memdesc.dtypes import BYTE_BITS
from reorder.cpu.kernels.elements import first_bits, first_vector
from reorder.cpu.kernels.loop_group import Transposition
from reorder.cpu.llvm.emit import Value, loop, maximum, minimum, when, where
from reorder.cpu.llvm.shuffle import LANE_BITS, concatenate, pick
from reorder.cpu.schedule.select import MAX_INTERLEAVED
from reorder.cpu.target import LINE_BITS, has_masks

_COUNTS = tuple(range(2, MAX_INTERLEAVED + 1))
# Vectors are concatenated in powers of two: two of them, or four; of three, the first is repeated.
_PAIR, _ODD, _QUAD = _COUNTS


def emit_interleaved(move: Transposition, span: tuple[Value, Value], done: Value) -> None:
    """Move both groups if one of them has two to four elements, then branch to `done`.

    `span` is the range of columns that hold data.
    """
    columns, rows, branch = move.columns, move.rows, move.elements.builder.branch
    has_all_rows = rows.valid == rows.extent
    has_all_columns = (span[0] == 0) & (span[1] == columns.extent)
    bits = move.elements.bits
    # two 128-bit vectors are moved at once, or one of bytes; half of that from short runs
    lanes = (LANE_BITS if bits == BYTE_BITS else 2 * LANE_BITS) // bits
    for count in _COUNTS:
        fits = has_all_rows & (rows.extent == count)
        with when(fits & _is_run(columns.run, span, lanes)):
            if has_masks() and count == _PAIR and bits > BYTE_BITS:
                with when(move.turns):
                    for part in move.each_step():
                        _emit_turning(part, span, lanes)
                    branch(done)
            for part in move.each_step():
                _emit_join(part, span, count, lanes)
            branch(done)
        if count != _ODD:
            with when(fits & _is_run(columns.run, span, lanes // 2)):
                for part in move.each_step():
                    _emit_join(part, span, count, lanes // 2)
                branch(done)
        fits = has_all_columns & (columns.extent == count) & has_all_rows
        wide = lanes
        if move.elements.streams and count != _ODD:
            wide = max(lanes, LINE_BITS // bits)
        with when(fits & _is_run(rows.run, (rows.run.like(0), rows.extent), wide)):
            for part in move.each_step():
                _emit_split(part, count, wide)
            branch(done)


def _is_run(run: Value, span: tuple[Value, Value], lanes: int) -> Value:
    """Whether vectors cover a span of a group without crossing the end of a run."""
    first, last = span
    length = last - first
    is_aligned = ((run | length | first) & (lanes - 1)) == 0
    return (run > 0) & (is_aligned | (run >= last)) & (length >= lanes)


def _emit_join(move: Transposition, span: tuple[Value, Value], count: int, lanes: int) -> None:
    """Interleave `count` rows; the last vectors overlap those before them."""
    elements, rows, (first, last) = move.elements, move.rows, span
    end = last - lanes
    target = move.columns.locate(elements, move.dst, first)
    start = first_vector(elements, target, lanes, last - first, count)
    start = where(move.columns.run >= last, start, 0)  # else runs end where vectors do
    with loop(first + start, last, lanes) as next_column:
        column = maximum(minimum(next_column, end), first)
        lines = [
            elements.load_vector(rows.locate(elements, move.src, k) + column, lanes)
            for k in range(count)
        ]
        target = move.columns.locate(elements, move.dst, column)
        elements.store_lines(_interleaved(lines), target)


def _emit_turning(move: Transposition, span: tuple[Value, Value], lanes: int) -> None:
    """Interleave runs of two rows, each of which goes on in another one."""
    elements, table = move.elements, move.rows.table
    offsets, turns = [table[k] for k in range(2 * _PAIR)], [table[2 * _PAIR], table[2 * _PAIR + 1]]
    starts = [elements.moved(move.src, offset) for offset in offsets]
    own_columns = [first_bits(turn // (elements.bits // BYTE_BITS)) for turn in turns]
    with loop(*span, lanes) as column:
        within = column & (move.columns.run - 1)
        masks = [elements.mask_of(bits.lshr(within), lanes) for bits in own_columns]
        lines = [
            elements.load_masked(other + column, ~mask, elements.load_masked(own + column, mask))
            for own, other, mask in zip(starts[:_PAIR], starts[_PAIR:], masks, strict=True)
        ]
        target = move.columns.locate(elements, move.dst, column)
        elements.store_lines(_interleaved(lines), target)


def _interleaved(lines: list[Value]) -> Value:
    """Return a vector of the first lanes of all vectors, then of their second ones, and so on."""
    count, lanes = len(lines), lines[0].type.count
    joined = concatenate(lines if count == _PAIR else [*lines, *lines[: _QUAD - count]])
    return pick(joined, (j % count * lanes + j // count for j in range(count * lanes)))


def _emit_split(move: Transposition, count: int, lanes: int) -> None:
    """Split one row into `count` columns; the last vectors overlap those before them."""
    elements, extent = move.elements, move.rows.extent
    end = extent - lanes
    start = first_vector(elements, move.columns.locate(elements, move.dst, 0), lanes, extent)
    start = where(move.rows.run >= extent, start, 0)  # else runs end where vectors do
    with loop(start, extent, lanes) as next_row:
        row = maximum(minimum(next_row, end), 0)
        source = move.rows.locate(elements, move.src, row)
        joined = elements.load_vector(source, count * lanes)
        for k in range(count):
            part = pick(joined, (j * count + k for j in range(lanes)))
            elements.store_lines(part, move.columns.locate(elements, move.dst, k) + row)
