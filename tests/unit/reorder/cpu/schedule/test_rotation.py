"""Which boxes are cut into whole lines of a dst that starts within one."""

import pytest

from memdesc import memory_desc
from reorder import plan_reorder
from reorder.cpu.machine import Machine
from reorder.cpu.schedule.batches import BatchBuilder
from reorder.cpu.schedule.program import BoxHead, LoopHead, TransposeHead
from reorder.cpu.schedule.rotation import rotate
from reorder.cpu.schedule.select import select_kernel
from reorder.plan import Box


def _box(kind: str, dims: tuple[int, ...], src: str, dst: str) -> tuple[Box, int]:
    """Return the only box of a reorder, and the bits of its elements."""
    plan = plan_reorder(memory_desc(dims, kind, src), memory_desc(dims, kind, dst))
    (box,) = plan.boxes
    return box, plan.dst.dtype.bits


@pytest.mark.parametrize(
    ("kind", "dims", "src", "dst", "place"),
    [
        ("f32", (4096, 4096), "ab", "ba", 4),
        ("f32", (4096, 4096), "ab", "ba", 15),
        ("f32", (75, 96, 75, 96), "abcd", "dacb", 4),
        ("f32", (32, 64, 112, 112), "abcd", "acdb", 4),
        ("s8", (4096, 4096), "ab", "ba", 1),
        ("f64", (64, 32, 9, 17), "abcd", "dcba", 1),
        # few columns, the last of which no row follows
        ("f16", (2, 16, 64, 64), "aBcd16b", "abcd", 8),
        # rows that end in padding
        ("f32", (8, 3, 224, 224), "abcd", "aBcd16b", 4),
        ("f32", (4, 8, 50, 60), "abcd", "aBcd16b", 12),
        # what follows the last row of a block is in the next one
        ("f32", (128, 64, 3, 3), "abcd", "ABcd16b16a", 4),
    ],
)
@pytest.mark.parametrize("streams", [True, False], ids=["streams", "in the caches"])
def test_nearly_all_of_a_transposition_is_whole_lines(
    kind: str, dims: tuple[int, ...], src: str, dst: str, place: int, *, streams: bool
) -> None:
    box, bits = _box(kind, dims, src, dst)
    parts = rotate(box._replace(offsets=(0, place)), bits, streams=streams)
    assert sum(part.box.size for part in parts) == box.size
    whole = sum(part.box.size for part in parts if part.fills_lines(bits))
    assert whole > box.size * 15 // 16


@pytest.mark.parametrize(
    ("kind", "dims", "src", "dst", "place"),
    [
        ("bf16", (384, 256), "ab", "BA16a32b2a", 8),
        ("bf16", (384, 256), "ba", "AB8b16a2b", 9),  # within a pair
        ("f32", (128, 128), "ba", "AB8b16a2b", 4),
    ],
)
def test_pairs_of_rows_in_short_runs_go_on_in_the_next_pair(
    kind: str, dims: tuple[int, ...], src: str, dst: str, place: int
) -> None:
    box, bits = _box(kind, dims, src, dst)
    box = box._replace(offsets=(0, place))
    parts = rotate(box, bits, streams=False, masked=True)
    assert sum(part.box.size for part in parts) == box.size
    line = 512 // bits
    for part in parts:
        assert part.turns == (part.box.size > 2 * line)
        assert not part.turns or part.box.offsets[1] % line == 0
    assert not rotate(box, bits, streams=False)


def test_rows_are_not_rotated_if_too_many_elements_would_be_moved_alone() -> None:
    # one row in 32, of which nothing is contiguous in src
    box, bits = _box("f32", (15, 15, 32, 15, 15, 32), "abcdef", "beafdc")
    box = box._replace(offsets=(0, 4))
    assert rotate(box, bits, streams=True)
    assert not rotate(box, bits, streams=False)


def test_boxes_that_start_a_line_or_do_not_fill_lines_are_left_alone() -> None:
    whole, bits = _box("f32", (64, 64), "ab", "ba")
    odd, _ = _box("f32", (63, 64), "ab", "ba")
    assert rotate(whole._replace(offsets=(0, 4)), bits, streams=True)
    assert not rotate(whole, bits, streams=False)
    assert not rotate(odd._replace(offsets=(0, 4)), bits, streams=True)


