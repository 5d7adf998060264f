"""Rotated rows: whole cache lines in a dst that does not start at one.

To store whole lines, kernels need rows of whole lines. If dst starts within a line, so do its rows,
and the line at the end of one row also holds the start of the next row. So a row is moved without
its head, which is its part of the first line, but with the head of the row that follows it in dst:

    rows of dst     |.....aaa|aaaaaaaa|aaaaabbb|bbbbbbbb|bbbbb...|
    rotated rows             |aaaaaaaa|aaaaabbb|                     and the same for b, c, ...

The rows of a transposition already come from a table of their offsets in src. The table of a
rotated one is the end of that table, followed by its head moved on by the distance between the two
rows in src. After a row comes the next step of the loop around it in dst, and after the last step
of that loop comes a step of the loop around both. Only the heads of the first rows of the outermost
of these loops, and the ends of the last ones, are boxes of their own. If there are many last rows,
only the line that two rows share is moved like that: the lines before it are moved for all rows at
once. Rows that end in padding are moved whole. Runs that are copied are joined by `runs`.

The offsets of boxes in dst count from the start of a line here.
"""

from math import gcd

from memdesc.dtypes import BYTE_BITS
from memdesc.tuples import NamedTuple
from reorder.cpu.machine import LINE_BITS, LINE_NBYTES
from reorder.cpu.schedule.cuts import (
    cut_to_fit,
    most_steps,
    rows_at_once,
    rows_collide,
    tile_boxes,
)
from reorder.cpu.schedule.loops import contiguous_loops, offset_table, size_of
from reorder.cpu.schedule.runs import pieces_of, slices_of
from reorder.cpu.schedule.select import (
    STRIDED,
    TILE,
    TRANSPOSED,
    ScheduledBox,
    Tables,
    select_kernel,
    width_of,
)
from reorder.plan.nodes import NOWHERE, Box, Node
from reorder.plan.passes import zeros_of

# The boxes of the first head and the last end may have one in this many elements, because their
# lines are written in part. In the caches, an element that is moved alone counts as several.
_LEAST_SHARE, _ALONE = 16, 8
# In rows of up to this many lines, reading lost lines of heads again costs more than whole lines
# of dst save.
_FEW_LINES = 3


