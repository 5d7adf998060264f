"""Decode records, and arrays of GGUF bytes.

Compiled code writes row-major memory. A reorder moves chunks between that and any other
layout; the chunks are small enough to stay in the cache.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memdesc import MemdescError, MemoryDesc, data_type, memory_desc
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import counted, short_repr
from memdesc.record import BIT_PLANES, RecordDesc, record_desc
from memdesc.record.gguf import GGUF_NUMBERS, GGUF_TYPES, TENSOR, GgufType
from memdesc.tags import FormatTag
from reorder.api import reorder
from reorder.forks import importing
from reorder.memory.allocation import uninitialized_bytes
from reorder.memory.buffers import address_of
from reorder.memory.dlpack import from_dlpack, is_exporter
from reorder.memory.inputs import as_output
from reorder.memory.memory import Memory
from reorder.records.numbers import dequantize_reference
from reorder.records.record import Record, read_field
from reorder.threads import checked_threads, current_limit
from reorder.values.formats import FLOATS
from reorder.values.masked import refuse_masked

if TYPE_CHECKING:
    from reorder.cpu.decoding.pattern import PlacedPattern

# The types that compiled code writes, and GGUF types of floats; others are converted from f32.
DIRECT = ("f32", "f16", "bf16")
# Bytes decoded at a time for other types and layouts: few enough to stay in the cache.
_CHUNK = 4 << 20
# A byte shifted by this much still fits into the 24 significant bits of f32.
_MAX_SHIFT = 16
# Types that hold the elements of packed types one by one.
_UNPACKED = {"u1": "u8", "u2": "u8", "u4": "u8", "s4": "s8", "f4_e2m1": "f16"}
# what is decoded from arrays, by the name here and by that in GGUF
_TYPES = {
    name: row
    for row in GGUF_NUMBERS.values()
    if row.name in {*DIRECT, *GGUF_TYPES}
    for name in (row.name, str(row).lower())
}
_FLOAT_DTYPES = {DATA_TYPES[name].numpy for name in FLOATS}
# The most blocks in a row of the matrix that blocks are decoded as: each needs offsets of its own.
_MAX_BLOCKS = 1024


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
    """Return how compiled code reads a record (None if it cannot), and the tensors that it reads.

    What it cannot read as stored is first unpacked, if the rule allows that.
    """
    with importing():
        from reorder.cpu.decoding.pattern import place_pattern  # LLVM is slow to load
    placed = place_pattern(record.desc)
    # without tables and long shifts, a rule stays valid for bytes in place of narrower elements
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
    dtype = desc.dtype.name if desc.dtype.name in DIRECT else "f32"
    whole = row_major(dims, dtype)
    if desc == whole:
        yield placed, memory, memory
        return
    rows, segments = dims[0], len(placed.starts) // dims[0]
    if desc.ndims > 1 and not layout.fused() and not layout.has_partial_blocks:
        step = layout.outer(0).step
        rows = min(rows, max(_CHUNK * rows // whole.nbytes // step, 1) * step)
    buffer = uninitialized_bytes(row_major((rows, *dims[1:]), dtype).nbytes)
    for first in range(0, dims[0], rows):
        sizes = (min(rows, dims[0] - first), *dims[1:])
        plain, chunk, part = row_major(sizes, dtype), placed, desc
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


def dequantize_gguf(data: Any, qtype: Any, out: Any = None, *, threads: int | None = None) -> Any:
    """Decode an array of GGUF bytes into floats, as `gguf.dequantize` does.

    *Law*: the result equals that of `gguf.dequantize`, bit for bit, except that a NaN may be
    another NaN.

    Parameters
    ----------
    data : ndarray or torch tensor of uint8
        Rows of bytes: the last dim has whole blocks. For F32, F16 and BF16 the floats themselves
        are accepted too.
    qtype : gguf.GGMLQuantizationType, int or str
        A type, its number in a file, or its name: any type that the package gguf 0.19 decodes.
    out : ndarray or torch tensor, optional
        Where to write: an array of the result's shape, with any float type and strides.
    threads : int, optional
        As for `reorder`.

    Returns
    -------
    ndarray or torch tensor
        `out`, or a new f32 array or tensor, like `data`; each block of bytes along the last dim
        becomes its elements. F32 without `out` is a view of `data`, as in gguf.

    Raises
    ------
    MemdescError
        If the type is unknown, the bytes are not whole blocks, or `out` does not fit.

    Examples
    --------
    >>> block = np.arange(18, dtype=np.uint8)
    >>> block[:2] = np.array([0.5], np.float16).view(np.uint8)
    >>> reorder.records.dequantize_gguf(np.stack([block, block]), "Q4_0")[:, :4].tolist()
    [[-3.0, -2.5, -2.0, -1.5], [-3.0, -2.5, -2.0, -1.5]]
    """
    stored = _type_of(qtype)
    rows = _rows(data, stored)
    dims = (*rows.shape[:-1], rows.shape[-1] // stored.nbytes * stored.block)
    torch = sys.modules.get("torch")
    torch = torch if torch is not None and isinstance(data, torch.Tensor) else None
    if out is None and stored.name == "f32":
        is_aligned = address_of(rows) % DATA_TYPES["f32"].bits_dtype.itemsize == 0
        is_kept = is_aligned and (torch is None or rows.flags.writeable)
        # reshaped, since a dim of size 1 of `data` may have any stride
        made = (rows if is_kept else rows.copy()).reshape(-1).view(np.float32).reshape(dims)
    else:
        if out is None:
            made = uninitialized_bytes(4 * prod(dims)).view(np.float32).reshape(dims)
        else:
            made = _output(out, dims, rows)
        if 0 not in dims:
            _decode(rows, stored, made, threads)
    if out is not None:
        return out
    return made if torch is None else torch.from_numpy(made)


def _decode(
    rows: NDArray[np.uint8], stored: GgufType, out: NDArray[Any], threads: int | None
) -> None:
    """Decode rows of bytes, at least one, into an array of the result's dims."""
    dims, dtype = out.shape, data_type(out.dtype).name
    threads = current_limit() if threads is None else checked_threads(threads)
    source = rows.reshape(-1)
    bare = out.reshape(-1).view(np.uint8) if out.flags.c_contiguous else None
    if bare is not None and stored.name in GGUF_TYPES and dtype in DIRECT:
        _decoder(stored.name, dims)({TENSOR: source}, bare, dtype, threads)
        return
    dst = as_output(out, None) if bare is None else Memory.attached(row_major(dims, dtype), bare)
    if stored.name in GGUF_TYPES:
        decode_into(Record(record_desc(dims, stored.name), rows), dst, threads)
        return
    if address_of(source) % stored.nbytes:
        source = source.copy()
    reorder(Memory.attached(row_major(dims, stored.name), source), out=dst, threads=threads)


