"""GGUF: metadata by key, the tensors with dims innermost first, and aligned bytes.

The package `gguf` loops over as many values as a header claims even if the file is shorter, so
headers are read here, and never beyond the end of the file. Metadata is kept as bytes. A tensor of
a type that is not in our table is bytes with the type's number; as its size is not known, it is
taken to end where the next tensor starts, and may include padding.
A model in several files, NAME-00001-of-00003.gguf and so on, is read as one: each part says how
many there are and which one it is, and the first has the metadata.
Source: `gguf.cpp` of llama.cpp, versions 2 and 3 of the format; gguf 0.19 (`GGML_QUANT_SIZES`,
`GGUFValueType`, `SHARD_NAME_FORMAT`, `Keys.Split`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from memdesc.dtypes import DATA_TYPES
from memdesc.errors import MemdescError, about, short_repr
from memdesc.record.gguf import GGUF_NUMBERS, GgufType, gguf_type
from reorder.checkpoints.formats.descriptors import (
    described,
    descriptors_of,
    split_metadata,
)
from reorder.checkpoints.formats.entry import (
    Container,
    Entry,
    PlannedFile,
    Span,
    Tensor,
    check_entries,
    check_nbytes,
    check_planned,
    checked_shape,
    joined,
    open_container,
    stored_desc,
)


class GgufValue(NamedTuple):
    """A value of metadata: the number of its type, and its bytes."""

    kind: int
    raw: bytes


# types that are neither data types nor records keep GGUF's name
_TYPES = {number: gguf_type(name) for number, name in GGUF_NUMBERS.items()} | {
    9: GgufType("Q8_1", 32, 40),
    15: GgufType("Q8_K", 256, 292),
    41: GgufType("Q1_0", 128, 18),
}
_BY_NAME = {row.name: number for number, row in _TYPES.items()}
# types that are not in the table, such as those of newer or other versions of ggml
_UNKNOWN = re.compile("ggml_type_([0-9]{1,10})")
# what messages say about tensors of unknown types
_WAY = "its bytes can be read and copied into another GGUF, but not decoded"

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
# the most dims in ggml
_MAX_NDIMS = 4
# what the parts of a model say, and how they are called
_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"
_PART_NAME = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf", re.DOTALL)


class _Reader:
    """Reads a header's numbers and strings, and refuses what would end beyond the file."""

    def __init__(self, file: BinaryIO, nbytes: int) -> None:
        self._file = file
        self.at = 0
        self.left = min(nbytes, _MAX_HEADER)

    def take(self, count: int, what: str) -> bytes:
        """Return the next bytes."""
        if count > self.left:
            raise MemdescError(
                f"{what} at byte {self.at} takes {count} bytes, but {self.left} are left of the "
                f"file or of the {_MAX_HEADER} that a header may have"
            )
        data = self._file.read(count)
        if len(data) < count:
            raise MemdescError(f"it ends within {what}, at byte {self.at + len(data)}")
        self.at, self.left = self.at + count, self.left - count
        return data

    def number(self, form: str, what: str) -> int:
        """Return the next number, by its letter in `struct`."""
        value: int = struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}"), what))[0]
        return value

    def count(self, least: int, what: str, form: str = "Q") -> int:
        """Return how many items follow; refuse more than fit if each has `least` bytes."""
        found = self.number(form, what)
        if found * least > self.left:
            raise MemdescError(f"{what} are {found}, but only {self.left} bytes follow")
        return found

    def text(self, what: str) -> str:
        """Return the next string."""
        raw = self.take(self.number("Q", what), what)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise MemdescError(
                f"{what} at byte {self.at} is not UTF-8: {short_repr(raw)}"
            ) from None

    def value(self) -> GgufValue:
        """Return the next value of metadata."""
        kind = self.number("I", "the type of a value")
        return GgufValue(kind, b"".join(self._parts(kind)))

    def _parts(self, kind: int, depth: int = 0) -> Iterator[bytes]:
        """Yield the bytes of a value part by part."""
        if kind in _SCALARS:
            yield self.take(_SCALARS[kind], "a value")
        elif kind == _STRING:
            nbytes = self.number("Q", "a string")
            yield nbytes.to_bytes(8, "little") + self.take(nbytes, "a string")
        elif kind == _ARRAY and depth <= _MAX_DEPTH:
            inner = self.number("I", "the type of an array")
            size = _SCALARS.get(inner, 8)
            count = self.count(size, "the values of an array")
            yield struct.pack("<IQ", inner, count)
            if inner in _SCALARS:
                yield self.take(size * count, "an array")
            else:
                for _ in range(count):
                    yield from self._parts(inner, depth + 1)
        else:
            raise MemdescError(
                f"a value at byte {self.at} has type {kind}, which is unknown or nested too deep"
            )


