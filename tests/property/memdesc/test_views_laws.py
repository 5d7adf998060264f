from math import prod

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from memdesc import Axis, Block, Layout, MemdescError, MemoryDesc, memory_desc
from tests.strategies import descs, dims, swizzled_descs


def boxes(parent: MemoryDesc, dim: int) -> dict[tuple[int, int], bool]:
    """Return where a view may start and what size it may have, and whether that cuts no block."""
    axis = next(k for k, axis in enumerate(parent.axes) if dim in axis.dims)
    whole, step = parent.dims[dim], parent.layout.base().outer(axis).step
    return {
        (at, size): min(at, size) >= 0
        and at + size <= whole
        and (
            size == whole
            if len(parent.axes[axis].dims) > 1
            else at % step == 0 and (at + size == whole or size % step == 0 or size < step)
        )
        for at in range(-1, whole + 2)
        for size in range(-1, whole + 2)
    }


@given(st.data())
def test_a_view_is_a_box_of_its_parent_and_refused_exactly_where_it_cuts_a_block(
    data: st.DataObject,
) -> None:
    parent = data.draw(descs(max_ndims=5, max_nelems=256) | swizzled_descs())
    any_dim = data.draw(st.sampled_from([*[None] * parent.ndims, *range(parent.ndims)]))
    parts, is_legal = [], True
    for dim in range(parent.ndims):
        known = boxes(parent, dim)
        legal = [part for part, whether in known.items() if whether]
        at_end = [part for part in legal if sum(part) == parent.dims[dim]]
        legal = legal if data.draw(st.booleans()) else at_end
        parts.append(data.draw(st.sampled_from([*known] if dim == any_dim else legal)))
        is_legal &= known[parts[-1]]
    at, sizes = zip(*parts, strict=True)
    try:
        view = parent.submemory(sizes, at)
    except MemdescError as error:
        assert not is_legal
        assert f"dim {any_dim}" in str(error) or "fused" in str(error)
        return
    assert is_legal
    box = tuple(slice(start, start + size) for start, size in parts)
    assert np.array_equal(view.layout.offsets(), parent.layout.offsets()[box])
    # padding stays where the view ends with its parent
    ends = zip(parts, parent.dims, parent.padded_dims, strict=True)
    wanted = (padded - at if at + size == end else size for (at, size), end, padded in ends)
    assert view.padded_dims == tuple(size and own for size, own in zip(sizes, wanted, strict=True))
    assert view.min_nbytes <= parent.min_nbytes
    assert parent.submemory(parent.dims, [0] * parent.ndims) == parent or not parent.nelems


@given(st.data())
def test_permute_axes_is_the_inverse_of_numpys_transpose(data: st.DataObject) -> None:
    desc = data.draw(descs(max_ndims=5, max_nelems=256) | swizzled_descs())
    perm = data.draw(st.permutations(range(desc.ndims)))
    permuted = desc.permute_axes(perm)
    assert np.array_equal(permuted.layout.offsets().transpose(perm), desc.layout.offsets())
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
def test_reshape_keeps_the_offsets_in_row_major_order_or_refuses(data: st.DataObject) -> None:
    desc = data.draw(descs(max_ndims=5, max_nelems=256) | swizzled_descs())
    sizes = data.draw(
        regrouped_dims(desc.dims) | st.lists(st.integers(-2, 40), max_size=6).map(tuple)
    )
    try:
        reshaped = desc.reshape(sizes)
    except MemdescError:
        return
    assert reshaped.dims == sizes
    assert np.array_equal(reshaped.layout.offsets().ravel(), desc.layout.offsets().ravel())
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
    wanted = desc.layout.offsets().reshape(new)
    try:
        reshaped = desc.reshape(new)
    except MemdescError:
        assert not is_layout(wanted)
        return
    assert np.array_equal(reshaped.layout.offsets(), wanted)
    assert np.array_equal(reshaped.reshape(sizes).layout.offsets(), desc.layout.offsets())


def has_odd_unit(desc: MemoryDesc) -> bool:
    """Whether a dim of 1 is padded, blocked or fused: it is matched with the last dim of 1."""
    base = desc.layout.base()
    odd = [
        axis
        for k, axis in enumerate(desc.axes)
        if axis.padded > 1 or len(axis.dims) > 1 or base.outer(k).step > 1
    ]
    return any(desc.dims[dim] == 1 for axis in odd for dim in axis.dims)


@given(descs() | swizzled_descs())
def test_a_reshape_to_the_same_dims_changes_nothing(desc: MemoryDesc) -> None:
    assert desc.reshape(desc.dims) == desc or has_odd_unit(desc)


@given(descs(max_ndims=11), st.data())
def test_a_dim_of_one_comes_anywhere_and_goes_again(desc: MemoryDesc, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, desc.ndims))
    grown = desc.reshape((*desc.dims[:at], 1, *desc.dims[at:]))
    assert grown.padded_nelems == desc.padded_nelems
    assert grown.reshape(desc.dims) == desc or has_odd_unit(desc)
