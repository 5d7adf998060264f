"""Two to four rows interleaved, or split: by non-temporal stores, and in short blocks."""

import numpy as np
import pytest

from memdesc import memory_desc
from reorder import plan_reorder
from tests.reorders import beyond_caches, expect, forced_parts, move_guarded, random_bytes


@pytest.mark.parametrize("dtype", ["s8", "bf16", "f32", "f64"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_rows_that_are_interleaved_or_split_beyond_the_caches_are_right(
    dtype: str, count: int
) -> None:
    for extent in (4, 16, 20, 36, 64, 132, 1040, 4112):
        layouts = [memory_desc((3, count, extent), dtype, tag) for tag in ("abc", "acb")]
        for src, dst in (layouts, layouts[::-1]):
            source, before = random_bytes(src.nbytes, 1), random_bytes(dst.nbytes, 2)
            for threads in (1, 3):
                with beyond_caches(), forced_parts(threads):
                    moved = move_guarded(plan_reorder(src, dst), source, before, at_end=threads > 1)
                assert np.array_equal(moved, expect(src, dst, source, before)), (src, threads)


@pytest.mark.parametrize(
    ("dtype", "plain", "blocked"),
    [
        ("bf16", "cdba", "ABcd8b8a2b"),
        ("s8", "cdba", "ABcd2b8a4b"),
        ("f32", "dcba", "ABcd8b4a2b"),
        ("f64", "cdba", "ABcd4b2a2b"),
    ],
)
def test_rows_of_short_blocks_are_interleaved(dtype: str, plain: str, blocked: str) -> None:
    for at_end, dims in ((False, (48, 24, 2, 3)), (True, (44, 23, 1, 2))):
        src, dst = (memory_desc(dims, dtype, tag) for tag in (plain, blocked))
        source, before = random_bytes(src.nbytes, 1), random_bytes(dst.nbytes, 2)
        moved = move_guarded(plan_reorder(src, dst), source, before, at_end=at_end)
        assert np.array_equal(moved, expect(src, dst, source, before)), dims
