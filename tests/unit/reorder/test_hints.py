"""Every hint of reorder works: `hints.txt` has a call that fails, and calls that follow its hint.

A hint in one of the modules below that no row covers fails a test.
"""

from __future__ import annotations

from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import memdesc
import reorder
from memdesc import memory_desc
from reorder import Memory, logs, plan_reorder
from tests import hints
from tests.hints import ROOT
from tests.unit.reorder.memory.producers import Copying

# covered beside the command line, devices, Dask, Zarr and files; not covered: rules of conversions
_OTHERS = (
    "reorder/bench/",
    "reorder/cli/",
    "reorder/dask.py",
    "reorder/opencl/",
    "reorder/checkpoints/",
    "reorder/zarr.py",
)
MODULES = [
    module
    for path in sorted((ROOT / "reorder").rglob("*.py"))
    if not (module := path.relative_to(ROOT).as_posix()).startswith(_OTHERS)
]
# not typed: most calls are mistakes that a type checker would find
md: Any = memdesc
r: Any = reorder

X = np.arange(24, dtype=np.float32).reshape(1, 4, 3, 2)
D = memory_desc((2, 3), "f32", "ab")
PADDED = memory_desc((3,), "u8", "A4a")
PLAN = plan_reorder(D, "ba")
SIX = np.zeros((2, 3), np.float32)
COPYING = Copying(SIX)
S4 = memory_desc((2, 4), "s4", "ab")


def run(plan: reorder.plan.ReorderPlan, x: object, out: object) -> object:
    reorder.execute(plan, x, out)
    return out


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


@cache
def quantized() -> Any:
    return reorder.quantize(SIGNED, "s8")


class Tensor:
    """A tensor with what torch's have, over an array."""

    def __init__(
        self,
        array: Any,
        *,
        requires_grad: bool = False,
        negated: bool = False,
        device: object = (1, 0),
    ) -> None:
        self.array, self.device = array, device
        self.requires_grad, self.negated = requires_grad, negated

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.device or self.array.device_of_nothing

    def is_neg(self) -> bool:
        return self.negated

    def resolve_neg(self) -> Tensor:
        return Tensor(-self.array)

    def detach(self) -> Tensor:
        return Tensor(self.array)


class Nested:
    """An object with the array protocol alone."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(X, dtype, copy=copy)


_MISALIGNED = np.zeros(25, np.uint8)[1:]
_STEPPED = np.zeros((2, 6), np.float32)[:, ::2]
_ODD = np.zeros(5, np.dtype([("a", "u1"), ("b", "<f4")]))["b"]
_REPEATED = memory_desc((4, 3), "u8", strides=(0, 1))

SIGNED = np.arange(-4, 4, dtype=np.float32).reshape(2, 4)
RECORD = reorder.records.Record(md.record.record_desc((2, 32), "q4_0"))
SEVERAL = reorder.records.Record(md.record.record_desc((2, 4), "fp8_channel"))
SCALE = np.ones((2, 1), np.float32)
ONES = np.ones((2, 1), np.float16)
STEPPED_BYTES = np.zeros(72, np.uint8)[::2]
BLOCKS = np.zeros((2, 18), np.uint8)
SHARED = np.zeros(256, np.uint8)
RUNTIME = md.runtime_desc((md.RUNTIME, 3), "f32", "ab")
HUGE = Memory(memory_desc((0, 2**62), "f64", "ab"))
MASKED = np.ma.masked_less(SIGNED, 0)
S8 = memory_desc((4, 4), "s8", "ab")
SUMS = S8.with_extra(md.Extra(s8s8_mask=1))
HALVED = plan_reorder(D, D.with_dtype("f16"))
DATA = ROOT / "tests/data/layers"
LOG = logs.read_verbose(DATA / "torch-2.13.log")

ROWS = hints.rows(Path(__file__).with_name("hints.txt").read_text("utf-8"))


def test_padding_over_broadcast_data_is_left_alone_if_the_caller_says_so() -> None:
    desc = copy(_REPEATED)
    assert Memory(desc, bytes(3), zero_pad=False).desc == desc


# not hints, and hints that other tests follow: of a device, of padding over broadcast data
_REASONS = (
    "needs a copy",
    "several indices would write one element",
    "may write one element of",
    "give these bytes",
    "the size and zero padding leave",
    "after the event instead of",
    "does not give its dims",
    "the line does not give",
    "known when the kernel runs: use when()",  # in kernels, not in calls
    "leave cpu= out",  # on machines without a processor to assume
    "runs on a device; leave threads out",
    "pass queue=",
    "so its padding overlaps its data; pass zero_pad=False",
    "reorder its chunks with reorder.dask.reorder(x, dst)",
)


def test_every_hint_is_given_and_works() -> None:
    hints.check(ROWS, globals(), MODULES, _REASONS)
