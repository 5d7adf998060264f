"""A plan is what its descriptors and attributes say, whoever makes it."""

import copy
import pickle
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


def test_a_plan_by_hand_and_each_copy_equal_that_of_plan_reorder_and_run() -> None:
    copies = pickle.loads(pickle.dumps(PLAN)), copy.copy(PLAN), copy.deepcopy(PLAN), replace(PLAN)
    x = np.arange(24, dtype=np.uint8)
    for plan in (*copies, ReorderPlan(SRC, DST)):
        assert (plan, hash(plan), str(plan), repr(plan)) == (
            PLAN,
            hash(PLAN),
            str(PLAN),
            repr(PLAN),
        )
        out = np.zeros(24, np.uint8)
        reorder.execute(plan, x, out)
        assert np.array_equal(out, x.reshape(4, 6).T.ravel())
    changed = replace(PLAN, attr=Attr(src_zero_point=1))
    assert changed != PLAN
    assert changed == reorder.plan_reorder(SRC, DST, changed.attr)
    attr = Attr(src_scale=SCALES, src_scale_mask=1)
    assert [operand.role for operand in ReorderPlan(SRC, DST, attr).bound_attr.varying] == [
        "src_scale"
    ]


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


class Other(ReorderPlan):
    """A subclass could have any boxes."""

    boxes = (Box((0, 10**6), (Node(24, 24, (1, 1)),)),)


@pytest.mark.parametrize("plan", [None, "plan", PLAN.boxes, object.__new__(Other)])
def test_what_is_not_a_plan_is_refused(plan: Any) -> None:
    for run in (reorder.prepare, lambda plan: reorder.execute(plan, b"", b"")):
        with pytest.raises(MemdescError, match="plan must be a ReorderPlan, not"):
            run(plan)


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


def test_threads_must_be_a_number() -> None:
    with pytest.raises(MemdescError, match="threads must be an integer of 1 or more"):
        reorder.prepare(PLAN, threads=[2])  # type: ignore[arg-type] # what a caller might pass
