from math import prod

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from memdesc import Axis, Block, Layout, MemdescError, MemoryDesc, memory_desc
from tests.strategies import descs, dims


def offsets_of(desc: MemoryDesc) -> np.ndarray:
    """Return the offset of every logical index, by `offset` alone."""
    return np.array([desc.offset(index) for index in np.ndindex(desc.dims)], np.int64).reshape(
        desc.dims
    )


@given(st.data())
def test_a_view_has_the_offsets_of_its_box_in_the_parent(data: st.DataObject) -> None:
    parent = data.draw(descs(max_ndims=5, max_nelems=256))
    fused = {dim for axis in parent.axes if len(axis.dims) > 1 for dim in axis.dims}
    at, sizes = [], []
    for dim, size in enumerate(parent.dims):
        step = (
            1
            if dim in fused
            else next(
                parent.layout.outer(k).step
                for k, axis in enumerate(parent.axes)
                if dim in axis.dims
            )
        )
        at.append(0 if dim in fused else data.draw(st.integers(0, max(size - 1, 0) // step)) * step)
        rest = size - at[-1]
        legal = [
            count for count in range(rest + 1) if count == rest or count % step == 0 or count < step
        ]
        sizes.append(size if dim in fused else data.draw(st.sampled_from(legal)))
    view = parent.submemory(sizes, at)
    box = tuple(slice(start, start + size) for start, size in zip(at, sizes, strict=True))
    assert np.array_equal(offsets_of(view), offsets_of(parent)[box])
    assert view.min_nbytes <= parent.min_nbytes
    assert parent.submemory(parent.dims, [0] * parent.ndims) == parent or not parent.nelems


@given(st.data())
def test_a_view_is_legal_or_refused_with_a_reason_and_never_leaves_its_parent(
    data: st.DataObject,
) -> None:
    parent = data.draw(descs(max_ndims=4, max_nelems=128))
    sizes = [data.draw(st.integers(-1, size + 1)) for size in parent.dims]
    at = [data.draw(st.integers(-1, size + 1)) for size in parent.dims]
    try:
        view = parent.submemory(sizes, at)
    except MemdescError as error:
        reason = str(error)
    else:
        reason = ""
    if reason:
        assert any(f"dim {dim}" in reason for dim in range(parent.ndims))
        return
    assert view.min_nbytes <= parent.min_nbytes
    assert {int(offset) for offset in offsets_of(view).flat} <= {
        int(offset) for offset in offsets_of(parent).flat
    }


@given(st.data())
def test_permute_axes_is_the_inverse_of_numpys_transpose(data: st.DataObject) -> None:
    desc = data.draw(descs(max_ndims=5, max_nelems=256))
    perm = data.draw(st.permutations(range(desc.ndims)))
    permuted = desc.permute_axes(perm)
    assert np.array_equal(offsets_of(permuted).transpose(perm), offsets_of(desc))
    assert permuted.permute_axes(np.argsort(perm)) == desc
    assert (permuted.nbytes, permuted.min_nbytes) == (desc.nbytes, desc.min_nbytes)


@st.composite
def regrouped_dims(draw: st.DrawFn, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Draw other sizes of the same product: dims merged and split, dims of 1 added and dropped."""
    new: list[int] = []
    for size in sizes:
        if new and draw(st.integers(0, 3)) == 0:
            new[-1] *= size
        elif size > 1 and draw(st.integers(0, 3)) == 0:
            factor = draw(st.sampled_from([f for f in range(1, size + 1) if size % f == 0]))
            new += [factor, size // factor]
        elif size != 1 or draw(st.booleans()):
            new.append(size)
        if draw(st.integers(0, 4)) == 0:
            new.append(1)
    return tuple(new[:12]) or (1,)


@given(st.data())
def test_reshape_keeps_the_offsets_in_row_major_order(data: st.DataObject) -> None:
    desc = data.draw(descs(max_ndims=5, max_nelems=256))
    sizes = data.draw(regrouped_dims(desc.dims))
    try:
        reshaped = desc.reshape(sizes)
    except MemdescError:
        return
    assert reshaped.dims == sizes
    assert np.array_equal(offsets_of(reshaped).ravel(), offsets_of(desc).ravel())
    assert reshaped.min_nbytes <= desc.min_nbytes


@given(st.data())
def test_a_plain_dense_row_major_layout_takes_any_shape_of_its_size(data: st.DataObject) -> None:
    sizes = data.draw(dims(max_ndims=6, zero=False))
    new = data.draw(regrouped_dims(sizes))
    assume(prod(new) == prod(sizes))
    assert memory_desc(sizes, "f32").reshape(new) == memory_desc(new, "f32")


def is_layout(offsets: NDArray[np.int64]) -> bool:
    """Whether offsets are a sum over the dims, and those along each dim are mixed-radix."""
    lines = [
        np.moveaxis(offsets, dim, -1)[(0,) * (offsets.ndim - 1)] for dim in range(offsets.ndim)
    ]
    is_sum = np.array_equal(sum(np.ix_(*lines)), offsets)
    return is_sum and all(is_mixed_radix(line.tolist()) for line in lines)


def is_mixed_radix(line: list[int]) -> bool:
    """Whether the offsets along a dim, from 0 on, are a sum over digits of the index."""
    size = len(line)
    return size == 1 or any(
        is_mixed_radix(line[::extent])
        for extent in range(2, size + 1)
        if size % extent == 0
        and all(line[i] == line[i - i % extent] + i % extent * line[1] for i in range(size))
    )


@given(st.data())
def test_a_reshape_is_refused_only_if_no_layout_fits(data: st.DataObject) -> None:
    factors = data.draw(st.lists(st.lists(st.integers(2, 4), max_size=3), min_size=1, max_size=3))
    sizes = tuple(map(prod, factors))
    assume(prod(sizes) <= 512)
    strides, stride = {}, 1
    loops = [(dim, k) for dim, each in enumerate(factors) for k in range(len(each))]
    for dim, k in data.draw(st.permutations(loops)):
        strides[dim, k] = stride
        stride *= factors[dim][k]
    blocks = []
    for dim, each in enumerate(factors):
        blocks += [
            Block(dim, prod(each[k + 1 :]), extent, strides[dim, k])
            for k, extent in enumerate(each)
        ] or [Block(dim, 1, 1, 1)]
    axes = tuple(Axis((dim,), size) for dim, size in enumerate(sizes))
    desc = memory_desc(sizes, "f32", Layout(sizes, axes, tuple(blocks)))
    new = data.draw(regrouped_dims(sizes))
    assume(prod(new) == prod(sizes))
    wanted = offsets_of(desc).reshape(new)
    try:
        reshaped = desc.reshape(new)
    except MemdescError:
        assert not is_layout(wanted)
        return
    assert np.array_equal(offsets_of(reshaped), wanted)
    assert np.array_equal(offsets_of(reshaped.reshape(sizes)), offsets_of(desc))


def has_odd_unit(desc: MemoryDesc) -> bool:
    """Whether a dim of 1 is padded, blocked or fused: it is matched with the last dim of 1."""
    odd = [
        axis
        for k, axis in enumerate(desc.axes)
        if axis.padded > 1 or len(axis.dims) > 1 or desc.layout.outer(k).step > 1
    ]
    return any(desc.dims[dim] == 1 for axis in odd for dim in axis.dims)


@given(descs())
def test_a_reshape_to_the_same_dims_changes_nothing(desc: MemoryDesc) -> None:
    assert desc.reshape(desc.dims) == desc or has_odd_unit(desc)


@given(descs(max_ndims=11), st.data())
def test_a_dim_of_one_comes_anywhere_and_goes_again(desc: MemoryDesc, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, desc.ndims))
    grown = desc.reshape((*desc.dims[:at], 1, *desc.dims[at:]))
    assert grown.padded_nelems == desc.padded_nelems
    assert grown.reshape(desc.dims) == desc or has_odd_unit(desc)


@given(descs(max_ndims=4, max_nelems=128), st.lists(st.integers(-2, 40), max_size=6))
def test_any_sizes_are_taken_or_refused(desc: MemoryDesc, sizes: list[int]) -> None:
    try:
        reshaped = desc.reshape(sizes)
    except MemdescError:
        return
    assert np.array_equal(offsets_of(reshaped).ravel(), offsets_of(desc).ravel())