def rotate(box: Box, bits: int, *, streams: bool) -> tuple[ScheduledBox, ...]:
    """Schedule a transposition as whole lines and, if it starts within one, its ends.

    Returns nothing for other boxes, and for those that may be tiled for the caches: they start a
    line, and no non-temporal stores write them.
    """
    src, dst = box.offsets
    start, width = dst % LINE_NBYTES, width_of(bits)
    if bits < BYTE_BITS or start % width or not (start or streams):
        return ()
    scheduled = select_kernel(box._replace(offsets=(src, dst - start)), bits)
    rotation = _Rotation(box, scheduled, -start % LINE_NBYTES // width, streams)
    padded = [node for node in box.nodes if node.valid < node.extent]
    is_left = bool(padded) and (not start or padded != [scheduled.rows[-1]])
    if is_left or not (scheduled.is_transposed and scheduled.fills_lines()):
        return ()
    if start > 0 and not streams and rotation.loses_lines():
        return ()
    alone = 1 if streams else _ALONE
    for last in rotation.last_pieces():
        whole, rest = rotation.parts(last)
        parts_of_lines = (zeros_of(end) if end.is_zero else end for end in rest)
        ends = tile_boxes(tuple(parts_of_lines), bits)
        cost = sum(end.box.size * (alone if end.micro_kernel == STRIDED else 1) for end in ends)
        if whole and cost * _LEAST_SHARE <= box.size:
            return (*whole, *ends)
    return ()


class _Rotation(NamedTuple):
    """A box whose rows are rotated."""

    box: Box
    # the same, scheduled as if it started a line
    scheduled: ScheduledBox
    # elements of a row before its first whole line
    head: int
    streams: bool

    @property
    def line(self) -> int:
        """Elements of a cache line."""
        return LINE_BITS // self.scheduled.bits

    def loses_lines(self) -> bool:
        """Whether rows have few lines, and the first-level cache does not hold their lines of src.

        In rotated rows, each load of a head crosses the end of a line, which the next load shares.
        Loads of bytes share lines anyway.
        """
        rows, bits = self.scheduled.rows, self.scheduled.bits
        is_short = size_of(rows) <= _FEW_LINES * self.line and bits > BYTE_BITS
        return is_short and rows_collide(self._table(rows[-1].extent))

    def last_pieces(self) -> list[int]:
        """Return the steps of the outermost loop that the last piece of rows may have, best first.

        The piece ends in the next row, so that of the last row in a run is a box of its own. If
        that costs too much, the piece is only a line. It costs much if rows of dst are longer than
        rows of src, because that box reads one element of a line of src for each of its rows.
        """
        outermost, steps = self.scheduled.rows[-1], self._steps_at_once()
        if outermost.valid < outermost.extent:
            # rows that end in padding stay whole
            return [outermost.extent] if outermost.extent <= most_steps(self.scheduled.rows) else []
        rest = outermost.extent % steps or steps
        longest = outermost.extent if outermost.extent < 2 * steps else rest
        pieces = [*dict.fromkeys((longest, self._steps_of_line()))]
        is_long = size_of(self.scheduled.rows) > size_of(self.scheduled.columns)
        return pieces[::-1] if is_long else pieces

    def parts(self, last: int) -> tuple[list[ScheduledBox], list[Box]]:
        """Return boxes of whole lines (none if no rows are rotated), and boxes of the ends.

        The last piece of the rows has `last` steps of their outermost loop.
        """
        rows, width = self.scheduled.rows, self.scheduled.width
        others = [node for node in self.box.nodes if node not in rows]
        # the loops around the rows that form a run with them in dst, if lines are shared
        chain = contiguous_loops(others, 1, size_of(rows) * width) if self.head else ()
        around = [others[k] for k in chain]
        whole: list[ScheduledBox] = []
        for piece in pieces_of(self.box, rows, around, self._steps_at_once(), last):
            table = self._table(piece.steps)
            head = [_moved_row(offset, piece.follower or 0) for offset in table[: self.head]]
            is_end = bool(head) and piece.follower is None
            tiles = [] if is_end else self._tiles(piece.box, [*table[self.head :], *head])
            if not tiles:
                break
            whole += tiles
        first, end = (
            Box(offsets, (*piece.rest.nodes, *rows[::-1]))
            for offsets in (self.box.offsets, piece.rest.offsets)
        )
        skipped = (rows[-1].extent - last) * size_of(rows[:-1])
        # the end of a row: whole lines, then a part of one
        stop = size_of(rows) - (self.line - self.head)
        ends = (
            *slices_of(first, rows, 0, self.head),
            *slices_of(end, rows, self.head, stop - skipped),
            *slices_of(end, rows, stop - skipped, size_of(rows) - skipped),
        )
        return whole, [*ends] if self.head else []

    def _steps_of_line(self) -> int:
        """Return how many steps of the outermost loop of the rows fill whole lines."""
        return self.line // gcd(self.line, size_of(self.scheduled.rows[:-1]))

    def _steps_at_once(self) -> int:
        """Return how many steps of the outermost loop of the rows a tile takes: whole lines."""
        rows, grain = self.scheduled.rows, self._steps_of_line()
        if self.streams:
            return rows_at_once(rows, self.line)
        limit = 4 * TILE if size_of(self.scheduled.columns) <= TILE // 4 else TILE
        return max(1, limit // size_of(rows[:-1]) // grain) * grain

    def _table(self, steps: int) -> list[int]:
        """Return the offsets of the rows in src, for some steps of their outermost loop."""
        *inner, outermost = rows = self.scheduled.rows
        extents = [*(node.extent for node in inner), steps]
        offsets = offset_table(extents, (node.strides[0] for node in rows))
        is_whole = outermost.valid == outermost.extent
        valid = len(offsets) if is_whole else size_of(inner) * outermost.valid
        return [offset if k < valid else NOWHERE for k, offset in enumerate(offsets)]

    def _tiles(self, box: Box, table: list[int]) -> list[ScheduledBox]:
        """Return the tiles of a box around rows with offsets in src; there may be none.

        The rows start at the first whole line.
        """
        rows, width = self.scheduled.rows, self.scheduled.width
        # the kernel reads from the table which rows after the first ones are padding
        valid = max(1, table.index(NOWHERE)) if NOWHERE in table else len(table)
        origin = next(offset for offset in table if offset != NOWHERE)
        row = Node(len(table), valid, (rows[0].strides[0], width))
        # the order of whole lines matters little where they do not stay in the caches
        side = 0 if self.streams else 1
        loops = sorted(box.nodes, key=lambda node: -abs(node.strides[side]))
        part = _moved(box, (origin, self.head * width))._replace(nodes=(*loops, row))
        offsets = tuple(_moved_row(offset, -origin) for offset in table)
        is_even = all(offset == k * row.strides[0] for k, offset in enumerate(offsets))
        tables = Tables() if is_even else Tables(offsets)

        def tile(part: Box) -> ScheduledBox:
            groups = (row,), self._columns_of(part)
            return ScheduledBox(part, self.scheduled.bits, TRANSPOSED, *groups, tables)

        return [*cut_to_fit(tile(part), tile, row)] if self._columns_of(part) else []

    def _columns_of(self, part: Box) -> tuple[Node, ...]:
        """Return those columns that are contiguous in src in a part of the box."""
        loops = {node.strides: node for node in part.nodes}
        columns: list[Node] = []
        for node in self.scheduled.columns:
            if node.strides not in loops:
                break
            columns.append(loops[node.strides])
            if columns[-1] != node:
                break
        return tuple(columns)


def _moved_row(offset: int, distance: int) -> int:
    """Return the offset of a row in src that starts elsewhere; rows of padding are nowhere."""
    return offset if offset == NOWHERE else offset + distance


def _moved(box: Box, distance: tuple[int, int]) -> Box:
    """Return a box that starts elsewhere in src and dst."""
    offsets = tuple(at + more for at, more in zip(box.offsets, distance, strict=True))
    return box._replace(offsets=offsets)
