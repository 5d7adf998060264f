from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

import memdesc
import reorder
from memdesc import MemdescError, memory_desc
from tests.compiled import address, compile_library

if TYPE_CHECKING:
    from pathlib import Path

_SRC = memory_desc((2, 17, 5, 4), "f32", "nchw")
_PLAN = reorder.plan_reorder(_SRC, memory_desc(_SRC.dims, "f32", "nChw16c"))


def test_a_tail_is_a_condition() -> None:
    source = _PLAN.source("c", "pack")
    assert "void pack_reorder(const float *src, float *dst)" in source
    assert "i2 < 1 ? src[320 + i0 * 340 + i1 + i2 * 20] : 0;" in source
    assert source.count("src[") == len(_PLAN.boxes)


def test_a_kernel_divides_the_outermost_loop_of_each_box() -> None:
    source = _PLAN.source("opencl")
    assert "__kernel void tensor_reorder(__global const uint *src, __global uint *dst)" in source
    assert source.count("get_global_id(0)") == len(_PLAN.boxes)


def test_parameters_that_differ_along_dims_are_arrays() -> None:
    attr = reorder.Attr(
        src_scale=np.ones(17), src_scale_mask=2, dst_zero_point=np.arange(17), dst_zero_point_mask=2
    )
    source = reorder.plan_reorder(_SRC, _PLAN.dst.with_dtype("s8"), attr).source("c++")
    assert (
        "tensor_reorder(const float *src, std::int8_t *dst, const float *src_scale, "
        "const std::int32_t *dst_zero_point)"
    ) in source
    assert "src_scale: 1 x 17 x 1 x 1 numbers, row-major" in source


def test_a_reorder_without_elements_has_no_statements() -> None:
    desc = memory_desc((0, 3), "f32", "ab")
    assert "    (void)src;\n    (void)dst;\n}" in reorder.plan_reorder(desc, desc).source("c")
    converts = reorder.plan_reorder(desc, desc.with_dtype("s8")).source("c")
    assert "tensor_convert" not in converts


def test_a_copy_of_a_plan_has_the_same_source() -> None:
    assert pickle.loads(pickle.dumps(_PLAN)).source("c") == _PLAN.source("c")


@pytest.mark.parametrize("lang", ["opencl", "cuda", "python"])
def test_conversions_are_refused_where_arithmetic_may_differ(lang: str) -> None:
    plan = reorder.plan_reorder(_SRC, _PLAN.dst.with_dtype("f16"))
    message = f"source in {lang} only moves elements, and this reorder computes f16 from f32"
    with pytest.raises(MemdescError, match=message):
        plan.source(lang)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(MemdescError, match="unknown language 'rust'"):
        _PLAN.source("rust")
    with pytest.raises(MemdescError, match="name 'a-b' cannot start function names"):
        _PLAN.source("c", "a-b")


_MASKS = [{"s8s8_mask": 1}, {"asymmetric_mask": 3}, {"s8s8_mask": 2, "asymmetric_mask": 1}]


@pytest.mark.parametrize("tag", ["OIhw4i16o4i", "hwio", "Oihw8o"])
@pytest.mark.parametrize("masks", _MASKS)
@pytest.mark.parametrize("adjust", [1.0, 0.5])
def test_compensation_is_summed_behind_the_elements(
    tag: str, masks: dict[str, int], adjust: float, tmp_path: Path
) -> None:
    extra = memdesc.Extra(**masks, scale_adjust=adjust)
    src = memory_desc((18, 7, 2, 3), "f32", "oihw")
    dst = memory_desc(src.dims, "s8", tag).with_extra(extra)
    plan = reorder.plan_reorder(src, dst, reorder.Attr(dst_scale=0.02))
    x = np.random.default_rng(0).standard_normal(src.dims).astype(np.float32)
    wanted = np.full(dst.nbytes, 0xA5, np.uint8)
    moved = wanted.copy()
    reorder.reference.execute_reference(src, dst, x, wanted, plan.attr)
    library = compile_library(plan.source("c"), tmp_path, ("gcc", "c"))
    library.tensor_reorder(address(x), address(moved))
    assert np.array_equal(moved, wanted)


def test_compensation_is_written_by_c_and_cxx_only(tmp_path: Path) -> None:
    plain = memory_desc((3, 5), "s8", "ab")
    plan = reorder.plan_reorder(plain, plain.with_extra(memdesc.Extra(s8s8_mask=1)))
    compile_library(plan.source("c++"), tmp_path, ("gcc", "c++"))
    with pytest.raises(MemdescError, match="source in opencl does not write the compensation that"):
        plan.source("opencl")


@pytest.mark.parametrize("lang", ["c", "c++"])
def test_single_elements_that_share_bytes_are_written_in_blocks_of_their_own(
    lang: str, tmp_path: Path
) -> None:
    # blocks of 2 and 3 leave several boxes of one element
    src = memory_desc((1,), "f64", strides=(-2,), inner_blks=(2,), inner_idxs=(0,))
    dst = memory_desc((1,), "s4", "A3a/1.3a/3")
    plan = reorder.plan_reorder(src, dst)
    assert sum(box.size == 1 for box in plan.boxes) > 1
    compile_library(plan.source(lang), tmp_path, ("gcc", lang))
