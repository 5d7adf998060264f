"""Sums by compiled loops are the sums by definition."""

from math import prod

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memdesc import MemoryDesc, memory_desc
from reorder.cpu.execute import sums_of
from reorder.memory.buffers import address_of
from reorder.memory.compensation import _sums
from reorder.memory.padding import clear_padding
from tests.guarded import Guarded
from tests.strategies import descs_of, dims

_REGION = Guarded(1 << 22)


def check(desc: MemoryDesc, mask: int, threads: int) -> None:
    """Compare on memory that ends where the elements do."""
    content = np.random.default_rng(0).integers(0, 256, desc.min_nbytes, np.uint8)
    data = _REGION.buffer(content, at_end=True)
    clear_padding(data, desc)
    found = sums_of(desc, mask, threads)(address_of(data))
    assert np.array_equal(found, _sums(data.view(np.int8), desc, mask))


@given(sizes=dims(max_ndims=6, zero=False), data=st.data(), threads=st.sampled_from([1, 2, 5]))
def test_sums_over_any_dims_of_any_layout(
    sizes: tuple[int, ...], data: st.DataObject, threads: int
) -> None:
    desc = data.draw(descs_of(sizes, "s8", source=False))
    mask = data.draw(st.integers(1, (1 << len(sizes)) - 1))
    assume(
        not desc.layout.has_partial_blocks and all(len(axis.dims) == 1 for axis in desc.layout.axes)
    )
    check(desc, mask, threads)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("mask", [1, 2, 3])
@pytest.mark.parametrize(
    "tag", ["OIhw4i16o4i", "OIhw16i16o2i", "oihw", "hwio", "OIhw16o16i", "Oihw8o", "OIhw2i8o4i"]
)
def test_weights_large_enough_for_threads(tag: str, mask: int, threads: int) -> None:
    sizes = (200, 250, 3, 3)
    assert prod(sizes) > 3 * 2**17
    check(memory_desc(sizes, "s8", tag), mask, threads)
