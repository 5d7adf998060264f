"""TVM's layouts: TVM maps shapes and indices of what is written as the descriptor does."""

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from memdesc import MemoryDesc, UnsupportedFormatError, memory_desc, parse_layout
from memdesc.exchange import written
from tests import strategies
from tests.named import buffer_layout

pytestmark = pytest.mark.peers

tvm = pytest.importorskip("tvm", reason="TVM is not installed")
s_tir = pytest.importorskip("tvm.s_tir", reason="this TVM is older than 0.27")
tirx = pytest.importorskip("tvm.tirx", reason="this TVM is older than 0.27")


def place(index: list[int], shape: list[int]) -> int:
    """Return the row-major place of an index."""
    offset = 0
    for i, size in zip(index, shape, strict=True):
        offset = offset * size + i
    return offset


def some_indices(dims: tuple[int, ...]) -> list[tuple[int, ...]]:
    count = prod(dims)
    picked = {0, count - 1, count // 2, count // 3, count // 7}
    return [tuple(int(i) for i in np.unravel_index(at, dims)) for at in sorted(picked)]


def numbers(values: Any) -> list[int]:
    return [int(value) for value in values]


def check_string(desc: MemoryDesc, text: str, src: str) -> None:
    layout = s_tir.sbijective_layout(src, text)
    shape = numbers(layout.forward_shape(desc.dims))
    assert prod(shape) == desc.padded_nelems
    for index in some_indices(desc.dims):
        assert place(numbers(layout.forward_index(index)), shape) == desc.offset(index)


def check_map(desc: MemoryDesc, text: str) -> None:
    index_map = tirx.IndexMap.from_func(eval(text, {}), ndim=desc.ndims)
    # the shape of a padded index space; fused dims are padded together, which TVM has no shape for
    shape = numbers(index_map.map_shape(desc.padded_dims))
    for index in some_indices(desc.dims):
        assert place(numbers(index_map.map_indices(index)), shape) == desc.offset(index)
    assert parse_layout(f"tvm:{index_map!s}", desc.dims, desc.dtype) == desc


@given(strategies.descs(max_ndims=5))
@settings(max_examples=150, deadline=None)
def test_tvm_maps_shapes_and_indices_as_the_descriptor(desc: MemoryDesc) -> None:
    try:
        *strings, index_map = written(desc, "tvm")
    except UnsupportedFormatError:
        return
    if not desc.nelems or desc.layout.fused():
        return
    check_map(desc, index_map)
    # what the dims are called there: as in the name of the layout, or a, b, c, ...
    names, _, _ = index_map.removeprefix("lambda ").partition(":")
    for text in strings:
        check_string(desc, text, names.replace(", ", "").upper())


@pytest.mark.parametrize("text", ["NCHW16c", "NHWC", "N4cCHW", "NCHW4n4c", "NCHW[2c4n]", "NCHW1c"])
def test_strings_by_hand_are_read_as_tvm_reads_them(text: str) -> None:
    check_string(buffer_layout(f"tvm:{text}", (2, 17, 5, 4)), text, "NCHW")


def test_fused_dims_are_mapped_as_the_descriptor_does() -> None:
    desc = memory_desc((2, 16, 4, 8), "f32", "bf8_xy16")
    check_map(desc, written(desc, "tvm")[0])


@pytest.mark.parametrize(
    "text", ["OHWI16i64o2i", "NCHW1c4c", "NCHW16C", "NCHWc", "nchw", "NCHW 16c"]
)
def test_what_tvm_refuses_is_refused_here(text: str) -> None:
    with pytest.raises(Exception, match=r"Invalid layout|Check failed"):
        s_tir.slayout(text)
    with pytest.raises(ValueError, match="is not TVM's notation"):
        parse_layout(f"tvm:{text}", (2, 17, 5, 4))


@pytest.mark.parametrize(
    ("shape", "strides", "dims"),
    [
        ((8, 4), (1, 8), (32,)),
        ((8, 4), (1, 8), (8, 4)),
        ((2, 4, 3, 8), (96, 1, 32, 4), (8, 24)),
        ((2, 1, 5), (5, 7, 1), (10,)),
        ((3, 4), (16, 2), (3, 4)),
    ],
)
def test_tile_layouts_place_elements_where_tvm_does(
    shape: tuple[int, ...], strides: tuple[int, ...], dims: tuple[int, ...]
) -> None:
    layout = tirx.layout.TileLayout(tirx.layout.S[shape:strides] + 3)
    desc = buffer_layout(f"tvm:{layout!s}", dims)
    for index in some_indices(dims):
        assert int(layout.apply(*index, shape=list(dims))["m"]) == desc.offset(index)
