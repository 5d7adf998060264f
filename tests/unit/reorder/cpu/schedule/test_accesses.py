"""What transpositions of two loop groups cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis.strategies import integers, sampled_from

from reorder.cpu.schedule.accesses import count_accesses

WIDTHS = sampled_from([4, 8, 16, 32, 64])


@given(integers(1, 5000), integers(1, 5000), WIDTHS)
def test_each_line_is_loaded_and_stored_at_least_once(width: int, height: int, bits: int) -> None:
    line = 512 // max(bits, 8)
    assert count_accesses(width, height, bits) >= 2 * width * height // line


@given(integers(1, 500), integers(1, 500), WIDTHS)
def test_a_tile_more_costs_more(width: int, height: int, bits: int) -> None:
    line = 512 // max(bits, 8)
    less = count_accesses(width, height, bits)
    assert count_accesses(width + 4 * line, height, bits) > less
    assert count_accesses(width, 8 * height + 64 * line, bits) > less


@pytest.mark.parametrize(
    ("width", "height", "bits", "accesses"),
    [
        # four tiles of 16 x 16: 64 loads and 64 stores
        (32, 32, 32, 128 + 2 * 16),
        # 9 columns: a tile of 8 and one of 4
        (9, 16, 32, 2 * 16 + 12 + 16),
        # rows of half a line: loads of 128 bits
        (16, 8, 32, 8 * 4 + 16 + 16),
        # one masked tile of 16 rows, whose stores end within lines
        (16, 13, 32, 16 * 4 + 16 + 16 + 16),
        # three tiles of 8 rows for 17, and stores that end within lines
        (16, 17, 32, 3 * (8 * 4 + 16) + 16 + 2 * 16),
        # rows of less than 128 bits
        (16, 2, 32, 2 * 4 + 16 + 2 * 16 + 16),
        # columns of less than 128 bits
        (3, 64, 32, 2 * (64 + 4 * 4) + 4 * 16),
        # no tiles: element by element
        (16, 3, 8, 2 * 16 * 3),
        # bytes: tiles of 64 rows and 16 columns
        (32, 64, 8, 64 * 2 + 32 + 16),
    ],
)
def test_vectors_are_counted_as_the_kernel_moves_them(
    width: int, height: int, bits: int, accesses: int
) -> None:
    assert count_accesses(width, height, bits) == accesses
