"""Layouts by tags and by hand agree with their definition, and overlap where that does."""

import contextlib
import re
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memdesc import Axis, Block, Layout, MemdescError, MemoryDesc, data_type, memory_desc
from memdesc.diophantine import SearchLimitError, Term, solve
from memdesc.errors import OverlapError
from memdesc.layout import indices_at, layout_by_strides
from memdesc.overlap import check_overlap
from memdesc.swizzle import period_of
from memdesc.tags import FormatTag, parse_tag
from reorder.cli.layouts import with_merged_blocks
from tests.indices import index_at
from tests.oracles import offsets, places
from tests.strategies import descs, dims, swizzled_descs, tags
from tests.work import count_calls


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Draw any layout: dims fused, axes padded by any number or to whole blocks, any strides."""
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
        inner = draw(st.lists(st.integers(2, 4), max_size=3))
        k, step = len(axes), prod(inner)
        padded = size + draw(st.integers(0, 6)) if size else 0
        padded = -(-padded // step) * step if draw(st.booleans()) else padded
        axes.append(Axis(dims, padded))
        blocks.append(Block(k, step, -(-padded // step), draw(st.integers(-40, 60))))
        for extent in inner:
            step //= extent
            blocks.append(Block(k, step, extent, draw(st.integers(-30, 60).filter(bool))))
    front = -min(places(axes, blocks).values(), default=0)
    return Layout(sizes, tuple(axes), tuple(blocks), front + draw(st.integers(0, 9)))


def offsets_of(layout: Layout) -> dict[tuple[int, ...], int]:
    """Return the offset of each padded index, one index per axis."""
    found = places(layout.axes, layout.blocks)
    return {index: layout.offset0 + offset for index, offset in found.items()}


def dims_index(layout: Layout, index: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of each dim; the padding of fused dims is along the first."""
    found = [0] * len(layout.dims)
    for i, axis in zip(index, layout.axes, strict=True):
        rest = i
        for dim in reversed(axis.dims[1:]):
            rest, found[dim] = divmod(rest, layout.dims[dim])
        found[axis.dims[0]] = rest
    return tuple(found)


@settings(max_examples=150)
@given(layouts())
def test_a_layout_ends_after_its_last_padded_element(layout: Layout) -> None:
    offsets = offsets_of(layout).values()
    least = layout.offset0 - min(offsets, default=layout.offset0)
    assert layout.last == max(offsets, default=layout.offset0)
    assert layout.nelems == prod(layout.dims)
    assert layout.padded_nelems == len(offsets)
    rows = [block.extent * block.stride for block in layout.blocks if block.extent > 1]
    span = max(layout.last - layout.offset0 + 1, *rows, 0) if layout.nelems else 0
    assert layout.span == span
    if least:
        with pytest.raises(MemdescError, match=f"reaches offset -1, .* must be at least {least}"):
            Layout(layout.dims, layout.axes, layout.blocks, least - 1)
    for dtype, nbytes in (("u4", (layout.last + 2) // 2), ("f32", 4 * (layout.last + 1))):
        with contextlib.suppress(OverlapError):
            desc = memory_desc(layout.dims, data_type(dtype), layout)
            assert desc.min_nbytes == (nbytes if layout.nelems else 0)
            assert desc.nbytes >= desc.min_nbytes


@settings(max_examples=150)
@given(layouts())
def test_offsets_are_those_of_the_definition(layout: Layout) -> None:
    wanted = offsets_of(layout)
    assert layout.offsets(padded=True).reshape(-1).tolist() == [*wanted.values()]
    logical = layout.offsets()
    assert logical.shape == layout.dims
    for index, offset in wanted.items():
        at = dims_index(layout, index)
        if all(i < size for i, size in zip(at, layout.dims, strict=True)):
            assert logical[at] == layout.offset(at) == offset


def refusal(layout: Layout) -> str:
    """Return the message of `check_overlap`, or nothing."""
    try:
        check_overlap(layout)
    except OverlapError as error:
        return str(error)
    return ""


@settings(max_examples=300)
@given(layouts() | descs(max_nelems=384).map(lambda desc: desc.layout))
# two strides that miss by one
@example(Layout((2, 2), (Axis((0,), 2), Axis((1,), 2)), (Block(0, 1, 2, 1), Block(1, 1, 2, 1))))
def test_a_layout_is_refused_exactly_where_two_steps_of_whole_blocks_share_an_element(
    layout: Layout,
) -> None:
    # a stride of 0 repeats elements on purpose
    loops = [range(0, b.extent * b.stride, b.stride) for b in layout.blocks if b.stride]
    offsets = [sum(steps) for steps in product(*loops)]
    overlaps = layout.nelems > 0 and len(offsets) > len(set(offsets))
    said = refusal(layout)
    assert ("share one element" in said) == overlaps == bool(said)
    if not said:
        _check_inverse(layout)


def _check_inverse(layout: Layout) -> None:
    desc = memory_desc(layout.dims, "f32", layout)
    index_of = {offset: index for index, offset in offsets_of(layout).items()}
    everything = np.arange(-2, layout.last + 3)
    indices, found = indices_at(layout, everything)
    for k, offset in enumerate(everything.tolist()):
        one = index_at(layout, offset)
        assert (one is not None) == (offset in index_of and layout.nelems > 0) == found[k]
        if one is None:
            continue
        assert tuple(int(along[k]) for along in indices) == one
        assert desc.offset(one, padded=True) == offset
        is_padding = any(i >= size for i, size in zip(one, desc.dims, strict=True))
        assert desc.index(offset).is_padding == is_padding
        if not desc.has_broadcast:
            assert one == dims_index(layout, index_of[offset])


@given(layouts())
def test_a_refusal_shows_two_indices_of_one_offset(layout: Layout) -> None:
    said = refusal(layout)
    shown = re.findall(r"\(([0-9]+(?:, [0-9]+|,)*)\)", said)
    indices = [tuple(int(i) for i in index.split(",") if i) for index in shown]
    assert len(set(indices)) == len(indices) == (2 if said else 0)
    assert len({layout.offset(index) for index in indices}) <= 1


@given(st.data())
def test_the_search_finds_an_answer_exactly_where_there_is_one(data: st.DataObject) -> None:
    bounds = data.draw(
        st.lists(
            st.tuples(st.integers(-40, 40).filter(bool), st.integers(-3, 0), st.integers(0, 3)),
            max_size=4,
        )
    )
    target, trivial = data.draw(st.integers(-60, 60)), data.draw(st.booleans())
    terms = [Term(*bound) for bound in bounds]
    answers = {
        values
        for values in product(*(range(low, high + 1) for _, low, high in bounds))
        if sum(value * stride for value, (stride, _, _) in zip(values, bounds, strict=True))
        == target
        and (trivial or any(values))
    }
    found = solve(terms, target, trivial=trivial)
    assert found in answers if answers else found is None


# A search tries 20,000 values, and a check makes several searches.
_MANY_CALLS = 1_000_000


@given(
    st.lists(st.tuples(st.integers(1, 10**12), st.integers(1, 10**6)), min_size=1, max_size=12),
    st.integers(-(10**15), 10**15),
)
def test_the_search_ends_soon_whatever_the_strides(
    loops: list[tuple[int, int]], target: int
) -> None:
    def search() -> None:
        with contextlib.suppress(SearchLimitError):
            solve([Term(stride, -extent, extent) for stride, extent in loops], target)

    assert count_calls(search) < _MANY_CALLS


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=12), st.integers(2, 30))
def test_the_check_ends_soon_whatever_the_strides(strides: list[int], size: int) -> None:
    def check() -> None:
        with contextlib.suppress(MemdescError):
            check_overlap(layout_by_strides((size,) * len(strides), tuple(strides), offset0=2**50))

    assert count_calls(check) < _MANY_CALLS


