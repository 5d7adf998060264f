"""Arrow's fixed_shape_tensor: pyarrow has the same strides, and the same strings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from memdesc import UnsupportedFormatError, from_notation
from memdesc.exchange import written
from memdesc.exchange.arrow import ARROW_TYPES
from tests import strategies

if TYPE_CHECKING:
    from memdesc import MemoryDesc

pytestmark = pytest.mark.peers

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")


@given(strategies.descs(max_ndims=4, max_nelems=512))
@settings(max_examples=300, deadline=None)
def test_pyarrow_prints_and_strides_what_is_written(desc: MemoryDesc) -> None:
    try:
        metadata, printed = written(desc, "arrow")
    except UnsupportedFormatError:
        return
    value_type = pyarrow.type_for_alias(ARROW_TYPES[desc.dtype.name])
    fields = eval(metadata, {})  # noqa: S307 - JSON of integers, made here
    kind = pyarrow.fixed_shape_tensor(
        value_type, fields["shape"], permutation=fields.get("permutation")
    )
    assert str(kind) == printed
    assert from_notation(str(kind), "arrow") == desc
    assert metadata.encode() in pyarrow.schema([("x", kind)]).serialize().to_pybytes()
    if not desc.nelems:
        return
    order = fields.get("permutation", [])
    if [order[place] for place in order] != sorted(order):
        return  # pyarrow 26 confuses such a permutation with its inverse
    values = pyarrow.array([0] * desc.nelems).cast(value_type)
    storage = pyarrow.FixedSizeListArray.from_arrays(values, desc.nelems)
    tensor = pyarrow.ExtensionArray.from_storage(kind, storage).to_tensor()
    assert tensor.shape == (1, *desc.dims)
    size = desc.dtype.numpy.itemsize
    for dim, (extent, stride) in enumerate(zip(desc.dims, tensor.strides[1:], strict=True)):
        assert extent == 1 or stride == desc.strides[dim] * size
