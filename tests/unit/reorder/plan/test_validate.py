"""Plans made by hand: run where they stay inside of their descriptors, refused where not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import Axis, Block, MemdescError, memory_desc
from reorder import Box, Lookup, Node, ReorderPlan

SRC, DST = memory_desc((4, 6), "u8", "ab"), memory_desc((4, 6), "u8", "ba")
PLAN = reorder.plan_reorder(SRC, DST)


def run(*boxes: Any) -> list[int]:
    out = np.full(24, 77, np.uint8)
    reorder.execute(ReorderPlan(SRC, DST, boxes), np.arange(24, dtype=np.uint8), out)
    return out.tolist()


def test_a_plan_with_other_boxes_that_stay_inside_runs() -> None:
    assert run(Box((23, 0), (Node(24, 24, (-1, 1)),))) == list(range(23, -1, -1))
    assert run(Box((0, 20), (Node(4, 1, (100, 1)),)))[20:] == [0, 0, 0, 0]
    assert run(Box((-5, 0), (Node(2, 0, (1, 1)),)))[:3] == [0, 0, 77]
    assert run(Box((20, 20), (*[Node(1, 1, (0, 0))] * 5, Node(4, 4, (1, 1)))))[20:] == [
        20,
        21,
        22,
        23,
    ]


def test_an_equal_plan_is_as_good_as_the_one_from_the_cache() -> None:
    out = np.zeros(24, np.uint8)
    reorder.execute(replace(PLAN), np.arange(24, dtype=np.uint8), out)
    assert out.reshape(6, 4).T.ravel().tolist() == list(range(24))


AXIS = (Axis((0,), 4), (Block(0, 1, 4, 6),))


@pytest.mark.parametrize(
    "box",
    [
        Box((0, 1), (Node(24, 24, (1, 1)),)),
        Box((1, 0), (Node(24, 24, (1, 1)),)),
        Box((0, 0), (Node(24, 0, (1, 2)),)),
        Box((-1, 0), (Node(2, 2, (1, 1)),)),
        Box((0, 3), (Node(3, 3, (1, -2)),)),
        Box((0, 10**18), ()),
        Box((0, 0), (Node(2, 2, (2**62, 1)),)),
        Box((6, 0), (), (Lookup(((0, 4),), (AXIS,), (AXIS,)),)),
    ],
)
def test_boxes_that_leave_a_buffer_are_refused_before_anything_is_written(box: Box) -> None:
    out = np.full(24, 77, np.uint8)
    with pytest.raises(MemdescError, match=r"reaches offsets .* of (src|dst), but memory_desc"):
        reorder.execute(ReorderPlan(SRC, DST, (*PLAN.boxes, box)), np.zeros(24, np.uint8), out)
    assert (out == 77).all()


@pytest.mark.parametrize(
    "box",
    [
        None,
        (),
        Box((0,), ()),
        Box((0, 0, 0), ()),
        Box((0, 0.5), ()),  # type: ignore[arg-type] # what a caller might pass
        Box((0, 0), (Node(2, 3, (1, 1)),)),
        Box((0, 0), (Node(-2, -2, (1, 1)),)),
        Box((0, 0), (Node(0, 0, (1, 1)),)),
        Box((0, 0), (Node(2, 2, (1, 1, 1)),)),
        Box((0, 0), (Node(2.5, 2, (1, 1)),)),  # type: ignore[arg-type] # likewise
        Box((0, 0), tuple([Node(1, 1, (0, 0))] * 65)),
        Box((0, 0), tuple([Node(2, 2, (0, 0))] * 64)),
        Box((0, 0), (), (3,)),  # type: ignore[arg-type] # likewise
    ],
)
def test_boxes_that_are_none_are_refused(box: Any) -> None:
    with pytest.raises(MemdescError, match="is no box of two operands"):
        run(box)


def test_what_is_no_plan_is_refused() -> None:
    for thing in (None, "plan", PLAN.boxes):
        with pytest.raises(MemdescError, match="a ReorderPlan is needed"):
            reorder.execute(thing, b"", b"")  # type: ignore[arg-type] # what a caller might pass
    with pytest.raises(MemdescError, match="dims"):
        reorder.prepare(ReorderPlan(SRC, memory_desc((5,), "u8"), ()))
