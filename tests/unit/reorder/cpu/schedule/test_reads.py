"""How many rows of src are read in turn."""

from __future__ import annotations

import pytest

from reorder import Node
from reorder.cpu.schedule.reads import pages_to_read, rows_at_once, runs_at_once
from reorder.cpu.target import Machine


@pytest.mark.parametrize(
    ("rows", "line", "steps"),
    [
        # a page for each row: 32 of them, whole lines of dst
        ((Node(4096, 4096, (4096, 1)),), 16, 32),
        ((Node(4096, 4096, (4096, 1)),), 64, 64),
        ((Node(48, 48, (-4096, 1)),), 16, 32),
        # four rows in a page
        ((Node(4096, 4096, (256, 1)),), 16, 128),
        # so close that a tile of the usual size reads few pages
        ((Node(4096, 4096, (16, 1)),), 16, 1024),
        # three pages for each step of the outermost loop; 16 steps make whole lines
        ((Node(3, 3, (1 << 20, 1)), Node(64, 64, (1 << 22, 3))), 16, 16),
        # the inner loop stays in a page
        ((Node(8, 8, (16, 1)), Node(64, 64, (1 << 22, 8))), 16, 32),
    ],
)
def test_rows_start_in_as_many_pages_as_are_prefetched(
    rows: tuple[Node, ...], line: int, steps: int
) -> None:
    assert rows_at_once(rows, line, 4) == steps


@pytest.mark.parametrize(
    ("nbytes", "streams", "pages"),
    [
        (1 << 20, False, 128),
        (1 << 20, True, 8),
        # those that prefetchers follow
        (1 << 30, False, 32),
        (1 << 30, True, 8),
    ],
)
def test_runs_are_read_from_fewer_pages_in_turn_beyond_the_caches(
    nbytes: int, *, streams: bool, pages: int
) -> None:
    machine = Machine(2, 56 << 20, pages_in_turn=128)
    assert pages_to_read(machine, nbytes, streams=streams) == pages


@pytest.mark.parametrize(
    ("rows", "nbytes", "runs"),
    [
        # rows of src that start at few places of a page: short pieces
        ((Node(2048, 2048, (4096, 1)),), 64, 32),
        ((Node(2048, 2048, (-3584, 1)),), 128, 32),
        ((Node(3, 3, (1 << 20, 1)), Node(2048, 2048, (1 << 22, 1))), 64, 10),
        # at as many as a page has lines
        ((Node(2048, 2048, (4096 + 64, 1)),), 64, 128),
        ((Node(2048, 2048, (4096 + 4, 1)),), 64, 128),
        # longer runs
        ((Node(2048, 2048, (4096, 1)),), 160, 128),
    ],
)
def test_loads_of_short_runs_meet_few_stores_of_the_same_place_in_a_page(
    rows: tuple[Node, ...], nbytes: int, runs: int
) -> None:
    assert runs_at_once(rows, nbytes, 1, 128) == runs
