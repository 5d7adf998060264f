"""Boxes of a swizzle: an indirection table becomes rows of a run, or steps of a transposition.

The plan has a box for each value of the bits that are read, and each of these boxes reads or writes
a few bytes of the same cache lines. Run one after another, they would bring these lines to the core
several times. A box of `granule_boxes` covers all of them: its indirection table becomes rows of
runs, in the order of dst, or steps of the loop in the transposing kernel, each with tables of its
own.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from memdesc.swizzle import swizzled
from reorder.cpu.schedule.loops import contiguous_loops, offset_table, size_of
from reorder.cpu.schedule.select import (
    RUN,
    STRIDED,
    TILE,
    TRANSPOSED,
    ScheduledBox,
    Tables,
    width_of,
)
from reorder.cpu.tables import Words
from reorder.plan.nodes import DST, SRC, Box, IndirectLoop, Node

# The most steps of a table that becomes part of a program.
_MAX_STEPS = 1 << 14
# Most words of the tables of a transposition.
_MAX_WORDS = 1 << 13
# Rows or columns of one step of a transposition: the lines that all steps share should stay in the
# first-level cache.
_SHARED_STEPS = 64


def has_table(box: Box) -> bool:
    """Whether `schedule_table` takes a box: its one indirect loop is a nest of a few steps."""
    if len(box.indirect) != 1 or not box.indirect[0].xor:
        return False
    (loop,) = box.indirect
    loops = [((dim,), size, 1) for dim, size in loop.sizes]
    is_nest = all(
        [(axis.dims, axis.padded, len(blocks)) for axis, blocks in operand] == loops
        for operand in (loop.src, loop.dst)
    )
    return is_nest and loop.extent <= _MAX_STEPS


def schedule_table(box: Box, bits: int) -> Iterator[ScheduledBox]:
    """Schedule a box of `bits`-bit elements with a table."""
    table, width = _Table(box.indirect[0], width_of(bits)), width_of(bits)
    run = box.nodes[-1] if box.nodes else Node(1, 1, (0, 0))
    is_run = run.strides[DST] == width and (box.is_zero or run.strides[SRC] == width)
    if not (is_run or box.is_zero) and (transposed := _transposed(box, table, bits)):
        yield transposed
        return
    rows, outer = [*table.loops], [*box.nodes[:-1]]
    while outer and size_of(rows) * outer[-1].extent <= 2 * TILE:
        rows.insert(0, outer.pop())
    src, dst = (table.offsets(rows, operand) for operand in (SRC, DST))
    # in this order, the lines of both sides are moved only once
    order = np.argsort(dst, kind="stable")
    for start in range(0, len(order), 2 * TILE):
        chunk = order[start : start + 2 * TILE]
        tables = Tables(tuple(src[chunk].tolist()), tuple(dst[chunk].tolist()))
        row = Node(len(chunk), len(chunk), tuple(run.extent * stride for stride in run.strides))
        whole = Box(box.offsets, (*outer, row, run))
        kernel = RUN if is_run else STRIDED
        yield ScheduledBox(whole, bits, kernel, (row,), (run,), tables=(tables,))


class _Table:
    """The loops of an indirection table, and the offsets of their steps."""

    def __init__(self, loop: IndirectLoop, width: int) -> None:
        self.loops = [
            Node(axis.padded, axis.padded, (src.stride * width, dst.stride * width))
            for (axis, (dst,)), (_, (src,)) in zip(loop.dst, loop.src, strict=True)
        ]
        # the XOR terms apply to offsets in elements
        self.xor, self._width = loop.xor, width

    def offsets(self, loops: Sequence[Node], operand: int, start: int = 0) -> Words:
        """Return the offset of each step of some loops, given innermost first, in an operand.

        `start` is that of their first step before the XOR. Loops beside those of the table are
        within granules, or multiples of the pattern.
        """
        first, terms = self.xor[operand]
        bases = offset_table([node.extent for node in loops], [n.strides[operand] for n in loops])
        offsets = np.array(bases, np.int64) + start
        return swizzled(terms, offsets // self._width + first) * self._width


def _transposed(box: Box, table: _Table, bits: int) -> ScheduledBox | None:
    """Schedule a box whose loops are contiguous in src and in dst in two groups."""
    groups: list[list[Node]] = [[], []]
    # the loops of the table are contiguous only in an operand without a swizzle
    plain = [k for k in (SRC, DST) if not table.xor[k][1]]
    for k in sorted((SRC, DST), key=lambda k: k in plain):
        loops = [node for node in box.nodes if node not in groups[1 - k]]
        loops += table.loops if k in plain else []
        for n in contiguous_loops(loops, k, width_of(bits)):
            if groups[k] and size_of(groups[k]) * loops[n].extent > _SHARED_STEPS:
                break
            groups[k].append(loops[n])
    columns, rows = groups
    if not columns or not rows or max(map(size_of, groups)) >= 2 * TILE:
        return None
    inner = {*columns, *rows}
    steps = [node for node in table.loops if node not in inner]
    if size_of(steps) * sum(map(size_of, groups)) > _MAX_WORDS:
        return None
    src, dst = (
        [
            tuple(table.offsets(group, operand, start).tolist())
            for start in offset_table(
                [n.extent for n in steps], [n.strides[operand] for n in steps]
            )
        ]
        for operand, group in ((SRC, rows), (DST, columns))
    )
    # the table may start elsewhere than the box
    has_own_columns = bool(steps or table.xor[DST][0] or DST not in plain)
    tables = tuple(
        Tables(rows_of, columns_of if has_own_columns else None)
        for rows_of, columns_of in zip(src, dst, strict=True)
    )
    outer = (node for node in box.nodes if node not in inner)
    whole = Box(box.offsets, (*outer, *steps, *rows, *columns))
    groups_of = tuple(rows), tuple(columns)
    return ScheduledBox(whole, bits, TRANSPOSED, *groups_of, tables, steps=tuple(steps))
