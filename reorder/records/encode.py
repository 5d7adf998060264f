"""Write numbers into the fields of a record; a number that would change is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError
from memdesc.record import BIT_PLANES, Number
from reorder.api import reorder
from reorder.memory.memory import Memory
from reorder.records.fields import write_field
from reorder.records.moves import packed_field, write_packed
from reorder.values.formats import INTEGERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc.record import RecordDesc
    from reorder.records.record import Record

# options of formats that cannot hold some numbers -> options that can
_WAYS_OUT: dict[str, dict[tuple[str, object], str]] = {
    "zero points": {("zeros", "v1"): "zeros=v2", ("zeros", False): "zeros=true"},
    "offsets": {("scales", "f16"): "scales=f32", ("scales", "bf16"): "scales=f32"},
}


def is_integer_number(desc: RecordDesc, number: Number) -> bool:
    """Whether a number is an integer, neither a float nor in a table."""
    kind = desc.field_of(number).kind
    return not number.is_looked_up and (kind in BIT_PLANES or kind in INTEGERS)


def number_bits(desc: RecordDesc, number: Number) -> int:
    """Return how many bits the joined fields of a number have."""
    return max(shift + desc.field(name).bits for name, shift in number.parts)


def code_range(desc: RecordDesc, number: Number) -> tuple[int, int]:
    """Return the least and the largest integer that the joined fields can hold, before `minus`."""
    kind, bits = desc.field_of(number).kind, number_bits(desc, number)
    is_signed = kind in INTEGERS and INTEGERS[kind].is_signed and not number.is_looked_up
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)


def way_out(desc: RecordDesc, what: str) -> str:
    """Return the end of a message: the option with which a format can hold more."""
    ways = _WAYS_OUT.get(what, {})
    found = [option for held, option in ways.items() if held in desc.options]
    return f"; {desc.name}({found[0]}) holds more {what}" if found else ""


def write_number(record: Record, number: Number, values: NDArray[Any], what: str) -> None:
    """Write the values of a number over its groups; `what` names them in messages.

    Fails if the fields cannot hold one of them exactly; nothing is written then.
    """
    desc = record.desc
    first = desc.field_of(number)
    if number.table:
        codes = _looked_up(number, values, what)
    elif is_integer_number(desc, number):
        codes = values if values.dtype == np.int32 else values.astype(np.int64)
        codes = codes + number.minus if number.minus else codes
        low, high = code_range(desc, number)
        if codes.size and (codes.min() < low or codes.max() > high):
            where = f"{what}: {first.name} of {desc.name}"
            _refuse((codes < low) | (codes > high), values, where, way_out(desc, what))
        if (field := packed_field(record, number)) is not None:
            write_packed(record, field, codes)
            return
    else:
        stored = reorder(values.astype(np.float32), dtype=first.kind, threads=1)
        # -0.0 and 0.0 count as equal
        same = (reorder(stored, dtype="f32", threads=1).numpy() == values) | np.isnan(values)
        where = f"{what}: {first.kind} of {first.name} of {desc.name}"
        _refuse(~same, values, where, way_out(desc, what))
        reorder(stored, out=Memory.attached(first.desc, record.tensors[first.tensor]), threads=1)
        return
    for name, shift in number.parts:
        field = desc.field(name)
        mask = (1 << field.bits) - 1
        write_field(
            record.tensors[field.tensor], field, codes >> shift & mask if shift else codes & mask
        )


def regroup(
    values: NDArray[Any],
    old: tuple[int, ...],
    new: tuple[int, ...],
    dims: tuple[int, ...],
    what: str,
) -> NDArray[Any]:
    """Return values per group of the `old` sizes as values per group of the `new` sizes.

    Fails if the values of groups that are merged differ; `what` names them in the message.
    """
    for dim, groups in enumerate(zip(old, new, strict=True)):
        # a group may be larger than its dim
        one, other = (min(group, dims[dim]) for group in groups)
        common = int(np.gcd(one, other))
        if one > common:
            values = values.repeat(one // common, dim)
            values = values[(slice(None),) * dim + (slice(-(-dims[dim] // common)),)]
        if other > common:
            count = other // common
            kept = values[(slice(None),) * dim + (slice(None, None, count),)]
            again = kept.repeat(count, dim)
            again = again[(slice(None),) * dim + (slice(values.shape[dim]),)]
            if not np.array_equal(again, values, equal_nan=values.dtype.kind == "f"):
                msg = (
                    f"{what} differ within {other} adjacent elements along dim {dim}, which share "
                    f"one in the target; groups of the source have {one}"
                )
                raise MemdescError(msg)
            values = kept
    return values


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
        msg = f"{where} cannot hold {values[at]} exactly, at {at}; {count} do not fit{hint}"
        raise MemdescError(msg)
