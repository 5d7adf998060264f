"""What loop nests have in common: their sizes, their offsets, and the contiguous runs they form."""

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reorder.cpu.schedule.loops import (
    contiguous_loops,
    contiguous_size,
    count_contiguous,
    offset_table,
    size_of,
)
from reorder.plan import Node

_LOOPS = st.lists(st.tuples(st.integers(1, 4), st.integers(-8, 16)), max_size=4)


def _node(extent: int, *strides: int) -> Node:
    return Node(extent, extent, (strides[0], strides[-1]))


@given(_LOOPS)
def test_offsets_are_those_of_every_step_innermost_loop_first(loops: list[tuple[int, int]]) -> None:
    extents, strides = [extent for extent, _ in loops], [stride for _, stride in loops]
    steps = product(*map(range, extents[::-1]))
    found = offset_table(extents, strides)
    assert found == [
        sum(step * stride for step, stride in zip(index[::-1], strides, strict=True))
        for index in steps
    ]
    assert size_of(_node(extent, 1) for extent in extents) == len(found)


@given(_LOOPS, st.integers(1, 4))
@example([(4, 1), (3, 4), (2, 12)], 1)
@example([(4, 2), (1, 99), (3, 8), (2, 25)], 2)
def test_loops_that_extend_a_run_are_counted(loops: list[tuple[int, int]], size: int) -> None:
    extents, strides = [extent for extent, _ in loops], [stride for _, stride in loops]

    def is_run(count: int) -> bool:
        """Whether the run and these loops are one run; a loop of one step has no stride."""
        offsets = offset_table([size, *extents[:count]], [1, *strides[:count]])
        return offsets == [*range(len(offsets))]

    expected = next((k for k in range(len(loops)) if not is_run(k + 1)), len(loops))
    assert count_contiguous(extents, strides, size) == expected
    if size == 1:
        assert count_contiguous(extents, strides) == expected


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ((_node(8, 4), _node(3, 32), _node(4, 1)), [2, 0, 1]),
        ((_node(8, 5), _node(4, 1)), [1]),
        ((_node(8, 4), _node(4, 2)), []),
        # backwards, the stride of a loop may be negative
        ((_node(8, -4), _node(4, 1)), [1]),
        ((_node(8, -4), _node(3, 32), _node(4, -1)), []),
    ],
)
def test_the_loops_of_a_run_are_found_in_any_order(
    nodes: tuple[Node, ...], found: list[int]
) -> None:
    assert [*contiguous_loops(nodes, 0)] == found
    assert contiguous_size(nodes, 0) == size_of(nodes[k] for k in found)


def test_a_run_may_go_backwards_or_have_elements_apart() -> None:
    nodes = _node(8, -4), _node(3, 32), _node(4, -1)
    assert [*contiguous_loops(nodes, 0, backwards=True)] == [2, 0, 1]
    apart = _node(8, 8, 4), _node(4, 2, 1)
    assert [*contiguous_loops(apart, 0, 2)] == [1, 0]
    assert (contiguous_size(apart, 0), contiguous_size(apart, 0, 2)) == (1, 32)
    assert contiguous_size(apart, 1) == 32
