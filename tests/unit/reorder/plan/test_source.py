"""A plan as source code: its text, and what compiled code writes where compilers could differ."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc import Extra, MemdescError, memory_desc
from reorder import Attr
from tests.compiled import COMPILERS, address, compile_library

_SRC = memory_desc((2, 17, 5, 4), "f32", "nchw")
_PLAN = reorder.plan_reorder(_SRC, memory_desc(_SRC.dims, "f32", "nChw16c"))
_SHAPE = (64, 33)


def check(
    plan: reorder.plan.ReorderPlan,
    x: NDArray[Any],
    folder: Path,
    compiler: tuple[str, str] = ("gcc", "c"),
    *flags: str,
) -> None:
    """Compile the source of a plan, and compare what it writes with the definition."""
    floats = np.random.default_rng(1).standard_normal(-(-plan.dst.nbytes // 4)).astype(np.float32)
    wanted = floats.view(np.uint8)
    moved = wanted.copy()
    reorder.reference.execute_reference(plan.src, plan.dst, x, wanted, plan.attr)
    library = compile_library(plan.source(compiler[1]), folder, compiler, *flags)
    library.tensor_reorder(address(x), address(moved))
    assert moved.tobytes() == wanted.tobytes()


def sum_plan() -> reorder.plan.ReorderPlan:
    src, dst = (memory_desc(_SHAPE, "f32", tag) for tag in ("ab", "ba"))
    return reorder.plan_reorder(src, dst, Attr(src_scale=0.3, beta=0.1))


def test_a_conversion_in_c_reads_like_the_formula() -> None:
    src, dst = memory_desc((2, 3), "s8", "ab"), memory_desc((2, 3), "u8", "ab")
    attr = Attr(src_zero_point=3, src_scale=np.ones(3), src_scale_mask=2, beta=0.5, dst_scale=0.1)
    assert (
        "static uint8_t tensor_convert(int8_t src, float src_scale, uint8_t old)\n{\n"
        "    const float x = (float)src - 3.0f;\n"
        "    const volatile float scaled = src_scale * x;\n"
        "    const volatile float added = 0.5f * (float)old;\n"
        "    const float total = scaled + added;\n"
        "    const float quotient = total / 0.1f;\n"
        "    return tensor_encode_u8(quotient);\n}\n"
    ) in reorder.plan_reorder(src, dst, attr).source("c")


def test_what_a_language_cannot_say_is_refused() -> None:
    halves = reorder.plan_reorder(_SRC, _PLAN.dst.with_dtype("f16"))
    plain = memory_desc((3, 5), "s8", "ab")
    compensated = reorder.plan_reorder(plain, plain.with_extra(Extra(s8s8_mask=1)))
    for lang in ("opencl", "cuda", "python"):
        message = f"source in {lang} only moves elements, and this reorder computes f16 from f32"
        with pytest.raises(MemdescError, match=message):
            halves.source(lang)
        with pytest.raises(MemdescError, match=f"source in {lang} does not write the compensation"):
            compensated.source(lang)
    with pytest.raises(MemdescError, match="unknown language 'rust'"):
        _PLAN.source("rust")
    with pytest.raises(MemdescError, match="name 'a-b' cannot start function names"):
        _PLAN.source("c", "a-b")


@pytest.mark.parametrize(
    ("tag", "extra"),
    [
        ("OIhw4i16o4i", Extra(s8s8_mask=1)),
        ("hwio", Extra(asymmetric_mask=3, scale_adjust=0.5)),
        ("OIhw4i16o4i", Extra(s8s8_mask=2, asymmetric_mask=1, scale_adjust=0.5)),
        ("Oihw8o", Extra(asymmetric_mask=3)),
    ],
)
def test_compensation_is_summed_behind_the_elements(tag: str, extra: Extra, tmp_path: Path) -> None:
    src = memory_desc((18, 7, 2, 3), "f32", "oihw")
    dst = memory_desc(src.dims, "s8", tag).with_extra(extra)
    x = np.random.default_rng(0).standard_normal(src.dims).astype(np.float32)
    plan = reorder.plan_reorder(src, dst, Attr(dst_scale=0.02))
    check(plan, x, tmp_path)
    compile_library(plan.source("c++"), tmp_path, ("gcc", "c++"))


def test_single_elements_that_share_bytes_are_written_in_blocks_of_their_own(
    tmp_path: Path,
) -> None:
    # blocks of 2 and 3 leave several boxes of one element
    src = memory_desc((1,), "f64", strides=(-2,), inner_blks=(2,), inner_idxs=(0,))
    plan = reorder.plan_reorder(src, memory_desc((1,), "s4", "A3a/1.3a/3"))
    assert sum(box.size == 1 for box in plan.boxes) > 1
    for lang in ("c", "c++"):
        compile_library(plan.source(lang), tmp_path, ("gcc", lang))


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_results_are_rounded_as_the_definition_rounds_them(compiler: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal(_SHAPE).astype(np.float32)
    for flag in ("-std=gnu11", "-ffp-contract=fast"):
        check(sum_plan(), x, tmp_path, (compiler, "c"), "-O3", "-march=native", flag)
    # wide integers are rounded to the nearest even one
    for src, dst in (("f32", "s32"), ("f64", "u64")):
        one = memory_desc((8,), src)
        x = np.array([-1.5, -0.5, 0.5, 1.5, 2.5, 2.0**22 + 0.5, 7.3, 1e30], one.dtype.numpy)
        check(reorder.plan_reorder(one, memory_desc((8,), dst)), x, tmp_path, (compiler, "c"))


@pytest.mark.parametrize("compiler", COMPILERS, ids="-".join)
def test_options_that_round_in_other_ways_stop_the_compilation(
    compiler: tuple[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "source"
    file.write_text(sum_plan().source(compiler[1]), encoding="utf-8")
    if shutil.which(COMPILERS[compiler][0]) is None:
        pytest.skip(f"there is no {COMPILERS[compiler][0]}")
    command = [*COMPILERS[compiler], "-ffast-math", "-fsyntax-only", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "floats must be evaluated as IEEE 754 says" in ran.stderr
