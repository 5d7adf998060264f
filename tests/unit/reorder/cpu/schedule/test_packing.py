"""Elements that become wider ones, also where these start at any byte."""

from __future__ import annotations

import pytest

from memdesc import memory_desc
from reorder import plan_reorder
from reorder.cpu.schedule.select import TRANSPOSED, pack_for_kernels
from reorder.cpu.schedule.tiling import tile_boxes


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
    packed, bits, unit = pack_for_kernels(largest, src.dtype.bits)
    assert (bits, unit) == expected
    tiles = tile_boxes((packed,), bits, unit)
    transposed = [tile.is_transposed for tile in tiles if not tile.box.is_zero]
    assert all(transposed) == (dtype != "f32")


def test_runs_that_no_transposition_takes_stay_runs() -> None:
    src = memory_desc((9, 4), "s8", strides=(7, 1))
    (box,) = plan_reorder(src, memory_desc((9, 4), "s8", "ab")).boxes
    assert pack_for_kernels(box, 8) == (box, 8, 1)
    assert TRANSPOSED not in {part.choice.micro_kernel for part in tile_boxes((box,), 8)}
