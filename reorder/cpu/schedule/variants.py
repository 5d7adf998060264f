"""Boxes that differ in where they start and in a few strides, scheduled as one.

A swizzled layout is such boxes: each reads or writes a few bytes of the same cache lines. One after
the other they would bring these lines to the core several times. Scheduled as one, they share a
table of rows, or they are the steps of the loop in the transposing kernel, each with tables of its
own.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from reorder.cpu.schedule.loops import contiguous_loops, offset_table, size_of
from reorder.cpu.schedule.select import TILE, TRANSPOSED, ScheduledBox, Tables, select_kernel
from reorder.plan.nodes import DST, SRC, Box, Node
from reorder.plan.passes import simplify

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# Rows or columns of one variant in a transposition: the lines that they share should stay in the
# first-level cache.
_SHARED_STEPS = 64


class Variants(NamedTuple):
    """Boxes with some common loops, and loops of equal extents that differ."""

    boxes: tuple[Box, ...]
    common: tuple[Node, ...]
    # those of each box
    different: tuple[tuple[Node, ...], ...]

    def distance(self, k: int) -> tuple[int, ...]:
        """Return how far box k starts from the first one, in each operand."""
        starts = zip(self.boxes[k].offsets, self.boxes[0].offsets, strict=True)
        return tuple(at - first for at, first in starts)

    def offsets(self, k: int, loops: Iterable[Node], operand: int) -> tuple[int, ...]:
        """Return the offset of each step of some loops of box k from the start of the first box."""
        nodes = list(loops)
        table = offset_table(
            (node.extent for node in nodes), (node.strides[operand] for node in nodes)
        )
        return tuple(self.distance(k)[operand] + offset for offset in table)


def variants_of(boxes: Sequence[Box], side: int) -> Iterator[Variants]:
    """Group boxes that have the same loops on a side, if all their loops have a stride there.

    Loops that were fused in one box but not in another are cut alike first.
    """
    groups: dict[tuple[object, ...], list[tuple[Box, list[Node]]]] = {}
    key: tuple[object, ...]
    starts = {abs(node.strides[side]) for box in boxes for node in box.nodes}
    for k, box in enumerate(boxes):
        loops = [part for node in box.nodes for part in _cut(node, starts, side)]
        loops.sort(key=lambda node: abs(node.strides[side]))
        strides = {abs(node.strides[side]) for node in loops}
        is_whole = all(node.valid == node.extent for node in loops)
        if is_whole and len(strides) == len(loops) and 0 not in strides:
            key = tuple((node.extent, node.strides[side]) for node in loops)
        else:
            key = (k,)  # it is like no other
        groups.setdefault(key, []).append((box, loops))
    for group in groups.values():
        whole = [loops for _, loops in group]
        is_common = [all(node == nodes[0] for node in nodes) for nodes in zip(*whole, strict=True)]
        picked = [node for node, same in zip(whole[0], is_common, strict=True) if same]
        (common,) = simplify((Box(group[0][0].offsets, tuple(picked)),))
        different = (
            tuple(node for node, same in zip(loops, is_common, strict=True) if not same)
            for loops in whole
        )
        yield Variants(tuple(box for box, _ in group), common.nodes, tuple(different))


def _cut(node: Node, starts: Iterable[int], side: int) -> Iterator[Node]:
    """Cut a loop at all of the given strides that divide it."""
    done, stride = 1, abs(node.strides[side])
    steps = [start // stride for start in starts if stride and start % stride == 0]
    for step in (*sorted(steps), node.extent):
        if done < step <= node.extent and step % done == 0 and node.extent % step == 0:
            count = step // done
            yield Node(
                count, count * bool(node.valid), tuple(done * stride for stride in node.strides)
            )
            done = step


def schedule_variants(variants: Variants, side: int, element_stride: int) -> ScheduledBox | None:
    """Schedule boxes as one; None if they are better scheduled one by one.

    `side` is the operand in which all of them have the same strides.
    """
    if len(variants.boxes) == 1 or not variants.common:
        return None
    first = Box(variants.boxes[0].offsets, (*variants.different[0], *variants.common))
    scheduled = select_kernel(first, element_stride)
    if scheduled.is_transposed:
        return _transposed(variants, side, element_stride)
    *outer, run = variants.common
    count = len(variants.boxes) * size_of(variants.different[0])
    if count >= 2 * TILE:
        return None
    rows: list[Node] = []
    while outer and count * outer[-1].extent <= 2 * TILE:
        rows.append(outer.pop())
        count *= rows[-1].extent
    src, dst = (
        [
            offset
            for k, loops in enumerate(variants.different)
            for offset in variants.offsets(k, (*loops, *rows), operand)
        ]
        for operand in (SRC, DST)
    )
    # in this order lines of both sides are moved once
    order = sorted(range(count), key=dst.__getitem__)
    tables = Tables(tuple(src[k] for k in order), tuple(dst[k] for k in order))
    row = Node(count, count, tuple(run.extent * stride for stride in run.strides))
    box = Box(variants.boxes[0].offsets, (*outer, row, run))
    kernel = scheduled.micro_kernel
    return ScheduledBox(box, element_stride, kernel, tuple(outer), (row,), (run,), (tables,))


# Most steps of a table that becomes a part of programs.
_MAX_STEPS = 1 << 14


def has_table(box: Box) -> bool:
    """Whether a box has an indirection table that `schedule_table` takes: all of it is data."""
    if len(box.indirect) != 1 or not box.indirect[0].xor or box.is_zero:
        return False
    (loop,) = box.indirect
    is_whole = loop.extent == prod(size for _, size in loop.sizes)
    return is_whole and loop.extent <= _MAX_STEPS and not select_kernel(box).is_transposed


def schedule_table(box: Box, element_stride: int) -> Iterator[ScheduledBox]:
    """Schedule a box of runs or strided elements whose rows are in an indirection table."""
    (loop,) = box.indirect
    plain = box._replace(indirect=())
    scheduled = select_kernel(plain, element_stride)
    *outer, run = box.nodes or scheduled.columns
    for start in range(0, loop.extent, 2 * TILE):
        stop = min(start + 2 * TILE, loop.extent)
        src, dst, *_ = (table * element_stride for table in loop.tables(start, stop))
        tables = Tables(tuple(src.tolist()), tuple(dst.tolist()))
        row = Node(stop - start, stop - start, tuple(run.extent * stride for stride in run.strides))
        yield scheduled._replace(
            box=plain._replace(nodes=(*outer, row, run)),
            outer=tuple(outer),
            rows=(row,),
            columns=(run,),
            tables=(tables,),
        )


def _transposed(variants: Variants, side: int, element_stride: int) -> ScheduledBox | None:
    """Schedule transpositions: variants differ within the group that is contiguous on `side`."""
    common, different = variants.common, variants.different[0]
    across = [common[k] for k in contiguous_loops(common, 1 - side, element_stride)]
    loops = [*different, *(node for node in common if node not in across)]
    along: list[Node] = []
    for k in contiguous_loops(loops, side, element_stride):
        if {*different} <= {*along} and size_of(along) * loops[k].extent > _SHARED_STEPS:
            break
        along.append(loops[k])
    sizes = size_of(along), size_of(across)
    if not (along and across and {*different} <= {*along}) or max(sizes) >= 2 * TILE:
        return None
    tables = []
    for k, others in enumerate(variants.different):
        own = {node.strides[side]: node for node in others}
        group = [own.get(node.strides[side], node) for node in along]
        columns, rows = (group, across) if side == SRC else (across, group)
        tables.append(Tables(variants.offsets(k, rows, SRC), variants.offsets(k, columns, DST)))
    columns, rows = (along, across) if side == SRC else (across, along)
    inner = {*along, *across}
    outer = tuple(node for node in common if node not in inner)
    step = Node(len(tables), len(tables), variants.distance(1))
    box = Box(variants.boxes[0].offsets, (*outer, step, *along, *across))
    return ScheduledBox(
        box, element_stride, TRANSPOSED, outer, tuple(rows), tuple(columns), tuple(tables)
    )
