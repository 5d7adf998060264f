"""Which kernel takes which box, and how boxes are cut, shared and written down."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdesc import memory_desc
from reorder import Box, Node, plan_reorder
from reorder.cpu.kernels.register_tile import tile_heights
from reorder.cpu.schedule.program import Record, encode, fills_lines, split, tile
from reorder.cpu.schedule.select import KERNELS, RUN, STRIDED, TRANSPOSED, choose
from reorder.plan.passes import pack_elements, simplify
from tests.reorders import box_map
from tests.strategies import desc_pairs

if TYPE_CHECKING:
    from memdesc import MemoryDesc


def kernels(dims: tuple[int, ...], src: str, dst: str) -> list[str]:
    plan = plan_reorder(memory_desc(dims, "f32", src), memory_desc(dims, "f32", dst))
    return [KERNELS[choose(box).kernel] for box in plan.boxes]


@pytest.mark.parametrize(
    ("dims", "src", "dst", "expected"),
    [
        ((8, 17, 56, 56), "abcd", "aBcd16b", ["transposed", "transposed"]),
        ((8, 64, 56, 56), "aBcd8b", "aBcd16b", ["run"]),
        ((8, 64, 56, 56), "abcd", "abcd", ["run"]),
        ((8, 3, 56, 56), "abcd", "acdb", ["transposed"]),
        ((512, 512, 3, 3), "abcd", "ABcd16b16a", ["transposed"]),
        ((64, 64, 1, 1), "abcd", "ABcd8b16a2b", ["run"]),
    ],
)
def test_a_box_gets_the_kernel_that_moves_vectors(
    dims: tuple[int, ...], src: str, dst: str, expected: list[str]
) -> None:
    assert kernels(dims, src, dst) == expected


def test_strides_on_both_sides_go_element_by_element() -> None:
    src = memory_desc((4, 6), "f32", strides=(18, 3))
    assert (
        choose(plan_reorder(src, memory_desc((4, 6), "f32", strides=(2, 8))).boxes[0]).kernel
        == STRIDED
    )


def test_a_choice_prints_its_kernel_and_nests() -> None:
    box = Box((0, 0), (Node(8, 8, (16, 16)), Node(4, 4, (1, 4)), Node(4, 4, (4, 1))))
    assert str(choose(box)) == "transposed(4:4:1 | 4:1:4) in [8:16:16]"


@given(desc_pairs())
def test_a_choice_takes_every_loop_of_a_box_once(pair: tuple[MemoryDesc, MemoryDesc]) -> None:
    for box in plan_reorder(*pair).boxes:
        choice = choose(box)
        taken = [node for node in (*choice.outer, *choice.rows, *choice.columns) if node.extent > 1]
        assert sorted(taken) == sorted(node for node in box.nodes if node.extent > 1)
        if choice.kernel == TRANSPOSED:
            assert choice.columns[0].strides[0] == choice.rows[0].strides[1] == 1
        # only the last node of a nest may be ragged
        assert all(
            node.valid == node.extent
            for nest in (choice.rows, choice.columns)
            for node in nest[:-1]
        )


@given(desc_pairs())
def test_tiling_and_packing_keep_which_element_goes_where(
    pair: tuple[MemoryDesc, MemoryDesc],
) -> None:
    bits = pair[1].dtype.bits
    for box in plan_reorder(*pair).boxes:
        if box.lookups:
            continue
        wide, width = pack_elements(box, bits)
        factor = width // bits
        to, fro = box_map(tile(simplify((wide,))))
        parts = np.arange(factor)
        found = np.stack(
            [
                (to[:, None] * factor + parts).ravel(),
                np.where(fro[:, None] < 0, -1, fro[:, None] * factor + parts).ravel(),
            ]
        )
        wanted = np.stack(box_map((box,)))
        assert np.array_equal(found[:, np.argsort(found[0])], wanted[:, np.argsort(wanted[0])])


@given(desc_pairs(max_nelems=4096), st.integers(1, 9))
def test_tasks_cover_every_step_of_every_box_once_and_parts_follow_each_other(
    pair: tuple[MemoryDesc, MemoryDesc], parts: int
) -> None:
    boxes = tile(tuple(box for box in plan_reorder(*pair).boxes if not box.lookups))
    _, records = encode(boxes, pair[0].layout.last + 1, is_far=False)
    tasks, bounds = split(records, parts)
    assert bounds[0] == 0
    assert bounds[-1] == len(tasks)
    assert (np.diff(bounds) >= 0).all()
    assert len(bounds) == parts + 1
    for record in records:
        own = tasks[tasks[:, 0] == record.start]
        covered = np.zeros((record.outer, record.inner), np.int64)
        for _, first, last, low, high in own:
            covered[first:last, low:high] += 1
        assert (covered == 1).all()


def test_parts_of_a_large_box_are_nearly_equal() -> None:
    records = [Record(0, 64, 3136, 64, 64 * 3136 * 16), Record(50, 8, 3136, 64, 8 * 3136 * 16)]
    tasks, bounds = split(records, 4)
    loads = []
    for first, last in pairwise(bounds):
        rows = tasks[first:last]
        loads.append(int(sum((row[2] - row[1]) * (row[4] - row[3]) for row in rows)))
    assert max(loads) < 1.1 * min(loads)


def test_boxes_take_turns() -> None:
    records = [Record(0, 64, 256, 1, 64 * 256 * 16), Record(50, 8, 64, 1, 8 * 64 * 16)]
    tasks, _ = split(records, 1)
    starts = [int(start) for start in tasks[:, 0]]
    # what is left of the channels follows the blocks that it lies beside
    assert starts[:3] in ([0, 0, 50], [0, 50, 0])
    assert starts.count(0) > 1 < starts.count(50)
    for record in records:
        steps = [
            step for task in tasks if task[0] == record.start for step in range(task[1], task[2])
        ]
        assert steps == list(range(record.outer))


def test_small_nests_are_moved_with_the_loop_around_them() -> None:
    plan = plan_reorder(
        memory_desc((64, 64, 3, 3), "f32", "abcd"), memory_desc((64, 64, 3, 3), "f32", "aBcd16b")
    )
    _, records = encode(tile(plan.boxes), plan.src.layout.last + 1, is_far=False)
    assert sum(record.outer for record in records) * 10 < 64 * 4


def test_tiles_that_are_wider_than_their_nest_stay_in_the_caches() -> None:
    for channels, fills in ((3, False), (4, True)):
        box = Box((0, 0), (Node(channels, channels, (1, 1 << 16)), Node(64, 64, (16, 1))))
        assert choose(box).kernel == TRANSPOSED
        assert fills_lines(box, 32) is fills


def test_tiles_are_as_high_as_a_cache_line_and_as_parts_of_it() -> None:
    assert tile_heights(8) == (64, 32, 16, 8, 4)
    assert tile_heights(16) == (32, 16, 8, 4, 2)
    assert tile_heights(32) == (16, 8, 4, 2)
    assert tile_heights(64) == (8, 4, 2)


def test_pairs_and_quads_become_single_elements() -> None:
    plan = plan_reorder(
        memory_desc((64, 64, 1, 1), "bf16", "abcd"),
        memory_desc((64, 64, 1, 1), "bf16", "ABcd8b16a2b"),
    )
    box, bits = pack_elements(plan.boxes[0], 16)
    assert bits == 32
    (box,) = simplify((box,))
    assert choose(box).kernel == TRANSPOSED
    assert prod(node.extent for node in box.nodes) * 2 == 64 * 64
    nibbles = plan_reorder(memory_desc((8, 64), "u4", "ab"), memory_desc((8, 64), "u4", "aB32b"))
    box, bits = pack_elements(nibbles.boxes[0], 4)
    assert bits == 8
    assert choose(box).kernel == RUN
