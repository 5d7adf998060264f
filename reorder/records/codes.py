"""Codes of one record moved into another: by a reorder where bits stay, else through integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError, memory_desc
from memdesc.record import BIT_PLANES
from reorder.api import reorder
from reorder.memory.memory import Memory
from reorder.records.encode import code_range, way_out
from reorder.records.fields import expand, read_field, write_field
from reorder.records.moves import field_memory, stored_integers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import RecordDesc
    from memdesc.record import Field
    from reorder.records.record import Record

__all__ = ["map_codes", "same_codes"]


def same_codes(source: RecordDesc, target: RecordDesc) -> tuple[Field, Field] | None:
    """Return the fields of the codes of two records, if both have one, of the same integers."""
    old, new = ([desc.field(name) for name, _ in desc.rule.code.parts] for desc in (source, target))
    if len(old) != 1 or len(new) != 1 or old[0].kind in BIT_PLANES:
        return None
    return (old[0], new[0]) if stored_integers(old[0]) == stored_integers(new[0]) else None


def map_codes(
    record: Record,
    out: Record,
    delta: tuple[NDArray[Any], tuple[int, ...]],
    perm: tuple[int, ...],
    threads: int | None,
) -> None:
    """Write the codes of a record, plus a difference, as the codes of another.

    Parameters
    ----------
    record, out : Record
        Read, and written.
    delta : (ndarray, tuple of int)
        What is added, over groups of the dims of `out`.
    perm : tuple of int
        The dim of `out` that each dim of `record` is.
    threads : int, optional
        As for `reorder`.

    Raises
    ------
    MemdescError
        If a code leaves the range of the target.
    """
    same = same_codes(record.desc, out.desc)
    if same is not None and not delta[0].any():
        src = field_memory(record, same[0])
        moved = Memory.attached(src.desc.permute_axes(perm), src.data)
        reorder(moved, out=field_memory(out, same[1]), threads=threads)
        return
    target = out.desc.rule.code
    new = [out.desc.field(name) for name, _ in target.parts]
    codes = _joined(record, threads).transpose(np.argsort(perm))
    if delta[0].any():
        codes = codes + expand(delta[0].astype(np.int16), delta[1], out.desc.dims)
    low, high = code_range(out.desc, target)
    outside = (codes < low) | (codes > high)
    if outside.any():
        at = tuple(int(i) for i in np.argwhere(outside)[0])
        msg = (
            f"{out.desc.name} has codes of {low} to {high} and zero point {target.minus}, but the "
            f"code at {at} becomes {codes[at]}; {int(outside.sum())} do not fit"
            f"{'' if record.desc.rule.is_symmetric else way_out(out.desc, 'zero points')}"
        )
        raise MemdescError(msg)
    for part, (_, shift) in zip(new, target.parts, strict=True):
        if len(new) == 1 and part.kind not in BIT_PLANES:
            values = codes.astype(np.int8 if stored_integers(part)[0] == "s" else np.uint8)
            reorder(values, out=field_memory(out, part), threads=threads)
        else:
            bits = codes.astype(np.uint8) >> np.uint8(shift) & np.uint8((1 << part.bits) - 1)
            write_field(out.tensors[part.tensor], part, bits)


def _joined(record: Record, threads: int | None) -> NDArray[np.int16]:
    """Return the integers that the fields of the code hold, over the dims of the record."""
    desc = record.desc
    parts = [(desc.field(name), shift) for name, shift in desc.rule.code.parts]
    first = parts[0][0]
    if len(parts) == 1 and first.kind not in BIT_PLANES:
        wide = memory_desc(desc.dims, f"{stored_integers(first)[0]}8")
        moved = reorder(field_memory(record, first), wide, threads=threads)
        return moved.numpy().astype(np.int16)
    joined = np.zeros(desc.dims, np.int16)
    for part, shift in parts:
        joined |= read_field(record.tensors[part.tensor], part).astype(np.int16) << shift
    return joined
