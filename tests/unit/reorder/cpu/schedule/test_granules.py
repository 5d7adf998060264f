"""Boxes of a swizzle are scheduled as one that moves the same elements."""

from itertools import product

import pytest

from memdesc import MemoryDesc, memory_desc
from reorder import plan_reorder
from reorder.cpu.schedule.granules import schedule_table
from reorder.cpu.schedule.loops import offset_table
from reorder.cpu.schedule.select import RUN, TRANSPOSED, ScheduledBox, Tables
from reorder.plan import Node
from reorder.plan.boxes import table_boxes

TILE = memory_desc((128, 128), "f16", "K_SW128")
TURNED = memory_desc((128, 128), "f16", "MN_SW64")


def pairs_of(scheduled: ScheduledBox) -> list[tuple[int, ...]]:
    """Return the offset of each element of a scheduled box in src and dst."""

    def loops(nodes: tuple[Node, ...]) -> Tables:
        extents = [node.extent for node in nodes]
        tables = (offset_table(extents, [node.strides[k] for node in nodes]) for k in (0, 1))
        return Tables(*map(tuple, tables))

    rows, columns, outer = map(loops, (scheduled.rows, scheduled.columns, scheduled.outer))
    found: list[tuple[int, ...]] = []
    for src, dst in scheduled.tables:
        if scheduled.is_transposed:
            inner = product(zip(src, rows.dst, strict=True), zip(columns.src, dst, strict=True))
        else:
            inner = product(zip(src, dst, strict=True), zip(*columns, strict=True))
        for steps in product(zip(*outer, strict=True), inner):
            (at, (one, other)) = steps
            starts = zip(scheduled.box.offsets, at, one, other, strict=True)
            found.append(tuple(map(sum, starts)))
    return sorted(found)


@pytest.mark.parametrize(
    ("src", "dst", "kernel", "tables"),
    [
        ("ab", TILE, RUN, 1),
        (TILE, "ab", RUN, 1),
        ("ba", TILE, TRANSPOSED, 8),
        (TILE, "ba", TRANSPOSED, 8),
        ("ba", TURNED, RUN, 1),
        (TURNED, "ab", TRANSPOSED, 4),
    ],
)
def test_the_boxes_of_a_swizzle_are_one_box_with_tables(
    src: str | MemoryDesc, dst: str | MemoryDesc, kernel: int, tables: int
) -> None:
    plan = plan_reorder(src, dst)
    (box,) = table_boxes(plan.src.layout, plan.dst.layout)
    (scheduled,) = schedule_table(box, 1)
    assert (scheduled.micro_kernel, len(scheduled.tables)) == (kernel, tables)
    offsets = (desc.layout.offsets().ravel().tolist() for desc in (plan.src, plan.dst))
    assert pairs_of(scheduled) == sorted(zip(*offsets, strict=True))


def test_two_swizzles_are_one_table_too() -> None:
    boxes = table_boxes(TILE.layout, TURNED.layout)
    found = [pair for box in boxes for each in schedule_table(box, 1) for pair in pairs_of(each)]
    offsets = (desc.layout.offsets().ravel().tolist() for desc in (TILE, TURNED))
    assert sorted(found) == sorted(zip(*offsets, strict=True))
