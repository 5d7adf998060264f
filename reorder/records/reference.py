"""A record decoded by definition, in numpy; the compiled kernels equal it bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reorder.records.fields import expand, number_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc.record import Number
    from reorder.records.record import Record

__all__ = ["dequantize_reference"]


def dequantize_reference(record: Record) -> NDArray[np.float32]:
    """Return the numbers of a record in f32, by its rule; each operation is rounded to f32.

    A NaN that comes out is the quiet NaN without sign and payload.
    """
    rule = record.desc.rule
    with np.errstate(all="ignore"):
        x = _values(record, rule.code)
        if rule.zero is not None:
            x = x - _values(record, rule.zero)
        x = _product(record, rule.scale) * x.astype(np.float32)
        if rule.offset:
            offset = _product(record, rule.offset)
            x = x + offset if rule.sign > 0 else x - offset
    return np.where(np.isnan(x), np.float32(np.nan), x)


def _product(record: Record, numbers: tuple[Number, ...]) -> NDArray[Any]:
    """Return the product of numbers in f32, from the left."""
    product, *factors = (_values(record, number).astype(np.float32) for number in numbers)
    for factor in factors:
        product = product * factor
    return product


def _values(record: Record, number: Number) -> NDArray[Any]:
    """Return the values of a number for each element."""
    desc = record.desc
    groups = desc.field(number.parts[0][0]).groups
    return expand(number_values(record.tensors, desc, number), groups, desc.dims)
