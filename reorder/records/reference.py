"""The numbers of a record by definition, in numpy; decoders equal it bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import data_type
from memdesc.record import Digits, Number
from reorder.records.numbers import number_values
from reorder.values.convert import decode, encode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reorder.records.record import Record


def expand(values: NDArray[Any], groups: tuple[int, ...], dims: tuple[int, ...]) -> NDArray[Any]:
    """Repeat each group's value for all of its elements."""
    for dim, (group, size) in enumerate(zip(groups, dims, strict=True)):
        if group > 1:
            values = values.repeat(min(group, size), dim)
    return values[tuple(slice(size) for size in dims)]


def dequantize_reference(record: Record) -> NDArray[np.float32]:
    """Return the numbers of a record by its rule; each operation is rounded to f32.

    A NaN that comes out is the quiet NaN without sign and payload.
    """
    rule = record.desc.rule
    with np.errstate(all="ignore"):
        x = _values(record, rule.code)
        if rule.zero is not None:
            zero = _values(record, rule.zero)
            x = (
                x - zero
                if zero.dtype.kind == "i"
                else rounded(x.astype(np.float32) - zero, rule.kind)
            )
        x = rounded(_product(record, rule.scale) * x.astype(np.float32), rule.kind)
        if rule.offset:
            offset = _product(record, rule.offset)
            x = rounded(x + offset if rule.sign > 0 else x - offset, rule.kind)
    return np.where(np.isnan(x), np.float32(np.nan), x)


def rounded(values: NDArray[Any], kind: str) -> NDArray[Any]:
    """Return f32 values rounded to a narrower float type, as f32."""
    if kind == "f32":
        return values
    return decode(encode(values, data_type(kind)), data_type(kind), "f32")


def _product(record: Record, numbers: tuple[Number, ...]) -> NDArray[Any]:
    """Return the product of numbers, from the left."""
    product, *factors = (_values(record, number).astype(np.float32) for number in numbers)
    for number, factor in zip(numbers[1:], factors, strict=True):
        joined = product / factor if number.divides else product * factor
        product = rounded(joined, record.desc.rule.kind)
    return product


def _values(record: Record, number: Number) -> NDArray[Any]:
    """Return the values of a number for each element."""
    desc, columns = record.desc, record.desc.dims[-1]
    first, book = desc.field_of(number), number.codebook
    if 0 in desc.dims:
        return np.empty(desc.dims, np.float32)
    values = number_values(record.tensors, desc, number)[..., first.along_last(columns)]
    values = expand(values, (*first.groups[:-1], 1), desc.dims)
    if book is None:
        return values
    lanes = np.resize(np.array(book.lanes), columns)
    if isinstance(book, Digits):
        return book.of(values, lanes) - number.minus
    found: NDArray[Any] = np.frombuffer(book.values, np.int8)[values * book.size + lanes]
    return found.astype(np.int64)
