"""Kernels compiled ahead: later processes find them on disk."""

from pathlib import Path

import pytest

import reorder
from tests.programs import run_python

# Random reorders, conversions and records; each kernel that is compiled is a line of the log.
_LATER = """
import logging
logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
import numpy as np
from hypothesis import HealthCheck, given, settings
import memdesc, reorder
from tests.attributes import conversions
from tests.reorders import random_bytes

@settings(max_examples=3000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(conversions())
def convert(case):
    src, dst, attr = case
    out = np.zeros(dst.min_nbytes, np.uint8)
    reorder.execute(reorder.plan_reorder(src, dst, attr), random_bytes(src.min_nbytes, 0), out)

convert()
for nbytes in (1, 2, 4, 8):
    reorder.reorder(np.zeros((2048, 2**19 // nbytes), f"u{nbytes}"), "ba")
for name in memdesc.record.known_records():
    record = reorder.records.Record(memdesc.record.record_desc((256, 4096), name))
    for dtype in ("f32", "f16", "bf16", "f8_e4m3"):
        reorder.dequantize(record, dtype=dtype)
"""


def test_kernels_that_move_are_compiled_for_all_widths() -> None:
    steps: list[tuple[int, int]] = []
    made = reorder.precompile.compile_kernels([], [], progress=lambda *step: steps.append(step))
    names = {kernel["kernel"] for kernel in made}
    for bits in (4, 8, 16, 32, 64):
        assert f"interpreter of {bits}-bit elements" in names
        assert (f"interpreter of {bits}-bit elements, non-temporal stores" in names) == (bits > 4)
    assert {"thread pool: job", "thread pool: worker", "thread pool: region"} <= names
    assert [done for done, _ in steps] == [*range(len(steps))]
    assert {total for _, total in steps} == {len(steps)}


@pytest.mark.slow
def test_kernels_of_a_type_and_a_record_are_compiled() -> None:
    made = reorder.precompile.compile_kernels(["u8"], ["q8_0"])
    names = [kernel["kernel"] for kernel in made]
    assert any("records" in name and name.endswith("f32") for name in names)
    assert any("records" in name and name.endswith("f32, non-temporal stores") for name in names)
    assert "stage: combine, u8, f32, f32" in names
    assert all(kernel["seconds"] > 0 for kernel in made)


@pytest.mark.campaign
def test_later_processes_compile_nothing(tmp_path: Path) -> None:
    run_python("-m", "reorder", "doctor", "--compile", NUMBA_CACHE_DIR=str(tmp_path))
    assert run_python("-c", _LATER, NUMBA_CACHE_DIR=str(tmp_path)).stderr == ""
