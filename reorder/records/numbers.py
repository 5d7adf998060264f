"""Numbers of records: arrays of a value for each group, and by definition for each element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memdesc import MemdescError, data_type, memory_desc
from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.record import BIT_PLANES, Field, Number, RecordDesc
from memdesc.record.field import is_integer
from reorder.api import reorder
from reorder.memory.buffers import address_of
from reorder.memory.memory import Memory
from reorder.records.record import Record, first_index, read_field, write_field
from reorder.values.convert import decode, encode
from reorder.values.formats import INTEGERS

Tensors = Mapping[str, NDArray[np.uint8]]


# integers of at most this many bits, minus a constant, fit into 32 bits
_NARROW = 24
# options of formats that cannot hold some numbers -> options that can
_WAYS_OUT: dict[tuple[str, str, object], str] = {
    ("zero points", "zeros", "v1"): "zeros=v2",
    ("zero points", "zeros", False): "zeros=true",
    ("offsets", "scales", "f16"): "scales=f32",
    ("offsets", "scales", "bf16"): "scales=f32",
}


def is_integer_number(desc: RecordDesc, number: Number) -> bool:
    """Whether a number is an integer, neither a float nor in a table."""
    return not number.is_looked_up and is_integer(desc.field_of(number).kind)


def number_bits(desc: RecordDesc, number: Number) -> int:
    """Return how many bits the joined fields of a number have."""
    return max(shift + desc.field(name).bits for name, shift in number.parts)


def code_range(desc: RecordDesc, number: Number) -> tuple[int, int]:
    """Return the least and the largest integer that the joined fields can hold, before `minus`."""
    bits = number_bits(desc, number)
    if number.is_looked_up or not is_signed(desc.field_of(number)):
        return 0, (1 << bits) - 1
    return -(1 << bits - 1), (1 << bits - 1) - 1


def way_out(desc: RecordDesc, what: str) -> str:
    """Return the end of a message: the option with which a format can hold more."""
    ways = (_WAYS_OUT.get((what, *held)) for held in desc.options)
    return next((f"; {desc.name}({way}) holds more {what}" for way in ways if way), "")


def is_signed(field: Field) -> bool:
    """Whether the elements of a field are signed integers."""
    return field.kind in INTEGERS and INTEGERS[field.kind].is_signed


# --- fields as arrays of bits ---


def bits_memory(data: NDArray[np.uint8], field: Field) -> Memory | None:
    """Return a field as memory of unsigned integers; None for planes, and at odd addresses."""
    if field.kind in BIT_PLANES:
        return None
    desc = field.desc.with_dtype(f"u{field.bits}")
    is_aligned = address_of(data) % desc.dtype.bits_dtype.itemsize == 0
    return Memory.attached(desc, data) if is_aligned else None


def load_bits(data: NDArray[np.uint8], field: Field, threads: int | None = 1) -> NDArray[Any]:
    """Return what `read_field` does, by a reorder if that is possible."""
    held = bits_memory(data, field)
    if held is None:
        return read_field(data, field)
    wide = memory_desc(field.layout.dims, f"u{max(field.bits, BYTE_BITS)}")
    return reorder(held, wide, threads=threads).numpy()


def store_bits(
    data: NDArray[np.uint8], field: Field, bits: NDArray[Any], threads: int | None = 1
) -> None:
    """Do what `write_field` does, by a reorder if that is possible."""
    held = bits_memory(data, field)
    if held is None:
        write_field(data, field, bits)
    else:
        wide = f"u{max(field.bits, BYTE_BITS) // BYTE_BITS}"
        reorder(bits.astype(wide, copy=False), out=held, threads=threads)


# --- their values ---


def integers_of(
    tensors: Tensors,
    desc: RecordDesc,
    number: Number,
    read: Callable[..., NDArray[Any]] = read_field,
    dtype: Any = None,
) -> NDArray[Any]:
    """Return the integers in the joined fields of a number, before `minus`."""
    narrow = np.int32 if number_bits(desc, number) <= _NARROW else np.int64
    joined: Any = 0
    for name, shift in number.parts:
        field = desc.field(name)
        bits = read(tensors[field.tensor], field)
        if is_signed(field) and not number.is_looked_up:  # codes in a table are unsigned
            sign = bits.dtype.type(1 << field.bits - 1)
            bits = ((bits ^ sign) - sign).view(f"i{bits.itemsize}")
        joined = bits.astype(dtype or narrow) << shift | joined
    integers: NDArray[Any] = joined
    return integers


def number_values(
    tensors: Tensors,
    desc: RecordDesc,
    number: Number,
    read: Callable[..., NDArray[Any]] = read_field,
) -> NDArray[Any]:
    """Return the value of a number for each group: integers, or f32 for floats and tables.

    If the number has a codebook, these are its codes.
    """
    first = desc.field_of(number)
    if not is_integer(first.kind):
        return _floats(read(tensors[first.tensor], first), first.kind)
    joined = integers_of(tensors, desc, number, read)
    if number.kind:
        return _floats(joined.astype(np.uint16), number.kind)
    values: NDArray[Any] = joined if number.codebook else joined - number.minus
    return np.array(number.table, np.float32)[joined] if number.table else values


def _floats(bits: NDArray[Any], dtype: str) -> NDArray[Any]:
    is_byte = bits.itemsize == 1  # casts of narrow floats are slow
    codes = np.arange(256, dtype=np.uint8) if is_byte else bits
    with np.errstate(invalid="ignore"):
        values: NDArray[Any] = codes.view(DATA_TYPES[dtype].numpy).astype(np.float32)
    return values[bits] if is_byte else values


def write_number(record: Record, number: Number, values: NDArray[Any], what: str) -> None:
    """Write the values of a number over its groups; `what` names them in messages."""
    desc = record.desc
    first = desc.field_of(number)
    where, hint = f"{first.name} of {desc.name}", way_out(desc, what)
    if number.table:
        table = np.array(number.table, np.float32)
        order = np.argsort(table, kind="stable")
        codes = order[np.clip(np.searchsorted(table[order], values), 0, len(table) - 1)]
        is_same = (table[codes] == values) | (np.isnan(table[codes]) & np.isnan(values))
        _refuse(~is_same, values, f"{what}: the table of {number}")
    elif is_integer_number(desc, number):
        codes = values.astype(values.dtype if values.dtype == np.int32 else np.int64)
        codes += number.minus
        low, high = code_range(desc, number)
        if codes.size and (codes.min() < low or codes.max() > high):
            _refuse((codes < low) | (codes > high), values, f"{what}: {where}", hint)
    else:
        stored = reorder(values.astype(np.float32), dtype=first.kind, threads=1)
        # -0.0 and 0.0 count as equal
        same = (reorder(stored, dtype="f32", threads=1).numpy() == values) | np.isnan(values)
        _refuse(~same, values, f"{what}: {first.kind} of {where}", hint)
        codes = stored.numpy().view(stored.desc.dtype.bits_dtype)
    store_integers(record, number, codes)


def store_integers(
    record: Record, number: Number, codes: NDArray[Any], threads: int | None = 1
) -> None:
    """Write integers into the joined fields of a number."""
    for name, shift in number.parts:
        field = record.desc.field(name)
        bits = codes >> shift if shift else codes
        if field.bits < BYTE_BITS or shift:
            bits = bits & (1 << field.bits) - 1
        store_bits(record.tensors[field.tensor], field, bits, threads)


def _refuse(wrong: NDArray[np.bool_], values: NDArray[Any], where: str, hint: str = "") -> None:
    if wrong.any():
        at, count = first_index(wrong), wrong.sum()
        raise MemdescError(
            f"{where} cannot hold {values[at]} exactly, at {at}; {count} do not fit{hint}"
        )


# --- the numbers of all elements ---


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


def rounded(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return f32 values rounded to a narrower float type, as f32."""
    if dtype == "f32":
        return values
    return decode(encode(values, data_type(dtype)), data_type(dtype), "f32")


def _product(record: Record, numbers: tuple[Number, ...]) -> NDArray[Any]:
    product, *factors = (_values(record, number).astype(np.float32) for number in numbers)
    for number, factor in zip(numbers[1:], factors, strict=True):
        joined = product / factor if number.divides else product * factor
        product = rounded(joined, record.desc.rule.kind)
    return product


def _values(record: Record, number: Number) -> NDArray[Any]:
    desc, columns = record.desc, record.desc.dims[-1]
    first, book = desc.field_of(number), number.codebook
    if 0 in desc.dims:
        return np.empty(desc.dims, np.float32)
    values = number_values(record.tensors, desc, number)[..., first.along_last(columns)]
    values = expand(values, (*first.groups[:-1], 1), desc.dims)
    if book is None:
        return values
    lanes = np.resize(np.array(book.lanes), columns)
    looked_up: NDArray[Any] = np.frombuffer(book.values, np.int8)[values * book.size + lanes]
    return looked_up.astype(np.int64)
