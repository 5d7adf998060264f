"""Rotated rows: whole cache lines of a dst that does not start with one.

Kernels store whole lines, which takes rows of whole lines. Where dst starts within a line, so do
its rows, and each line at the end of one row also has the start of the next row. So a row is moved
without its head, the part of its first line, and with the head of the row that follows it in dst:

    rows of dst     |.....aaa|aaaaaaaa|aaaaabbb|bbbbbbbb|bbbbb...|
    rotated rows             |aaaaaaaa|aaaaabbb|                     and the same for b, c, ...

The rows of a transposition come from a table of their offsets in src already: a rotated one is the
end of the table and then its head, further on by the distance of the two rows in src. A run that is
copied ends with elements from elsewhere: `RunEnds`. What follows a row is a step of the next loop
around it in dst, or in the last step of that loop a step of the loop after it, and so on. The head
of the first row and the end of the last one are boxes of their own.

The offsets of boxes in dst count from the start of a line here.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, NamedTuple

from memdesc.dtypes import BYTE_BITS
from reorder.cpu.schedule.loops import offset_table, size_of
from reorder.cpu.schedule.select import (
    TILE,
    TRANSPOSED,
    RunEnds,
    ScheduledBox,
    Tables,
    select_kernel,
)
from reorder.cpu.schedule.tiling import (
    RUN_NBYTES,
    along_src,
    cut_group,
    find_cut,
    most_steps,
    rows_at_once,
    stream_box,
    tile_boxes,
)
from reorder.cpu.target import LINE_BITS
from reorder.plan.nodes import Box, Node
from reorder.plan.passes import moved, split_node

if TYPE_CHECKING:
    from collections.abc import Iterator

# The boxes of the first head and the last end may have one in so many elements: their lines are
# written in part.
_LEAST_SHARE = 16
# Fewer columns are one or two tiles.
_FEW_COLUMNS = 32
# Rows of fewer runs than this are rotated together, if at least `_LEAST_SHARE` of these follow.
_FEW_RUNS = 64


def rotate(
    box: Box, bits: int, element_stride: int = 1, *, streams: bool
) -> tuple[ScheduledBox, ...]:
    """Schedule a box of whole lines that starts within a line, as whole lines and its ends.

    Returns nothing for boxes of other kinds.
    """
    line = LINE_BITS // bits * element_stride
    start = box.offsets[1] % line
    has_padding = any(node.valid < node.extent for node in box.nodes)
    if bits < BYTE_BITS or has_padding or not start or start % element_stride:
        return ()
    src, dst = box.offsets
    scheduled = select_kernel(box._replace(offsets=(src, dst - start)), element_stride)
    if not scheduled.fills_lines(bits) or scheduled.is_interleaved(bits):
        return ()
    rotation = _Rotation(box, scheduled, (line - start) // element_stride, bits, streams)
    rotated = rotation.transposed if scheduled.is_transposed else rotation.runs
    for cut in (rotated, rotation.peeled):
        found = cut()
        if found and sum(end.size for end in found.ends) * _LEAST_SHARE <= box.size:
            ends = [
                tile
                for end in found.ends
                for tile in tile_boxes((end,), bits, element_stride, sweeps_lines=not streams)
            ]
            return (*found.whole, *ends)
    return ()


class _Parts(NamedTuple):
    """What a box is cut into: scheduled whole lines, and boxes of what is left at its ends."""

    whole: list[ScheduledBox]
    ends: list[Box]


class _Rotation(NamedTuple):
    """A box whose rows are rotated."""

    box: Box
    # the same, scheduled as if it started a line
    scheduled: ScheduledBox
    # elements of a row before its first whole line
    head: int
    bits: int
    streams: bool

    @property
    def element_stride(self) -> int:
        """The stride between neighbouring elements."""
        return self.scheduled.element_stride

    @property
    def line(self) -> int:
        """Elements of a cache line."""
        return LINE_BITS // self.bits

    def followers(self, row: tuple[Node, ...]) -> list[Node]:
        """Return the loops around a row that continue it in dst, each around the one before it."""
        chain: list[Node] = []
        stride = size_of(row) * self.element_stride
        loops = {node.strides[1]: node for node in self.box.nodes if node not in row}
        while node := loops.get(stride):
            chain.append(node)
            stride *= node.extent
        return chain

    def transposed(self) -> _Parts | None:
        """Cut a transposition."""
        rows, chain = self.scheduled.rows, self.followers(self.scheduled.rows)
        columns = self.scheduled.columns
        if not chain:
            return None
        if not self.streams and chain[0] in columns and size_of(columns) < _FEW_COLUMNS:
            return None  # the last column is apart, and fewer do not fill tiles
        *inner, outermost = rows
        size, steps = size_of(inner), self._steps_at_once()
        # pieces of the rows that another one follows in the same row, and the last one, whose
        # end is in the next row
        last = outermost.extent
        if last >= 2 * steps:
            last = last % steps or steps
        pieces = (outermost.extent - last) // steps
        whole: list[ScheduledBox] = []
        if pieces:
            table = self._table(steps + -(-self.head // size))
            table = table[self.head : self.head + steps * size]
            strides = tuple(steps * stride for stride in outermost.strides)
            around = (Node(pieces, pieces, strides),) if pieces > 1 else ()
            if not self._add_tiles(whole, self.box, table, around):
                return None
        skipped = outermost.extent - last
        end = self.box
        start = skipped * outermost.strides[0]
        for node in chain:
            part, jump = _steps_of(end, node, 0, node.extent - 1), _distance(chain, node) - start
            head = self._table(-(-self.head // size))[: self.head]
            table = [*self._table(last)[self.head :], *(offset + jump for offset in head)]
            place = _moved(part, (start, skipped * outermost.strides[1]))
            if not self._add_tiles(whole, place, table, ()):
                break
            end = _steps_of(end, node, node.extent - 1, 1)
        if end is self.box:
            return None
        first = _first_step(self.box, [node for node in chain if node not in end.nodes])
        stop = skipped * size + self.head
        return _Parts(whole, [*_slice(first, rows, 0, self.head), *self._rest(end, rows, stop)])

    def _rest(self, box: Box, row: tuple[Node, ...], start: int) -> Iterator[Box]:
        """Yield the end of a row: whole lines, then a part of one."""
        stop = size_of(row) - (self.line - self.head)
        yield from _slice(box, row, start, stop)
        yield from _slice(box, row, stop, size_of(row))

    def _steps_at_once(self) -> int:
        """Return how many steps of the outermost loop of the rows a tile takes: whole lines."""
        rows, stride = self.scheduled.rows, self.element_stride
        if self.streams:
            return rows_at_once(rows, self.line, self.bits // BYTE_BITS // stride)
        size = size_of(rows[:-1])
        grain = self.line // gcd(self.line, size)
        limit = 4 * TILE if size_of(self.scheduled.columns) <= TILE // 4 else TILE
        return max(1, limit // size // grain) * grain

    def _table(self, steps: int) -> list[int]:
        """Return the offsets of the rows in src, for so many steps of their outermost loop."""
        rows = self.scheduled.rows
        extents = [*(node.extent for node in rows[:-1]), steps]
        return offset_table(extents, (node.strides[0] for node in rows))

    def _add_tiles(
        self, done: list[ScheduledBox], box: Box, table: list[int], around: tuple[Node, ...]
    ) -> bool:
        """Add the tiles of a box whose rows have other offsets in src; False if it has none.

        The rows start at the first whole line. `around` has loops that replace those of the rows.
        """
        rows, stride = self.scheduled.rows, self.element_stride
        row = Node(len(table), len(table), (rows[0].strides[0], stride))
        loops = [*(node for node in box.nodes if node not in rows), *around]
        loops.sort(key=lambda node: -abs(node.strides[1]))
        place = _moved(box, (table[0], self.head * stride))
        part = place._replace(nodes=(*loops, row))
        columns = self._columns_of(part)
        if not columns:
            return False
        if self.streams:
            pieces = cut_group(part, columns, most_steps(columns))
            tiles = [along_src(tile, ((row,), group), stride) for tile, group in pieces]
        else:
            tiles = self._cache_tiles(part, row)
        offsets = tuple(offset - table[0] for offset in table)
        if offsets == tuple(range(0, len(table) * row.strides[0], row.strides[0])):
            offsets = ()
        for tile in tiles:
            targets = ((node.extent, node.strides[1]) for node in tile.columns)
            tables = Tables(offsets, tuple(offset_table(*zip(*targets, strict=True))))
            done.append(tile._replace(tables=(tables,) if offsets else ()))
        return True

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

    def _cache_tiles(self, part: Box, row: Node) -> list[ScheduledBox]:
        """Return the tiles of a part of the box: as `tile_boxes`, but rows stay whole."""
        done, todo = [], [part]
        while todo:
            box = todo.pop()
            columns = self._columns_of(box)
            outer = tuple(node for node in box.nodes if node not in (*columns, row))
            tile = ScheduledBox(
                box, self.element_stride, TRANSPOSED, outer, rows=(row,), columns=columns
            )
            cut = find_cut(tile, self.bits)
            if cut is None or cut[0] == row:
                done.append(tile)
            else:
                todo += split_node(box, *cut)
        return done

    def runs(self) -> _Parts | None:
        """Cut a box of runs."""
        (run,) = row = self.scheduled.columns
        chain = self.followers(row)
        if not chain or run.extent * self.bits > 2 * RUN_NBYTES * BYTE_BITS:
            return None
        if run.extent == self.line and not self.streams:
            return None  # two loads for one store of a line: slower than a store across lines
        together: tuple[Node, ...] = ()
        if chain[0].extent < _FEW_RUNS and len(chain) > 1 and chain[1].extent >= _LEAST_SHARE:
            together, chain = (chain[0],), chain[1:]
        whole: list[ScheduledBox] = []
        end, head = self.box, self.head
        for node in chain:
            part = _moved(_steps_of(end, node, 0, node.extent - 1), (head, head))
            end = _steps_of(end, node, node.extent - 1, 1)
            jump = _distance(chain, node) - head
            if not together:
                tiles = tile_boxes(
                    (part,), self.bits, sweeps_lines=not self.streams, streams=self.streams
                )
                whole += [tile._replace(ends=RunEnds(head, (jump,))) for tile in tiles]
                continue
            (loop,) = together
            jumps = [loop.strides[0] - head] * (loop.extent - 1)
            jumps.append(jump - (loop.extent - 1) * loop.strides[0])
            outer = [each for each in part.nodes if each not in (loop, run)]
            outer.sort(key=lambda each: -abs(each.strides[0]))
            kernel = self.scheduled.micro_kernel
            box = part._replace(nodes=(*outer, loop, run))
            ends = RunEnds(head, tuple(jumps))
            whole.append(ScheduledBox(box, 1, kernel, tuple(outer), together, row, ends=ends))
        first, group = _first_step(self.box, chain), (run, *together)
        return _Parts(whole, [*_slice(first, group, 0, head), *self._rest(end, group, head)])

    def peeled(self) -> _Parts | None:
        """Cut the first and the last line off each row: for long rows, or if nothing follows."""
        row = self.scheduled.rows if self.scheduled.is_transposed else self.scheduled.columns
        if len(row) > 1:
            return None
        stop = size_of(row) - (self.line - self.head)
        whole: list[ScheduledBox] = []
        for body in _slice(self.box, row, self.head, stop):
            tiles = stream_box(body, self.bits, self.element_stride) if self.streams else ()
            whole += tiles or tile_boxes(
                (body,),
                self.bits,
                self.element_stride,
                sweeps_lines=not self.streams,
                streams=self.streams,
            )
        ends = [*_slice(self.box, row, 0, self.head), *_slice(self.box, row, stop, size_of(row))]
        return _Parts(whole, ends)


def _moved(box: Box, distance: tuple[int, int]) -> Box:
    """Return a box that starts elsewhere in src and dst."""
    offsets = tuple(at + more for at, more in zip(box.offsets, distance, strict=True))
    return box._replace(offsets=offsets)


def _steps_of(box: Box, node: Node, start: int, count: int) -> Box:
    """Return a box with some steps of one of its loops, which it loses if that is one step."""
    k = box.nodes.index(node)
    loop = (Node(count, count, node.strides),) if count > 1 else ()
    nodes = (*box.nodes[:k], *loop, *box.nodes[k + 1 :])
    return box._replace(offsets=moved(box.offsets, node, start), nodes=nodes)


def _first_step(box: Box, loops: list[Node]) -> Box:
    """Return the first step of some loops of a box."""
    return box._replace(nodes=tuple(node for node in box.nodes if node not in loops))


def _distance(chain: list[Node], node: Node) -> int:
    """Return how far on in src a row is followed, in the last step of the loops before `node`."""
    before = chain[: chain.index(node)]
    return node.strides[0] - sum((each.extent - 1) * each.strides[0] for each in before)


def _slice(box: Box, row: tuple[Node, ...], start: int, stop: int) -> Iterator[Box]:
    """Yield boxes of some successive steps of a loop group of a box."""
    *inner, outermost = row
    size = size_of(inner)
    first, last = -(-start // size), stop // size
    if start >= stop:
        return
    if first > last:
        step = _steps_of(box, outermost, last, 1)
        yield from _slice(step, tuple(inner), start % size, stop % size)
        return
    if start % size:
        step = _steps_of(box, outermost, first - 1, 1)
        yield from _slice(step, tuple(inner), start % size, size)
    if first < last:
        yield _steps_of(box, outermost, first, last - first)
    if stop % size:
        yield from _slice(_steps_of(box, outermost, last, 1), tuple(inner), 0, stop % size)
