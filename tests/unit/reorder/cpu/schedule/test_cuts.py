"""How the boxes of a move are packed, and cut to what caches hold and to whole lines of dst."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given

from memdesc import MemoryDesc, memory_desc
from memdesc.dtypes import BYTE_BITS
from reorder import plan_reorder
from reorder.cpu.machine import LINE_BITS, LINE_NBYTES, Instructions, Machine
from reorder.cpu.schedule.access import describe_access
from reorder.cpu.schedule.batches import BatchBuilder
from reorder.cpu.schedule.cuts import rows_at_once, tile_boxes
from reorder.cpu.schedule.indirect import schedule_table
from reorder.cpu.schedule.loops import (
    contiguous_loops,
    contiguous_size,
    offset_table,
    size_of,
)
from reorder.cpu.schedule.permuted import permuted_boxes, select_permuted
from reorder.cpu.schedule.program import BoxHead, LoopHead, TransposeHead
from reorder.cpu.schedule.rotation import rotate
from reorder.cpu.schedule.runs import join_runs
from reorder.cpu.schedule.select import (
    PERMUTED,
    RUN,
    STRIDED,
    TRANSPOSED,
    ScheduledBox,
    pack_for_kernels,
    scaled,
    select_kernel,
    width_of,
)
from reorder.plan import Box, Node
from tests.reorders import sorted_map
from tests.strategies import desc_pairs

_NEWEST = Machine(1, 1 << 30, instructions=Instructions(masks=True, permutes_lines=True, fma=True))


def _nodes(*loops: tuple[int, int, int]) -> tuple[Node, ...]:
    """Return full loops by their extents and strides in src and dst."""
    return tuple(Node(extent, extent, (src, dst)) for extent, src, dst in loops)


_INNER_LAST = _nodes((8, 4, 8), (3, 32, 1), (4, 1, 2))
_BACKWARDS = _nodes((8, -4, 1), (3, 32, 1), (4, -1, 1))


@pytest.mark.parametrize(
    ("nodes", "side", "stride", "backwards", "found"),
    [
        (_INNER_LAST, 0, 1, False, [2, 0, 1]),
        (_INNER_LAST, 1, 1, False, [1]),
        (_INNER_LAST, 1, 2, False, [2, 0]),
        (_nodes((8, 5, 1), (4, 1, 1)), 0, 1, False, [1]),
        (_nodes((8, 4, 1), (4, 2, 1)), 0, 1, False, []),
        # a loop may go backwards through a run where that is asked for
        (_BACKWARDS, 0, 1, False, []),
        (_BACKWARDS, 0, 1, True, [2, 0, 1]),
    ],
)
def test_the_loops_of_a_run_are_found_in_any_order(
    nodes: tuple[Node, ...], side: int, stride: int, backwards: bool, found: list[int]
) -> None:
    assert [*contiguous_loops(nodes, side, stride, backwards=backwards)] == found
    if not backwards:
        assert contiguous_size(nodes, side, stride) == size_of(nodes[k] for k in found)


@given(desc_pairs())
def test_tiling_and_packing_keep_which_element_goes_where(
    pair: tuple[MemoryDesc, MemoryDesc],
) -> None:
    bits = pair[1].dtype.bits
    for box in plan_reorder(*pair).boxes:
        if box.indirect:
            continue
        wide, width = pack_for_kernels(box, bits)
        tiles = tuple(scheduled.box for scheduled in tile_boxes((wide,), width))
        # by 4-bit parts: offsets of packed elements are in bytes
        found = sorted_map(tiles, width // 4, 2 if width > 4 else 1)
        assert np.array_equal(found, sorted_map((box,), bits // 4))


def _swap(rows: int, steps: int, run: int, gap: int = 0, at: int = 0) -> Box:
    """Return the box of a swap of two loops around runs, in elements.

    Rows of src are followed by a gap. Negative runs and gaps: both loops go backwards in src.
    """
    stride, size = steps * run + gap, abs(run)
    nodes = _nodes((steps, run, rows * size), (rows, stride, size), (size, 1, 1))
    return Box((max(0, -stride * rows), at), nodes)


def test_rows_of_a_tile_start_in_few_pages() -> None:
    for rows, steps in (
        # each row starts in a page of its own, then two in a page, then as many as a tile may have
        ([(4096, 1 << 20)], 32),
        ([(512, 1 << 20)], 64),
        ([(16, 1 << 20)], 1024),
        # inner rows are in four pages, in one, in more than there are; all fill whole lines
        ([(1024, 4), (65536, 1 << 20)], 8),
        ([(16, 4), (65536, 1 << 20)], 32),
        ([(65536, 64), (1, 1 << 20)], 16),
        ([(65536, 6), (70, 1 << 20)], 64),
    ):
        nodes = _nodes(*((extent, 4 * stride, 4) for stride, extent in rows))
        assert rows_at_once(nodes, 16) == steps, rows


# 128 elements of dst in succession, and 256 runs in a piece; the last 12 rows of src
_FOURS = {(8, 32, 4), (21, 12, 4), (11, 12, 4)}
_PADDED = Box((0, 0), (Node(256, 200, (4, 1200)), *_swap(300, 200, 4).nodes[1:]))


def _around_fours(*loops: tuple[int, int, int]) -> Box:
    return Box((1000, 0), _nodes(*loops, (4, 1, 1)))


@pytest.mark.parametrize(
    ("box", "bits", "loops"),
    [
        # less than a line
        (_swap(300, 200, 4), 32, _FOURS),
        (_swap(96, 200, 4), 32, {(8, 32, 4)}),
        # src is still in the first-level cache
        (_swap(32, 12, 4), 32, {(12, 32, 4)}),
        (_swap(300, 200, 3), 32, {(6, 42, 3), (2, 42, 3), (42, 6, 3), (32, 6, 3)}),
        # within lines of dst a piece has eight lines, if a loop has so many
        (_swap(300, 200, 4, at=4), 32, _FOURS),
        (_swap(300, 200, 4, at=4), 8, {(200, 128, 4), (5, 44, 4)}),
        (_swap(100, 200, 4, at=4), 8, {(2, 100, 4)}),
        # a line, wherever it starts; more than that
        (_swap(300, 200, 128), 4, {(8, 32, 128), (21, 12, 128), (11, 12, 128)}),
        (_swap(300, 200, 64, at=4), 8, {(8, 32, 64), (21, 12, 64), (11, 12, 64)}),
        (_swap(300, 200, 32), 32, {(200, 300, 32)}),
        # src is read backwards
        (_swap(300, 200, -4), 32, _FOURS),
        # nothing to swap: src is read in turn already, or its loop has padding, or rows repeat
        (Box((0, 0), _nodes((300, 6400, 6400), (200, 32, 64), (32, 1, 1))), 32, None),
        (_around_fours((200, 0, 1200), (300, 0, 4)), 32, None),
        (_around_fours((200, -4, 1200), (300, 0, 4)), 32, None),
        (_around_fours((300, 800, 800), (200, 4, 8)), 32, None),
        (_PADDED, 32, None),
    ],
)
def test_runs_are_moved_in_pieces_along_both_sides(
    box: Box, bits: int, loops: set[tuple[int, ...]] | None
) -> None:
    box = scaled(box, width_of(bits))
    tiles = tile_boxes((box,), bits)
    found = [tile.box.nodes[-3:] for tile in tiles]
    wanted = loops or {tuple(node.extent for node in box.nodes)}
    assert {tuple(node.extent for node in nodes) for nodes in found} == wanted
    # one piece is the box, without another loop around it
    is_whole = size_of(found[0]) == box.size
    assert not is_whole or len(tiles[0].box.nodes) == len(box.nodes)
    # the inner one of the two loops is the one that is contiguous in dst
    assert {tuple(node.strides for node in nodes) for nodes in found} == {
        tuple(node.strides for node in box.nodes)
    }


def _offsets(nodes: tuple[Node, ...], start: int, side: int) -> list[int]:
    """Return the offsets of the steps of loops, which are given innermost first, on a side."""
    table = offset_table([node.extent for node in nodes], [node.strides[side] for node in nodes])
    return [start + offset for offset in table]


def _writes(tile: ScheduledBox, size: int) -> Iterator[tuple[int, int | None]]:
    """Yield where a box of runs writes every `size` bytes, and where these are in src, if at all.

    As its kernel does; joined runs are whole lines of dst.
    """
    outer = (_offsets(tile.outer[::-1], tile.box.offsets[side], side) for side in (0, 1))
    for src, dst in zip(*outer, strict=True):
        joined = tile.tables.joined
        # by where the step starts in a line
        table = joined[dst % LINE_NBYTES * len(joined) // LINE_NBYTES] if joined else ()
        for at, nbytes, *pieces in table:
            line = dst + at + nbytes
            assert line % LINE_NBYTES == nbytes % LINE_NBYTES == 0
            found = dict.fromkeys(range(line, line + LINE_NBYTES, size))
            for start, mask in zip(pieces[::2], pieces[1::2], strict=True):
                for k in range(0, LINE_NBYTES, size):
                    if mask >> k & 1:
                        assert found[line + k] is None
                        found[line + k] = src + start + nbytes + k
            yield from ((dst + at + k, src + pieces[0] + k) for k in range(0, nbytes, size))
            yield from found.items() if tile.joins else ()
        if not tile.tables.joined:
            rows = (_offsets(tile.rows, start, side) for side, start in enumerate((src, dst)))
            (run,) = tile.columns
            for row_src, row_dst in zip(*rows, strict=True):
                for k in range(0, run.extent, size):
                    yield row_dst + k, row_src + k if k < run.valid else None


_UNEVEN = Box(
    (5, 3),
    _nodes((5, 40000, 97020), (11, 3500, 8820), (9, 379, 980), (20, 199000, 49), (49, 1, 1)),
)
_THREE_OF_A_LINE = Box((5, 1), (*_nodes((100, 3, 16)), Node(16, 3, (1, 1))))


@pytest.mark.parametrize(
    ("box", "streams"),
    [
        # lines and parts of lines; runs of a line that start within one; what follows in src too
        (_swap(60, 20, 1007, 5000), True),
        (_swap(300, 20, 16, 5000, at=4), True),
        (_swap(11, 70, 100, at=9), True),
        # whole lines; half a line, and somewhat more; runs that end in zeros
        (_swap(60, 20, 1008, 5000), True),
        (_swap(20, 300, 8, at=4), True),
        (_swap(20, 301, 9, at=4), True),
        (_THREE_OF_A_LINE, True),
        # in the caches; backwards; many runs
        (_swap(11, 70, 100, at=9), False),
        (_swap(300, 20, -100, -5000, at=5), True),
        (Box((0, 3), _nodes((3, 60000, 50000), (40, 1300, 1240), (31, 40, 40), (40, 1, 1))), True),
        (Box((0, 3), _nodes((1300, 50, 50), (50, 1, 1))), True),
        # steps of three loops start anywhere in lines
        (_UNEVEN, True),
        (_UNEVEN, False),
        # a long run
        (Box((0, 3), _nodes((100000, 1, 1))), True),
        # the loop around the pieces goes on in dst, and the one around both
        (
            Box(
                (0, 7),
                _nodes(
                    (2, 99999, 93600), (3, 52, 31200), (40, 19000, 780), (15, 700, 52), (52, 1, 1)
                ),
            ),
            True,
        ),
    ],
)
def test_runs_that_follow_each_other_are_moved_as_whole_lines(box: Box, streams: bool) -> None:
    box = scaled(box, 4)
    tiles = join_runs(box, 32, _NEWEST.instructions, streams=streams, exceeds=streams)
    found = [write for tile in tiles for write in _writes(tile, 4)]
    whole = ScheduledBox(box, 32, RUN, box.nodes[-2::-1], box.nodes[-1:]).as_bytes()
    assert sorted(found) == sorted(_writes(whole, 4))
    # the others are the heads of the first runs and the ends of the last ones
    parts = [tile for tile in tiles if not tile.tables.joined]
    is_long = len(box.nodes) == 1
    assert is_long or all(tile.columns[0].extent < LINE_NBYTES for tile in parts)
    assert sum(size_of(tile.outer) for tile in parts) <= 4 * box.size // contiguous_size(
        box.nodes, 1, 4
    )


@pytest.mark.parametrize("size", [65, 40001], ids=["short", "long"])
def test_loops_whose_steps_start_anywhere_in_lines_stay_loops(size: int) -> None:
    extents = (47, 80, 33, 5)
    nodes: list[Node] = []
    src = dst = size
    for extent in extents:
        nodes.insert(0, Node(extent, extent, (2 * src, dst)))
        src, dst = src * 2 * extent, dst * extent
    box = Box((0, 9), (*nodes, Node(size, size, (1, 1))))
    tiles = join_runs(box, 8, _NEWEST.instructions, streams=True, exceeds=True)
    assert len(tiles) < 20
    rows = sum(len(table) for tile in tiles for table in tile.tables.joined)
    assert rows < 5000


def test_threads_do_not_divide_pieces_within_lines_unless_src_is_far() -> None:
    for extent, loops in (300, {(200, 300, 4)}), (2000, {(8, 32, 4), (8, 16, 4), (16, 16, 4)}):
        tiles = tile_boxes((scaled(_swap(extent, 200, 4, at=4), 4),), 32, is_shared=True)
        found = {tuple(node.extent for node in tile.box.nodes[-3:]) for tile in tiles}
        assert (extent, found) == (extent, loops)


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
        (Box((0, 0), _nodes((64, 80, 64), (64, 1, 1))), 32, set()),
    ],
)
def test_transpositions_of_whole_lines_are_streamed_in_tiles_and_no_others(
    box: Box, bits: int, tiles: set[tuple[int, int]]
) -> None:
    found = rotate(scaled(box, width_of(bits)), bits, streams=True)
    assert {(size_of(tile.rows), size_of(tile.columns)) for tile in found} == tiles
    assert all(tile.fills_lines() for tile in found)


def _box(case: str, place: int = 0) -> tuple[Box, int]:
    """Return the only box of a reorder, in bytes, and the bits of its elements.

    It starts `place` elements into a line of dst. A case is the type, both layouts and the dims.
    """
    kind, src, dst, sizes = case.split()
    dims = tuple(map(int, sizes.split("x")))
    one, other = (memory_desc(dims, kind, tag) for tag in (src, dst))
    (box,) = plan_reorder(one, other).boxes
    bits = other.dtype.bits
    return scaled(box._replace(offsets=(0, place)), width_of(bits)), bits


@pytest.mark.parametrize("place", [0, 16])
def test_runs_of_the_same_line_of_src_are_moved_in_succession(place: int) -> None:
    # two runs of 32 bytes are a line of dst, and the next one follows far from it
    box, bits = _box("s8 ABcd4b16a4b ABcd2b8a4b 256x256x3x3", place)
    tiles = tile_boxes((box,), bits)
    assert {[node.strides[0] for node in tile.rows].index(32) for tile in tiles} == {1}


@pytest.mark.parametrize("streams", [True, False], ids=["streams", "in the caches"])
@pytest.mark.parametrize(
    ("case", "place"),
    [
        ("f32 ab ba 4096x4096", 4),
        ("f32 ab ba 4096x4096", 15),
        ("f32 abcd dacb 75x96x75x96", 4),
        ("f32 abcd acdb 32x64x112x112", 4),
        ("s8 ab ba 4096x4096", 1),
        ("f64 abcd dcba 64x32x9x17", 1),
        # few columns, the last of which no row follows
        ("f16 aBcd16b abcd 2x16x64x64", 8),
        # rows that end in padding
        ("f32 abcd aBcd16b 8x3x224x224", 4),
        ("f32 abcd aBcd16b 4x8x50x60", 12),
        # what follows the last row of a block is in the next one
        ("f32 abcd ABcd16b16a 128x64x3x3", 4),
        # no row follows one in 16 to 64, of which all but the last line are moved with the others
        ("f32 abcdef beafdc 15x15x32x15x15x32", 4),
        ("f32 ABcd16b16a abcd 512x512x1x1", 4),
        ("f32 abc acb 256x144x32", 4),
        ("s8 abcd abdc 8x12x512x64", 16),
    ],
)
def test_nearly_all_of_a_transposition_is_whole_lines(
    case: str, place: int, *, streams: bool
) -> None:
    box, bits = _box(case, place)
    parts = rotate(box, bits, streams=streams)
    assert sum(part.box.size for part in parts) == box.size
    whole = sum(part.box.size for part in parts if part.fills_lines())
    assert whole >= box.size * 15 // 16


@pytest.mark.parametrize("case", ["f32 abcd abdc 8x12x512x64", "bf16 abcd abdc 8x12x512x64"])
def test_few_elements_of_long_rows_are_moved_alone(case: str) -> None:
    # the last of 64 rows in a block would be, and each of its elements is in another line of src
    box, bits = _box(case, 4)
    parts = rotate(box, bits, streams=True)
    alone = sum(part.box.size for part in parts if part.micro_kernel == STRIDED)
    assert 0 < alone <= box.size // 1024


@pytest.mark.parametrize(
    ("case", "place", "rotates"),
    [
        ("f32 ab ba 64x64", 0, {"streams"}),
        ("f32 ab ba 63x64", 4, set()),
        # rows of few lines: the first-level cache does not hold all that they read of src
        ("f32 ab ba 16x4096", 4, {"streams"}),
        ("f32 ab ba 16x4112", 4, {"streams", "caches"}),
        ("f32 ab ba 48x4096", 4, {"streams"}),
        ("f32 ab ba 64x4096", 4, {"streams", "caches"}),
        ("bf16 ab ba 64x2048", 4, {"streams"}),
        ("s8 ab ba 64x1024", 4, {"streams", "caches"}),
        # one in 128, and in 64, elements would move alone
        ("f32 abc acb 256x16x128", 4, {"streams", "caches"}),
        ("f32 abc acb 256x16x64", 4, {"streams"}),
        ("f32 abdec aBcde16b 32x8x8x3x3", 4, {"streams"}),
    ],
)
def test_what_gains_nothing_is_not_rotated(case: str, place: int, rotates: set[str]) -> None:
    box, bits = _box(case, place)
    found = {"streams": rotate(box, bits, streams=True), "caches": rotate(box, bits, streams=False)}
    assert {where for where, parts in found.items() if parts} == rotates


@pytest.mark.parametrize(
    ("case", "place", "joins"),
    [
        ("f32 abcd acbd 16x12x20x64", 4, {"beyond", "streams", "caches"}),
        ("bf16 abcd acbd 2x197x12x64", 4, {"beyond", "streams", "caches"}),
        ("s8 abcd acbd 2x198x12x128", 9, {"beyond", "streams", "caches"}),
        # rows of three lines and a part of one, wherever they start
        ("f32 abcd acbd 16x12x20x59", 4, {"beyond", "streams", "caches"}),
        ("f32 abcd acbd 16x12x20x59", 0, {"beyond", "streams", "caches"}),
        # whole lines; many lines; a line; pieces of a long run
        ("f32 abcd acbd 16x12x20x64", 0, {"beyond", "streams"}),
        ("f32 abcd acbd 16x12x20x128", 4, {"beyond", "streams"}),
        ("s8 abcd acbd 2x198x12x64", 9, {"beyond", "streams"}),
        ("f32 abcd abcd 1x1x1x20000", 4, {"beyond", "streams"}),
        # half a line; zeros after the data in each line
        ("bf16 abcd acbd 2x198x12x16", 4, {"beyond"}),
        ("f32 acdb aBcd16b 2x3x30x40", 4, {"beyond"}),
        # these start lines; too few follow each other; shorter; zeros after the data of two lines
        ("f32 acdb aBcd16b 2x3x30x40", 0, set()),
        ("f32 abcd bacd 3x2x1x16", 4, set()),
        ("bf16 abcd acbd 2x198x12x14", 4, set()),
        ("f32 acdb aBcd32b 2x3x30x40", 4, set()),
    ],
)
def test_runs_that_follow_each_other_are_joined_to_lines(
    case: str, place: int, joins: set[str]
) -> None:
    box, bits = _box(case, place)
    choices = {"beyond": (True, True), "streams": (True, False), "caches": (False, False)}

    def joined(instructions: Instructions) -> set[str]:
        return {
            name
            for name, (streams, exceeds) in choices.items()
            if join_runs(box, bits, instructions, streams=streams, exceeds=exceeds)
        }

    assert joined(_NEWEST.instructions) == joins
    # without masked loads, full runs of a line or more beyond the caches
    run = box.nodes[-1]
    has_lines = run.extent * bits >= LINE_BITS and run.valid == run.extent
    assert joined(Instructions()) == (joins - {"caches"} if has_lines else set())


@pytest.mark.parametrize(
    ("case", "rows"),
    [
        # whole lines of blocks, and what they leave over
        ("f32 abc acb 71x2x3", [(48, 35), (24, 1)]),
        ("s8 ABcd4b16a4b ABcd16b16a 64x64x3x3", [(64, 64), (64, 256)]),
        ("bf16 abcd badc 30x8x4x4", [(32, 240)]),
        # blocks of more than a line, and of more than two
        ("f32 abc acb 70x4x8", [(128, 70)]),
        ("f32 abc acb 70x4x9", []),
        # no block: other dims are between
        ("f32 abcd adbc 30x40x4x4", []),
    ],
)
def test_blocks_on_both_sides_are_rows_of_permuted_lines(
    case: str, rows: list[tuple[int, int]]
) -> None:
    box, bits = _box(case, 0)
    boxes = permuted_boxes(box, bits, _NEWEST.instructions)
    assert {part.micro_kernel for part in boxes} <= {PERMUTED}
    assert [(size_of(part.columns), size_of(part.rows)) for part in boxes] == rows
    # without VBMI, pairs of bytes are permuted
    older = permuted_boxes(box, bits, Instructions(masks=True))
    assert len(older) == (len(boxes) if bits > BYTE_BITS else 0)
    assert permuted_boxes(box, bits, Instructions()) == ()


@pytest.mark.parametrize(
    ("nodes", "bits", "place"),
    [
        # every second byte; pairs of bytes that lines of dst cut in two, and those 3 bytes apart
        (_nodes((9, 200, 48), (48, 2, 1)), 8, 0),
        (_nodes((99, 32, 32), (4, 2, 8), (4, 8, 2)), 16, 1),
        (_nodes((9, 200, 60), (30, 3, 2)), 16, 0),
    ],
)
def test_pairs_of_bytes_are_permuted_only_if_none_is_divided(
    nodes: tuple[Node, ...], bits: int, place: int
) -> None:
    box = Box((0, place), nodes)
    assert permuted_boxes(box, bits, _NEWEST.instructions, streams=True)
    assert not permuted_boxes(box, bits, Instructions(masks=True), streams=True)


@pytest.mark.parametrize(
    ("src", "dst", "said"),
    [
        # blocks, a run backwards, every second element
        (memory_desc((70, 2, 3), "f32", "abc"), "acb", "reads 48-byte runs 48 bytes apart"),
        (
            memory_desc((64,), "f32", strides=(-1,), offset0=63),
            "a",
            "reads 64-byte runs 64 bytes apart (whole lines)",
        ),
        (memory_desc((640,), "u8", strides=(2,)), "a", "reads 127-byte runs 128 bytes apart"),
    ],
)
def test_explain_says_that_bytes_are_permuted(src: MemoryDesc, dst: str, said: str) -> None:
    plan = plan_reorder(src, dst)
    access = describe_access(plan, plan.boxes[0], _NEWEST.instructions)
    assert access.startswith(f"permutes the bytes of runs: {said}, writes ")
    assert "permutes" not in describe_access(plan, plan.boxes[0], Instructions())


@pytest.mark.parametrize(
    ("case", "kernel"),
    [
        ("s8 abcd badc 9x9x4x9", STRIDED),
        ("f32 abcd badc 9x9x3x3", STRIDED),
        ("s8 abcd badc 9x9x4x10", TRANSPOSED),
        # a vector of two elements each
        ("f32 abcd badc 9x9x2x7", TRANSPOSED),
    ],
)
def test_tiny_groups_are_moved_one_by_one(case: str, kernel: int) -> None:
    assert select_kernel(*_box(case, 0)).micro_kernel == kernel


def test_blocks_that_are_streamed_start_lines_wherever_dst_starts() -> None:
    box, bits = _box("s8 abc acb 99x8x8", 16)
    boxes = permuted_boxes(box, bits, _NEWEST.instructions, streams=True)
    assert [part.fills_lines() for part in boxes] == [False, True, False]
    assert [part.columns[0].extent for part in boxes] == [48, 64, 16]


@pytest.mark.parametrize(
    ("dims", "dtype", "src", "dst", "kernel"),
    [
        ((1, 64, 8, 8), "f32", "abcd", "aBcd16b", "32-bit elements, blocks"),
        ((1, 64, 8, 8), "s8", "abcd", "aBcd16b", "8-bit elements, blocks"),
        ((2, 20, 5, 4), "f32", "abcd", "aBcd16b", "32-bit elements, blocks"),
        # rows of half a line that others are between, and columns of less than a tile
        ((2, 64, 8, 8), "f32", "bacd", "Bacd8b", "32-bit elements, blocks"),
        ((8, 64), "f32", "ab", "1x9", "32-bit elements, transposed"),
        ((32, 7), "bf16", "ab", "ba", "16-bit elements, transposed"),
        ((32, 9), "bf16", "ab", "ba", "16-bit elements, few columns"),
        ((64, 64, 3, 3), "f32", "abcd", "aBcd16b", "32-bit elements, few columns"),
        ((3, 32, 8, 8), "f32", "aBcd16b", "abcd", "32-bit elements, few columns"),
        ((24, 16), "f32", "ab", "ba", "32-bit elements, transposed"),
        ((128, 17), "f32", "ab", "ba", "32-bit elements, transposed"),
        ((1, 64, 8, 8), "f32", "acdb", "aBcd16b", "32-bit elements, runs"),
        ((2, 17, 5, 4), "f32", "abcd", "aBcd16b", "32-bit elements, runs, blocks"),
        ((2, 3, 9, 9), "u8", "abcd", "acdb", "8-bit elements, transposed, interleaved"),
        # strided
        ((3, 5), "f32", "ab", "20x3", "32-bit elements"),
        ((128, 4096), "f32", "ab", "ba", "32-bit elements, transposed"),
        ((128, 4096), "s8", "ab", "ba", "8-bit elements, transposed, wide tiles"),
        ((64, 64, 3, 3), "bf16", "abcd", "ABcd8b16a2b", "32-bit elements, permuted"),
    ],
)
def test_an_interpreter_has_no_more_micro_kernels_than_its_program_needs(
    dims: tuple[int, ...], dtype: str, src: str, dst: str, kernel: str
) -> None:
    plan = plan_reorder(memory_desc(dims, dtype, src), memory_desc(dims, dtype, dst))
    (batch,) = BatchBuilder(plan, 1, _NEWEST).move(plan.boxes)
    assert str(batch.kernel) == kernel


def test_schedules_for_other_processors_are_made_in_the_same_process() -> None:
    plain, blocked = (memory_desc((64, 64, 3, 3), "bf16", tag) for tag in ("abcd", "ABcd8b16a2b"))
    rows, columns = (memory_desc((128, 4096), "s8", tag) for tag in ("ab", "ba"))
    plans = plan_reorder(plain, blocked), plan_reorder(rows, columns)
    kernels = {}
    for instructions in (Instructions(), Instructions(masks=True), _NEWEST.instructions):
        machine = _NEWEST._replace(instructions=instructions)
        batches = [BatchBuilder(plan, 1, machine).move(plan.boxes) for plan in plans]
        kernels[instructions] = [str(batch.kernel) for (batch,) in batches]
    moved = "16-bit elements, few columns"
    assert [*kernels.values()] == [
        [moved, "8-bit elements, transposed"],
        [moved, "8-bit elements, transposed, wide tiles"],
        ["32-bit elements, permuted", "8-bit elements, transposed, wide tiles"],
    ]


@pytest.mark.parametrize(("valid", "kernel"), [(1, RUN), (2, TRANSPOSED)])
def test_one_element_and_zeros_after_it_are_copied_as_a_run(valid: int, kernel: int) -> None:
    nodes = Node(32, 4, (784, 16)), Node(784, 784, (1, 512)), Node(16, valid, (784, 1))
    assert select_kernel(Box((0, 0), nodes), 8).micro_kernel == kernel


@pytest.mark.parametrize("place", [0, 8, 9])
@pytest.mark.parametrize(
    ("case", "columns", "steps"),
    [
        # pieces of a line, half of one, and four of them: eight lines in all steps
        ("bf16 cdba ABcd8b16a2b 128x128x3x3", 128, 8),
        ("bf16 ab BA8a8b2a 1024x1024", 128, 16),
        ("bf16 ab BA16a64b2a 1024x1024", 1024, 2),
        ("s8 ab BA16a64b4a 1024x1024", 512, 2),
        ("s8 ab BA8a4b2a 256x256", 32, 64),
        # no more than a call should move; the loop around them has fewer steps
        ("bf16 ab AB8a16b2a 512x512", 256, 8),
        ("bf16 ab AB2a16b2a 512x512", 512, 2),
    ],
)
def test_calls_write_several_lines_of_each_piece_of_interleaved_rows(
    case: str, columns: int, steps: int, place: int
) -> None:
    box, bits = _box(case, place)
    tiles = tile_boxes((box,), bits)
    assert sum(tile.box.size for tile in tiles) == box.size
    assert {size_of(tile.columns) for tile in tiles} == {columns}
    assert {tile.kernel_loop and tile.kernel_loop.extent for tile in tiles} == {steps}
    for tile in tiles:
        # the next step goes on where this one ends
        assert tile.outer[-1].strides[1] == tile.width * size_of((*tile.rows, tile.columns[0]))


@pytest.mark.parametrize(
    "case", ["f32 bcda ABcd16b64a4b 64x128x3x3", "bf16 cdba ABcd16b64a4b 512x512x1x1"]
)
def test_longer_pieces_of_interleaved_rows_are_not_cut_further(case: str) -> None:
    box, bits = _box(case)
    assert tile_boxes((box,), bits) == (select_kernel(box, bits),)


@pytest.mark.parametrize(
    ("case", "tiles"),
    [
        ("bf16 abcd ABcd8b16a2b 64x32x3x3", (128, 9)),
        ("s8 abcd ABcd4b16a4b 64x32x4x4", (64, 16)),
        ("bf16 ABcd8b16a2b abcd 64x32x3x3", (9, 128)),
        # pairs along both dims
        ("bf16 ABcd8b16a2b ABcd8a16b2a 64x32x3x3", (8, 8)),
        ("s8 ABcd16b32a2b ABcd16a32b2a 64x32x3x3", (16, 16)),
        ("s8 ABcd8b16a2b ABcd8a16b2a 64x32x3x3", None),
        # a line and a part of one; a whole tile of narrow rows; too few rows; no pairs, or too wide
        ("s8 abc ABc4b16a4b 64x32x17", None),
        ("bf16 ABcd8b16a2b abcd 64x32x4x2", None),
        ("bf16 abcd ABcd2b4a2b 64x32x3x3", None),
        ("bf16 abcd ABcd8b16a 64x32x3x3", None),
        ("f32 abcd ABcd8b16a2b 64x32x3x3", None),
        # pairs of rows of which one does not follow the other
        ("bf16 abcd ABcd8a16b2a 64x32x3x3", None),
        # a plain transposition, of any size
        (f"s8 ab ba {1 << 56}x2", None),
    ],
)
def test_rows_of_pairs_and_quads_are_permuted_up_to_a_line(
    case: str, tiles: tuple[int, int] | None
) -> None:
    box, bits = _box(case)
    found = select_permuted(box, bits)
    assert (found and (size_of(found.rows), size_of(found.columns))) == tiles
    if found:
        assert found.permutation is not None
        assert sorted(found.permutation.picks) == [*range(len(found.permutation.picks))]
        assert found.bits // bits * size_of(found.box.nodes) == box.size


@pytest.mark.parametrize(
    ("kind", "threads", "is_prefetched"), [("f32", 1, 1), ("f32", 16, 0), ("s8", 1, 0)]
)
def test_whole_lines_are_prefetched_unless_the_data_of_a_thread_are_near(
    kind: str, threads: int, is_prefetched: int
) -> None:
    src, dst = (memory_desc((1024, 512, 1, 1), kind, tag) for tag in ("ABcd16b16a", "abcd"))
    builder = BatchBuilder(plan_reorder(src, dst), threads, Machine(16, 64 << 20))
    (kernel,) = _transpositions(builder)
    assert kernel.prefetches_dst == is_prefetched


@pytest.mark.parametrize(
    ("kind", "stride", "rows_collide"),
    [
        ("s8", 4096, 1),
        ("s8", 4096 + 64, 0),
        ("s8", 1024, 1),
        ("s8", 512, 0),
        ("bf16", 512, 0),
        ("bf16", 1024, 1),
        ("f32", 512, 0),
        ("f32", 1024, 1),
        ("f32", -1024, 1),
        ("f64", 512, 0),
        ("s8", 0, 0),  # all rows are one line
    ],
)
def test_rows_collide_if_a_set_of_the_first_level_cache_holds_few_of_their_lines(
    kind: str, stride: int, rows_collide: int
) -> None:
    src = memory_desc((64, 64), kind, strides=(stride, 1), offset0=max(0, -63 * stride))
    builder = BatchBuilder(plan_reorder(src, memory_desc((64, 64), kind, "ba")), 1, Machine(1, 1))
    (kernel,) = _transpositions(builder)
    assert kernel.rows_collide == rows_collide


@pytest.mark.parametrize(("kind", "rows"), [("s8", (8, 12, 6)), ("f32", (8, 12))])
def test_rows_of_a_transposition_are_whole_lines_if_they_can_be(
    kind: str, rows: tuple[int, ...]
) -> None:
    box, bits = _box(f"{kind} abcd dcba 8x12x6x64")
    assert tuple(node.extent for node in select_kernel(box, bits).rows) == rows


def _transpositions(builder: BatchBuilder) -> list[TransposeHead]:
    """Return the first instruction of each batch."""
    heads = []
    for batch in builder.move(builder.plan.boxes):
        box = BoxHead(*batch.program[: len(BoxHead._fields)])
        if box.micro_kernel != TRANSPOSED:
            continue
        at = len(box) + box.outer * (len(LoopHead._fields) + 2)
        heads.append(TransposeHead(*batch.program[at : at + len(TransposeHead._fields)]))
    return heads


_ROWS = memory_desc((64, 64), "f16", "Sw<3,3,3> o (64,64):(72,1)")
_ENDS = [memory_desc((200, 3), "f32", tag) for tag in ("Ab47a", "Ab31a")]


@pytest.mark.parametrize(
    ("src", "dst", "kernels"),
    [
        ("ab", _ROWS, {RUN}),
        (_ROWS, "ab", {RUN}),
        ("ba", _ROWS, {TRANSPOSED}),
        (_ROWS, "ba", {TRANSPOSED}),
        # data, then padding
        (*_ENDS, {STRIDED}),
    ],
)
def test_the_steps_of_a_small_table_are_rows(
    src: str | MemoryDesc, dst: str | MemoryDesc, kernels: set[int]
) -> None:
    plan = plan_reorder(src, dst)
    bits, width = plan.dst.dtype.bits, width_of(plan.dst.dtype.bits)
    for box in plan.boxes:
        boxes = [*schedule_table(scaled(box, width), bits)]
        assert {scheduled.micro_kernel for scheduled in boxes} == kernels
        assert sum(scheduled.box.size for scheduled in boxes) == box.size
