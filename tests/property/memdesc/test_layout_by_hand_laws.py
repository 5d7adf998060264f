"""A Layout with any blocks agrees with its definition, index by index."""

from collections import Counter
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memdesc import Axis, Block, Layout, MemdescError, MemoryDesc, data_type, memory_desc
from memdesc.errors import OverlapError
from memdesc.index import index_at, indices_at
from memdesc.overlap import check_overlap

_U4, _F32 = data_type("u4"), data_type("f32")
Fields = tuple[tuple[int, ...], tuple[Axis, ...], tuple[Block, ...]]


@st.composite
def layout_fields(draw: st.DrawFn) -> Fields:
    """Draw dims, axes and blocks: fused, padded by any number, strides in any order."""
    sizes = tuple(draw(st.lists(st.integers(0, 5), min_size=1, max_size=3)))
    axes: list[Axis] = []
    blocks: list[Block] = []
    left = list(range(len(sizes)))
    while left:
        first, *others = left
        fused = draw(st.permutations(others))[: draw(st.sampled_from([0, 0, 1, 2]))]
        dims = (first, *fused)
        left = [dim for dim in left if dim not in dims]
        size = prod(sizes[dim] for dim in dims)
        padded = size + draw(st.integers(0, 6)) if size else 0
        inner = draw(st.lists(st.integers(2, 4), max_size=3))
        k, step = len(axes), prod(inner)
        axes.append(Axis(dims, padded))
        blocks.append(Block(k, step, -(-padded // step), draw(st.integers(-40, 60))))
        for extent in inner:
            step //= extent
            blocks.append(Block(k, step, extent, draw(st.integers(-30, 60).filter(bool))))
    return sizes, tuple(axes), tuple(blocks)


def places(fields: Fields) -> dict[tuple[int, ...], int]:
    """Return for each index along the axes, padding included, the offset less offset0."""
    _, axes, blocks = fields
    found = {}
    for index in product(*(range(axis.padded) for axis in axes)):
        total, outer = 0, -1
        for axis, step, extent, stride in blocks:
            digit = index[axis] // step
            total += (digit if axis != outer else digit % extent) * stride
            outer = axis
        found[index] = total
    return found


def dims_index(fields: Fields, index: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of each dim; the padding of fused dims is along the first."""
    sizes, axes, _ = fields
    found = [0] * len(sizes)
    for i, axis in zip(index, axes, strict=True):
        rest = i
        for dim in reversed(axis.dims[1:]):
            rest, found[dim] = divmod(rest, sizes[dim])
        found[axis.dims[0]] = rest
    return tuple(found)


@settings(max_examples=150)
@given(layout_fields(), st.integers(0, 9))
def test_a_layout_by_hand_ends_after_its_last_padded_element(fields: Fields, more: int) -> None:
    offsets = places(fields).values()
    front = -min(offsets, default=0)
    layout = Layout(*fields, front + more)
    last = max(offsets, default=0) + layout.offset0
    assert layout.last == last
    assert layout.nelems == prod(fields[0])
    assert layout.padded_nelems == prod(axis.padded for axis in fields[1])
    rows = [block.extent * block.stride for block in fields[2] if block.extent > 1]
    assert layout.span == (max(last - layout.offset0 + 1, *rows, 0) if layout.nelems else 0)
    if front:
        with pytest.raises(MemdescError, match=f"reaches offset -1, .* must be at least {front}"):
            Layout(*fields, front - 1)
    for dtype, nbytes in ((_U4, (last + 2) // 2), (_F32, 4 * (last + 1))):
        try:
            desc = memory_desc(layout.dims, dtype, layout)
        except OverlapError:
            return
        assert desc.min_nbytes == (nbytes if layout.nelems else 0)
        assert desc.nbytes >= desc.min_nbytes


@settings(max_examples=150)
@given(layout_fields())
def test_offsets_of_a_layout_by_hand_are_those_of_the_definition(fields: Fields) -> None:
    wanted = places(fields)
    front = -min(wanted.values(), default=0)
    layout = Layout(*fields, front)
    padded = layout.offsets(padded=True)
    assert padded.size == len(wanted)
    assert padded.reshape(-1).tolist() == [offset + front for offset in wanted.values()]
    logical = layout.offsets()
    assert logical.shape == fields[0]
    for index, offset in wanted.items():
        at = dims_index(fields, index)
        if all(i < size for i, size in zip(at, fields[0], strict=True)):
            assert logical[at] == layout.offset(at) == offset + front


@settings(max_examples=150)
@given(layout_fields())
# two strides that miss by one
@example(((2, 2), (Axis((0,), 2), Axis((1,), 2)), (Block(0, 1, 2, 1), Block(1, 1, 2, 1))))
def test_a_layout_by_hand_overlaps_where_two_indices_share_an_offset(fields: Fields) -> None:
    wanted = places(fields)
    front = -min(wanted.values(), default=0)
    layout = Layout(*fields, front)
    # indices that differ in digits of stride 0 only are one
    still = {k for k, block in enumerate(fields[2]) if not block.stride or block.extent < 2}
    shared = Counter(
        (
            offset,
            tuple(
                index[block.axis] // block.step
                if k == 0 or fields[2][k - 1].axis != block.axis
                else index[block.axis] // block.step % block.extent
                for k, block in enumerate(fields[2])
                if k not in still
            ),
        )
        for index, offset in wanted.items()
    )
    overlaps = len(shared) > len({offset for offset, _ in shared})
    refusal = ""
    try:
        check_overlap(layout)
    except OverlapError as error:
        refusal = str(error)
    if overlaps or refusal:
        # whole blocks count: views that end inside a block are stricter than their elements
        assert refusal
        assert overlaps or layout.has_partial_blocks or "bounded work" in refusal
        return
    _check_inverse(
        memory_desc(layout.dims, _F32, layout),
        {offset + front: index for index, offset in wanted.items()},
        fields,
    )


def _check_inverse(desc: MemoryDesc, index_of: dict[int, tuple[int, ...]], fields: Fields) -> None:
    layout = desc.layout
    everything = np.arange(-2, layout.last + 3)
    indices, found = indices_at(layout, everything)
    for k, offset in enumerate(everything.tolist()):
        one = index_at(layout, offset)
        assert (one is not None) == (offset in index_of and layout.nelems > 0) == found[k]
        if one is None:
            continue
        assert tuple(int(along[k]) for along in indices) == one
        assert desc.offset(one, padded=True) == offset
        if not desc.has_broadcast:
            assert one == dims_index(fields, index_of[offset])
