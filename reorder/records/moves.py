"""Read and write fields of records with reorders, if their elements have a data type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import memory_desc
from memdesc.dtypes import BYTE_BITS
from memdesc.record import BIT_PLANES, Field, Number
from reorder.api import reorder
from reorder.memory.buffers import address_of
from reorder.memory.memory import Memory
from reorder.records.fields import number_values
from reorder.values.formats import INTEGERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import MemoryDesc
    from memdesc.record import RecordDesc
    from reorder.records.record import Record


def stored_integers(field: Field) -> str:
    """Return the integer type that a field is moved as; for floats it is an unsigned integer."""
    is_signed = field.kind in INTEGERS and INTEGERS[field.kind].is_signed
    return f"{'s' if is_signed else 'u'}{field.bits}"


def integer_desc(field: Field) -> MemoryDesc:
    """Return the layout of a field as integers."""
    return field.desc.with_dtype(stored_integers(field))


def field_memory(record: Record, field: Field) -> Memory:
    """Return a field as memory of integers."""
    return Memory.attached(integer_desc(field), record.tensors[field.tensor])


def packed_field(record: Record, number: Number) -> Field | None:
    """Return the field of a number if it is one field of integers of at most 8 bits, or None."""
    field = record.desc.field_of(number)
    is_alone = len(number.parts) == 1 and not number.parts[0][1] and not number.is_looked_up
    is_narrow = field.kind in INTEGERS and field.bits <= BYTE_BITS
    return field if is_alone and is_narrow else None


def read_integers(record: Record, field: Field, threads: int | None) -> NDArray[Any]:
    """Return the integers of a field over its dims."""
    wide = memory_desc(field.layout.dims, f"{stored_integers(field)[0]}8")
    return reorder(field_memory(record, field), wide, threads=threads).numpy()


def read_number(
    tensors: dict[str, NDArray[np.uint8]], desc: RecordDesc, number: Number
) -> NDArray[Any]:
    """Return the values of a number as `number_values` does, but convert floats with a reorder."""
    field = desc.field_of(number)
    if field.kind in BIT_PLANES or field.kind in INTEGERS:
        return number_values(tensors, desc, number)
    data = tensors[field.tensor]
    if address_of(data) % field.desc.dtype.bits_dtype.itemsize:
        data = data.copy()
    wide = memory_desc(field.layout.dims, "f32")
    return reorder(Memory.attached(field.desc, data), wide, threads=1).numpy()


def write_packed(record: Record, field: Field, values: NDArray[Any]) -> None:
    """Write integers that a field can hold, over its dims."""
    kind = np.int8 if stored_integers(field)[0] == "s" else np.uint8
    reorder(values.astype(kind), out=field_memory(record, field), threads=1)


def move_field(
    record: Record, out: Record, numbers: tuple[Number, Number], perm: tuple[int, ...]
) -> bool:
    """Move the bits of a number into another record; return False if that is not enough."""
    one, other = numbers
    # everything but `parts` must be equal
    if one[1:] != other[1:] or any(len(n.parts) > 1 or n.parts[0][1] for n in numbers):
        return False
    old, new = record.desc.field_of(one), out.desc.field_of(other)
    groups = tuple(old.groups[dim] for dim in np.argsort(perm))
    if old.kind != new.kind or old.kind in BIT_PLANES or groups != new.groups:
        return False
    src, dst = field_memory(record, old), field_memory(out, new)
    if any(address_of(m.data) % m.desc.dtype.bits_dtype.itemsize for m in (src, dst)):
        return False
    reorder(Memory.attached(src.desc.permute_axes(perm), src.data), out=dst, threads=1)
    return True
