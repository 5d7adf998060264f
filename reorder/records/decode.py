"""Decode records.

Compiled code writes row-major memory. A reorder moves chunks between that and any other
layout; the chunks are small enough to stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memdesc import MemdescError, MemoryDesc, data_type, memory_desc
from memdesc.record import BIT_PLANES, RecordDesc
from memdesc.tags import FormatTag
from reorder.api import reorder
from reorder.forks import importing
from reorder.memory.allocation import uninitialized_bytes
from reorder.memory.buffers import address_of
from reorder.memory.memory import Memory
from reorder.records.numbers import dequantize_reference
from reorder.records.record import Record, read_field
from reorder.threads import checked_threads, current_limit
from reorder.values.formats import FLOATS

if TYPE_CHECKING:
    from reorder.cpu.decoding.pattern import PlacedPattern

# The types that compiled code writes; others are converted from f32.
DIRECT = ("f32", "f16", "bf16")
# Bytes decoded at a time for other types and layouts: few enough to stay in the cache.
_CHUNK = 4 << 20
# A byte shifted by this much still fits into the 24 significant bits of f32.
_MAX_SHIFT = 16
# Types that hold the elements of packed types one by one.
_UNPACKED = {"u1": "u8", "u2": "u8", "u4": "u8", "s4": "s8", "f4_e2m1": "f16"}


def dequantize_record(
    record: Record, dtype: Any, desc: str | FormatTag | MemoryDesc | None, threads: int | None
) -> Memory:
    """Return the numbers of a record, rounded once, in a layout that is by default row-major."""
    wanted, dims = data_type(dtype), record.desc.dims
    if wanted.name not in FLOATS:
        raise MemdescError(f"a record is decoded to floats ({', '.join(FLOATS)}), not {wanted}")
    if not isinstance(desc, MemoryDesc):
        desc = memory_desc(dims, wanted) if desc is None else memory_desc(dims, wanted, desc)
    if desc.dims != dims or desc.dtype != wanted:
        raise MemdescError(f"dst is {desc!r}, but the record has dims {dims} and dtype is {wanted}")
    # decoding in chunks of rows does not write all padding
    dst = Memory.to_fill(desc)
    decode_into(record, dst, threads)
    return dst


def decode_into(record: Record, dst: Memory, threads: int | None) -> None:
    """Write the numbers of a record into memory of a float type, in any layout of its dims."""
    dims = record.desc.dims
    threads = current_limit() if threads is None else checked_threads(threads)
    if 0 in dims:
        return
    with importing():
        from reorder.cpu.decoding.jobs import decode  # LLVM is slow to load
    placed, tensors = read_by_kernels(record, threads)
    if placed is None:
        reorder(dequantize_reference(record), out=dst, threads=threads)
        return
    for chunk, plain, part in _chunks(placed, dst):
        decode(chunk, tensors, plain.data, plain.desc.dtype.name, threads)
        if plain is not part:
            reorder(plain, out=part, threads=threads)


def read_by_kernels(
    record: Record, threads: int | None
) -> tuple[PlacedPattern | None, dict[str, NDArray[np.uint8]]]:
    """Return how compiled code reads a record, or None if it cannot, and the tensors that it reads.

    What it cannot read as stored is first unpacked, if the rule allows that.
    """
    with importing():
        from reorder.cpu.decoding.pattern import place_pattern  # LLVM is slow to load
    placed = place_pattern(record.desc)
    # a rule stays valid for bytes instead of narrower elements without tables and long shifts
    fits_plain = all(
        not number.is_looked_up and shift <= _MAX_SHIFT
        for number in record.desc.rule.numbers
        for name, shift in number.parts
        if record.desc.field(name).kind in _UNPACKED
    )
    if placed is None and fits_plain:
        record = _plain(record, threads)
        placed = place_pattern(record.desc)
    return placed, record.tensors


@lru_cache(maxsize=128)  # the pieces of a conversion are alike
def row_major(dims: tuple[int, ...], dtype: str) -> MemoryDesc:
    """Return the descriptor of a row-major array."""
    return memory_desc(dims, dtype)


def _chunks(
    placed: PlacedPattern, memory: Memory
) -> Iterator[tuple[PlacedPattern, Memory, Memory]]:
    """Yield parts of a record with row-major memory, which they share, and that of the caller."""
    desc, dims, layout = memory.desc, memory.desc.dims, memory.desc.layout
    kind = desc.dtype.name if desc.dtype.name in DIRECT else "f32"
    whole = row_major(dims, kind)
    if desc == whole:
        yield placed, memory, memory
        return
    rows, segments = dims[0], len(placed.starts) // dims[0]
    if desc.ndims > 1 and not layout.fused() and not layout.has_partial_blocks:
        step = layout.outer(0).step
        rows = min(rows, max(_CHUNK * rows // whole.nbytes // step, 1) * step)
    buffer = uninitialized_bytes(row_major((rows, *dims[1:]), kind).nbytes)
    for first in range(0, dims[0], rows):
        sizes = (min(rows, dims[0] - first), *dims[1:])
        plain, chunk, part = row_major(sizes, kind), placed, desc
        if sizes != dims:
            chunk = placed.part(first * segments, (first + sizes[0]) * segments)
            part = desc.submemory(sizes, (first, *[0] * (len(dims) - 1)))
        held = Memory.attached(plain, buffer[: plain.nbytes])
        yield chunk, held, Memory.attached(part, memory.data)


def _plain(record: Record, threads: int | None) -> Record:
    """Return an equal record in which each field is a separate row-major tensor."""
    fields, tensors = [], {}
    for field in record.desc.fields:
        kind = _UNPACKED.get(field.kind, field.kind)
        desc, data = memory_desc(field.layout.dims, kind), record.tensors[field.tensor]
        fields.append(replace(field, kind=kind, layout=desc.layout, tensor=field.name))
        if field.kind in BIT_PLANES:
            tensors[field.name] = read_field(data, field).reshape(-1)
            continue
        if address_of(data) % field.desc.dtype.bits_dtype.itemsize:
            data = data.copy()
        held = Memory.attached(field.desc, data)
        tensors[field.name] = reorder(held, desc, threads=threads).data
    return Record(RecordDesc(record.desc.dims, tuple(fields), record.desc.rule), tensors)