@given(st.data())
def test_a_tag_reads_back_from_its_string(data: st.DataObject) -> None:
    tag = data.draw(tags(data.draw(st.integers(1, 12)), any_digits=data.draw(st.booleans())))
    assert parse_tag(str(tag)) == tag
    assert hash(parse_tag(str(tag))) == hash(tag)


@given(st.data())
def test_every_step_of_a_tag_written_out_reads_as_the_same_tag(data: st.DataObject) -> None:
    tag: FormatTag = data.draw(tags(3, any_digits=True))
    names = ["".join("abc"[dim] for dim in axis) for axis in tag.axes]
    names = [f"({name})" if len(name) > 1 else name for name in names]
    text = ""
    for axis, step, extent in tag.digits:
        name = names[axis] if extent or step == 1 else names[axis].upper()
        text += f"{extent}{name}/{step}." if extent else name
    text += "".join(
        f"__{name}{align}" for name, align in zip(names, tag.align, strict=True) if align > 1
    )
    assert parse_tag(text) == tag


@given(descs(max_nelems=384) | swizzled_descs())
@example(memory_desc((8, 64), "f16", "Sw<3,3,3> o 512 o (8,64):(64,1)"))
def test_a_dense_layout_fills_every_element_from_offset0_on(desc: MemoryDesc) -> None:
    fills = sorted(offsets(desc).values()) == list(
        range(desc.offset0, desc.offset0 + desc.padded_nelems)
    )
    falls = any(block.stride < 0 for block in desc.layout.blocks if block.extent > 1)
    base = desc.layout.base()
    cut = any(axis.padded % base.outer(k).step for k, axis in enumerate(desc.axes))
    assert desc.is_dense <= fills
    # a swizzle that starts elsewhere than at a multiple of its period does not count as dense
    moved = desc.offset0 % period_of(desc.layout.xor)
    assert desc.is_dense or falls or cut or moved or not fills


@given(st.data())
def test_a_layout_by_a_tag_is_dense_and_padded_to_less_than_one_more_block(
    data: st.DataObject,
) -> None:
    sizes = data.draw(dims(max_ndims=6))
    tag = data.draw(tags(len(sizes), any_digits=True))
    desc = memory_desc(sizes, "s8", tag)
    assert desc.is_dense
    assert (
        desc.nbytes
        == desc.min_nbytes
        == desc.padded_nelems
        == prod(axis.padded for axis in desc.axes)
    )
    for k, axis in enumerate(desc.axes):
        whole = int(np.lcm(tag.block_sizes[k], tag.align[k]))
        assert axis.padded % whole == 0
        assert 0 <= axis.padded - desc.layout.axis_size(k) < whole


@given(descs(max_nelems=384) | swizzled_descs())
def test_an_array_of_indices_has_the_offsets_that_each_has(desc: MemoryDesc) -> None:
    every = np.indices(desc.dims)
    found = desc.offset(every)
    assert np.array_equal(found, desc.layout.offsets())
    assert all(desc.offset(index) == found[index] for index in np.ndindex(desc.dims))
    assert np.array_equal(desc.byte(every), found * desc.dtype.bits // 8)
    if not desc.has_broadcast:
        assert np.array_equal(desc.index(found), every)


@given(descs(max_nelems=384))
def test_merged_blocks_keep_every_offset(desc: MemoryDesc) -> None:
    merged = with_merged_blocks(desc)
    assert len(merged.blocks) <= len(desc.blocks)
    assert np.array_equal(merged.layout.offsets(padded=True), desc.layout.offsets(padded=True))