def read(path: Path) -> Container:
    """Read the header of a file, and those of the other parts of its model."""
    part = _read_file(path)
    count, number = _part_number(part, _COUNT) or 0, _part_number(part, _NUMBER) or 0
    if count <= 1:
        return part
    which = f"{str(path)!r} is part {number + 1} of {count} of a model"
    name = _PART_NAME.fullmatch(path.name)
    if name is None or (int(name[2]), int(name[3])) != (number + 1, count):
        raise MemdescError(
            f"{which}, so it must be called NAME-{number + 1:05}-of-{count:05}.gguf, and the other "
            "parts must have such names too"
        )
    parts = []
    for k in range(count):
        other = path.with_name(f"{name[1]}-{k + 1:05}-of-{count:05}.gguf")
        if not other.exists():
            raise MemdescError(
                f"{which}: {str(other)!r} is missing, and all parts must be in one folder"
            )
        parts.append(part if k == number else _read_file(other))
        if (_part_number(parts[k], _NUMBER), _part_number(parts[k], _COUNT)) != (k, count):
            raise MemdescError(f"{str(other)!r} does not say that it is part {k + 1} of {count}")
    model = joined(path, parts)
    wanted = _part_number(part, _TENSORS)
    if wanted is not None and wanted != len(model.entries):
        raise MemdescError(
            f"{str(path)!r} says {wanted} tensors in {count} parts, which have {len(model.entries)}"
        )
    metadata = dict(model.metadata)
    for key in (_NUMBER, _COUNT, _TENSORS):
        metadata.pop(key, None)
    return model._replace(metadata=metadata)


def _part_number(part: Container, key: str) -> int | None:
    """Return an integer of the metadata, or None if it does not have the key."""
    value = part.metadata.get(key)
    if value is None or (isinstance(value, GgufValue) and value.kind in _INTEGERS):
        return value if value is None else int.from_bytes(value.raw, "little")
    raise MemdescError(f"{str(part.files[0])!r}: {key} is not an integer")


