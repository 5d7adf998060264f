"""Hand-made plans: run if they stay inside their descriptors, refused if not."""

from __future__ import annotations

import copy
import pickle
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import Axis, Block, MemdescError, memory_desc
from reorder.plan import Box, IndirectLoop, Node, ReorderPlan
from reorder.plan.plan import is_planned
from reorder.plan.planner import validate

SRC, DST = memory_desc((4, 6), "u8", "ab"), memory_desc((4, 6), "u8", "ba")
PLAN = reorder.plan_reorder(SRC, DST)


def run(*boxes: Any) -> list[int]:
    out = np.full(24, 77, np.uint8)
    reorder.execute(ReorderPlan(SRC, DST, boxes), np.arange(24, dtype=np.uint8), out)
    return out.tolist()


def test_a_plan_with_other_boxes_that_stay_inside_runs() -> None:
    assert run(Box((23, 0), (Node(24, 24, (-1, 1)),))) == list(range(23, -1, -1))
    assert run(Box((0, 20), (Node(4, 1, (100, 1)),)))[20:] == [0, 0, 0, 0]
    assert run(Box((0, 20), (Node(4, 1, (2**63 - 1, 1)),)))[20:] == [0, 0, 0, 0]
    assert run(Box((-(2**62), 20), (Node(1, 0, (2**62, 2**62)),)))[19:22] == [77, 0, 77]
    assert run(Box((-5, 0), (Node(2, 0, (1, 1)),)))[:3] == [0, 0, 77]
    assert run(Box((20, 20), (*[Node(1, 1, (0, 0))] * 5, Node(4, 4, (1, 1)))))[20:] == [
        20,
        21,
        22,
        23,
    ]


def test_a_box_may_have_64_nodes_and_a_tensor_one_element() -> None:
    assert run(Box((5, 6), (Node(1, 1, (0, 0)),) * 64))[5:8] == [77, 5, 77]
    one = memory_desc((1,), "u8")
    plan = ReorderPlan(one, one, (Box((0, 0), (Node(1, 0, (1, 1)),)),))
    out = np.full(1, 77, np.uint8)
    reorder.execute(plan, np.ones(1, np.uint8), out)
    assert out == 0


def test_an_equal_plan_is_as_good_as_the_one_from_the_cache() -> None:
    out = np.zeros(24, np.uint8)
    reorder.execute(replace(PLAN), np.arange(24, dtype=np.uint8), out)
    assert out.reshape(6, 4).T.ravel().tolist() == list(range(24))


AXIS = (Axis((0,), 4), (Block(0, 1, 4, 6),))


