"""Messages call dims by the letters of the name that the caller used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder
from memdesc import RUNTIME, Extra, MemdescError, image_desc, memory_desc, runtime_desc
from memdesc.record import RecordDesc, record_desc
from memdesc.verbose import to_verbose

if TYPE_CHECKING:
    from collections.abc import Callable

BFYX = memory_desc((2, 17, 5, 4), "f32", "b_fs_yx_fsv16")
WEIGHTS = memory_desc((3, 5, 2, 2), "s8", "oihw")
X = reorder.reorder(np.zeros(BFYX.dims, np.float32), BFYX)
FUSED = memory_desc((3, 5, 2, 2), "s8", "os_i_yxs_osv4_yxsv4")
SWIZZLED = memory_desc((32, 32, 2, 2), "s8", "os_is_yx_isa8_osv8_isv4_swizzled_by_4")
ALIGNED = memory_desc((2, 17, 5, 4), "f32", "byxf_af32")
UNKNOWN = runtime_desc((RUNTIME, 17, 5, 4), "f32", "b_fs_yx_fsv16")


def test_the_reason_why_elements_move_names_dims_likewise() -> None:
    plain = memory_desc(BFYX.dims, "f32", "bfyx")
    assert "of b (dim 0) the offset" in reorder.compare_layouts(plain, BFYX).why
    # what was asked before does not matter
    abcd, blocked = (memory_desc(BFYX.dims, "f32", name) for name in ("abcd", "aBcd16b"))
    assert "of a (dim 0) the offset" in reorder.compare_layouts(abcd, blocked).why


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: BFYX.offset((99, 0, 0, 0)), "b (dim 0)"),
        (lambda: BFYX.offset((0, 99, 0, 0)), "f (dim 1)"),
        (lambda: BFYX.offset((0, 99, 0, 0), padded=True), "f (dim 1)"),
        (lambda: BFYX.submemory((1, 1, 9, 1), (0, 0, 0, 0)), "y (dim 2)"),
        (lambda: BFYX.submemory((1, 1, 1, 1), (0, 3, 0, 0)), "f (dim 1)"),
        (lambda: BFYX.submemory((1, 17, 1, 9), (0, 0, 0, 0)), "x (dim 3)"),
        (lambda: BFYX.reshape((34, 5, 4)), "f (dim 1)"),
        (lambda: BFYX.permute_axes((1, 0, 2, 3)).offset((99, 0, 0, 0)), "f (dim 0)"),
        (lambda: X[0, 99], "f (dim 1)"),
        (lambda: X[0, None], "f (dim 1)"),
        (lambda: X[0, "x":], "f (dim 1)"),
        (lambda: BFYX.show(highlight=[(0, 0, 9, 0)]), "y (dim 2)"),
        (lambda: memory_desc((2, 3, -1, 4), "f32", "bfyx"), "y (dim 2)"),
        (lambda: memory_desc((2, -3, 1, 4), "f32", "nchw"), "c (dim 1)"),
        (lambda: image_desc((2, 0, 1, 4), "f32", "conv2d_filter"), "i (dim 1)"),
        (lambda: WEIGHTS.with_extra(Extra(s8s8_mask=16)), "e (dim 4)"),
        (
            lambda: reorder.plan_reorder(
                BFYX, BFYX, reorder.Attr(src_scale=[1.0, 2.0], src_scale_mask=4)
            ),
            "b (dim 0) has size 2",
        ),
        (lambda: reorder.quantize(X, "s8", axis=(1, 2, 3), groups=(1, 3)), "x (dim 3)"),
        (lambda: FUSED.strides, "y (dim 2), x (dim 3)"),
        (lambda: FUSED.inner_blks, "y (dim 2), x (dim 3)"),
        (lambda: FUSED.inner_idxs, "y (dim 2), x (dim 3)"),
        (lambda: FUSED.with_extra(Extra(s8s8_mask=1)), "y (dim 2), x (dim 3)"),
        (lambda: SWIZZLED.inner_blks, "o (dim 0)"),
        (lambda: SWIZZLED.inner_idxs, "o (dim 0)"),
        (lambda: runtime_desc((RUNTIME, -3, 1, 4), "f32", "bfyx"), "f (dim 1)"),
        (lambda: UNKNOWN.resolve((2, 17, 6, 4)), "y (dim 2)"),
        (lambda: UNKNOWN.resolve((2, 17, 5, 4)).offset((0, 99, 0, 0)), "f (dim 1)"),
        (lambda: to_verbose(FUSED), "y (dim 2), x (dim 3)"),
        (lambda: FUSED.to_notation("cute"), "y (dim 2), x (dim 3)"),
        (lambda: BFYX.to_notation("pytorch"), "f (dim 1)"),
        (lambda: FUSED.to_notation("strides"), "y (dim 2), x (dim 3)"),
        (lambda: ALIGNED.to_notation("tvm"), "f (dim 1)"),
        (lambda: ALIGNED.to_notation("xla"), "f (dim 1)"),
        (lambda: SWIZZLED.to_notation("xla"), "i (dim 1)"),
        (
            lambda: reorder.plan.plan_runtime(UNKNOWN, runtime_desc((2, 17, 5, 4), "f32", "bfyx")),
            "b (dim 0)",
        ),
        (
            lambda: RecordDesc(
                (2, 64), record_desc((2, 32), "q4_0").fields, record_desc((2, 32), "q4_0").rule
            ),
            "b (dim 1)",
        ),
    ],
)
def test_messages_name_dims_by_the_letters_that_were_used(
    call: Callable[[], object], name: str
) -> None:
    with pytest.raises(MemdescError) as info:
        call()
    assert name in str(info.value)
