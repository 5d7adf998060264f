"""GGUF: metadata by key, the tensors with dims innermost first, and aligned bytes.

The package `gguf` goes through as many values as a header claims, whatever the file has, so
headers are read here: nothing is read that the file is too short for. Metadata is kept as bytes.
A tensor of a type that is not in our table is bytes with the number of the type. Its size is not
known, so it is taken to end where the next tensor starts, and may include padding.
Source: `gguf.cpp` of llama.cpp, versions 2 and 3 of the format.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import DATA_TYPES
from memdesc.disk import open_file
from memdesc.errors import MemdescError, short_repr
from reorder.storage.containers.descriptors import (
    checked_shape,
    describe,
    descriptors_of,
    split_metadata,
    stored_desc,
)
from reorder.storage.containers.entry import Container, Entry, FileState, check_entries, check_name
from reorder.storage.containers.gguf_reader import Reader
from reorder.storage.containers.gguf_split import join_parts
from reorder.storage.containers.gguf_types import (
    STRING,
    TYPES,
    GgufValue,
    type_name,
    type_number,
)
from reorder.storage.containers.plan import PlannedFile, Span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from reorder.storage.containers.plan import Tensor

__all__ = ["is_format", "plan", "read"]

_MAGIC = b"GGUF"
_VERSION, _VERSIONS = 3, (2, 3)
_ALIGNMENT_KEY, _ALIGNMENT = "general.alignment", 32
_U32 = 4
# dims that ggml has
_MAX_NDIMS = 4
# what can be done with a tensor of an unknown type
_WAY = "its bytes can be read and copied into another GGUF, but not decoded"
# words that have no type of GGUF, by their bits
_WORDS = {8: "s8", 16: "s16", 32: "s32", 64: "s64"}


def is_format(start: bytes) -> bool:
    """Whether the first bytes of a file are those of this format."""
    return start.startswith(_MAGIC)


def read(path: Path) -> Container:
    """Read the header of a file, and those of the other parts of its model.

    Raises
    ------
    MemdescError
        If a file is damaged: with the rule, the tensor and the numbers.
    """
    return join_parts(path, _read_file(path), _read_file)


def _read_file(path: Path) -> Container:
    with open_file(path) as file:
        state = FileState.of(file.fileno())
        try:
            metadata, entries = _read(Reader(file, state.nbytes), path, state)
        except MemdescError as error:
            msg = f"{str(path)!r} is not a GGUF file, or a damaged one: {error}"
            raise MemdescError(msg) from None
    return Container("gguf", check_entries(entries), metadata, (path,))


def _read(
    reader: Reader, path: Path, state: FileState
) -> tuple[dict[str, str | GgufValue], list[Entry]]:
    magic, version = reader.take(len(_MAGIC), "the magic"), reader.number("I", "the version")
    if magic != _MAGIC or version not in _VERSIONS:
        msg = f"it starts with {magic!r} and version {version}; little-endian 2 and 3 are read"
        raise MemdescError(msg)
    # a name, dims, a type, an offset; a key and a value
    ntensors = reader.count(8 + 4 + 4 + 8, "tensors")
    nvalues = reader.count(8 + 4 + 1, "values of metadata")
    values: dict[str, GgufValue] = {}
    for _ in range(nvalues):
        key = reader.text("a key")
        if key in values:
            msg = f"two values of metadata are called {short_repr(key)}"
            raise MemdescError(msg)
        kind = reader.number("I", "the type of a value")
        values[key] = GgufValue(kind, reader.value(kind))
    infos = [_info(reader) for _ in range(ntensors)]
    alignment = _alignment(values.get(_ALIGNMENT_KEY))
    start = -(-reader.at // alignment) * alignment
    strings = {key: _string(value) for key, value in values.items() if value.kind == STRING}
    texts, _ = split_metadata(strings)
    if unknown := texts.keys() - {info.name for info in infos}:
        msg = f"a descriptor of {short_repr(min(unknown))}, which it does not have"
        raise MemdescError(msg)
    _check_offsets(infos, alignment)
    entries = []
    ends = [info.offset for info in infos[1:]]
    for info, end in zip(infos, chain(ends, [state.nbytes - start]), strict=False):
        nbytes, dtype = _nbytes(info, end), type_name(info.kind)
        entry = Entry(info.name, dtype, info.shape, path, start + info.offset, nbytes, state)
        entry = describe(entry, texts.get(info.name))
        if info.kind not in TYPES:
            entry = replace(entry, reason=f"memdesc does not know type {info.kind} of GGUF; {_WAY}")
        entries.append(entry)
    _, rest = split_metadata(dict.fromkeys(values, ""))
    metadata = {key: strings.get(key, values[key]) for key in rest}
    return metadata, entries


class _Info(NamedTuple):
    """What a header says of a tensor; its offset is that in the data."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


def _check_offsets(infos: Sequence[_Info], alignment: int) -> None:
    """Refuse tensors that do not lie in the order of the header, or are not aligned."""
    before = ""
    last = 0
    for info in infos:
        if info.offset % alignment:
            msg = (
                f"tensor {short_repr(info.name)} starts at byte {info.offset} of the data, which "
                f"is not a multiple of the alignment, {alignment}"
            )
            raise MemdescError(msg)
        if info.offset < last:
            msg = (
                f"tensor {short_repr(info.name)} starts at byte {info.offset} of the data, but "
                f"{short_repr(before)}, which comes before it, at {last}"
            )
            raise MemdescError(msg)
        before, last = info.name, info.offset


