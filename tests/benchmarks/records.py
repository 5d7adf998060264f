"""Times of decoding records of GGUF: `python -m tests.benchmarks.records [SIZE]`.

One thread, beside writing as many f32 into new memory with numpy, and beside `gguf.dequantize`; the
least of several runs in turn, in ms.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TYPE_CHECKING

import gguf
import numpy as np

import reorder
from memdesc import record_desc
from memdesc.record.gguf import GGUF_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable

_ROUNDS, _GGUF_ROUNDS = 9, 2


def _seconds(function: Callable[[], object]) -> float:
    start = perf_counter()
    function()
    return perf_counter() - start


def main(size: int) -> None:
    """Print a line for each type."""
    dims = (size, size)
    rng = np.random.default_rng(0)
    print(f"{'':12}{'write':>8}{'decode':>8}{'gguf':>8}   decode is")  # noqa: T201 - a command
    for name in GGUF_TYPES:
        desc = record_desc(dims, name)
        record = reorder.Record(desc, rng.integers(0, 256, desc.nbytes, np.uint8))
        kind = gguf.GGMLQuantizationType[name.removeprefix("gguf_").upper()]
        rows = record.data.reshape(size, -1)
        reorder.dequantize(record, threads=1)  # compiles
        write, decode = np.inf, np.inf
        for _ in range(_ROUNDS):
            write = min(write, _seconds(lambda: np.full(dims, 1.5, np.float32)))
            decode = min(decode, _seconds(lambda: reorder.dequantize(record, threads=1)))  # noqa: B023 - called at once
        with np.errstate(all="ignore"):
            other = min(_seconds(lambda: gguf.dequantize(rows, kind)) for _ in range(_GGUF_ROUNDS))  # noqa: B023 - likewise
        print(  # noqa: T201 - a command
            f"{name:12}{write * 1e3:8.1f}{decode * 1e3:8.1f}{other * 1e3:8.1f}   "
            f"{write / decode:.2f} of the speed of writing, {other / decode:.1f} times gguf"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4096)
