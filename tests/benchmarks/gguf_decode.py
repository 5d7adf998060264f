"""Time decoding of every type of GGUF, compared with gguf and the torch functions of diffusers.

python -m tests.benchmarks.gguf_decode [--size 4096] [--threads 1,2] [--types Q4_K,IQ2_XXS] [--cpu]

Bytes to f32, in ms: the least of several runs in turns; with `--cpu` the processor time of all
threads, for machines where others run as well. `memdesc` returns a new result, as all others do, in
memory of one that was freed; `out` writes into memory of the caller. `gguf` is `gguf.dequantize`,
which transformers 5 calls and then copies (`modeling_gguf_pytorch_utils`): the column
`transformers`. gguf-py uses one thread, torch as many as given. `torch` is what diffusers reads
GGUF with, if it is installed (0.42: 13 types, `quantizers/gguf/utils.py`), in f32.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

import reorder
from memdesc.record.gguf import GGUF_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_RUNS, _SLOW_RUNS = 15, 4
# seconds from which a function is called a few times only
_SLOW = 0.05
_PLAIN = ("f32", "f16", "bf16")


def _least(calls: Sequence[Callable[[], Any]], clock: Callable[[], float]) -> list[float]:
    """Return the least seconds of functions that are called in turns."""
    least = []
    for call in calls:
        start = clock()
        call()
        least.append(clock() - start)
    runs = [_SLOW_RUNS if taken > _SLOW else _RUNS for taken in least]
    for k in range(max(runs)):
        for place, call in enumerate(calls):
            if k < runs[place]:
                start = clock()
                call()
                least[place] = min(least[place], clock() - start)
    return least


def _torch_function(torch: Any, data: np.ndarray, kind: Any) -> Callable[[], Any] | None:
    """Return the call of diffusers for some blocks, if it has one."""
    try:
        functions = import_module("diffusers.quantizers.gguf.utils").dequantize_functions
    except ImportError:
        return None
    if kind not in functions:
        return None
    block, nbytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = torch.from_numpy(data).reshape(-1, nbytes)
    return lambda: functions[kind](blocks, block, nbytes, torch.float32)


def _measure(
    size: int, kind: Any, threads: int, torch: Any, clock: Callable[[], float]
) -> list[float]:
    """Return the ms of ours, ours with `out`, gguf's, transformers' and, if any, diffusers' way."""
    block, nbytes = gguf.GGML_QUANT_SIZES[kind]
    # finite scales: numpy takes longer for others
    data = np.random.default_rng(0).integers(0, 60, (size, size // block * nbytes), np.uint8)
    tensor, out = torch.from_numpy(data), torch.zeros(size, size)
    calls: list[Callable[[], Any]] = [
        lambda: reorder.records.dequantize_gguf(tensor, kind, threads=threads),
        lambda: reorder.records.dequantize_gguf(tensor, kind, out, threads=threads),
        lambda: gguf.dequantize(data, kind),
        lambda: torch.from_numpy(np.copy(gguf.dequantize(data, kind))),
    ]
    if not np.array_equal(calls[0]().numpy(), calls[2](), equal_nan=True):
        msg = f"{kind.name} differs from gguf"
        raise RuntimeError(msg)
    theirs = _torch_function(torch, data, kind)
    return [1e3 * seconds for seconds in _least([*calls, theirs] if theirs else calls, clock)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of the types."""
    torch = import_module("torch")
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", type=int, default=4096, help="rows and columns")
    parser.add_argument("--threads", default=f"1,{len(os.sched_getaffinity(0))}")
    names = [name.removeprefix("gguf_").upper() for name in (*_PLAIN, *GGUF_TYPES)]
    decoded = [name for name in names if name not in {"Q1_0", "Q2_0"}]
    parser.add_argument("--types", default=",".join(decoded))
    parser.add_argument("--cpu", action="store_true", help="processor time instead of wall time")
    options = parser.parse_args(arguments)
    clock = process_time if options.cpu else perf_counter
    heads = ["type", "threads", "memdesc", "out", "gguf", "transformers", "torch"]
    heads += ["times gguf", "out, times gguf", "times transformers", "times torch"]
    sys.stdout.write(f"| {' | '.join(heads)} |\n{'| --- ' * len(heads)}|\n")
    for threads in sorted({int(count) for count in options.threads.split(",")}):
        torch.set_num_threads(threads)
        for name in options.types.split(","):
            kind = gguf.GGMLQuantizationType[name]
            ours, into, theirs, copied, *more = _measure(options.size, kind, threads, torch, clock)
            cells = [f"{ms:.2f}" for ms in (ours, into, theirs, copied, *more)]
            cells += [] if more else ["-"]
            cells += [f"{theirs / ours:.1f}", f"{theirs / into:.1f}", f"{copied / ours:.1f}"]
            cells += [f"{more[0] / ours:.1f}" if more else "-"]
            sys.stdout.write(f"| {name} | {threads} | {' | '.join(cells)} |\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
