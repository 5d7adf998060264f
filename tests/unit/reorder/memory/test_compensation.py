"""Compensation of int8 weights, computed by reorders and by their definition."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from numpy.typing import NDArray

import reorder
from memdesc import Extra, MemdescError, memory_desc
from memdesc.desc import desc_of
from reorder import Attr
from tests.strategies import descs_of, dims


def _check(memory: reorder.Memory, q: NDArray[Any]) -> None:
    """Compare compensation with sums over the logical array, with zeros in the padding."""
    desc, wanted = memory.desc, {}
    assert desc.extra is not None
    for name, mask, factor in (
        ("s8s8", desc.extra.s8s8_mask, -128),
        ("asymmetric", desc.extra.asymmetric_mask, -1),
    ):
        if mask is not None:
            kept = [dim for dim in range(desc.ndims) if mask >> dim & 1]
            summed = tuple(dim for dim in range(desc.ndims) if dim not in kept)
            sums = np.zeros([desc.padded_dims[dim] for dim in kept], np.int64)
            sums[tuple(slice(desc.dims[dim]) for dim in kept)] = q.astype(np.int64).sum(axis=summed)
            wanted[name] = (factor * sums).tolist()
    assert {name: array.tolist() for name, array in memory.compensation().items()} == wanted


@given(sizes=dims(max_ndims=4, zero=False), data=st.data())
def test_sums_over_any_dims_of_any_layout(sizes: tuple[int, ...], data: st.DataObject) -> None:
    extra = Extra(s8s8_mask=data.draw(st.integers(1, (1 << len(sizes)) - 1)))
    try:
        desc = data.draw(descs_of(sizes, "s8", source=False)).with_extra(extra)
    except MemdescError:
        reject()
    x = np.random.default_rng(0).integers(-128, 128, sizes).astype(np.int8)
    _check(reorder.reorder(x, desc), x)


@pytest.mark.parametrize(
    "extra", [Extra(s8s8_mask=1), Extra(asymmetric_mask=2), Extra(s8s8_mask=3, asymmetric_mask=1)]
)
def test_a_view_that_ends_inside_a_block_is_summed_too(extra: Extra) -> None:
    view = memory_desc((8, 20), "s8", "aB16b").submemory((8, 3), (0, 0))
    x = np.random.default_rng(0).integers(-128, 128, (8, 3)).astype(np.int8)
    memory = reorder.reorder(x, desc_of(view.dtype, view.layout, extra))
    _check(memory, x)
    assert reorder.reorder(memory, "ab").compensation() == {}
    empty = memory_desc((0, 5), "s8", "ab").with_extra(extra)
    assert reorder.Memory(empty).compensation() == {}


def test_the_factor_for_saturating_instructions_multiplies_what_is_stored() -> None:
    x = np.array([[10.0, -30.0, 127.0]], np.float32)
    desc = memory_desc(x.shape, "s8", "ab").with_extra(Extra(s8s8_mask=1, scale_adjust=0.5))
    for attr, stored in (
        (None, [5, -15, 64]),
        (Attr(src_scale=2.0, dst_scale=4.0), [2, -8, 32]),
        (Attr(src_scale=[2.0, 1.0, 1.0], src_scale_mask=2), [10, -15, 64]),
    ):
        memory = reorder.reorder(x, desc, attr=attr)
        assert memory.numpy().tolist() == [stored]
        _check(memory, memory.numpy())
