"""Sixteen threads at once get what one thread gets."""

import threading
from collections.abc import Callable
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import Extra, memory_desc
from reorder import Attr, Memory
from tests.reorders import random_bytes

_THREADS = 16
_TAGS = ("abcd", "acdb", "aBcd16b", "dcba", "aBcd8b", "ABcd4b16a4b", "bf8_xy16", "ABcd48a32b")
_SIZES = ((2, 17, 5, 4), (1, 64, 28, 28), (33, 50, 3, 3), (3, 200, 56, 40))
_PAIRS = (
    ("f32", "f32"),
    ("u8", "u8"),
    ("f32", "bf16"),
    ("f32", "s8"),
    ("s4", "s4"),
    ("f16", "f32"),
)


def _reorder(rng: Random) -> Callable[[], bytes]:
    """Return a reorder between random layouts, each time as another kind of call."""
    dims, (src_type, dst_type) = rng.choice(_SIZES), rng.choice(_PAIRS)
    src = memory_desc(dims, src_type, rng.choice(_TAGS))
    dst = memory_desc(dims, dst_type, rng.choice(_TAGS))
    attr = None
    if dst_type == "s8":
        scales = np.linspace(0.5, 2, dims[1]).astype(np.float32)
        attr = Attr(dst_scale=scales, dst_scale_mask=2)
    memory = Memory(src, random_bytes(src.nbytes, rng.randrange(9)))
    kind = rng.randrange(3)

    def run() -> bytes:
        plan = reorder.plan_reorder(src, dst, attr)
        if kind == 0:
            return reorder.reorder(memory, dst, attr=attr).data.tobytes()
        out = np.zeros(dst.nbytes, np.uint8)
        if kind == 1:
            reorder.execute(plan, memory.data, out, threads=2)
        else:
            reorder.prepare(plan)(memory.data, out)
        return out.tobytes()

    return run


def _other(rng: Random) -> Callable[[], bytes]:
    """Return a call that quantises, compensates, or saves and loads."""
    kind, data = rng.randrange(3), random_bytes(4000, rng.randrange(9)).reshape(2, 40, 50)
    desc = memory_desc((40, 50), "s8", "AB16b16a4b").with_extra(Extra(s8s8_mask=1))

    def run() -> bytes:
        if kind == 0:
            q = reorder.quantize(data[0, :, :48] / np.float32(9), "u4", axis=(0, 1), groups=(1, 16))
            return q.memory.data.tobytes() + reorder.dequantize(q).data.tobytes()
        if kind == 1:
            memory: Memory = reorder.reorder(data[0].view(np.int8), desc)
            return memory.data.tobytes()
        with TemporaryDirectory() as folder:
            reorder.save(f"{folder}/x.npz", reorder.reorder(data, "aBc8b"))
            loaded: Memory = reorder.load(f"{folder}/x.npz")
        return loaded.data.tobytes()

    return run


def run_threads(seconds: float) -> int:
    """Run random work on all threads for some seconds; return how often any was done."""
    rng = Random(0)
    works = [kind(rng) for kind in [_reorder] * 60 + [_other] * 12]
    wanted = [work() for work in works]
    counts, errors = [0] * _THREADS, list[Any]()
    end = monotonic() + seconds

    def loop(number: int) -> None:
        own = Random(number)
        try:
            while not errors and (monotonic() < end or counts[number] < 1):
                k = own.randrange(len(works))
                assert works[k]() == wanted[k], k
                counts[number] += 1
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return sum(counts)


def test_sixteen_threads_get_what_one_gets() -> None:
    assert run_threads(0.3) >= _THREADS


@pytest.mark.campaign
def test_sixteen_threads_get_what_one_gets_for_ten_minutes() -> None:
    print(f"{run_threads(590)} results of 16 threads were right")
