"""Attributes that do not fit the descriptors they are for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from reorder import Attr


@pytest.mark.parametrize(
    ("dtypes", "given", "message"),
    [
        (
            ("f32", "s8"),
            {"dst_scale": [1.0, 2.0], "dst_scale_mask": 1},
            r"has 2 values, but mask 1 over dims \(4, 6\) needs 4 of shape \(4,\)",
        ),
        (
            ("f32", "s8"),
            {"dst_scale": [2.0] * 4, "dst_scale_mask": 2},
            r"needs 6 of shape \(6,\); a \(dim 0\) has size 4: mask 1$",
        ),
        (
            ("f32", "s8"),
            {"dst_scale_mask": 1},
            r"^dst_scale_mask 1 is given, but dst_scale is one number; dims \(4, 6\) need 4 of",
        ),
        (
            ("f32", "s8"),
            {"dst_scale": np.ones((6, 4)), "dst_scale_mask": 3},
            r"dst_scale of shape \(6, 4\) has 24 values, .* needs 24 of shape \(4, 6\)",
        ),
        (
            ("f32", "s8"),
            {"dst_scale": [2.0] * 4, "dst_scale_mask": 4},
            r"dst_scale_mask 4 names c \(dim 2\), but the dims are \(4, 6\)",
        ),
        (
            ("f32", "s8"),
            {"src_scale": [2.0] * 4, "src_scale_mask": 1, "src_scale_groups": (1, 2)},
            "src_scale_mask must name both: 1 does not",
        ),
        (
            ("f32", "s8"),
            {"src_scale": [2.0] * 4, "src_scale_mask": 3, "src_scale_groups": (1, 4)},
            r"a group of 4 does not divide b \(dim 1\) of size 6",
        ),
        (("f32", "s8"), {"src_zero_point": 1}, "src_zero_point is for integers, but src is f32"),
        (("s8", "f32"), {"dst_zero_point": 1}, "dst_zero_point is for integers, but dst is f32"),
        (
            ("boolean", "s8"),
            {"src_zero_point": 1},
            "src_zero_point is for integers, but src is boolean",
        ),
        (("f32", "s8"), {"dst_scale": 1e-60}, "dst_scale 1e-60 is 0 or infinite in f32"),
        (("f32", "s8"), {"beta": 1e60}, "beta 1e.60 is 0 or infinite in f32"),
    ],
)
def test_what_does_not_fit_the_descriptors_is_refused_with_the_numbers(
    dtypes: tuple[str, str], given: dict[str, Any], message: str
) -> None:
    src, dst = (memory_desc((4, 6), dtype, "ab") for dtype in dtypes)
    with pytest.raises(MemdescError, match=message):
        reorder.plan_reorder(src, dst, Attr(**given))


def test_other_objects_are_not_attributes() -> None:
    desc = memory_desc((4, 6), "s8", "ab")
    with pytest.raises(MemdescError, match=r"attr must be a reorder\.Attr, not float"):
        reorder.plan_reorder(desc, desc, 2.0)  # type: ignore[arg-type] # what a caller might pass


def test_groups_of_one_dim_have_no_last_two() -> None:
    desc = memory_desc((4,), "s8", "a")
    with pytest.raises(MemdescError, match="along the last two dims"):
        reorder.plan_reorder(
            desc, desc, Attr(src_scale=[1.0], src_scale_mask=1, src_scale_groups=(1, 1))
        )


def test_beta_needs_what_it_adds_to() -> None:
    with pytest.raises(MemdescError, match=r"beta 0\.5 adds to what dst holds; pass out="):
        reorder.reorder(np.zeros((2, 3), np.float32), "ab", attr=Attr(beta=0.5))
