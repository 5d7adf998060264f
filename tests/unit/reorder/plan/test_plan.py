"""A plan is what its descriptors and attributes say, whoever makes it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from reorder import Attr
from reorder.plan import Box, Node, ReorderPlan

SRC, DST = memory_desc((4, 6), "u8", "ab"), memory_desc((4, 6), "u8", "ba")
PLAN = reorder.plan_reorder(SRC, DST)
SCALES = np.arange(1, 5, dtype=np.float32)


def test_boxes_follow_from_the_descriptors_and_cannot_be_given() -> None:
    boxes = (Box((0, 10**6), (Node(24, 24, (1, 1)),)),)
    for name in ("boxes", "bound_attr", "prepared"):
        given: dict[str, Any] = {name: boxes}
        with pytest.raises(TypeError, match=name):
            ReorderPlan(SRC, DST, **given)
        with pytest.raises((TypeError, ValueError), match=name):
            replace(PLAN, **given)
        with pytest.raises(AttributeError, match="immutable"):
            setattr(PLAN, name, boxes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], DST), "src must be a MemoryDesc"),
        ((SRC, None), "dst must be a MemoryDesc"),
        ((SRC, DST, {}), "attr must be a reorder.Attr, not dict"),
        ((SRC, memory_desc((5,), "u8")), "dims"),
        ((memory_desc((4, 5), "u8"), DST, Attr(src_scale=SCALES[1:], src_scale_mask=1)), "dims"),
        ((SRC, DST, Attr(src_scale=SCALES[1:], src_scale_mask=1)), "src_scale of shape"),
        ((SRC, memory_desc((4, 6), "u8", strides=(0, 1))), "stride of 0"),
    ],
)
def test_what_no_plan_can_be_made_of_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    for make in (ReorderPlan, reorder.plan_reorder):
        with pytest.raises(MemdescError, match=message):
            make(*arguments)
