"""What memory refuses, before anything is written: `refused.txt` has a line for each."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import MemdescError, image_desc, memory_desc
from memdesc.record import record_desc
from tests import refused
from tests.unit.reorder.memory.producers import Exported
from tests.work import limited_memory

SRC, DST = (memory_desc((2, 3), "f32", tag) for tag in ("ab", "ba"))
FOUR = reorder.plan_reorder(memory_desc((4, 2), "s4", "ab"), memory_desc((4, 2), "s4", "ba"))
PADDED = memory_desc((2, 17, 3, 2), "f32", "nChw8c")
X = np.zeros((2, 5, 3, 2), np.float32)
ROWS = np.lib.stride_tricks.as_strided(np.zeros(3, np.float32), (2**40, 3), (0, 4))


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


def in_little_memory(call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    with limited_memory(), pytest.raises(MemoryError) as caught:
        call(*arguments, **named)
    raise caught.value


def _names() -> dict[str, Any]:
    raw, frozen = np.zeros(40, np.uint8), np.full(6, 7, np.float32)
    start = -raw.ctypes.data % 4 + 1
    frozen.flags.writeable = False
    ones = np.ones((2, 3), np.float32)
    parent = reorder.reorder(np.zeros((1, 16), np.float32), "aB8b")
    part = parent.desc.submemory((1, 3), (0, 8))
    repeated = memory_desc(ROWS.shape, "f32", strides=(0, 1))
    return globals() | {
        "floats": partial(np.full, 6, 7, np.float32),
        "frozen": frozen,
        "odd": raw[start : start + 24],
        "masked": np.ma.masked_array(ones, mask=np.eye(2, 3, dtype=np.bool_)),
        "ml_dtypes": ml_dtypes,
        "record_desc": record_desc,
        "image_desc": image_desc,
        "Exported": Exported,
        "IMAGE": image_desc(X.shape, "f32", "in_out_channel"),
        "BLOCKED": reorder.reorder(np.zeros((2, 17, 5, 4), np.float32), "nChw8c"),
        "PART": reorder.Memory(part, parent.data, zero_pad=False),
        "EMPTY": reorder.Memory(memory_desc((0, 2**40, 2**22), "f64", "abc")),
        "REPEATED": reorder.Memory(repeated, np.zeros(3, np.float32), zero_pad=False),
        "LARGE": in_little_memory,
    }


_SECTIONS = refused.sections(Path(__file__).with_name("refused.txt"))


@pytest.mark.parametrize("section", _SECTIONS)
def test_a_call_is_refused_with_what_was_given_and_the_rule(section: str) -> None:
    refused.check(_SECTIONS[section], _names())


def test_rows_that_repeat_are_read_one_by_one_and_empty_tensors_are_moved() -> None:
    names = _names()
    assert names["REPEATED"][2**40 - 1, 2] == 0
    assert names["REPEATED"].numpy().shape == ROWS.shape
    assert reorder.reorder(names["EMPTY"], "cba").nbytes == 0
