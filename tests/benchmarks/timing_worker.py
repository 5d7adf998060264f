"""Time reorders of one checkout on request: the process that `compare` starts for each of two.

It runs as a file, with the checkout first in PYTHONPATH, and uses public names only, so that it
works with older and newer code alike. One JSON object a line, request and answer in turn:

    {"prepare": CASE, "threads": 2, "place": 16}  ->  {"seconds": of one call}
    {"calls": 100, "warm": 3}  ->  {"seconds": of one call, the mean over the calls}

A request that fails is answered with {"error": TEXT}. The first line of the worker says where it
imported the library from.
"""

import json
import sys
from time import perf_counter
from typing import Any

import numpy as np

import memdesc
import reorder

# bytes of random data; larger buffers repeat them
_RANDOM_NBYTES = 1 << 20
_WARM_CALLS = 3
_PAGE_NBYTES = 4096


def _describe(side: dict[str, Any]) -> memdesc.MemoryDesc:
    """Return a descriptor from the fields of another."""
    desc = memdesc.memory_desc(
        tuple(side["dims"]),
        side["dtype"],
        strides=tuple(side["strides"]),
        inner_blks=tuple(side["inner_blks"]),
        inner_idxs=tuple(side["inner_idxs"]),
    )
    if desc.nbytes != side["nbytes"]:
        msg = f"{side} has {desc.nbytes} bytes here"
        raise ValueError(msg)
    return desc


def _zeros(nbytes: int, place: int = 16) -> Any:
    """Return zeros that start `place` bytes into a page: 16 in numpy's large arrays.

    Numpy may put later arrays anywhere; both checkouts must have theirs at the same places.
    """
    space = np.zeros(nbytes + 2 * _PAGE_NBYTES, np.uint8)
    start = -space.ctypes.data % _PAGE_NBYTES + place
    return space[start : start + nbytes]


def _fill(desc: memdesc.MemoryDesc, *, as_values: bool) -> Any:
    """Return the bytes of a source: small integers, or normal floats where it is converted.

    Arithmetic is slow on denormal numbers, of which random bytes have more than tensors do.
    """
    rng = np.random.default_rng(0)
    data = _zeros(desc.nbytes)
    kind = np.dtype(desc.dtype.numpy)
    if as_values and not desc.dtype.is_packed and kind.kind not in "iu":
        block = rng.standard_normal(_RANDOM_NBYTES // 8, np.float32).astype(kind).view(np.uint8)
    else:
        block = rng.integers(0, 63, _RANDOM_NBYTES, np.uint8)
    data[...] = np.resize(block, data.size)
    return data


class _Prepared:
    """The prepared reorder and its buffers."""

    def __init__(self, case: dict[str, Any], threads: int, place: int) -> None:
        src, dst = _describe(case["src"]), _describe(case["dst"])
        given: dict[str, Any] = {
            name: np.array(value, np.float32 if name.endswith("scale") else np.int32)
            if isinstance(value, list)
            else value
            for name, value in case["attr"].items()
        }
        converts = bool(given) or src.dtype != dst.dtype
        self.src, self.dst = _fill(src, as_values=converts), _zeros(dst.nbytes, place)
        plan = reorder.plan_reorder(src, dst, reorder.Attr(**given) if given else None)
        self.run = reorder.prepare(plan, threads=threads)

    def time(self, calls: int, warm: int) -> float:
        run, src, dst = self.run, self.src, self.dst
        for _ in range(warm):
            run(src, dst)
        start = perf_counter()
        for _ in range(calls):
            run(src, dst)
        return (perf_counter() - start) / calls


def _answer(fact: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


def _main() -> None:
    _answer({"memdesc": memdesc.__file__, "reorder": reorder.__file__})
    prepared: _Prepared | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "prepare" in request:
                prepared = None  # its buffers are released before the next ones are allocated
                prepared = _Prepared(request["prepare"], request["threads"], request["place"])
                first = prepared.time(1, _WARM_CALLS)
                _answer({"seconds": min(first, prepared.time(1, 0))})
            elif prepared is not None:
                _answer({"seconds": prepared.time(request["calls"], request["warm"])})
        except (ValueError, TypeError, MemoryError) as error:
            _answer({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    _main()
