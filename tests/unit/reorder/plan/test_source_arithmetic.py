from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder
from memdesc import memory_desc
from tests.compiled import COMPILERS, address, compile_library

if TYPE_CHECKING:
    from pathlib import Path

_SHAPE = (64, 33)


def _sum_plan() -> reorder.plan.ReorderPlan:
    src, dst = (memory_desc(_SHAPE, "f32", tag) for tag in ("ab", "ba"))
    return reorder.plan_reorder(src, dst, reorder.Attr(src_scale=0.3, beta=0.1))


@pytest.mark.parametrize("flag", ["-std=gnu11", "-ffp-contract=fast"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_products_and_sums_are_rounded_one_by_one(compiler: str, flag: str, tmp_path: Path) -> None:
    plan = _sum_plan()
    rng = np.random.default_rng(0)
    src = rng.standard_normal(_SHAPE).astype(np.float32)
    moved = rng.standard_normal(_SHAPE).astype(np.float32)
    wanted = moved.copy()
    reorder.reference.execute_reference(plan.src, plan.dst, src, wanted, plan.attr)
    flags = ("-O3", "-march=native", flag)
    library = compile_library(plan.source("c"), tmp_path, (compiler, "c"), *flags)
    library.tensor_reorder(address(src), address(moved))
    assert np.array_equal(moved.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize(("src", "dst"), [("f32", "s32"), ("f64", "u64")])
def test_wide_integers_are_rounded_to_the_nearest_even_one(
    src: str, dst: str, tmp_path: Path
) -> None:
    one, other = memory_desc((8,), src), memory_desc((8,), dst)
    x = np.array([-1.5, -0.5, 0.5, 1.5, 2.5, 2.0**22 + 0.5, 7.3, 1e30], one.dtype.numpy)
    moved, wanted = np.zeros(8, other.dtype.numpy), np.zeros(8, other.dtype.numpy)
    reorder.reference.execute_reference(one, other, x, wanted)
    library = compile_library(reorder.plan_reorder(one, other).source("c"), tmp_path, ("gcc", "c"))
    library.tensor_reorder(address(x), address(moved))
    assert np.array_equal(moved, wanted)


@pytest.mark.parametrize("compiler", COMPILERS, ids="-".join)
def test_options_that_round_in_other_ways_stop_the_compilation(
    compiler: tuple[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "source"
    file.write_text(_sum_plan().source(compiler[1]), encoding="utf-8")
    if shutil.which(COMPILERS[compiler][0]) is None:
        pytest.skip(f"there is no {COMPILERS[compiler][0]}")
    command = [*COMPILERS[compiler], "-ffast-math", "-fsyntax-only", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "floats must be evaluated as IEEE 754 says" in ran.stderr


def test_a_conversion_in_c_reads_like_the_formula() -> None:
    src, dst = memory_desc((2, 3), "s8", "ab"), memory_desc((2, 3), "u8", "ab")
    attr = reorder.Attr(
        src_zero_point=3, src_scale=np.ones(3), src_scale_mask=2, beta=0.5, dst_scale=0.1
    )
    assert (
        "static uint8_t tensor_convert(int8_t src, float src_scale, uint8_t old)\n{\n"
        "    const float x = (float)src - 3.0f;\n"
        "    const volatile float scaled = src_scale * x;\n"
        "    const volatile float added = 0.5f * (float)old;\n"
        "    const float total = scaled + added;\n"
        "    const float quotient = total / 0.1f;\n"
        "    return tensor_encode_u8(quotient);\n}\n"
    ) in reorder.plan_reorder(src, dst, attr).source("c")