@pytest.mark.parametrize(
    ("kind", "dims", "dst", "place", "columns"),
    [
        ("f32", (2, 8, 56, 56), "aBcd4b", 4, 2 * 2 * 4),  # three before the lines, one after them
        ("f16", (2, 8, 56, 56), "aBcd4b", 8, 2 * 2 * 8),
        ("f32", (2, 8, 55, 55), "aBcd2b", 6, 0),  # runs that end within a line
        ("f32", (2, 8, 56, 56), "aBcd4b", 3, 0),  # within a column
        ("f32", (2, 8, 4, 4), "aBcd4b", 4, 0),  # mostly ends
    ],
)
def test_interleaved_rows_lose_their_first_columns_up_to_a_line(
    kind: str, dims: tuple[int, ...], dst: str, place: int, columns: int
) -> None:
    box, bits = _box(kind, dims, "abcd", dst)
    parts = rotate(box._replace(offsets=(0, place)), bits, streams=True)
    ends = [part for part in parts if not part.fills_lines(bits)]
    assert sum(part.box.size for part in ends) == columns * int(dst[-2])
    assert bool(parts) == bool(columns)
    assert all(part.is_interleaved(bits) for part in parts if part not in ends)


def test_runs_that_follow_each_other_are_joined_to_lines() -> None:
    for dims, dst, is_joined in (
        ((16, 12, 20, 64), "acbd", True),
        # rows of three lines and a part of one
        ((16, 12, 20, 59), "acbd", True),
        # shorter than a line; too few follow each other
        ((16, 12, 20, 15), "acbd", False),
        ((3, 2, 1, 32), "bacd", False),
        # zeros follow the data of each block
        ((16, 12, 20, 63), "abcD16d", False),
    ):
        box, bits = _box("f32", dims, "abcd", dst)
        scheduled = select_kernel(box._replace(offsets=(0, 4)))
        assert scheduled.joins_lines(bits) == is_joined, (dims, dst)
        if is_joined:
            assert scheduled.joined(bits).joins_lines(8)
            assert scheduled.joined(bits).box.size == 4 * box.size


@pytest.mark.parametrize(
    ("kind", "dims", "dst", "joins"),
    [
        ("bf16", (2, 197, 12, 64), "acbd", True),
        ("f32", (2, 197, 12, 64), "acbd", True),
        ("f32", (2, 197, 12, 16), "acbd", True),  # one line
        ("f32", (2, 197, 12, 8), "acbd", False),  # a part of it
        ("f32", (2, 197, 12, 128), "acbd", False),  # a loop over vectors
        ("f32", (2, 197, 12, 40), "acbd", False),  # a part of a line
        ("f32", (2, 512, 32, 32), "acbd", True),  # 512 pages of src in turn
    ],
)
def test_runs_of_a_few_lines_are_joined_in_the_caches_too(
    kind: str, dims: tuple[int, ...], dst: str, *, joins: bool
) -> None:
    box, bits = _box(kind, dims, "abcd", dst)
    scheduled = select_kernel(box._replace(offsets=(0, 4)))
    assert scheduled.joins_vectors(bits) == joins


def test_the_order_of_short_runs_depends_on_their_place() -> None:
    src, dst = (memory_desc((256, 256, 3, 3), "s8", f"ABcd{tag}") for tag in ("4b16a4b", "2b8a4b"))
    builder = BatchBuilder(plan_reorder(src, dst), 1, Machine(16, 64 << 20))
    builder.move_plan()
    assert builder.depends_on_place


@pytest.mark.parametrize(
    ("kind", "threads", "is_prefetched"), [("f32", 1, 1), ("f32", 16, 0), ("s8", 1, 0)]
)
def test_whole_lines_are_prefetched_unless_the_data_of_a_thread_are_near(
    kind: str, threads: int, is_prefetched: int
) -> None:
    src, dst = (memory_desc((1024, 512, 1, 1), kind, tag) for tag in ("ABcd16b16a", "abcd"))
    builder = BatchBuilder(plan_reorder(src, dst), threads, Machine(16, 64 << 20))
    (batch,) = builder.move_plan()
    head = BoxHead(*batch.program[: len(BoxHead._fields)])
    at = len(head) + head.outer * (len(LoopHead._fields) + 2)
    kernel = TransposeHead(*batch.program[at : at + len(TransposeHead._fields)])
    assert kernel.prefetches_dst == is_prefetched
