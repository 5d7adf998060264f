from copy import copy
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from memdesc import MemoryDesc, memory_desc
from reorder import plan_reorder
from reorder.plan import Box, Node
from reorder.plan.boxes import padding_boxes
from reorder.plan.nodes import DST
from reorder.plan.passes import simplify
from tests.reorders import box_map, element_map, expect, few_boxes, move_guarded, random_bytes
from tests.strategies import desc_pairs, descs

Pair = tuple[MemoryDesc, MemoryDesc]


def _pairs(to: NDArray[np.int64], fro: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return (to, fro) in the order of to, then of fro."""
    order = np.lexsort((fro, to))
    return np.stack([to[order], fro[order]])


def _check_map(src: MemoryDesc, dst: MemoryDesc) -> None:
    plan = plan_reorder(src, dst)
    to, fro = box_map(plan.boxes)
    assert len(np.unique(to)) == len(to), "an element is written twice"
    assert np.array_equal(_pairs(to, fro), _pairs(*element_map(src, dst)))
    assert sum(box.size for box in plan.boxes) == dst.padded_nelems


# steps of two or three blocks that do not divide each other, nested and beside smaller ones
_ODD = ["A3a", "A4a", "A6a", "A10a", "A6a2a", "A4a6a", "A15a", "A9a", "A2a5a2a", "A16a3a", "a"]
# the same on dims that share axes and that do not
_SIZES = st.tuples(*[st.sampled_from([1, 2, 3, 5, 8, 17])] * 3)
_BLOCKS = st.sampled_from([2, 3, 4, 6, 16, 48, 32])
_JOINT = [("bc", "a"), ("ab", "c"), ("cb", "a"), ("ca", "b"), ("acb", ""), ("", "abc")]


@st.composite
def _odd(draw: st.DrawFn) -> Pair:
    size, *tags = draw(st.tuples(st.integers(1, 130), *[st.sampled_from(_ODD)] * 2))
    return memory_desc((size,), "u8", tags[0]), memory_desc((size,), "u8", tags[1])


@st.composite
def _clashing(draw: st.DrawFn) -> Pair:
    sizes = draw(_SIZES)

    def tag() -> str:
        joint, alone = draw(st.sampled_from(_JOINT))
        axes = draw(st.permutations([f"({joint})"] * bool(joint) + list(alone)))
        cut = draw(st.lists(st.integers(0, len(axes) - 1), max_size=2))
        inner = "".join(f"{draw(_BLOCKS)}{axes[k]}" for k in cut)
        return "".join(axis.upper() if k in cut else axis for k, axis in enumerate(axes)) + inner

    return memory_desc(sizes, "u8", tag()), memory_desc(sizes, "u8", tag())


# padding goes along the dim that has it, where a unit dim shares its index
_UNITS = st.builds(
    lambda size, strides: (
        memory_desc((1, 1, size), "u8", "(bac)"),
        memory_desc((1, 1, size), "u8", strides=strides, padded_dims=(1, 2, size)),
    ),
    st.sampled_from((9, 1)),
    st.sampled_from(((90, 45, 5), (45, 90, 5))),
)
_ALL = {"any": desc_pairs(), "odd": _odd(), "clashing": _clashing(), "units": _UNITS}


@pytest.mark.parametrize("pairs", _ALL.values(), ids=_ALL)
@given(st.data())
def test_every_padded_element_of_dst_is_written_once_with_its_element_of_src_or_zero(
    pairs: st.SearchStrategy[Pair], data: st.DataObject
) -> None:
    pair = data.draw(pairs)
    _check_map(*pair)
    with few_boxes():  # which look dims up
        _check_map(*pair)


@given(desc_pairs(max_nelems=512))
def test_plans_of_equal_descriptors_are_one_value(pair: Pair) -> None:
    src, dst = pair
    again = copy(src), copy(dst)
    assert plan_reorder(*again) is plan_reorder(src, dst)
    # without the letters that text shows, only the text about dims is another
    bare = src.with_letters(None), dst.with_letters(None)
    assert plan_reorder(*bare).boxes == plan_reorder(src, dst).boxes
    for other in (again, bare):
        assert hash(plan_reorder(*other)) == hash(plan_reorder(src, dst))
        assert str(plan_reorder(*other)) == str(plan_reorder(src, dst))


_NODES = st.builds(
    lambda extent, valid, src, dst: Node(extent, min(valid, extent), (src, dst)),
    st.integers(1, 5),
    st.sampled_from([5, 5, 5, 3, 1, 0]),
    st.integers(-4, 64),
    st.integers(-4, 64),
)


@st.composite
def _boxes(draw: st.DrawFn) -> Box:
    """Draw loops, with such among them as continue the one inside of them."""
    nodes: list[Node] = []
    for _ in range(draw(st.integers(0, 4))):
        node = draw(_NODES)
        if draw(st.booleans()) and nodes:
            inner = nodes[0]
            node = node._replace(strides=tuple(stride * inner.extent for stride in inner.strides))
        nodes.insert(0, node)
    # offsets beyond all that the strides take back: -1 stands for zero
    shuffled: list[Node] = draw(st.permutations(nodes))
    return Box((10**6, 10**6), tuple(shuffled if draw(st.booleans()) else nodes))


@given(st.lists(_boxes(), max_size=3).map(tuple))
def test_simplify_keeps_what_is_written_and_from_where(boxes: tuple[Box, ...]) -> None:
    simple = simplify(boxes)
    assert np.array_equal(_pairs(*box_map(simple)), _pairs(*box_map(boxes)))
    assert all(node.extent > 1 or box.is_zero for box in simple for node in box.nodes)
    assert [box.size for box in simple] == [box.size for box in boxes]
    assert simplify(simple) == simple


@given(descs(source=False))
def test_padding_boxes_cover_the_padding_and_nothing_else(desc: MemoryDesc) -> None:
    to, fro = element_map(desc, desc)
    boxes = padding_boxes(desc)
    covered = [np.zeros(0, np.int64)]
    for box in boxes:
        at = np.full(1, box.offsets[DST], np.int64)
        for node in box.nodes:
            at = (at[:, None] + np.arange(node.extent, dtype=np.int64) * node.strides[DST]).ravel()
        assert at.size == prod(node.extent for node in box.nodes)
        covered.append(at)
    assert np.array_equal(np.unique(np.concatenate(covered)), np.sort(to[fro < 0]))
    assert bool(boxes) == (desc.has_padding and desc.nelems > 0)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("ndims", [7, 9, 11])
def test_dims_that_would_make_too_many_boxes_are_looked_up(ndims: int, sign: int) -> None:
    dims = (3,) * 3 + (1,) * (ndims - 7) + (3,) * 4
    letters = "abcdefghijkl"[:ndims]
    strides = [sign * prod(dims[k + 1 :]) for k in range(ndims)]
    start = (
        -sum(stride * (size - 1) for stride, size in zip(strides, dims, strict=True))
        if sign < 0
        else 0
    )
    src = memory_desc(dims, "u8", strides=strides, offset0=start)
    dst = memory_desc(dims, "u8", letters.upper() + "".join(f"2{letter}" for letter in letters))
    plan = plan_reorder(src, dst)
    assert len(plan.boxes) <= 64
    assert any(box.indirect for box in plan.boxes)
    _check_map(src, dst)
    source, before = random_bytes(src.min_nbytes, 1), random_bytes(dst.min_nbytes, 2)
    assert np.array_equal(
        move_guarded(plan, source, before, at_end=True), expect(src, dst, source, before)
    )