def _read_file(path: Path) -> Container:
    with open_container(path, "a GGUF file") as (file, state):
        reader = _Reader(file, state.nbytes)
        magic, version = reader.take(len(_MAGIC), "the magic"), reader.number("I", "the version")
        if magic != _MAGIC or version not in _VERSIONS:
            raise MemdescError(
                f"it starts with {magic!r} and version {version}; little-endian 2 and 3 are read"
            )
        # a name, dims, a type, an offset; a key and a value
        ntensors = reader.count(8 + 4 + 4 + 8, "tensors")
        values: dict[str, GgufValue] = {}
        for _ in range(reader.count(8 + 4 + 1, "values of metadata")):
            key = reader.text("a key")
            if key in values:
                raise MemdescError(f"two values of metadata are called {short_repr(key)}")
            values[key] = reader.value()
        infos = [_info(reader) for _ in range(ntensors)]
        alignment = _alignment(values.get(_ALIGNMENT_KEY))
        start = -(-reader.at // alignment) * alignment
        strings = {key: _string(value) for key, value in values.items() if value.kind == _STRING}
        texts, rest = split_metadata(strings, {info.name for info in infos})
        ends = [*(info.offset for info in infos[1:]), state.nbytes - start]
        _check_offsets(infos, alignment)
        entries = described(
            (
                Entry(
                    *(info.name, info.dtype, info.shape, path),
                    *(start + info.offset, info.nbytes(end), state),
                )
                for info, end in zip(infos, ends[: len(infos)], strict=True)
            ),
            texts,
        )
        for k, info in enumerate(infos):
            if info.kind not in _TYPES:
                reason = f"memdesc does not know type {info.kind} of GGUF; {_WAY}"
                entries[k] = replace(entries[k], reason=reason)
        metadata = {
            key: rest.get(key, value)
            for key, value in values.items()
            if key in rest or key not in strings
        }
        return Container("gguf", check_entries(entries), metadata, (path,))


class _Info(NamedTuple):
    """What a header says about a tensor; the offset is from the start of the data."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int

    @property
    def dtype(self) -> str:
        """The name of its type, made from the number if it is not in the table."""
        return _TYPES[self.kind].name if self.kind in _TYPES else f"ggml_type_{self.kind}"

    def nbytes(self, end: int) -> int:
        """Return its size in bytes; one of an unknown type extends to `end`, the next tensor."""
        row, count = _TYPES.get(self.kind), prod(self.shape)
        if row is not None:
            return count // row.block * row.nbytes
        if count and end <= self.offset:
            raise MemdescError(
                f"tensor {short_repr(self.name)} of type {self.kind} starts at byte {self.offset} "
                f"of the data and ends at {end}: it has no bytes"
            )
        return end - self.offset if count else 0


def _info(reader: _Reader) -> _Info:
    name = reader.text("the name of a tensor")
    with about(f"tensor {short_repr(name)}"):
        ndims = reader.count(8, "dims", "I")
        dims = struct.unpack(f"<{ndims}Q", reader.take(8 * ndims, "dims"))
        kind, offset = reader.number("I", "a type"), reader.number("Q", "an offset")
        shape = checked_shape(dims[::-1])
        row, last = _TYPES.get(kind), shape[-1] if shape else 1
        if row is not None and last % row.block:
            raise MemdescError(
                f"{row.name} has blocks of {row.block} elements, which do not divide its rows of "
                f"{last}"
            )
    return _Info(name, shape, kind, offset)


def _check_offsets(infos: Sequence[_Info], alignment: int) -> None:
    """Refuse tensors that are not aligned, or not in the order of the header."""
    before, last = "", 0
    for info in infos:
        place = f"tensor {short_repr(info.name)} starts at byte {info.offset} of the data"
        if info.offset % alignment:
            raise MemdescError(f"{place}, which is not a multiple of the alignment, {alignment}")
        if info.offset < last:
            raise MemdescError(
                f"{place}, but {short_repr(before)}, which comes before it, at {last}"
            )
        before, last = info.name, info.offset


def _string(value: GgufValue) -> str:
    return value.raw[8:].decode(errors="surrogateescape")


def _alignment(value: GgufValue | None) -> int:
    if value is None:
        return _ALIGNMENT
    if value.kind not in _INTEGERS or len(value.raw) != struct.calcsize("I"):
        raise MemdescError(f"{_ALIGNMENT_KEY} is not an integer of 32 bits")
    found = int.from_bytes(value.raw, "little")
    if not found or found & (found - 1):
        raise MemdescError(f"{_ALIGNMENT_KEY} is {found}, not a power of 2")
    return found


def plan(
    name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]
) -> tuple[PlannedFile, ...]:
    """Plan a file."""
    check_planned(name, tensors)
    stored = [_stored(tensor) for tensor in tensors]
    texts = {**metadata, **descriptors_of(tensor for tensor, _ in stored)}
    values = {key: _value(key, value) for key, value in texts.items()}
    alignment = _alignment(values.get(_ALIGNMENT_KEY))
    head = [_MAGIC, struct.pack("<IQQ", _VERSION, len(tensors), len(values))]
    for key, value in values.items():
        head += [_text(key), struct.pack("<I", value.kind), value.raw]
    at, offsets = 0, []
    for tensor, kind in stored:
        ndims = len(tensor.shape)
        numbers = struct.pack(f"<I{ndims}QIQ", ndims, *tensor.shape[::-1], kind, at)
        head += [_text(tensor.name), numbers]
        offsets.append(at)
        at += -(-tensor.nbytes // alignment) * alignment
    text = b"".join(head)
    start = -(-len(text) // alignment) * alignment
    spans = {
        each.name: Span(start + offset, each.nbytes)
        for each, offset in zip(tensors, offsets, strict=True)
    }
    return (PlannedFile(name, start + at, ((0, text),), spans),)


def _text(text: str) -> bytes:
    raw = text.encode(errors="surrogateescape")  # as `_string` reads it
    return struct.pack("<Q", len(raw)) + raw


def _value(key: str, value: object) -> GgufValue:
    if isinstance(value, GgufValue):
        return value
    if isinstance(value, str):
        return GgufValue(_STRING, _text(value))
    raise MemdescError(f"metadata {short_repr(key)} is neither a string nor a value of GGUF")


def _stored(tensor: Tensor) -> tuple[Tensor, int]:
    """Return a tensor as GGUF has it, and the number of its type. Fails if GGUF cannot hold it.

    For types and dims that GGUF lacks it has integers of as many bits, and joins the outer dims; a
    descriptor says what they are.
    """
    dtype, shape = tensor.dtype, tensor.shape
    unknown = _UNKNOWN.fullmatch(dtype)
    kind = int(unknown[1]) if unknown else _BY_NAME.get(dtype)
    if dtype in DATA_TYPES and (kind is None or len(shape) > _MAX_NDIMS):
        tensor = tensor._replace(desc=tensor.desc or stored_desc(dtype, shape)[0])
        kind = _BY_NAME.get(f"s{DATA_TYPES[dtype].bits}") if kind is None else kind
        count = max(len(shape) - _MAX_NDIMS, 0) + 1
        shape = (prod(shape[:count]), *shape[count:])
    if kind is None or len(shape) > _MAX_NDIMS:
        problem = f"no type {dtype!r}" if kind is None else f"{_MAX_NDIMS} dims, not {shape}"
        raise MemdescError(
            f"tensor {short_repr(tensor.name)}: GGUF has {problem}; write a .safetensors"
        )
    if kind in _TYPES:
        row = _TYPES[kind]
        check_nbytes(tensor, prod(shape) * row.nbytes / row.block)
        tensor = tensor._replace(dtype=row.name)
    # the package gguf expects at least one dim
    return tensor._replace(shape=shape or (1,)), kind
