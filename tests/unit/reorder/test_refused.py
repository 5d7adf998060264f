"""Calls of reorder that are refused: `refused.txt` has a line for each."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import RUNTIME, image_desc, memory_desc, runtime_desc
from reorder import logs
from reorder.assumed import read_machine
from reorder.plan import plan_runtime
from tests import refused
from tests.unit.reorder.test_api import cube

_SECTIONS = refused.sections(Path(__file__).with_name("refused.txt"))
_NAMES: dict[str, Any] = {
    "np": np,
    "as_strided": np.lib.stride_tricks.as_strided,
    "ml_dtypes": ml_dtypes,
    "reorder": reorder,
    "logs": logs,
    "read_machine": read_machine,
    "plan_runtime": plan_runtime,
    "memory_desc": memory_desc,
    "image_desc": image_desc,
    "runtime_desc": runtime_desc,
    "RUNTIME": RUNTIME,
    "cube": cube,
    "desc": memory_desc((1, 4, 3, 3), "f32", "abcd"),
    "image": image_desc((1, 6, 2, 2), "f32", "in_out_channel"),
    "SRC": runtime_desc((RUNTIME, 20, RUNTIME), "f32", "abc"),
    "record": np.zeros(4, [("a", np.float32), ("b", np.int8)]),
}


@pytest.mark.parametrize("section", _SECTIONS)
def test_a_call_is_refused_with_what_was_given_and_the_rule(section: str) -> None:
    quantized = reorder.quantize(cube(4, 6), "u8", axis=0)
    refused.check(_SECTIONS[section], _NAMES | {"quantized": quantized})
