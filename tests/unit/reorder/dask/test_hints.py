"""Every hint of reorder.dask works, beside those to `rechunk`, which test_arrays.py has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memdesc import Extra, memory_desc
from tests import hints
from tests.hints import Row

pytestmark = pytest.mark.peers

da = pytest.importorskip("dask.array", reason="dask is not installed")
rd = pytest.importorskip("reorder.dask")

CUT = da.ones((4, 6), chunks=(4, 3), dtype="float32")
WEIGHTS = memory_desc((4, 6), "s8", "ab")
CODES = da.ones((4, 3), dtype="uint8", chunks=4)


def unknown() -> Any:
    """Return an array with chunks of sizes that are not known yet."""
    return da.arange(8, dtype="float32", chunks=4)[da.ones(8, dtype=bool, chunks=4)]


def moved(x: Any, dst: object, **options: object) -> object:
    return rd.reorder(x, dst, **options).compute(scheduler="sync")


ROWS = (
    Row(
        "see dask.array.from_array",
        lambda: moved(np.ones((4, 6)), "ba"),
        lambda: moved(da.from_array(np.ones((4, 6))), "ba"),
    ),
    Row(
        "call x.compute_chunk_sizes() first",
        lambda: moved(unknown(), "a"),
        lambda: moved(unknown().compute_chunk_sizes(), "a"),
    ),
    Row(
        "leave it out",
        lambda: moved(CUT, WEIGHTS.with_extra(Extra(s8s8_mask=1)), dtype="s8"),
        lambda: moved(CUT, WEIGHTS, dtype="s8"),
    ),
    Row(
        "use a layout with an even number, or dtype='u8'",
        lambda: moved(CODES, "ab", dtype="u4"),
        lambda: (moved(CODES, "ba", dtype="u4"), moved(CODES, "ab", dtype="u8")),
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.hint)
def test_a_hint_is_given_and_works(row: Row) -> None:
    hints.check(row)


def test_no_hint_is_without_a_row() -> None:
    assert hints.without_row(["reorder/dask.py"], map(hints.message, ROWS)) == []