def _nbytes(info: _Info, end: int) -> int:
    """Return the bytes of a tensor; of one of an unknown type, all in front of the next tensor."""
    row = TYPES.get(info.kind)
    if row is not None:
        return prod(info.shape) // row.block * row.nbytes
    if not prod(info.shape):
        return 0
    if end <= info.offset:
        msg = (
            f"tensor {short_repr(info.name)} of type {info.kind} starts at byte {info.offset} of "
            f"the data and ends at {end}: it has no bytes"
        )
        raise MemdescError(msg)
    return end - info.offset


def _string(value: GgufValue) -> str:
    return value.raw[8:].decode(errors="surrogateescape")


def _alignment(value: GgufValue | None) -> int:
    if value is None:
        return _ALIGNMENT
    found = int.from_bytes(value.raw, "little") if len(value.raw) == _U32 else 0
    if not found or found & (found - 1):
        msg = f"{_ALIGNMENT_KEY} is {found}, not a power of 2"
        raise MemdescError(msg)
    return found


def _info(reader: Reader) -> _Info:
    name = reader.text("the name of a tensor")
    ndims = reader.number("I", "the number of dims")
    if 8 * ndims > reader.left:
        msg = f"tensor {short_repr(name)} has {ndims} dims, but {reader.left} bytes follow"
        raise MemdescError(msg)
    dims = struct.unpack(f"<{ndims}Q", reader.take(8 * ndims, "dims"))
    kind, offset = reader.number("I", "a type"), reader.number("Q", "an offset")
    try:
        shape = checked_shape(dims[::-1])
    except MemdescError as error:
        msg = f"tensor {short_repr(name)}: {error}"
        raise MemdescError(msg) from None
    row, last = TYPES.get(kind), shape[-1] if shape else 1
    if row is not None and last % row.block:
        msg = (
            f"tensor {short_repr(name)}: {row.name} has blocks of {row.block} elements, which do "
            f"not divide its rows of {last}"
        )
        raise MemdescError(msg)
    return _Info(name, shape, kind, offset)


def plan(
    name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]
) -> tuple[PlannedFile, ...]:
    """Plan a file; words that GGUF has no type for, such as u8, are integers with a descriptor.

    Raises
    ------
    MemdescError
        If the format has no such type, a value of metadata is none of it, or two tensors have one
        name.
    """
    stored = [_stored(tensor) for tensor in tensors]
    described = descriptors_of(
        (each, stored_desc(type_name(kind), each.shape)[0]) for each, kind in stored
    )
    values = {key: _value(key, value) for key, value in {**metadata, **described}.items()}
    alignment = _alignment(values.get(_ALIGNMENT_KEY))
    head = [_MAGIC, struct.pack("<IQQ", _VERSION, len(tensors), len(values))]
    for key, value in values.items():
        head += [_text(key), struct.pack("<I", value.kind), value.raw]
    at = 0
    offsets: dict[str, int] = {}
    for tensor, kind in stored:
        if check_name(tensor.name) in offsets:
            msg = f"two tensors would be called {short_repr(tensor.name)} in {name!r}"
            raise MemdescError(msg)
        offsets[tensor.name] = at
        ndims = len(tensor.shape)
        head += [
            _text(tensor.name),
            struct.pack(f"<I{ndims}QIQ", ndims, *tensor.shape[::-1], kind, at),
        ]
        at += -(-tensor.nbytes // alignment) * alignment
    text = b"".join(head)
    start = -(-len(text) // alignment) * alignment
    spans = {each.name: Span(start + offsets[each.name], each.nbytes) for each in tensors}
    return (PlannedFile(name, start + at, ((0, text),), spans),)


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(key: str, value: object) -> GgufValue:
    if isinstance(value, GgufValue):
        return value
    if isinstance(value, str):
        raw = value.encode(errors="surrogateescape")
        return GgufValue(STRING, struct.pack("<Q", len(raw)) + raw)
    msg = f"metadata {short_repr(key)} is neither a string nor a value of GGUF"
    raise MemdescError(msg)


def _stored(tensor: Tensor) -> tuple[Tensor, int]:
    """Return a tensor as GGUF has it, and the number of its type."""
    kind = type_number(tensor.dtype)
    dtype = DATA_TYPES.get(tensor.dtype)
    if kind is None and dtype is not None and dtype.bits in _WORDS:
        desc = tensor.desc or stored_desc(tensor.dtype, tensor.shape)[0]
        tensor, kind = tensor._replace(desc=desc), type_number(_WORDS[dtype.bits])
    if kind is None:
        msg = (
            f"tensor {short_repr(tensor.name)}: GGUF has no type {tensor.dtype!r}; store it as u8, "
            "with a descriptor"
        )
        raise MemdescError(msg)
    # readers of the package gguf expect a dim
    tensor = tensor._replace(shape=tensor.shape or (1,))
    row = TYPES.get(kind)
    if len(tensor.shape) > _MAX_NDIMS:
        desc = tensor.desc or stored_desc(tensor.dtype, tensor.shape)[0]
        outer, inner = tensor.shape[: 1 - _MAX_NDIMS], tensor.shape[1 - _MAX_NDIMS :]
        if desc is None or row is None or row.block > 1:
            msg = (
                f"tensor {short_repr(tensor.name)}: GGUF has {_MAX_NDIMS} dims, not {tensor.shape}"
            )
            raise MemdescError(msg)
        # the descriptor has the others
        tensor = tensor._replace(desc=desc, shape=(prod(outer), *inner))
    if row is not None and prod(tensor.shape) * row.nbytes != tensor.nbytes * row.block:
        msg = (
            f"tensor {short_repr(tensor.name)}: {tensor.dtype} of shape {tensor.shape} takes "
            f"{prod(tensor.shape) * row.nbytes / row.block:g} bytes, not {tensor.nbytes}"
        )
        raise MemdescError(msg)
    return tensor, kind
