"""Numbers of records: read and written as arrays of a value for each group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError, memory_desc
from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.record import BIT_PLANES, Field, Number
from reorder.api import reorder
from reorder.memory.buffers import address_of
from reorder.memory.memory import Memory
from reorder.records.fields import read_field, write_field
from reorder.values.formats import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from memdesc.record import RecordDesc
    from reorder.records.record import Record

    Tensors = Mapping[str, NDArray[np.uint8]]

# integers of at most this many bits, minus a constant, fit into 32 bits
_NARROW = 24
# options of formats that cannot hold some numbers -> options that can
_WAYS_OUT: dict[str, dict[tuple[str, object], str]] = {
    "zero points": {("zeros", "v1"): "zeros=v2", ("zeros", False): "zeros=true"},
    "offsets": {("scales", "f16"): "scales=f32", ("scales", "bf16"): "scales=f32"},
}


def is_integer_number(desc: RecordDesc, number: Number) -> bool:
    """Whether a number is an integer, neither a float nor in a table."""
    return not number.is_looked_up and _has_integers(desc.field_of(number))


def number_bits(desc: RecordDesc, number: Number) -> int:
    """Return how many bits the joined fields of a number have."""
    return max(shift + desc.field(name).bits for name, shift in number.parts)


def code_range(desc: RecordDesc, number: Number) -> tuple[int, int]:
    """Return the least and the largest integer that the joined fields can hold, before `minus`."""
    bits = number_bits(desc, number)
    is_signed = not number.is_looked_up and _is_signed(desc.field_of(number))
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)


def way_out(desc: RecordDesc, what: str) -> str:
    """Return the end of a message: the option with which a format can hold more."""
    ways = _WAYS_OUT.get(what, {})
    found = [option for held, option in ways.items() if held in desc.options]
    return f"; {desc.name}({found[0]}) holds more {what}" if found else ""


def _has_integers(field: Field) -> bool:
    return field.kind in BIT_PLANES or field.kind in INTEGERS


def _is_signed(field: Field) -> bool:
    return field.kind in INTEGERS and INTEGERS[field.kind].is_signed


# --- fields as arrays of bits ---


def bits_kind(field: Field) -> tuple[str, bool]:
    """Return what the elements of two fields must have in common to mean the same integers."""
    return f"u{field.bits}", _is_signed(field)


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
        return
    wide = f"u{max(field.bits, BYTE_BITS) // BYTE_BITS}"
    reorder(bits.astype(wide, copy=False), out=held, threads=threads)


def move_number(record: Record, out: Record, pair: tuple[Number, Number], perm: Any) -> bool:
    """Move the bits of a number into another record; return False if that is not enough."""
    one, other = pair
    # everything but `parts` must be equal
    if one[1:] != other[1:] or any(len(n.parts) > 1 or n.parts[0][1] for n in pair):
        return False
    old, new = record.desc.field_of(one), out.desc.field_of(other)
    order = np.argsort(perm)
    if old.kind != new.kind or tuple(old.groups[dim] for dim in order) != new.groups:
        return False
    bits = load_bits(record.tensors[old.tensor], old)
    store_bits(out.tensors[new.tensor], new, bits.transpose(order))
    return True


# --- their values ---


def integers_of(
    tensors: Tensors,
    desc: RecordDesc,
    number: Number,
    read: Callable[..., NDArray[Any]] = read_field,
    kind: Any = None,
) -> NDArray[Any]:
    """Return the integers in the joined fields of a number, before `minus`.

    Codes in a table, and the bits of floats, are unsigned.
    """
    narrow = np.int32 if number_bits(desc, number) <= _NARROW else np.int64
    joined: Any = 0
    for name, shift in number.parts:
        field = desc.field(name)
        bits = read(tensors[field.tensor], field)
        if _is_signed(field) and not number.is_looked_up:
            sign = bits.dtype.type(1 << field.bits - 1)
            bits = ((bits ^ sign) - sign).view(f"i{bits.itemsize}")
        joined = bits.astype(kind or narrow) << shift | joined
    found: NDArray[Any] = joined
    return found


def number_values(
    tensors: Tensors,
    desc: RecordDesc,
    number: Number,
    read: Callable[..., NDArray[Any]] = read_field,
) -> NDArray[Any]:
    """Return the value of a number for each group: integers, or f32 for floats and tables.

    If the number has a codebook, these are its codes. `read` is `read_field`, the definition, or
    `load_bits`.
    """
    first = desc.field_of(number)
    if not _has_integers(first):
        return _floats(read(tensors[first.tensor], first), first.kind)
    joined = integers_of(tensors, desc, number, read)
    if number.kind:
        return _floats(joined.astype(np.uint16), number.kind)
    found: NDArray[Any] = joined if number.codebook else joined - number.minus
    return np.array(number.table, np.float32)[joined] if number.table else found


def _floats(bits: NDArray[Any], kind: str) -> NDArray[Any]:
    """Return the values of the bits of floats, as f32."""
    is_byte = bits.itemsize == 1  # casts of narrow floats are slow
    codes = np.arange(256, dtype=np.uint8) if is_byte else bits
    with np.errstate(invalid="ignore"):
        values: NDArray[Any] = codes.view(DATA_TYPES[kind].numpy).astype(np.float32)
    return values[bits] if is_byte else values


def write_number(record: Record, number: Number, values: NDArray[Any], what: str) -> None:
    """Write the values of a number over its groups; `what` names them in messages."""
    desc = record.desc
    first = desc.field_of(number)
    where, hint = f"{first.name} of {desc.name}", way_out(desc, what)
    if number.table:
        codes = _looked_up(number, values, what)
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


def _looked_up(number: Number, values: NDArray[Any], what: str) -> NDArray[Any]:
    """Return the codes of values in a table."""
    table = np.array(number.table, np.float32)
    order = np.argsort(table, kind="stable")
    place = np.clip(np.searchsorted(table[order], values), 0, len(table) - 1)
    codes: NDArray[Any] = order[place]
    _refuse(table[codes] != values, values, f"{what}: the table of {number}")
    return codes


def _refuse(wrong: NDArray[np.bool_], values: NDArray[Any], where: str, hint: str = "") -> None:
    """Refuse values if any of them is marked as wrong."""
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        count = int(wrong.sum())
        raise MemdescError(
            f"{where} cannot hold {values[at]} exactly, at {at}; {count} do not fit{hint}"
        )
