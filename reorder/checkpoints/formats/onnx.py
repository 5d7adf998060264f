"""ONNX: the initializers of a graph, in the model or in files of external data.

Models are read from the file as protobuf messages, field by
field, since `onnx.load` copies all of it into memory. They are not written: nodes depend on the
types and shapes of their inputs, so a model could only be copied.
Source: `ExternalData.md` and `onnx.proto` of onnx 1.18; the encoding of protobuf,
https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, NamedTuple

from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.errors import MemdescError, short_repr
from reorder.checkpoints.formats.entry import (
    Container,
    Entry,
    FileState,
    check_entries,
    check_name,
    checked_shape,
    described,
    open_container,
    safe_path,
    split_metadata,
)

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# the most bytes in a number of 64 bits; the numbers of fields have 29 bits
_MAX_VARINT, _MAX_NUMBER, _MAX_FIELD = 10, 2**64, 2**29
# the most bytes in a name, in a location, and in a descriptor
_MAX_TEXT = 2**20
# numbers of fields: of ModelProto, GraphProto, SparseTensorProto, TensorProto,
# StringStringEntryProto
_GRAPH, _METADATA = 7, 14
_NODE, _INITIALIZER, _SPARSE = 1, 5, 15
_SPARSE_VALUES = 1
_DIMS, _TYPE, _NAME, _RAW, _EXTERNAL, _LOCATION = 1, 2, 8, 9, 13, 14
_KEY, _VALUE = 1, 2
# fields of typed values that are stored like raw bytes, by the type: floats and doubles
_TYPED = {1: 4, 11: 10}
_IS_EXTERNAL = 1
# TensorProto.DataType, and the data types here
_TYPES = {
    1: "f32",
    2: "u8",
    3: "s8",
    4: "u16",
    5: "s16",
    6: "s32",
    7: "s64",
    9: "boolean",
    10: "f16",
    11: "f64",
    12: "u32",
    13: "u64",
    16: "bf16",
    17: "f8_e4m3",
    18: "f8_e4m3fnuz",
    19: "f8_e5m2",
    20: "f8_e5m2fnuz",
    21: "u4",
    22: "s4",
    23: "f4_e2m1",
    24: "e8m0",
}
# the other types of numbers, by ONNX's names, with their bits
_OTHERS = {14: ("complex64", 64), 15: ("complex128", 128), 25: ("uint2", 2), 26: ("int2", 2)}
_NAMES = _TYPES | {number: name for number, (name, _) in _OTHERS.items()}
NUMBERS = MappingProxyType({name: number for number, name in _NAMES.items()})
_BITS = {name: DATA_TYPES[name].bits for name in _TYPES.values()} | dict(_OTHERS.values())
# the most digits in an offset
_MAX_DIGITS = 19
# keys of external data that are read
_EXTERNAL_KEYS = {"location", "offset", "length"}


class _Field(NamedTuple):
    """A field of a message: its number, its range in the file, and the range of what it holds."""

    number: int
    at: int
    start: int
    end: int
    # if it is a number
    value: int | None


def _fields(file: BinaryIO, start: int, end: int) -> Iterator[_Field]:
    """Yield the fields of a message, given the range of its bytes in a file.

    Fails if a field ends after the message, or is not a field.
    """
    at = start
    while at < end:
        tag, content = _varint(file, at, end)
        number, kind = tag >> 3, tag & 7
        value = None
        if kind == _VARINT:
            value, stop = _varint(file, content, end)
        elif kind == _BYTES:
            nbytes, content = _varint(file, content, end)
            stop = content + nbytes
        elif kind in {_FIXED32, _FIXED64}:
            stop = content + (8 if kind == _FIXED64 else 4)
        else:
            msg = f"byte {at} does not start a field of a protobuf message"
            raise MemdescError(msg)
        if stop > end or not 0 < number < _MAX_FIELD:
            msg = (
                f"field {number} at byte {at} ends at byte {stop} of a message that ends at {end}; "
                f"fields have numbers from 1 to {_MAX_FIELD - 1}"
            )
            raise MemdescError(msg)
        yield _Field(number, at, content, stop, value)
        at = stop


def _inner(file: BinaryIO, field: _Field) -> Iterator[_Field]:
    return _fields(file, field.start, field.end)


def _varint(file: BinaryIO, at: int, end: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends."""
    file.seek(at)
    value = 0
    for k in range(min(_MAX_VARINT, end - at)):
        byte = file.read(1)
        if not byte:
            break
        value |= (byte[0] & 127) << 7 * k
        if byte[0] < 128 and value < _MAX_NUMBER:  # noqa: PLR2004 - the bit that says that more follow
            return value, at + k + 1
    msg = f"a number at byte {at} does not end within {_MAX_VARINT} bytes and 64 bits"
    raise MemdescError(msg)


def _varints(file: BinaryIO, field: _Field) -> Iterator[int]:
    """Yield the numbers that a field holds: one, or several packed one after another."""
    if field.value is not None:
        yield field.value
        return
    at = field.start
    while at < field.end:
        value, at = _varint(file, at, field.end)
        yield value


def _text(file: BinaryIO, field: _Field) -> str:
    nbytes = field.end - field.start
    if nbytes > _MAX_TEXT:
        msg = f"a field at byte {field.at} has {nbytes} bytes; at most {_MAX_TEXT} are read"
        raise MemdescError(msg)
    file.seek(field.start)
    try:
        return file.read(nbytes).decode()
    except UnicodeDecodeError:
        msg = f"a string at byte {field.at} is not UTF-8"
        raise MemdescError(msg) from None