@lru_cache(maxsize=64)  # the tensors of a model have few shapes
def _decoder(name: str, dims: tuple[int, ...]) -> Callable[..., None]:
    """Return a function that decodes the blocks of a row-major array into row-major floats."""
    with importing():  # both load LLVM, which is slow
        from reorder.cpu.decoding.jobs import decode
        from reorder.cpu.decoding.pattern import place_pattern
    # as a matrix of the same blocks in the same order, with few in a row
    block = GGUF_TYPES[name].block
    count = dims[-1] // block
    row = next((k for k in range(min(count, _MAX_BLOCKS), 1, -1) if count % k == 0), 1)
    placed = place_pattern(record_desc((prod(dims) // block // row, row * block), name))
    assert placed is not None  # noqa: S101 - a test checks every row of the table
    return partial(decode, placed)


def _type_of(qtype: Any) -> GgufType:
    name = qtype
    if not isinstance(qtype, str | bool):
        with suppress(TypeError, KeyError):
            name = GGUF_NUMBERS[index(qtype)].name
    row = _TYPES.get(name.lower()) if isinstance(name, str) else None
    if row is None:
        names = ", ".join(dict.fromkeys(map(str, _TYPES.values())))
        raise MemdescError(
            f"{short_repr(qtype)} is not a GGUF type that can be decoded; pass the name, the "
            f"number or the gguf.GGMLQuantizationType of one of {names}"
        )
    return row


def _array(what: str, value: Any, elements: str) -> NDArray[Any]:
    refuse_masked(what, value)
    if isinstance(value, np.ndarray):
        return value
    if not is_exporter(value):
        raise MemdescError(
            f"{what} must be an ndarray or a torch tensor of {elements}, not {short_repr(value)}"
        )
    return from_dlpack(value, what, write=what == "out")


def _rows(data: Any, stored: GgufType) -> NDArray[np.uint8]:
    array = _array("data", data, "uint8")
    legal = [np.dtype(np.uint8)]
    if stored.name in DIRECT:
        legal.append(DATA_TYPES[stored.name].numpy)
    if array.dtype not in legal or not array.ndim:
        what = " or ".join(map(str, legal))
        raise MemdescError(
            f"data of {stored} must be rows of {what}, not {array.shape} {array.dtype}"
        )
    rows: NDArray[np.uint8] = np.ascontiguousarray(array).view(np.uint8)
    if rows.shape[-1] % stored.nbytes:
        blocks = f"blocks of {stored.nbytes} bytes for {counted(stored.block, 'element')}"
        raise MemdescError(
            f"{stored} has {blocks}, which do not divide rows of {rows.shape[-1]} bytes"
        )
    return rows


def _output(out: Any, dims: tuple[int, ...], rows: NDArray[np.uint8]) -> NDArray[Any]:
    array = _array("out", out, "floats")
    if array.shape != dims or array.dtype not in _FLOAT_DTYPES:
        is_swapped = array.dtype.newbyteorder() in _FLOAT_DTYPES
        wanted = f"dims {dims} and a float type" + (" in native byte order" if is_swapped else "")
        raise MemdescError(f"out is {array.shape} of {array.dtype}, but the result has {wanted}")
    if not array.flags.writeable or np.may_share_memory(array, rows):
        problem = "overlaps data" if array.flags.writeable else "is read-only"
        raise MemdescError(f"out {problem}; pass separate, writable memory")
    return np.asarray(array)
