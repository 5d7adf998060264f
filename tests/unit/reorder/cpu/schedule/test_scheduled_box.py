"""What a box with its micro-kernel knows."""

from __future__ import annotations

import pytest

from reorder import Box, Node
from reorder.cpu.schedule.scheduled_box import schedule


def test_tiles_that_are_wider_than_their_columns_fill_no_lines() -> None:
    for channels, fills in ((3, False), (4, True)):
        box = Box((0, 0), (Node(channels, channels, (1, 1 << 16)), Node(64, 64, (16, 1))))
        scheduled = schedule(box)
        assert scheduled.is_transposed
        assert scheduled.fills_lines(32) is fills


@pytest.mark.parametrize(
    ("rows", "columns", "prefetches"),
    [
        (63, 99, True),
        # every store is a whole line
        (64, 99, False),
        # one row of tiles, in which no line is the next one
        (31, 99, False),
        # the next row of tiles follows at once
        (63, 15, False),
    ],
)
def test_lines_of_dst_are_prefetched_where_stores_cross_their_ends(
    rows: int, columns: int, *, prefetches: bool
) -> None:
    box = Box((0, 0), (Node(columns, columns, (1, rows)), Node(rows, rows, (columns, 1))))
    assert schedule(box).prefetches_dst(32) is prefetches
