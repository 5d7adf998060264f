"""Which micro-kernel takes which box."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from memdesc import memory_desc
from reorder import plan_reorder
from reorder.cpu.schedule.select import (
    MICRO_KERNELS,
    RUN,
    STRIDED,
    TRANSPOSED,
    pack_for_kernels,
    select,
)
from reorder.cpu.schedule.tiling import tile_boxes
from reorder.plan.passes import pack_elements, simplify
from tests.strategies import desc_pairs

if TYPE_CHECKING:
    from memdesc import MemoryDesc


def kernels(dims: tuple[int, ...], src: str, dst: str) -> list[str]:
    plan = plan_reorder(memory_desc(dims, "f32", src), memory_desc(dims, "f32", dst))
    return [MICRO_KERNELS[select(box).micro_kernel] for box in plan.boxes]


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
        select(plan_reorder(src, memory_desc((4, 6), "f32", strides=(2, 8))).boxes[0]).micro_kernel
        == STRIDED
    )


@given(desc_pairs())
def test_a_choice_takes_every_loop_of_a_box_once(pair: tuple[MemoryDesc, MemoryDesc]) -> None:
    for box in plan_reorder(*pair).boxes:
        choice = select(box)
        taken = [node for node in (*choice.outer, *choice.rows, *choice.columns) if node.extent > 1]
        assert sorted(taken) == sorted(node for node in box.nodes if node.extent > 1)
        if choice.micro_kernel == TRANSPOSED:
            assert choice.columns[0].strides[0] == choice.rows[0].strides[1] == 1
        # only the outermost loop of a group may hold padding
        assert all(
            node.valid == node.extent
            for nest in (choice.rows, choice.columns)
            for node in nest[:-1]
        )


def test_pairs_and_quads_become_single_elements() -> None:
    plan = plan_reorder(
        memory_desc((64, 64, 1, 1), "bf16", "abcd"),
        memory_desc((64, 64, 1, 1), "bf16", "ABcd8b16a2b"),
    )
    box, bits = pack_elements(plan.boxes[0], 16)
    assert bits == 32
    (box,) = simplify((box,))
    assert select(box).micro_kernel == TRANSPOSED
    assert prod(node.extent for node in box.nodes) * 2 == 64 * 64
    nibbles = plan_reorder(memory_desc((8, 64), "u4", "ab"), memory_desc((8, 64), "u4", "aB32b"))
    box, bits = pack_elements(nibbles.boxes[0], 4)
    assert bits == 8
    assert select(box).micro_kernel == RUN


@pytest.mark.parametrize(
    ("dims", "tags", "dtype", "expected"),
    [
        # rows of dim b: of a multiple of four bytes, of an even number, of an odd one
        ((64, 32, 3, 3), ("cdab", "ABcd4b16a4b"), "s8", (32, 1)),
        ((64, 34, 3, 3), ("cdab", "ABcd4b16a4b"), "s8", (32, 2)),
        ((64, 35, 3, 3), ("cdab", "ABcd4b16a4b"), "s8", (32, 4)),
        ((64, 35, 3, 3), ("cdab", "ABcd8b16a2b"), "bf16", (32, 2)),
        ((32, 35), ("AB8a8b", "ab"), "s8", (64, 8)),
        ((32, 35), ("AB8a8b", "ab"), "f32", (32, 1)),
    ],
)
def test_short_runs_are_wide_elements_wherever_they_start(
    dims: tuple[int, ...], tags: tuple[str, str], dtype: str, expected: tuple[int, int]
) -> None:
    src, dst = (memory_desc(dims, dtype, tag) for tag in tags)
    largest = max(plan_reorder(src, dst).boxes, key=lambda box: box.size)
    packed, bits, stride = pack_for_kernels(largest, src.dtype.bits)
    assert (bits, stride) == expected
    tiles = tile_boxes((packed,), bits, stride)
    transposed = [tile.is_transposed for tile in tiles if not tile.box.is_zero]
    assert all(transposed) == (dtype != "f32")


def test_runs_that_no_transposition_takes_stay_runs() -> None:
    src = memory_desc((9, 4), "s8", strides=(7, 1))
    (box,) = plan_reorder(src, memory_desc((9, 4), "s8", "ab")).boxes
    assert pack_for_kernels(box, 8) == (box, 8, 1)
    assert TRANSPOSED not in {part.micro_kernel for part in tile_boxes((box,), 8)}
