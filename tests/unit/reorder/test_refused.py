"""Calls of reorder that are refused, before anything is written: `refused.txt` has them all."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import RUNTIME, MemdescError, image_desc, memory_desc, runtime_desc
from memdesc.record import record_desc
from reorder import Attr, logs
from reorder.assumed import read_machine
from reorder.plan import ReorderPlan, plan_runtime
from tests import refused
from tests.unit.reorder.memory.producers import Exported
from tests.unit.reorder.test_calls import cube
from tests.work import limited_memory

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


class NeedsGradient:
    """As torch's tensors that require a gradient."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        msg = "use tensor.detach().numpy()"
        raise RuntimeError(msg)


def bound(src: str, dst: str, dims: tuple[int, ...] = (4, 6), **given: Any) -> None:
    reorder.plan_reorder(memory_desc(dims, src), memory_desc(dims, dst), Attr(**given))


def both(x: Any, out: Any, plan: reorder.plan.ReorderPlan | None = None) -> None:
    """Run a plan in both ways, which must say the same, and leave what `out` holds."""
    plan = plan or reorder.plan_reorder(SRC, DST)
    before = out.tobytes() if isinstance(out, np.ndarray) else b""
    errors = []
    for run in (reorder.prepare(plan), partial(reorder.execute, plan)):
        with pytest.raises(MemdescError) as caught:
            run(x, out)
        errors.append(caught.value)
    assert str(errors[0]) == str(errors[1])
    assert not isinstance(out, np.ndarray) or out.tobytes() == before
    raise errors[0]


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


def _names() -> dict[str, Any]:
    raw, frozen = np.zeros(40, np.uint8), floats()
    start = -raw.ctypes.data % 4 + 1
    frozen.flags.writeable = False
    parent = reorder.reorder(np.zeros((1, 16), np.float32), "aB8b")
    part = parent.desc.submemory((1, 3), (0, 8))
    return globals() | {
        "ml_dtypes": ml_dtypes,
        "logs": logs,
        "read_machine": read_machine,
        "record_desc": record_desc,
        "plan_runtime": plan_runtime,
        "Exported": Exported,
        "frozen": frozen,
        "odd": raw[start : start + 24],
        "quantized": reorder.quantize(cube(4, 6), "u8", axis=0),
        "BLOCKED": reorder.reorder(np.zeros((2, 17, 5, 4), np.float32), "nChw8c"),
        "PART": reorder.Memory(part, parent.data, zero_pad=False),
    }


_SECTIONS = refused.sections(Path(__file__).with_name("refused.txt"))


@pytest.mark.parametrize("section", _SECTIONS)
def test_a_call_is_refused_with_what_was_given_and_the_rule(section: str) -> None:
    # arrays of attributes that were checked before are known by their content
    for _ in range(2 if section == "attributes" else 1):
        refused.check(_SECTIONS[section], _names())


def test_rows_that_repeat_are_read_one_by_one_and_empty_tensors_are_moved() -> None:
    assert REPEATED[2**40 - 1, 2] == 0
    assert REPEATED.numpy().shape == ROWS.shape
    assert reorder.reorder(EMPTY, "cba").nbytes == 0
