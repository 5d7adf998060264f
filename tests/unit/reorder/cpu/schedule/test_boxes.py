"""What a box with its micro-kernel knows."""

from __future__ import annotations

import pytest

from reorder import Box, Node
from reorder.cpu.schedule.loops import contiguous_size
from reorder.cpu.schedule.select import select


def test_tiles_that_are_wider_than_their_columns_fill_no_lines() -> None:
    for channels, fills in ((3, False), (4, True)):
        box = Box((0, 0), (Node(channels, channels, (1, 1 << 16)), Node(64, 64, (16, 1))))
        scheduled = select(box)
        assert scheduled.is_transposed
        assert scheduled.fills_lines(32) is fills


def test_contiguous_pieces_count_the_loops_that_continue_each_other() -> None:
    nodes = Node(4, 4, (1, 100)), Node(3, 3, (40, 1)), Node(10, 10, (4, 3))
    assert contiguous_size(nodes, 0, 1) == 120
    assert contiguous_size(nodes, 1, 1) == 30
    assert contiguous_size(nodes, 1, 2) == 1


def test_pieces_that_lie_apart_count_as_lines() -> None:
    # three of 899 channels, in each of 49 pixels
    tail = Box((0, 0), (Node(49, 49, (8, 899)), Node(3, 3, (1, 1))))
    assert select(tail).written_nbytes(8) == 49 * 64
    rows = Box((0, 0), (Node(49, 49, (100, 99)), Node(99, 99, (1, 1))))
    assert select(rows).written_nbytes(8) == 49 * 99


@pytest.mark.parametrize(
    ("bits", "count", "extent", "fills"),
    [
        (32, 4, 196, True),
        (32, 2, 64, True),
        (16, 4, 784, True),
        (16, 2, 32, True),
        (64, 2, 4, True),
        # blocks of 49 x 4 end within lines
        (32, 4, 49, False),
        # three rows are not whole lines
        (32, 3, 64, False),
        # shorter than a vector
        (32, 4, 4, False),
        # four rows of bytes take as many shuffles as stores of half a line
        (8, 4, 784, False),
    ],
)
def test_two_and_four_rows_that_follow_each_other_in_dst_fill_lines(
    bits: int, count: int, extent: int, *, fills: bool
) -> None:
    # blocks of channels, channels, pixels
    size = count * extent
    nodes = Node(9, 9, (size, size)), Node(extent, extent, (1, count))
    box = Box((0, 0), (*nodes, Node(count, count, (extent, 1))))
    assert select(box).fills_lines(bits) is fills
    padded = Box((0, 0), (*nodes, Node(count, count - 1, (extent, 1))))
    assert not select(padded).fills_lines(bits)


@pytest.mark.parametrize(
    ("bits", "count", "extent", "fills"),
    [
        (32, 4, 784, True),
        (32, 2, 784, True),
        (8, 4, 3136, True),
        # rows of 49 end within lines
        (16, 4, 49, False),
        (16, 3, 784, False),
    ],
)
def test_rows_that_are_split_into_two_and_four_fill_lines(
    bits: int, count: int, extent: int, *, fills: bool
) -> None:
    size = count * extent
    nodes = Node(9, 9, (size, size)), Node(count, count, (1, extent))
    box = Box((0, 0), (*nodes, Node(extent, extent, (count, 1))))
    assert select(box).fills_lines(bits) is fills


@pytest.mark.parametrize(
    ("rows", "blocks", "pieces"),
    [
        # a line for each of 100 columns
        (16, Node(1, 1, (1600, 1600)), 0),
        # columns that start anywhere
        (15, Node(4, 4, (1500, 15)), 100),
        # 25 columns together are whole lines, in four blocks
        (16, Node(4, 4, (1600, 400)), 0),
    ],
)
def test_threads_have_pieces_of_dst_in_common_that_end_within_lines(
    rows: int, blocks: Node, pieces: int
) -> None:
    columns = Node(100, 100, (1, 64 if blocks.extent == 1 else 4 * rows))
    box = Box((0, 0), (blocks, columns, Node(rows, rows, (100, 1))))
    assert select(box).divided_pieces(box.nodes[1:], 32) == pieces
