"""Calls of reorder that are refused, before anything is written, and hints, which work.

`refused.txt` has them all. A hint in one of the modules below that no row gives fails a test.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import memdesc
import reorder
from memdesc import RUNTIME, Extra, MemdescError, image_desc, memory_desc, runtime_desc
from memdesc.record import record_desc
from reorder import Attr, logs
from reorder.assumed import read_machine
from reorder.plan import ReorderPlan, plan_runtime
from tests import hints, refused
from tests.hints import ROOT
from tests.unit.reorder.memory.producers import Copying, Exchanged, Exported, Raising
from tests.unit.reorder.test_calls import cube
from tests.work import limited_memory

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
as_strided = np.lib.stride_tricks.as_strided
desc, image = (
    memory_desc((1, 4, 3, 3), "f32", "abcd"),
    image_desc((1, 6, 2, 2), "f32", "in_out_channel"),
)
record = np.zeros(4, [("a", np.float32), ("b", np.int8)])
RUNTIME_SRC = runtime_desc((RUNTIME, 20, RUNTIME), "f32", "abc")
SRC, DST = (memory_desc((2, 3), "f32", tag) for tag in ("ab", "ba"))
PAIR = memory_desc((4, 6), "u8", "ab"), memory_desc((4, 6), "u8", "ba")
THREE = Attr(src_scale=np.arange(1, 4, dtype=np.float32), src_scale_mask=1)
FOUR = reorder.plan_reorder(memory_desc((4, 2), "s4", "ab"), memory_desc((4, 2), "s4", "ba"))
PADDED = memory_desc((2, 17, 3, 2), "f32", "nChw8c")
X = np.zeros((2, 5, 3, 2), np.float32)
IMAGE = image_desc(X.shape, "f32", "in_out_channel")
ROWS = as_strided(np.zeros(3, np.float32), (2**40, 3), (0, 4))
REPEATED = reorder.Memory(
    memory_desc(ROWS.shape, "f32", strides=(0, 1)), np.zeros(3, np.float32), zero_pad=False
)
EMPTY = reorder.Memory(memory_desc((0, 2**40, 2**22), "f64", "abc"))
floats = partial(np.full, 6, 7, np.float32)
masked = np.ma.masked_array(np.ones((2, 3), np.float32), mask=np.eye(2, 3, dtype=np.bool_))


CUBE = np.arange(24, dtype=np.float32).reshape(1, 4, 3, 2)
PLAN = reorder.plan_reorder(SRC, DST)
HALVED = reorder.plan_reorder(SRC, SRC.with_dtype("f16"))
SIX, SIGNED = np.zeros((2, 3), np.float32), np.arange(-4, 4, dtype=np.float32).reshape(2, 4)
S4, S8 = memory_desc((2, 4), "s4", "ab"), memory_desc((4, 4), "s8", "ab")
SUMS = S8.with_extra(Extra(s8s8_mask=1))
TILED = memory_desc((3,), "u8", "A4a")
STEPPED = np.zeros((2, 6), np.float32)[:, ::2]
RUNTIME_ROWS = runtime_desc((RUNTIME, 3), "f32", "ab")
RECORD = reorder.records.Record(record_desc((2, 32), "q4_0"))
SEVERAL = reorder.records.Record(record_desc((2, 4), "fp8_channel"))
SCALE, ONES = np.ones((2, 1), np.float32), np.ones((2, 1), np.float16)
STEPPED_BYTES = np.zeros(72, np.uint8)[::2]
BLOCKS, SHARED = np.zeros((2, 18), np.uint8), np.zeros(256, np.uint8)
DATA = ROOT / "tests/data/layers"


class Nested:
    """An object with the array protocol alone."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(CUBE, dtype, copy=copy)


class NeedsGradient:
    """As torch's tensors that require a gradient."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        msg = "use tensor.detach().numpy()"
        raise RuntimeError(msg)


def bound(src: str, dst: str, dims: tuple[int, ...] = (4, 6), **given: Any) -> None:
    reorder.plan_reorder(memory_desc(dims, src), memory_desc(dims, dst), Attr(**given))


def both(x: Any, out: Any, plan: reorder.plan.ReorderPlan | None = None) -> None:
    """Run a plan in both ways, which must say the same, and leave what `out` holds."""
    plan = plan or PLAN
    before = out.tobytes() if isinstance(out, np.ndarray) else b""
    errors = []
    for run in (reorder.prepare(plan), partial(reorder.execute, plan)):
        with pytest.raises(MemdescError) as caught:
            run(x, out)
        errors.append(caught.value)
    assert str(errors[0]) == str(errors[1])
    assert not isinstance(out, np.ndarray) or out.tobytes() == before
    raise errors[0]


def run(plan: ReorderPlan, x: object, out: object) -> None:
    reorder.execute(plan, x, out)


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


def planned(*arguments: Any) -> None:
    """Make a plan in both ways, which must say the same."""
    with pytest.raises(MemdescError) as caught:
        ReorderPlan(*arguments)
    with pytest.raises(type(caught.value), match=f"^{re.escape(str(caught.value))}$"):
        reorder.plan_reorder(*arguments)
    raise caught.value


def in_little_memory(call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    with limited_memory(), pytest.raises(MemoryError) as caught:
        call(*arguments, **named)
    raise caught.value


def _misaligned() -> Any:
    raw = np.zeros(40, np.uint8)
    start = -raw.ctypes.data % 4 + 1
    return raw[start : start + 24]


odd, frozen = _misaligned(), read_only(floats())
quantized, WHOLE = reorder.quantize(cube(4, 6), "u8", axis=0), reorder.quantize(SIGNED, "s8")
BLOCKED = reorder.reorder(np.zeros((2, 17, 5, 4), np.float32), "nChw8c")
_PARENT = reorder.reorder(np.zeros((1, 16), np.float32), "aB8b")
PART = reorder.Memory(_PARENT.desc.submemory((1, 3), (0, 8)), _PARENT.data, zero_pad=False)
LOG = logs.read_verbose(DATA / "torch-2.13.log")
COPYING, LEARNING, NEGATED = Copying(SIX), Exchanged(SIX.copy()), Exchanged(SIX, is_neg=1)
LEARNING.requires_grad = True
LEARNING.detach = lambda: Exchanged(SIX.copy())  # type: ignore[attr-defined] # what torch has
RAISING, HIDING = Raising(OSError()), Raising(OSError(), "device")
NOWHERE = Exported(SIX, "cpu")
# what rows use too
_IMPORTED = memdesc, ml_dtypes, plan_runtime, read_machine

# not hints, and hints that other tests follow: of a device
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
    "reorder its chunks with reorder.dask.reorder(x, dst)",
)


def test_a_call_is_refused_with_what_was_given_and_the_rule_and_each_hint_works() -> None:
    messages: list[str] = []
    for section, lines in refused.sections(Path(__file__).with_name("refused.txt")).items():
        # arrays of attributes that were checked before are known by their content
        for _ in range(2 if section == "attributes" else 1):
            messages += refused.check(lines, globals())
    assert hints.without_row(MODULES, messages, _REASONS) == []


def test_rows_that_repeat_are_read_one_by_one_and_empty_tensors_are_moved() -> None:
    assert REPEATED[2**40 - 1, 2] == 0
    assert REPEATED.numpy().shape == ROWS.shape
    assert reorder.reorder(EMPTY, "cba").nbytes == 0
