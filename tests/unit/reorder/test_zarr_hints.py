"""Every hint of the codec of zarr works: an array that is refused, why, and one that is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import hints
from tests.unit.reorder.zarr_arrays import create

pytestmark = pytest.mark.peers

zarr = pytest.importorskip("zarr", minversion="3.1", reason="zarr is not installed")

HALF = np.full((4, 4), 0.5, np.float32)
CODES = np.ones((64, 64), np.uint8)


def written(x: Any, layout: str = "ba", dtype: str | None = None) -> bool:
    """Make an array, and return whether what is read is what was written."""
    done = (create({}, x, layout, dtype)[...] == x).all()
    assert done
    return bool(done)


ROWS = hints.rows("""
    make the array of int64, and write .view('i8')
        written(np.ones((4, 4), "M8[s]"))
        written(np.ones((4, 4), "M8[s]").view("i8"))
    make the array of int64, and write .view('i8')
        written(np.ones((4, 4), "m8[s]"))
        written(np.ones((4, 4), "m8[s]").view("i8"))
    store its .real and its .imag in two arrays
        written(np.ones((4, 4), "c8"))
        written(np.ones((4, 4), "c8").real)
        written(np.ones((4, 4), "c8").imag)
    make the array of unsigned integers, such as uint32, and write .view('u4')
        written(np.zeros((4, 4), "V4"))
        written(np.zeros((4, 4), "V4").view("u4"))
    make the array of numbers
        written(np.ones((4, 4), "S4"))
        written(np.ones((4, 4), "S4").astype("u4"))
    round or scale them first, or leave dtype out
        written(HALF, dtype="s8")
        written(HALF.round(), dtype="s8")
        written(HALF * 2, dtype="s8")
        written(HALF)
    leave dtype='u8' out
        written(CODES, "q4_0.qs", "u8")
        written(CODES, "q4_0.qs")
    give each of its fields an array, as q4_0.d, q4_0.qs
        written(CODES, "q4_0")
        written(np.ones((4, 2), np.float16), "q4_0.d")
        written(CODES, "q4_0.qs")
""")


def test_every_hint_is_given_and_works() -> None:
    hints.check(ROWS, globals(), ["reorder/zarr.py"])
