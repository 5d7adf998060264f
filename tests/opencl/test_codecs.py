"""The codecs in OpenCL and those in C, printed from the same expressions, agree on every code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from memdesc import DATA_TYPES, memory_desc
from reorder import opencl, plan_reorder
from tests.compiled import address, compile_library
from tests.conversions import every_code

if TYPE_CHECKING:
    from pathlib import Path

    from tests.opencl.runtimes import Runtime

_NARROW = [name for name, dtype in DATA_TYPES.items() if dtype.bits in {8, 16}]
# codes are decoded into f32, and those of both formats of 16 bits are encoded
_PAIRS = [*((name, "f32") for name in _NARROW)]
_PAIRS += [(wide, name) for wide in _NARROW for name in ("s4", "u4") if name != wide]
_PAIRS += [(wide, name) for wide in ("f16", "bf16") for name in _NARROW if name != wide]


@pytest.mark.parametrize(
    "pairs",
    [
        [("f8_e4m3fnuz", "f32"), ("bf16", "f8_e5m2"), ("f16", "s8"), ("bf16", "u4")],
        pytest.param(_PAIRS, marks=pytest.mark.campaign),
    ],
    ids=["three", "all"],
)
def test_codes_are_the_same_in_c(
    pairs: list[tuple[str, str]], first: Runtime, tmp_path: Path
) -> None:
    plans = []
    for src, dst in pairs:
        codes = every_code(src)
        one, other = (memory_desc((codes.size,), name, "a") for name in (src, dst))
        plans.append((plan_reorder(one, other), codes))
    text = "\n".join(plan.source("c", f"case{k}") for k, (plan, _) in enumerate(plans))
    library = compile_library(text, tmp_path)
    for k, (plan, codes) in enumerate(plans):
        in_c = np.zeros(plan.dst.nbytes, np.uint8)
        getattr(library, f"case{k}_reorder")(address(codes), address(in_c))
        buffer = first.buffer(np.full(plan.dst.nbytes, 0xA5, np.uint8))
        event = opencl.enqueue_reorder(first.queue, first.buffer(codes), plan.src, buffer, plan.dst)
        assert first.read(buffer, event).tobytes() == in_c.tobytes(), pairs[k]
