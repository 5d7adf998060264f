"""PyTorch's notations: torch itself has the same strides, and prints the same layouts."""

from typing import Any

import pytest
from hypothesis import example, given, settings

from memdesc import MemdescError, MemoryDesc, UnsupportedFormatError, memory_desc
from memdesc.exchange import written
from tests import strategies
from tests.named import buffer_layout

pytestmark = pytest.mark.peers

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
inductor = pytest.importorskip("torch._inductor.ir", reason="PyTorch has no Inductor")


def same(tensor: Any, desc: MemoryDesc) -> bool:
    given = memory_desc(
        tuple(tensor.shape),
        str(tensor.dtype),
        strides=tensor.stride(),
        offset0=tensor.storage_offset(),
    )
    return given == desc


@pytest.mark.parametrize("dims", [(2, 3, 4, 5), (2, 1, 4, 1), (1, 1, 1, 1)])
@pytest.mark.parametrize("name", ["contiguous_format", "channels_last"])
def test_memory_formats_have_torchs_strides_where_there_are_elements(
    dims: tuple[int, ...], name: str
) -> None:
    tensor = torch.empty(dims, memory_format=getattr(torch, name))
    assert same(tensor, buffer_layout(f"pytorch:{name}", dims))
    tensor = torch.empty((*dims, 3), memory_format=torch.channels_last_3d)
    assert same(tensor, buffer_layout("pytorch:channels_last_3d", (*dims, 3)))


@given(strategies.descs(max_ndims=5))
@example(memory_desc((2, 0, 5, 1), "f32", "acdb"))
@example(memory_desc((0, 3, 5, 2), "f32", "acdb"))
@settings(max_examples=200, deadline=None)
def test_torch_makes_and_prints_what_is_written(desc: MemoryDesc) -> None:
    try:
        *first, strides, fixed = written(desc, "pytorch")
    except UnsupportedFormatError:
        return
    values = eval(f"dict({strides})", {})
    dtype = getattr(torch, desc.dtype.numpy.name)
    tensor = torch.empty(desc.min_nbytes // dtype.itemsize, dtype=dtype).as_strided(**values)
    assert same(tensor, desc)
    layout = inductor.FixedLayout(
        torch.device("cpu"), dtype, list(desc.dims), list(desc.strides), desc.offset0
    )
    assert str(layout) == fixed
    for text in first:
        if text.startswith("torch."):
            name = text.removeprefix("torch.")
            assert tensor.is_contiguous(memory_format=getattr(torch, name))
        elif 0 not in desc.dims:
            order = eval(text.removeprefix("dim_order="), {})
            try:
                found = tensor.dim_order(ambiguity_check=True)
            except (RuntimeError, MemdescError):  # sizes of 1
                continue
            assert found == order
