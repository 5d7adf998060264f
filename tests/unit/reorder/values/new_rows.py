"""Program: two floats that the tables lack become types by a row in each, and convert as others.

It runs in a process of its own, where the rows stand before anything is compiled.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from memdesc import memory_desc
from memdesc.dtypes import add_row
from reorder import plan_reorder
from reorder.values.formats import FloatFormat, add_form, ieee
from tests.compiled import address, compile_library
from tests.conversions import run

_ROWS = {
    "f8_e3m4": (ml_dtypes.float8_e3m4, ieee(3, 4)),
    "f8_e4m3b11fnuz": (ml_dtypes.float8_e4m3b11fnuz, FloatFormat(4, 3, 11, 0x7F, 0x80, 0x80)),
}


def written_in_c(x: NDArray[Any], src: str, dst: str) -> NDArray[np.uint8]:
    """Return the bytes that a compiled source writes."""
    plan = plan_reorder(memory_desc(x.shape, src, "a"), memory_desc(x.shape, dst, "a"))
    moved = np.zeros(plan.dst.nbytes, np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        library = compile_library(plan.source("c"), Path(folder))
        library.tensor_reorder(address(x), address(moved))
    return moved


def main() -> None:
    """Add the rows, then compare with ml_dtypes."""
    for name, (kind, form) in _ROWS.items():
        add_row(name, 8, kind)
        add_form(name, form)
    every = np.arange(256, dtype=np.uint8)
    rng = np.random.default_rng(0)
    values = np.ldexp(rng.standard_normal(4000), rng.integers(-14, 8, 4000)).astype(np.float32)
    for name, (kind, _) in _ROWS.items():
        for by in ("definition", "kernels"):
            with np.errstate(all="ignore"):
                wide = every.view(kind).astype(np.float32)
                narrow = values.astype(kind).view(np.uint8)
            got = run(every, name, "f32", by=by).view(np.float32)
            np.testing.assert_array_equal(got, wide)
            assert np.array_equal(np.signbit(got), np.signbit(wide))
            assert np.array_equal(run(values.view(np.uint32), "f32", name, by=by), narrow)
            assert run(every, name, "boolean", by=by).sum() == np.count_nonzero(wide)
        in_c = written_in_c(every, name, "f32").view(np.float32)
        np.testing.assert_array_equal(in_c, every.view(kind).astype(np.float32))
        assert np.array_equal(written_in_c(values, "f32", name), values.astype(kind).view(np.uint8))
    sys.stdout.write(f"{len(_ROWS)} rows\n")


if __name__ == "__main__":
    main()