def _pair(file: BinaryIO, field: _Field) -> tuple[str, str]:
    """Return the key and the value of an entry of a map."""
    held = {_KEY: "", _VALUE: ""}
    for inner in _inner(file, field):
        if inner.number in held:
            held[inner.number] = _text(file, inner)
    return held[_KEY], held[_VALUE]


class _Initializer(NamedTuple):
    """What a TensorProto says."""

    name: str
    # ONNX's number of the type
    kind: int
    dims: tuple[int, ...]
    # the field that has the elements as they are in memory
    data: _Field | None
    # where they are in another file
    external: dict[str, str] | None

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, packed."""
        return -(-_BITS[_NAMES[self.kind]] * prod(self.dims) // BYTE_BITS)

    @property
    def is_bytes(self) -> bool:
        """Whether the elements are stored as bytes, not as numbers of variable length."""
        is_stored = self.external is not None or self.data is not None
        return self.kind in _NAMES and (is_stored or not self.nbytes)


def _read_initializer(file: BinaryIO, field: _Field) -> _Initializer:
    name, kind, location = "", 0, 0
    dims: list[int] = []
    data: dict[int, _Field] = {}
    external: dict[str, str] = {}
    for inner in _inner(file, field):
        if inner.number == _DIMS:
            for size in _varints(file, inner):
                dims.append(size)
                checked_shape(dims)  # a damaged model may have any number of them
        elif inner.number == _TYPE:
            kind = inner.value or 0
        elif inner.number == _NAME:
            name = _text(file, inner)
        elif inner.number == _EXTERNAL:
            key, value = _pair(file, inner)
            external |= {key: value} if key in _EXTERNAL_KEYS else {}
        elif inner.number == _LOCATION:
            location = inner.value or 0
        elif inner.number in {_RAW, *_TYPED.values()}:
            data[inner.number] = inner
    return _Initializer(
        check_name(name),
        kind,
        checked_shape(dims),
        data.get(_RAW, data.get(_TYPED.get(kind, _RAW))),
        external if location == _IS_EXTERNAL else None,
    )


def _entry_of(
    found: _Initializer, path: Path, state: FileState, files: dict[Path, FileState]
) -> Entry:
    """Return the entry of an initializer whose elements are stored as bytes.

    `files` has the known files of external data; a new one is added. Fails if there are more or
    fewer bytes than type and dims need, or they are in a file that is missing or outside the
    folder.
    """
    file, offset, nbytes, length = path, 0, found.nbytes, 0
    dtype = _NAMES[found.kind]
    if found.external is not None:
        offset, length = (
            _integer(found, found.external.get(key, str(default)), key)
            for key, default in (("offset", 0), ("length", nbytes))
        )
        file = safe_path(path.parent, found.external.get("location"), "external data")
        if file not in files:
            files[file] = FileState.at(file)
        state = files[file]
    elif found.data is not None:
        offset, length = found.data.start, found.data.end - found.data.start
    if length != nbytes:
        msg = (
            f"initializer {short_repr(found.name)}: {dtype} of shape {short_repr(found.dims)} "
            f"takes {nbytes} bytes, but {length} are stored"
        )
        raise MemdescError(msg)
    return Entry(found.name, dtype, found.dims, file, offset, nbytes, state)


def _integer(found: _Initializer, text: str, key: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS:
        return int(text)
    msg = f"initializer {short_repr(found.name)}: {key} is not a number, but {short_repr(text)}"
    raise MemdescError(msg)


def read(path: Path) -> Container:
    """Read the initializers of a model that are stored as bytes.

    Strings, numbers in fields such as `int64_data`, and sparse tensors stay part of the model.

    Fails if the model or a file of external data is damaged, missing or outside the folder.
    """
    metadata: dict[str, str] = {}
    found: list[_Initializer] = []
    sparse: list[str] = []
    files: dict[Path, FileState] = {}
    has_graph = has_nodes = False
    with open_container(path, "an ONNX model") as (file, state):
        for field in _fields(file, 0, state.nbytes):
            if field.number == _METADATA:
                key, text = _pair(file, field)
                metadata[key] = text
            has_graph |= field.number == _GRAPH
            for inner in _inner(file, field) if field.number == _GRAPH else ():
                has_nodes |= inner.number == _NODE
                if inner.number == _INITIALIZER:
                    found.append(_read_initializer(file, inner))
                elif inner.number == _SPARSE:
                    held = (each for each in _inner(file, inner) if each.number == _SPARSE_VALUES)
                    sparse += [_read_initializer(file, each).name for each in held]
        if not has_graph:
            msg = "it has no graph"
            raise MemdescError(msg)
        double, count = Counter([each.name for each in found] or [""]).most_common(1)[0]
        if count > 1:
            msg = f"{count} initializers are called {short_repr(double)}"
            raise MemdescError(msg)
        stored = [each for each in found if each.is_bytes]
        texts, metadata = split_metadata(metadata, {each.name for each in stored})
        entries = described([_entry_of(each, path, state, files) for each in stored], texts)
    for place in (path, *files):
        check_entries(entry for entry in entries if entry.file == place)
    others = [each.name for each in found if not each.is_bytes]
    named = {entry.name: entry for entry in entries}
    return Container("onnx", named, metadata, (path, *files), (*others, *sparse), has_nodes)
