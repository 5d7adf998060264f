from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memdesc import MemoryDesc, memory_desc
from memdesc.tags import FormatTag, parse_tag
from reorder.cli.command import with_merged_blocks
from tests.oracles import offsets
from tests.strategies import descs, dims, tags


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


@given(descs(max_nelems=384))
def test_a_dense_layout_fills_every_element_from_offset0_on(desc: MemoryDesc) -> None:
    fills = sorted(offsets(desc).values()) == list(
        range(desc.offset0, desc.offset0 + desc.padded_nelems)
    )
    falls = any(block.stride < 0 for block in desc.blocks if block.extent > 1)
    cut = any(axis.padded % desc.layout.outer(k).step for k, axis in enumerate(desc.axes))
    assert desc.is_dense <= fills
    assert desc.is_dense or falls or cut or not fills


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


@given(descs(max_nelems=384))
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
