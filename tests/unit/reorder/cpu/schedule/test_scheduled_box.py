"""What a box with its micro-kernel knows."""

from __future__ import annotations

from reorder import Box, Node
from reorder.cpu.schedule.scheduled_box import schedule


def test_tiles_that_are_wider_than_their_columns_fill_no_lines() -> None:
    for channels, fills in ((3, False), (4, True)):
        box = Box((0, 0), (Node(channels, channels, (1, 1 << 16)), Node(64, 64, (16, 1))))
        scheduled = schedule(box)
        assert scheduled.is_transposed
        assert scheduled.fills_lines(32) is fills
