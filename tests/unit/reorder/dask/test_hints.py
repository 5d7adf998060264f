"""Every hint of reorder.dask works, beside those to `rechunk`, which test_arrays.py has."""

from __future__ import annotations

from typing import Any

import pytest

from memdesc import memory_desc
from tests import hints

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


ROWS = hints.rows("""
    see dask.array.from_array
        moved(np.ones((4, 6)), "ba")
        moved(da.from_array(np.ones((4, 6))), "ba")
    call x.compute_chunk_sizes() first
        moved(unknown(), "a")
        moved(unknown().compute_chunk_sizes(), "a")
    leave it out
        moved(CUT, WEIGHTS.with_extra(md.Extra(s8s8_mask=1)), dtype="s8")
        moved(CUT, WEIGHTS, dtype="s8")
    use a layout with an even number, or dtype='u8'
        moved(CODES, "ab", dtype="u4")
        moved(CODES, "ba", dtype="u4")
        moved(CODES, "ab", dtype="u8")
""")


def test_every_hint_is_given_and_works() -> None:
    hints.check(ROWS, globals(), ["reorder/dask.py"])
