"""How boxes are packed, and cut to what the cache holds."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memdesc import MemoryDesc
from reorder import plan_reorder
from reorder.cpu.schedule.cuts import rows_at_once, tile_boxes
from reorder.cpu.schedule.loops import contiguous_size, size_of
from reorder.cpu.schedule.rotation import rotate
from reorder.cpu.schedule.select import RUN, TRANSPOSED, pack_for_kernels, select_kernel
from reorder.plan import Box, Node
from tests.reorders import sorted_map
from tests.strategies import desc_pairs


def test_contiguous_pieces_count_the_loops_that_continue_each_other() -> None:
    nodes = Node(4, 4, (1, 100)), Node(3, 3, (40, 1)), Node(10, 10, (4, 3))
    assert contiguous_size(nodes, 0, 1) == 120
    assert contiguous_size(nodes, 1, 1) == 30
    assert contiguous_size(nodes, 1, 2) == 1


@given(desc_pairs())
def test_tiling_and_packing_keep_which_element_goes_where(
    pair: tuple[MemoryDesc, MemoryDesc],
) -> None:
    bits = pair[1].dtype.bits
    for box in plan_reorder(*pair).boxes:
        if box.indirect:
            continue
        wide, width, stride = pack_for_kernels(box, bits)
        factor = width // bits
        tiles = tuple(scheduled.box for scheduled in tile_boxes((wide,), width, stride))
        found = sorted_map(tiles, factor, factor // stride)
        assert np.array_equal(found, sorted_map((box,)))


def _swap(rows: int, steps: int, run: int, gap: int = 0) -> Box:
    """Return the box of a swap of two loops around runs; rows of src are followed by a gap.

    Negative runs and gaps: both loops go backwards in src.
    """
    stride, size = steps * run + gap, abs(run)
    nodes = Node(steps, steps, (run, rows * size)), Node(rows, rows, (stride, size))
    return Box((max(0, -stride * rows), 0), (*nodes, Node(size, size, (1, 1))))


@given(
    st.integers(2, 70),
    st.integers(2, 20),
    st.integers(1, 40) | st.sampled_from([64, 128, 192]),
    st.sampled_from([8, 16, 32, 64]),
    st.booleans(),
)
@example(70, 20, 64, 32, True)  # noqa: FBT003 - the order of the strategies
def test_runs_keep_their_places_in_whatever_order_they_are_moved(
    rows: int, steps: int, run: int, bits: int, streams: bool
) -> None:
    box = _swap(rows, steps, run, gap=5000)
    tiles = tile_boxes((box,), bits, streams=streams)
    found = sorted_map(tuple(tile.box for tile in tiles))
    assert np.array_equal(found, sorted_map((box,)))


_IN_ORDER = Box(
    (0, 0), (Node(300, 300, (6400, 6400)), Node(200, 200, (32, 64)), Node(32, 32, (1, 1)))
)


def _swapped(*strides: int) -> Box:
    """Return a box of two loops around runs of 4 elements, with these strides in src."""
    far, near = strides
    nodes = Node(200, 200, (far, 1200)), Node(300, 300, (near, 4)), Node(4, 4, (1, 1))
    return Box((1000, 0), nodes)


_SHORT_IN_ORDER = Box(
    (0, 0), (Node(300, 300, (800, 800)), Node(200, 200, (4, 8)), Node(4, 4, (1, 1)))
)
_REPEATED = Box(
    (20 * 1008, 0),
    (Node(20, 20, (-1008, 2000 * 1008)), Node(2000, 2000, (0, 1008)), Node(1008, 1008, (1, 1))),
)
# 128 elements of dst in succession, and 256 runs in a piece; the last 12 rows of src
_FOURS = {(8, 32, 4), (21, 12, 4), (11, 12, 4)}
_PADDED = Box((0, 0), (Node(256, 200, (4, 1200)), *_swap(300, 200, 4).nodes[1:]))


def test_one_element_and_zeros_after_it_are_copied_as_a_run() -> None:
    nodes = Node(32, 4, (784, 16)), Node(784, 784, (1, 512))
    run, transposed = (
        select_kernel(Box((0, 0), (*nodes, Node(16, valid, (784, 1))))) for valid in (1, 2)
    )
    assert (run.micro_kernel, transposed.micro_kernel) == (RUN, TRANSPOSED)


@pytest.mark.parametrize(
    ("rows", "steps"),
    [
        # each row starts in a page of its own, then two in a page, then as many as a tile may have
        ([(4096, 1 << 20)], 32),
        ([(512, 1 << 20)], 64),
        ([(16, 1 << 20)], 1024),
        # inner rows are in four pages, in one, in more than there are; all fill whole lines
        ([(1024, 4), (65536, 1 << 20)], 8),
        ([(16, 4), (65536, 1 << 20)], 32),
        ([(65536, 64), (1, 1 << 20)], 16),
        ([(65536, 6), (70, 1 << 20)], 64),
    ],
)
def test_rows_of_a_tile_start_in_few_pages(rows: list[tuple[int, int]], steps: int) -> None:
    nodes = tuple(Node(extent, extent, (stride, 1)) for stride, extent in rows)
    assert rows_at_once(nodes, 16, 4) == steps


@pytest.mark.parametrize(
    ("box", "bits", "streams", "loops"),
    [
        # less than a line
        (_swap(300, 200, 4), 32, False, _FOURS),
        (_swap(96, 200, 4), 32, False, {(8, 32, 4)}),
        # src is still in the first-level cache
        (_swap(32, 12, 4), 32, False, {(12, 32, 4)}),
        (_swap(300, 200, 4), 32, True, _FOURS),
        (_swap(300, 200, 3), 32, False, {(6, 42, 3), (2, 42, 3), (42, 6, 3), (32, 6, 3)}),
        # a line; more than that
        (_swap(300, 200, 128), 4, False, {(8, 32, 128), (21, 12, 128), (11, 12, 128)}),
        (_swap(300, 200, 64), 8, False, {(8, 32, 64), (21, 12, 64), (11, 12, 64)}),
        (_swap(300, 200, 32), 32, False, {(200, 300, 32)}),
        # whole lines, from eight pages of src, where these are streamed; but no pages
        (_swap(300, 20, 1008, 5000), 32, True, {(20, 8, 1008), (20, 4, 1008)}),
        (_swap(300, 20, 1008, 5000), 32, False, {(20, 300, 1008)}),
        (_swap(300, 20, 1024, 5000), 32, True, {(20, 300, 1024)}),
        # src is read backwards
        (_swap(300, 20, -1008, -5000), 32, True, {(20, 8, 1008), (20, 4, 1008)}),
        (_swap(300, 200, -4), 32, False, _FOURS),
        # lines and parts of lines
        (_swap(300, 20, 1007, 5000), 32, True, {(20, 8, 1007), (20, 4, 1007)}),
        # nothing to swap: src is read in turn already, or its loop has padding
        (_IN_ORDER, 32, True, {(300, 200, 32)}),
        (_swapped(0, 0), 32, False, {(200, 300, 4)}),
        (_swapped(-4, 0), 32, False, {(200, 300, 4)}),
        (_SHORT_IN_ORDER, 32, False, {(300, 200, 4)}),
        (_PADDED, 32, False, {(256, 300, 4)}),
    ],
)
def test_runs_are_moved_in_pieces_along_both_sides(
    box: Box, bits: int, streams: bool, loops: set[tuple[int, ...]]
) -> None:
    tiles = tile_boxes((box,), bits, streams=streams)
    found = [tile.box.nodes[-3:] for tile in tiles]
    assert {tuple(node.extent for node in nodes) for nodes in found} == loops
    # the inner one of the two loops is the one that is contiguous in dst
    assert {tuple(node.strides for node in nodes) for nodes in found} == {
        tuple(node.strides for node in box.nodes)
    }


@pytest.mark.parametrize(("rows", "at", "inner"), [(300, 0, 32), (300, 4, 300), (2000, 4, 32)])
def test_short_runs_within_lines_stay_in_the_order_of_dst_while_src_is_near(
    rows: int, at: int, inner: int
) -> None:
    box = _swap(rows, 200, 4)
    tiles = tile_boxes((box._replace(offsets=(0, at)),), 32)
    assert max(tile.box.nodes[-2].extent for tile in tiles) == inner


def test_rows_in_hardly_more_than_eight_pages_are_not_cut() -> None:
    box = _swap(11, 20, 1008, 5000)
    assert [tile.box for tile in tile_boxes((box,), 32, streams=True)] == [box]


def test_rows_that_are_repeated_are_not_read_in_the_order_of_others() -> None:
    assert tile_boxes((_REPEATED,), 32, streams=True) == tile_boxes((_REPEATED,), 32)


def _transposition(columns: int, rows: int, valid: int | None = None) -> Box:
    nodes = Node(columns, valid or columns, (1, rows)), Node(rows, rows, (columns, 1))
    return Box((0, 0), nodes)


@pytest.mark.parametrize(
    ("box", "bits", "tiles"),
    [
        (_transposition(64, 64), 32, {(64, 64)}),
        (_transposition(7, 16), 32, {(16, 7)}),
        (_transposition(48, 64), 8, {(64, 48)}),
        # rows of src start in 32 pages, and no tile has more than 1,024 columns
        (_transposition(4096, 4096), 32, {(32, 1024)}),
        (_transposition(1000, 96), 32, {(32, 1000)}),
        # parts of lines, parts of bytes, padding, and rows that are not transposed
        (_transposition(7, 15), 32, set()),
        (_transposition(7, 32), 8, set()),
        (_transposition(64, 128), 4, set()),
        (_transposition(64, 64, 60), 32, set()),
        (Box((0, 0), (Node(64, 64, (80, 64)), Node(64, 64, (1, 1)))), 32, set()),
    ],
)
def test_transpositions_of_whole_lines_are_streamed_in_tiles_and_no_others(
    box: Box, bits: int, tiles: set[tuple[int, int]]
) -> None:
    found = rotate(box, bits, streams=True)
    assert {(size_of(tile.rows), size_of(tile.columns)) for tile in found} == tiles
    assert all(tile.fills_lines(bits) for tile in found)
