"""GGUF: metadata by key, the tensors with dims innermost first, and aligned bytes.

The package `gguf` loops over as many values as a header claims even if the file is shorter, so
headers are read here, and never beyond the end of the file. Metadata is kept as bytes. A tensor of
a type that is not in our table is bytes with the type's number; because its size is not known, it
is taken to end where the next tensor starts, and may include padding. A model in several files,
NAME-00001-of-00003.gguf and so on, is read as one: each part says how many there are and which one
it is, and the first has the metadata. Source: `gguf.cpp` of llama.cpp, versions 2 and 3 of the
format; gguf 0.19 (`GGML_QUANT_SIZES`, `GGUFValueType`, `SHARD_NAME_FORMAT`, `Keys.Split`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from memdesc.dtypes import DATA_TYPES
from memdesc.errors import MemdescError, about, short_repr
from memdesc.record.gguf import GGUF_NUMBERS, GgufType
from memdesc.tuples import NamedTuple
from reorder.checkpoints.formats.entry import (
    GGUF_NDIMS,
    Container,
    Entry,
    PlannedFile,
    Tensor,
    checked_shape,
    container_of,
    descriptors_of,
    joined,
    open_container,
    stored_desc,
)
from reorder.disk import naming


class GgufValue(NamedTuple):
    """A value of metadata: the number of its type, and its bytes."""

    value_type: int
    raw: bytes


# types that are neither data types nor records keep GGUF's name
_TYPES = {
    **GGUF_NUMBERS,
    9: GgufType("Q8_1", 32, 40),
    15: GgufType("Q8_K", 256, 292),
    41: GgufType("Q1_0", 128, 18),
}
_BY_NAME = {row.name: number for number, row in _TYPES.items()}
# types that are not in the table, such as those of newer or other versions of ggml
_UNKNOWN = re.compile("ggml_type_([0-9]{1,10})")

# bytes of metadata values of a fixed size, by type, and the other types
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_INTEGERS = _SCALARS.keys() - {6, 12}
_STRING, _ARRAY = 8, 9
# the most levels of arrays within arrays
_MAX_DEPTH = 4
# the most bytes before the data; tokenizers take some ten million
_MAX_HEADER = 2**28
_MAGIC, _VERSION, _VERSIONS = b"GGUF", 3, (2, 3)
_ALIGNMENT_KEY, _ALIGNMENT = "general.alignment", 32
# what the parts of a model say: which one each is, of how many, and the tensors of all
_SPLIT = ("split.no", "split.count", "split.tensors.count")
_ENDING = "-{:05}-of-{:05}.gguf"


class _Reader:
    """Reads a header's numbers and strings, and refuses what would end beyond the file."""

    def __init__(self, file: BinaryIO, nbytes: int) -> None:
        self._file, self.at, self._end = file, 0, min(nbytes, _MAX_HEADER)

    def take(self, count: int, what: str) -> bytes:
        left = self._end - self.at
        data = self._file.read(count) if count <= left else b""
        if len(data) < count:  # not mapped: a file that shrinks is an error, not a signal
            left = min(left, len(data)) if count <= left else left
            raise MemdescError(
                f"{what} at byte {self.at} takes {count} bytes, but {left} are left of the file or "
                f"of the {_MAX_HEADER} that a header may have"
            )
        self.at += count
        return data

    def number(self, nbytes: int, what: str) -> int:
        return int.from_bytes(self.take(nbytes, what), "little")

    def text(self, what: str) -> str:
        raw = self.take(self.number(8, what), what)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            where = f"{what} at byte {self.at}"
            raise MemdescError(f"{where} is not UTF-8: {short_repr(raw)}") from None

    def value(self) -> str | GgufValue:
        value_type, raw = self.number(4, "the type of a value"), bytearray()
        self._add_values(value_type, 1, raw)
        if value_type == _STRING:
            return raw[8:].decode(errors="surrogateescape")
        return GgufValue(value_type, bytes(raw))

    def _add_values(self, value_type: int, count: int, raw: bytearray, depth: int = 0) -> None:
        if value_type in _SCALARS:
            raw += self.take(_SCALARS[value_type] * count, "an array" if depth else "a value")
            return
        for _ in range(count):
            if value_type == _STRING:
                raw += (size := self.take(8, "a string"))
                raw += self.take(int.from_bytes(size, "little"), "a string")
            elif value_type == _ARRAY and depth <= _MAX_DEPTH:
                raw += (head := self.take(12, "an array"))
                inner, number = struct.unpack("<IQ", head)
                self._add_values(inner, number, raw, depth + 1)
            else:
                why = "which is unknown or nested too deep"
                raise MemdescError(f"a value at byte {self.at} has type {value_type}, {why}")


