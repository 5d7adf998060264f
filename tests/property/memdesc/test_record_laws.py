import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memdesc import Layout, MemdescError
from memdesc.errors import OverlapError
from memdesc.layout import layout_by_strides
from memdesc.record import Field, Number, RecordDesc, Rule

_RULE = Rule(Number((("q", 0),)), (Number((("d", 0),)),))


@st.composite
def fields(draw: st.DrawFn, name: str, dims: tuple[int, ...], least_stride: int = -12) -> Field:
    """Draw a field anywhere in the first bytes of a tensor, of any stride."""
    strides = draw(st.tuples(*[st.integers(least_stride, 12)] * len(dims)))
    groups = draw(st.tuples(*[st.integers(1, 3)] * len(dims)))
    sizes = tuple(-(-size // group) for size, group in zip(dims, groups, strict=True))
    try:
        layout = layout_by_strides(sizes, strides, offset0=draw(st.integers(0, 60)))
        return Field(name, draw(st.sampled_from(("u1", "u2", "u4", "u8"))), layout, groups, "data")
    except MemdescError:
        assume(condition=False)
        raise


def bits_of(field: Field) -> set[int]:
    """Return the bits of the tensor that a field takes."""
    first = np.unique(field.layout.offsets()) * field.bits
    return {int(bit) for bit in np.add.outer(first, np.arange(field.bits)).flat}


@given(st.data(), st.tuples(st.integers(0, 4), st.integers(0, 6)))
def test_fields_are_refused_exactly_where_two_share_a_bit(
    data: st.DataObject, dims: tuple[int, int]
) -> None:
    q, d = data.draw(fields("q", dims)), data.draw(fields("d", dims))
    if bits_of(q) & bits_of(d):
        with pytest.raises(OverlapError, match="fields q and d of tensor 'data' overlap"):
            RecordDesc(dims, (q, d), _RULE)
    else:
        desc = RecordDesc(dims, (q, d), _RULE)
        last = max(bits_of(q) | bits_of(d), default=-1)
        assert desc.nbytes == (last + 8) // 8


@given(st.data(), st.tuples(st.integers(1, 4), st.integers(1, 6)))
def test_a_field_alone_keeps_its_order_without_gaps(
    data: st.DataObject, dims: tuple[int, int]
) -> None:
    field = data.draw(fields("q", dims, least_stride=1))
    dense: Layout = field.dense.layout
    assert sorted(dense.offsets().flat) == list(range(field.layout.nelems))
    if field.layout.last - field.layout.offset0 + 1 == field.layout.nelems:
        moved = field.layout.offsets() - field.layout.offset0
        assert (dense.offsets() == moved).all()
