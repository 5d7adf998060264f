"""Kernels compiled ahead: later processes find them on disk."""

from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import memdesc
import reorder
import reorder.cpu.runtime.stages
from memdesc import memory_desc
from reorder.cpu.execute import PreparedReorder
from reorder.cpu.machine import Machine
from reorder.cpu.runtime.jit import whole_kernel
from reorder.cpu.schedule.select import Kernel, Part
from reorder.cpu.schedule.tile_program import StageTypes
from reorder.cpu.target import instructions
from reorder.plan.plan import ReorderPlan
from tests.programs import run_python

# Random reorders, conversions and records; each kernel that is compiled is a line of the log.
_MACHINE = Machine(1, 0, instructions=instructions())

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

# Neutral, and each of the operations that an attribute may become.
_VALUES: dict[str, tuple[Any, ...]] = {
    "src_zero_point": (None, 3),
    "src_scale": (None, 3.0),
    "beta": (None, 0.5),
    "dst_scale": (None, 2.0, 3.0, -3.0, 1e-9),
    "dst_zero_point": (None, 3),
    "saturate": (None, True),
    "f8_rounding": (None, "onednn"),
}


def test_kernels_that_move_are_compiled_for_all_widths() -> None:
    steps: list[tuple[int, int]] = []
    made = reorder.precompile.compile_kernels([], [], progress=lambda *step: steps.append(step))
    names = {kernel["kernel"] for kernel in made}
    for bits, streams in product((4, 8, 16, 32, 64), (False, True)):
        kernel = whole_kernel(Kernel(bits, streams))
        # 4-bit elements are not transposed
        assert {Part.RUNS, *([Part.TILES] if bits > 4 else [])} <= {*kernel.parts}
        assert (f"interpreter of {kernel}" in names) == (bits > 4 or not streams)
    assert {"thread pool: job", "thread pool: worker", "thread pool: region"} <= names
    assert [done for done, _ in steps] == [*range(len(steps))]
    assert {total for _, total in steps} == {len(steps)}


_MOVED = """
import numpy as np, reorder
reorder.reorder(np.zeros((3, 5), np.uint8), "ba")
print(reorder.cpu.compiled_kernels())
"""


def test_a_kernel_with_all_parts_serves_programs_that_need_few() -> None:
    reorder.precompile.compile_kernels([], [])
    (kernel,) = eval(run_python("-c", _MOVED).stdout)
    assert kernel["kernel"] == f"interpreter of {whole_kernel(Kernel(8))}"
    assert kernel["is_loaded"]


@pytest.mark.slow
def test_kernels_of_a_type_and_a_record_are_compiled() -> None:
    made = reorder.precompile.compile_kernels(["u8"], ["q8_0"])
    names = [kernel["kernel"] for kernel in made]
    assert any("records" in name and name.endswith("f32") for name in names)
    assert any("records" in name and name.endswith("f32, non-temporal stores") for name in names)
    assert {f"stage: {name}, u8, f32, f32" for name in ("add", "multiply", "accumulate")} < {*names}
    assert all(kernel["seconds"] > 0 for kernel in made)


def _recorded(monkeypatch: pytest.MonkeyPatch) -> list[StageTypes]:
    """Return a list that gets each stage that is asked for, instead of compiling it."""
    stages: list[StageTypes] = []

    def at(types: StageTypes) -> int:
        stages.append(types)
        return 0

    for module in (reorder.precompile, reorder.cpu.runtime.stages):
        monkeypatch.setattr(module, "stage_at", at)
    monkeypatch.setattr(reorder.cpu.runtime.stages, "tile_interpreter_at", lambda: 0)
    for module in (reorder.cpu.execute, reorder.cpu.runtime.stages):
        monkeypatch.setattr(module, "interpreter_at", lambda _: 0)
    monkeypatch.setattr(reorder.precompile, "this_machine", lambda: _MACHINE)
    return stages


def _schedule(plan: ReorderPlan) -> None:
    """Schedule a plan for caches of all kinds, which asks for its stages."""
    for caches in product((0, 1 << 40), repeat=2):
        machine = _MACHINE._replace(cache_nbytes=caches[0], streamed_nbytes=caches[1])
        PreparedReorder(plan, machine=machine)._schedule_at(0).batches  # noqa: B018, SLF001 - without compiling


@pytest.mark.parametrize(
    ("src", "dst"), [("s8", "f32"), ("f32", "f8_e4m3"), ("s32", "s8"), ("bf16", "u4")]
)
def test_all_operations_of_two_types_are_compiled(
    src: str, dst: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = _recorded(monkeypatch)
    reorder.precompile._compile_conversion(src, dst)  # noqa: SLF001 - without compiling
    compiled = {*stages}
    stages.clear()
    for roles in product(*_VALUES.values()):
        attr = {role: value for role, value in zip(_VALUES, roles, strict=True) if value}
        sides = memory_desc((4, 80, 7, 9), src, "nchw"), memory_desc((4, 80, 7, 9), dst, "nhwc")
        try:
            plan = reorder.plan_reorder(*sides, reorder.Attr(**attr))
        except memdesc.MemdescError:
            continue  # a zero point of floats
        _schedule(plan)
    assert len({types.operation for types in stages}) >= 6
    assert {*stages} <= compiled


@pytest.mark.parametrize(
    ("src", "dst"),
    [("f8_e4m3", "s64"), ("u64", "boolean"), ("f4_e2m1", "f64"), ("f4_e2m1", "bf16"), ("u4", "s8")],
)
def test_stages_are_compiled_for_all_layouts(
    src: str, dst: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = _recorded(monkeypatch)
    reorder.precompile._compile_conversion(src, dst)  # noqa: SLF001 - without compiling
    compiled = {*stages}
    stages.clear()
    tags, dims = ("abcd", "acdb", "bacd", "cdba", "aBcd16b", "ABcd16b16a"), (32, 48, 16, 32)
    for pair in product(tags, repeat=2):
        one, other = map(partial(memory_desc, dims), (src, dst), pair)
        _schedule(reorder.plan_reorder(one, other))
    assert {types.prefetched_bits for types in stages} == {0, memdesc.data_type(src).bits}
    assert {*stages} <= compiled


@pytest.mark.campaign
def test_later_processes_compile_nothing(tmp_path: Path) -> None:
    run_python("-m", "reorder", "doctor", "--compile", NUMBA_CACHE_DIR=str(tmp_path))
    assert run_python("-c", _LATER, NUMBA_CACHE_DIR=str(tmp_path)).stderr == ""
