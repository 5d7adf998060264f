"""CuTe's layouts: tensor-layouts, an independent implementation, computes the same offsets."""

import contextlib
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from memdesc import MemdescError, MemoryDesc, UnsupportedFormatError, known_names, memory_desc
from tests import strategies
from tests.named import buffer_layout

tensor_layouts = pytest.importorskip("tensor_layouts", reason="tensor-layouts is not installed")


def parsed(text: str) -> Any:
    """Return the layout that the other library makes of shape:stride."""
    # Python reads (3) as 3, so each tuple gets a comma after its last part
    parts = [re.sub(r"\)", ",)", part) for part in text.split(":")]
    return tensor_layouts.Layout(*(eval(part, {}) for part in parts))


def check_offsets(desc: MemoryDesc) -> None:
    layout = parsed(desc.to_notation("cute"))
    shape = layout.shape if isinstance(layout.shape, tuple) else (layout.shape,)
    assert tuple(map(tensor_layouts.size, shape)) == desc.padded_dims
    offsets = desc.layout.offsets()
    for index in np.ndindex(desc.dims):
        assert layout(*index) == offsets[index]


@given(strategies.descs(max_ndims=4, max_nelems=512))
@settings(max_examples=100, deadline=None)
def test_offsets_of_every_index_are_equal(desc: MemoryDesc) -> None:
    try:
        check_offsets(desc)
    except UnsupportedFormatError:
        return


@pytest.mark.campaign
def test_every_known_name_has_equal_offsets() -> None:
    checked = 0
    for name in known_names():
        for sizes in [(3, 17, 3, 2), (17, 5, 2), (2, 9, 5, 2, 3), (9, 7)]:
            with contextlib.suppress(MemdescError):
                check_offsets(memory_desc(sizes, "f32", name.text))
                checked += 1
    assert checked > 1000


@st.composite
def _shapes(draw: DrawFn, depth: int = 2) -> Any:
    if depth and draw(st.booleans()):
        parts = draw(st.lists(_shapes(depth - 1), min_size=1, max_size=3))
        return tuple(parts)
    return draw(st.sampled_from((1, 2, 3, 4)))


def _strides(shape: Any, at: list[int], gap: int) -> Any:
    if isinstance(shape, tuple):
        return tuple(_strides(part, at, gap) for part in shape)
    stride = at[0]
    at[0] = stride * shape + gap
    return stride


@given(_shapes(), st.integers(0, 2))
@settings(max_examples=100, deadline=None)
def test_nested_tuples_are_read_with_equal_offsets(shape: Any, gap: int) -> None:
    layout = tensor_layouts.Layout(shape, _strides(shape, [1], gap))
    desc = buffer_layout(f"cute:{layout!s}")
    offsets = desc.layout.offsets()
    for index in np.ndindex(desc.dims):
        assert layout(*index) == offsets[index]