def read(path: Path) -> Container:
    """Read the header of a file, and those of the other parts of its model."""
    part = _read_part(path)
    number, count, ntensors = _split_of(part)
    if count <= 1:
        return part
    which = f"{str(path)!r} is part {number + 1} of {count} of a model"
    own, parts = _ENDING.format(number + 1, count), []
    if not path.name.endswith(own):
        raise MemdescError(f"{which}; parts must have names such as NAME{own}")
    for k in range(count):
        other = path.with_name(path.name.removesuffix(own) + _ENDING.format(k + 1, count))
        if not other.exists():
            raise MemdescError(f"{which}: {str(other)!r} is missing, which must be beside it")
        parts.append(part if k == number else _read_part(other))
        if _split_of(parts[k])[:2] != (k, count):
            raise MemdescError(f"{str(other)!r} does not say that it is part {k + 1} of {count}")
    model = joined(path, parts)
    if ntensors not in {0, len(model.entries)}:
        have = f"in {count} parts, which have {len(model.entries)}"
        raise MemdescError(f"{str(path)!r} says {ntensors} tensors {have}")
    rest = {key: value for key, value in model.metadata.items() if key not in _SPLIT}
    return model._replace(metadata=rest)


def _split_of(part: Container) -> tuple[int, int, int]:
    """Return which part of a model a file is, of how many, and the tensors of all; or zeros."""
    with naming(part.files[0]):
        number, count, ntensors = (_integer(part.metadata, key) for key in _SPLIT)
    return number, count, ntensors


def _integer(metadata: Mapping[str, Any], key: str, default: int = 0) -> int:
    value = metadata.get(key)
    if value is None:
        return default
    if not isinstance(value, GgufValue) or value.value_type not in _INTEGERS:
        raise MemdescError(f"{key} is not an integer")
    return int.from_bytes(value.raw, "little")


