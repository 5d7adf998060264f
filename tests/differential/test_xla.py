"""XLA's shapes: jaxlib parses and prints the strings that are written here."""

import pytest
from hypothesis import given, settings

from memdesc import MemoryDesc, UnsupportedFormatError, memory_desc, parse_layout
from memdesc.dtypes import DATA_TYPES
from tests import strategies

pytestmark = pytest.mark.peers

xla_client = pytest.importorskip("jaxlib.xla_client", reason="jaxlib is not installed")


@given(strategies.descs(max_ndims=6))
@settings(max_examples=300)
def test_xla_reads_what_is_written_and_prints_it_again(desc: MemoryDesc) -> None:
    try:
        text = desc.to_notation("xla")
    except UnsupportedFormatError:
        return
    shape = xla_client.Shape(text)
    assert str(shape) == text
    assert shape.dimensions() == desc.dims
    assert parse_layout(f"xla:{shape!s}") == desc


@pytest.mark.parametrize("name", DATA_TYPES)
def test_data_types_have_the_names_and_widths_of_xla(name: str) -> None:
    desc = memory_desc((4,), name, "a")
    shape = xla_client.Shape(desc.to_notation("xla"))
    assert shape.numpy_dtype() == desc.dtype.numpy


@pytest.mark.parametrize(
    "text",
    [
        "f32[3,4]{1,0:T(8,128)(2,1)L(4)}",
        "s4[3,4]{1,0:T(8,128)E(4)S(3)}",
        "f32[3,4]{1,0:D(D,D)}",
        "f32[2,3,4]{2,1,0:T(*,2)}",
        "f32[3,4]{1,0:SC(1:20)}",
        "f32[3,4]{1,0:M(8)}",
    ],
)
def test_every_suffix_is_one_of_xla(text: str) -> None:
    assert xla_client.Shape(text).dimensions()
    try:
        parse_layout(f"xla:{text}")
    except UnsupportedFormatError as refused:
        assert "cannot be described" in str(refused)