@pytest.mark.parametrize(
    "box",
    [
        Box((0, 1), (Node(24, 24, (1, 1)),)),
        Box((0, 10**18), ()),
        Box((6, 0), (), (IndirectLoop(((0, 4),), (AXIS,), (AXIS,)),)),
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
def test_values_that_are_not_boxes_are_refused(box: Any) -> None:
    with pytest.raises(MemdescError, match="is not a box of two operands"):
        run(box)


def test_what_is_not_a_plan_is_refused() -> None:
    for thing in (None, "plan", PLAN.boxes):
        with pytest.raises(MemdescError, match="plan must be a ReorderPlan"):
            reorder.execute(thing, b"", b"")  # type: ignore[arg-type] # what a caller might pass
    with pytest.raises(MemdescError, match="dims"):
        reorder.prepare(ReorderPlan(SRC, memory_desc((5,), "u8"), ()))


WHOLE, ONE = Block(0, 1, 24, 1), Block(0, 1, 1, 1)
NO_DIM = (Axis((0, 2), 24), (WHOLE,))  # the tensors have no dim 2


def indirect_loop(*src: Block, params: Any = ()) -> IndirectLoop:
    return IndirectLoop(((0, 24),), ((Axis((0,), 24), src),), ((Axis((0,), 24), (WHOLE,)),), params)


@pytest.mark.parametrize(
    "loop",
    [
        indirect_loop(WHOLE, params=(((Axis((0,), 24), (WHOLE,)),),)),
        indirect_loop(Block(0, 1.0, 24, 1)),  # type: ignore[arg-type] # what a caller might pass
        indirect_loop(Block(0, step=True, extent=24, stride=1)),
        indirect_loop(Block(0, 1, 24, 1), Block(0, 1, 2, 24)),
        indirect_loop(Block(0, 1, 2, 2), Block(0, 12, 2, 1)),
        indirect_loop(Block(0, 2, 12, 1)),
        indirect_loop(Block(0, 1, 23, 1)),
        indirect_loop(Block(0, 1, 2**62, 0)),
        indirect_loop(WHOLE)._replace(src=((Axis((0,), 23), (Block(0, 1, 23, 1),)),)),
        indirect_loop(WHOLE)._replace(dst=((Axis((0,), -24), (WHOLE,)),)),
        indirect_loop(WHOLE)._replace(sizes=((0, 24), (0, 24))),
        IndirectLoop(((2, 24),), ((Axis((2,), 24), (WHOLE,)),), ((Axis((2,), 24), (WHOLE,)),)),
        indirect_loop(Block(0, -1, 24, -1)),
        indirect_loop(),
        indirect_loop(WHOLE)._replace(sizes=((0, 24), (1, 1))),
        indirect_loop(WHOLE)._replace(sizes=((0, -24),)),
        indirect_loop(WHOLE)._replace(sizes=((0, 0),)),
        indirect_loop(WHOLE, ONE),
        indirect_loop(WHOLE)._replace(dst=((Axis((0,), 24), (WHOLE,)), (Axis((), 1), (ONE,)))),
        IndirectLoop(((0, 24), (2, 1)), (NO_DIM,), (NO_DIM,)),
        indirect_loop(WHOLE)._replace(dst=()),
    ],
)
def test_indirect_loops_that_break_a_rule_are_refused(loop: IndirectLoop) -> None:
    with pytest.raises(MemdescError, match="is not a box of two operands"):
        run(Box((0, 0), (), (loop,)))


def test_gathers_are_bounded_by_their_blocks() -> None:
    backwards = indirect_loop(Block(0, 4, 6, -4), Block(0, 1, 4, 1))
    assert run(Box((20, 0), (), (backwards,))) == [20 - 4 * (k // 4) + k % 4 for k in range(24)]
    with pytest.raises(MemdescError, match=r"reaches offsets -1 to 22 of src, but memory_desc"):
        run(Box((19, 0), (), (backwards,)))


def test_a_source_that_is_padded_is_only_read_where_it_has_elements() -> None:
    padded = (Axis((0,), 32), (Block(0, 1, 32, 1),))
    assert run(Box((0, 0), (), (indirect_loop(WHOLE)._replace(src=(padded,)),))) == [*range(24)]
    with pytest.raises(MemdescError, match=r"reaches offsets 1 to 24 of src, but memory_desc"):
        run(Box((1, 0), (), (indirect_loop(WHOLE)._replace(src=(padded,)),)))


def small_loop(count: int, *blocks: Block) -> IndirectLoop:
    axis = (Axis((0,), count), blocks)
    return IndirectLoop(((0, count),), (axis,), (axis,))


def test_a_destination_is_written_in_its_padding_and_not_in_steps_beyond() -> None:
    padded = (Axis((0,), 4), (Block(0, 1, 4, 1),))
    loop = small_loop(3, Block(0, 1, 3, 1))._replace(dst=(padded,))
    assert run(Box((0, 20), (), (loop,)))[19:] == [77, 0, 1, 2, 0]
    with pytest.raises(MemdescError, match=r"reaches offsets 21 to 24 of dst, but memory_desc"):
        run(Box((0, 21), (), (loop,)))
    # the second step of the block in the middle begins behind the axis
    blocks = Block(0, 4, 1, 0), Block(0, 2, 2, 100), Block(0, 1, 2, 1)
    assert run(Box((6, 0), (), (small_loop(2, *blocks),)))[:3] == [6, 7, 77]


def test_indirect_loops_have_their_dims_in_any_order() -> None:
    rows, columns = (((Axis(dims, 24), (WHOLE,)),) for dims in ((0, 1), (1, 0)))
    for sizes in (((0, 4), (1, 6)), ((1, 6), (0, 4))):
        found = run(Box((0, 0), (), (IndirectLoop(sizes, rows, columns),)))
        assert found == np.arange(24).reshape(4, 6).T.ravel().tolist()


def test_blocks_of_indirect_loops_write_each_element_once() -> None:
    pair = small_loop(2, Block(0, 1, 2, 1))
    with pytest.raises(MemdescError, match=r"may write one element of .* twice"):
        run(Box((0, 0), (Node(2, 2, (1, 1)),), (pair,)))
    assert run(Box((4, 0), (Node(2, 2, (2, 2)),), (pair,)))[:5] == [4, 5, 6, 7, 77]
    # the last step of a block of 4 is not one of 3 elements
    three = small_loop(3, Block(0, 4, 1, 0), Block(0, 1, 4, 1))
    assert run(Box((6, 0), (Node(2, 2, (3, 3)),), (three,)))[:7] == [6, 7, 8, 9, 10, 11, 77]
    # nor is the second step of a block of 2 x 2 one of 2 elements
    two = small_loop(2, Block(0, 4, 1, 0), Block(0, 2, 2, 1), Block(0, 1, 2, 1))
    assert run(Box((6, 0), (), (two,)))[:3] == [6, 7, 77]
    two_by_two = small_loop(4, Block(0, 2, 2, 1), Block(0, 1, 2, 2))
    assert run(Box((6, 0), (), (two_by_two,)))[:5] == [6, 7, 8, 9, 77]
    one = small_loop(1, ONE)
    assert run(Box((6, 3), (), (one,)))[2:5] == [77, 6, 77]


SCALES = reorder.Attr(dst_scale=np.arange(1, 5, dtype=np.float32), dst_scale_mask=1)


def scaled(*boxes: Box) -> Any:
    src, dst = SRC.with_dtype("f32"), DST.with_dtype("f32")
    out = np.full(24, 77, np.float32)
    reorder.execute(ReorderPlan(src, dst, boxes, SCALES), np.full(24, 12, np.float32), out)
    return out[:4].tolist()


def test_parameters_are_not_read_outside_of_their_arrays() -> None:
    backwards = Box((0, 0, 3), (Node(4, 4, (1, 1, -1)),))
    assert scaled(backwards) == [3, 4, 6, 12]
    loop = small_loop(4, Block(0, 1, 4, 1))
    fourth = ((Axis((0,), 4), (Block(0, 1, 4, -1),)),)
    assert scaled(Box((0, 0, 3), (), (loop._replace(params=(fourth,)),))) == [3, 4, 6, 12]
    for first in (2, 4):
        with pytest.raises(
            MemdescError, match=rf"offsets {first - 3} to {first} of dst_scale, but"
        ):
            scaled(backwards._replace(offsets=(0, 0, first)))


@pytest.mark.parametrize("stride", [2**63 - 1, -(2**63) + 1])
def test_strides_of_steps_that_are_not_taken_may_be_any(stride: int) -> None:
    src, dst = SRC.with_dtype("f32"), DST.with_dtype("f32")
    x, out = np.arange(24, dtype=np.float32), np.full(24, 77, np.float32)
    nodes = Node(1, 1, (stride, stride)), Node(4, 1, (stride, 1)), Node(6, 6, (1, 4))
    reorder.execute(ReorderPlan(src, dst, (Box((0, 0), nodes),)), x, out)
    assert out.reshape(6, 4)[:, 0].tolist() == [*range(6)]
    assert not out.reshape(6, 4)[:, 1:].any()


def test_numbers_of_numpy_are_numbers() -> None:
    extent, step = np.int8(24), np.int16(1)
    node = Node(extent, extent, [np.int8(-1), np.uint64(1)])  # type: ignore[arg-type] # what a caller might pass
    assert run(Box((np.int8(23), 0), [node])) == list(range(23, -1, -1))  # type: ignore[arg-type] # likewise
    loop = indirect_loop(Block(0, step, extent, np.int32(1)))  # type: ignore[arg-type] # likewise
    assert run(Box((0, 0), (), (loop,))) == [*range(24)]
    # 3 steps of 100 leave the range of int8
    with pytest.raises(MemdescError, match="reaches offsets 0 to 300 of src"):
        run(Box((0, 0), (Node(4, 4, (np.int8(100), 1)),)))  # type: ignore[arg-type] # likewise
    with pytest.raises(MemdescError, match="is not a box of two operands"):
        run(Box((0, 0), (Node(24, 24, (np.ones(2), 1)),)))  # type: ignore[arg-type] # likewise


def test_a_box_writes_each_element_once_and_nothing_where_dst_is_empty() -> None:
    for strides in ((0, 0), (1, 1), (2, 3), (1, -2)):
        with pytest.raises(MemdescError, match=r"may write one element of .* twice"):
            run(Box((0, 8), tuple(Node(4, 4, (0, stride)) for stride in strides)))
    with pytest.raises(MemdescError, match=r"may write one element of .* twice"):
        run(Box((0, 0), (Node(4, 4, (0, 2)), Node(3, 3, (0, 3)))))  # only 3 * 2 and 2 * 3 meet
    nodes = tuple(Node(2, 2, (0, stride)) for stride in (3, 1, 5))
    assert run(Box((7, 0), nodes)).count(7) == 8  # these do not nest, and do not meet
    empty = memory_desc((0, 6), "u8")
    with pytest.raises(MemdescError, match="reaches offsets"):
        reorder.execute(ReorderPlan(empty, empty, (Box((0, 0), ()),)), b"", bytearray())


def test_a_box_whose_steps_cannot_be_compared_in_bounded_time_is_refused() -> None:
    steps = ((28, 991), (38, 597), (14, 142), (45, 773), (40, 818), (25, 722))
    nodes = tuple(Node(extent, 0, (0, 1_000_000 + more)) for extent, more in steps)
    desc = memory_desc((1 << 28,), "u8")
    with pytest.raises(MemdescError, match=r"may write one element of .* twice"):
        reorder.prepare(ReorderPlan(desc, desc, (Box((0, 0), nodes),)))


def test_a_plan_that_changes_later_is_what_it_was_when_it_was_checked() -> None:
    nodes = [Node(24, 24, (1, 1))]
    boxes = [Box((0, 0), nodes)]  # type: ignore[arg-type] # what a caller might pass
    plan = ReorderPlan(SRC, DST, boxes)  # type: ignore[arg-type] # likewise
    out = np.zeros(24, np.uint8)
    reorder.execute(plan, np.arange(24, dtype=np.uint8), out)
    assert out.tolist() == [*range(24)]
    nodes[0] = Node(24, 24, (-1, 1))
    boxes[0] = boxes[0]._replace(offsets=(23, 0))
    reorder.execute(plan, np.arange(24, dtype=np.uint8), out)
    assert out.tolist() == [*range(23, -1, -1)]
    boxes.append(Box((0, 10**6), ()))
    with pytest.raises(MemdescError, match="reaches offsets"):
        reorder.execute(plan, np.arange(24, dtype=np.uint8), out)


def test_only_what_plan_reorder_returns_is_taken_without_a_check() -> None:
    assert is_planned(PLAN)
    assert validate(PLAN) is PLAN
    copies = (
        pickle.loads(pickle.dumps(PLAN)),
        copy.copy(PLAN),
        copy.deepcopy(PLAN),
        replace(PLAN),
        ReorderPlan(PLAN.src, PLAN.dst, PLAN.boxes, PLAN.attr),
    )
    for plan in copies:
        assert plan == PLAN
        assert not is_planned(plan)
        assert validate(plan) == PLAN
        assert is_planned(validate(plan))


def test_a_plan_has_four_fields() -> None:
    names = [field.name for field in fields(PLAN)]
    assert names == ["src", "dst", "boxes", "attr"]
    assert list(asdict(PLAN)) == names
    assert ReorderPlan(*(getattr(PLAN, name) for name in names)) == PLAN

    class Checked(ReorderPlan):
        def __post_init__(self) -> None:
            assert not self.bound_attr.varying

    reorder.prepare(Checked(SRC, DST, PLAN.boxes))


def test_a_changed_plan_is_checked() -> None:
    reorder.prepare(PLAN)
    with pytest.raises(MemdescError, match="reaches offsets"):
        reorder.prepare(replace(PLAN, boxes=(Box((0, 1), (Node(24, 24, (1, 1)),)),)))
    with pytest.raises(MemdescError, match="reaches offsets"):
        reorder.prepare(replace(PLAN, src=memory_desc((4, 6), "u8", strides=(0, 1))))


def test_the_mark_cannot_be_passed_in() -> None:
    for name in ("_is_planned", "_bound"):
        given: dict[str, Any] = {name: True}
        with pytest.raises(TypeError, match=name):
            ReorderPlan(SRC, DST, (), **given)
        with pytest.raises((TypeError, ValueError), match=name):
            replace(PLAN, **given)
    with pytest.raises(TypeError):
        ReorderPlan(*(SRC, DST, (), None, None, True))  # type: ignore[call-arg] # a caller's

    class Marked(ReorderPlan):
        _is_planned = True

    with pytest.raises(MemdescError, match="reaches offsets"):
        reorder.prepare(Marked(SRC, DST, (Box((0, 10**6), (Node(24, 24, (1, 1)),)),)))


def test_the_fields_of_a_plan_have_types() -> None:
    given: tuple[tuple[Any, ...], ...] = (
        ([], DST, (), None, "src must be a MemoryDesc"),
        (SRC, None, (), None, "dst must be a MemoryDesc"),
        (SRC, DST, None, None, "boxes must be a tuple of Box, not None"),
        (SRC, DST, (), {}, "attr must be a reorder.Attr, not dict"),
    )
    for *arguments, match in given:
        with pytest.raises(MemdescError, match=match):
            ReorderPlan(*arguments)
    with pytest.raises(MemdescError, match="plan must be a ReorderPlan, not tuple"):
        reorder.prepare(())  # type: ignore[arg-type] # what a caller might pass
    with pytest.raises(MemdescError, match="threads must be an integer of 1 or more"):
        reorder.prepare(PLAN, threads=[2])  # type: ignore[arg-type] # likewise


def test_attributes_are_bound_once() -> None:
    attr = reorder.Attr(src_scale=np.arange(1, 5, dtype=np.float32), src_scale_mask=1)
    plan = reorder.plan_reorder(SRC, DST, attr)
    assert plan.bound_attr is plan.bound_attr
    assert [operand.role for operand in plan.bound_attr.varying] == ["src_scale"]
    by_hand = ReorderPlan(SRC, memory_desc((5,), "u8"), (), attr)
    with pytest.raises(MemdescError, match="dims"):
        reorder.prepare(by_hand)
    with pytest.raises(MemdescError, match="src_scale of shape"):
        assert ReorderPlan(memory_desc((5, 1), "u8"), DST, (), attr).converts