def _read_part(path: Path) -> Container:
    with open_container(path, "a GGUF file") as (file, state):
        reader = _Reader(file, state.nbytes)
        magic, version = reader.take(len(_MAGIC), "the magic"), reader.number(4, "the version")
        if magic != _MAGIC or version not in _VERSIONS:
            raise MemdescError(
                f"it starts with {magic!r} and version {version}; little-endian 2 and 3 are read, "
                "and gguf-convert-endian, of the package gguf, turns big-endian files"
            )
        ntensors = reader.number(8, "the number of tensors")
        values: dict[str, str | GgufValue] = {}
        for _ in range(reader.number(8, "the number of values")):
            key = reader.text("a key")
            if key in values:
                raise MemdescError(f"two values of metadata are called {short_repr(key)}")
            values[key] = reader.value()
        infos = [_info(reader) for _ in range(ntensors)]
        alignment = _alignment(values)
        start = -(-reader.at // alignment) * alignment
        entries = []
        for (name, shape, ggml_type, at), after in zip_longest(infos, infos[1:]):
            place = f"tensor {short_repr(name)} starts at byte {at} of the data"
            if at % alignment:
                raise MemdescError(f"{place}, not a multiple of the alignment, {alignment}")
            if after and after[-1] < at:
                raise MemdescError(f"{place}, but the next, {short_repr(after[0])}, before it")
            # the size of a tensor of an unknown type is not known
            nbytes, row = (after[-1] if after else state.nbytes - start) - at, _TYPES.get(ggml_type)
            if row or not prod(shape):
                nbytes = prod(shape) // row.block * row.nbytes if row else 0
            elif nbytes <= 0:
                raise MemdescError(f"{place} and ends there: it has no bytes")
            dtype = row.name if row else f"ggml_type_{ggml_type}"
            why = f"memdesc does not know type {ggml_type} of GGUF; its bytes can only be copied"
            where = (path, start + at, nbytes, state)
            entries.append(Entry(name, dtype, shape, *where, reason="" if row else why))
        return container_of("gguf", path, entries, values)


def _info(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
    """Return the name, the shape and the type of a tensor, and its offset in the data."""
    name = reader.text("the name of a tensor")
    with about(f"tensor {short_repr(name)}"):
        ndims = reader.number(4, "the number of dims")
        dims = struct.unpack(f"<{ndims}Q", reader.take(8 * ndims, "dims"))
        ggml_type, offset = reader.number(4, "a type"), reader.number(8, "an offset")
        shape = checked_shape(dims[::-1])
        row, last = _TYPES.get(ggml_type), shape[-1] if shape else 1
        if row is not None and last % row.block:
            blocks = f"{row.name} has blocks of {row.block} elements"
            raise MemdescError(f"{blocks}, which do not divide its rows of {last}")
    return name, shape, ggml_type, offset


def _alignment(values: Mapping[str, Any]) -> int:
    alignment = _integer(values, _ALIGNMENT_KEY, _ALIGNMENT)
    if not alignment or alignment & (alignment - 1):
        raise MemdescError(f"{_ALIGNMENT_KEY} is {alignment}, not a power of 2")
    return alignment


def plan(name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]) -> PlannedFile:
    """Plan a file."""
    stored = [_stored(tensor) for tensor in tensors]
    values = {**metadata, **descriptors_of(tensor for tensor, _ in stored)}
    alignment = _alignment(values)
    head = [_MAGIC, struct.pack("<IQQ", _VERSION, len(tensors), len(values))]
    for key, value in values.items():
        if not isinstance(value, str | GgufValue):
            raise MemdescError(f"metadata {short_repr(key)} is neither a string nor of GGUF")
        value_type, raw = (_STRING, _text(value)) if isinstance(value, str) else value
        head += [_text(key), struct.pack("<I", value_type), raw]
    at, places = 0, dict[str, int]()
    for tensor, ggml_type in stored:
        ndims = len(tensor.shape)
        numbers = struct.pack(f"<I{ndims}QIQ", ndims, *tensor.shape[::-1], ggml_type, at)
        head += [_text(tensor.name), numbers]
        places[tensor.name], at = at, at + -(-tensor.nbytes // alignment) * alignment
    text = b"".join(head)
    start = -(-len(text) // alignment) * alignment
    spans = {tensor.name: (start + places[tensor.name], tensor.nbytes) for tensor in tensors}
    return PlannedFile(name, start + at, ((0, text),), spans)


def _text(text: str) -> bytes:
    raw = text.encode(errors="surrogateescape")  # as values are read
    return struct.pack("<Q", len(raw)) + raw


def _stored(tensor: Tensor) -> tuple[Tensor, int]:
    """Return a tensor as GGUF has it, and the number of its type.

    If GGUF lacks its type, it has integers of the same width. Dims beyond four are joined.
    """
    dtype, shape = tensor.dtype, tensor.shape
    unknown = _UNKNOWN.fullmatch(dtype)
    ggml_type = int(unknown[1]) if unknown else _BY_NAME.get(dtype)
    if dtype in DATA_TYPES and (ggml_type is None or len(shape) > GGUF_NDIMS):
        tensor = tensor._replace(desc=tensor.desc or stored_desc(dtype, shape)[0])
        ggml_type = _BY_NAME.get(f"s{DATA_TYPES[dtype].bits}") if ggml_type is None else ggml_type
        count = max(len(shape) - GGUF_NDIMS, 0) + 1
        shape = (prod(shape[:count]), *shape[count:])
    if ggml_type is None or len(shape) > GGUF_NDIMS:
        problem = f"no type {dtype!r}" if ggml_type is None else f"{GGUF_NDIMS} dims, not {shape}"
        raise MemdescError(
            f"tensor {short_repr(tensor.name)}: GGUF has {problem}; write a .safetensors"
        )
    if ggml_type in _TYPES:
        tensor = tensor._replace(dtype=_TYPES[ggml_type].name)
    # the package gguf expects at least one dim
    return tensor._replace(shape=shape or (1,)), ggml_type
