"""ONNX: the initializers of a graph, in the model or in files of external data.

`read` is at the end of this file. Models are read from the file as protobuf messages, field by
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


class ProtoField(NamedTuple):
    """A field of a message: its number, and where it is."""

    number: int
    # offsets of the tag before it, of what it holds, and of the first byte after it
    start: int
    content: int
    end: int
    is_number: bool
    # if it is a number
    value: int

    @property
    def nbytes(self) -> int:
        """Bytes of what it holds."""
        return self.end - self.content


def fields(file: BinaryIO, start: int, end: int) -> Iterator[ProtoField]:
    """Yield the fields of a message, given the range of its bytes in a file.

    Fails if a field ends after the message, or is not a field.
    """
    at = start
    while at < end:
        file.seek(at)
        tag, content = _varint(file, at, end)
        number, kind = tag >> 3, tag & 7
        value = 0
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
        yield ProtoField(number, at, content, stop, kind == _VARINT, value)
        at = stop


def _varint(file: BinaryIO, at: int, end: int) -> tuple[int, int]:
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


def field_bytes(file: BinaryIO, field: ProtoField, most: int) -> bytes:
    """Return what a field holds; refuse more bytes than `most`."""
    if field.nbytes > most:
        msg = f"a field at byte {field.start} has {field.nbytes} bytes; at most {most} are read"
        raise MemdescError(msg)
    file.seek(field.content)
    return file.read(field.nbytes)


def varints(file: BinaryIO, field: ProtoField) -> Iterator[int]:
    """Yield the numbers that a field holds: one, or several packed one after another.

    Fails if one does not end.
    """
    if field.is_number:
        yield field.value
        return
    at = field.content
    while at < field.end:
        file.seek(at)
        value, at = _varint(file, at, field.end)
        yield value


# numbers of fields: of ModelProto, GraphProto, SparseTensorProto, TensorProto,
# StringStringEntryProto
GRAPH, _METADATA = 7, 14
_NODE, INITIALIZER, _SPARSE = 1, 5, 15
_SPARSE_VALUES = 1
_DIMS, _TYPE, _NAME, _RAW, _EXTERNAL, _LOCATION = 1, 2, 8, 9, 13, 14
_KEY, _VALUE = 1, 2
# fields of typed values that are stored like raw bytes, by the type: floats and doubles
_TYPED = {1: 4, 11: 10}
_DATA = {_RAW, *_TYPED.values()}
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
# the most bytes in a name, in a location, and in a descriptor
_MAX_TEXT = 2**20


class Initializer(NamedTuple):
    """The fields of a TensorProto."""

    name: str
    kind: int
    dims: tuple[int, ...]
    # the fields that may have the elements as bytes, by number
    data: dict[int, ProtoField]
    external: dict[str, str]
    is_external: bool

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, packed."""
        return nbytes_of(self.dtype, self.dims)

    @property
    def dtype(self) -> str:
        """Name of the data type."""
        return _NAMES[self.kind]

    @property
    def field(self) -> ProtoField | None:
        """The field that has the elements as they are in memory."""
        number = _RAW if _RAW in self.data else _TYPED.get(self.kind, _RAW)
        return self.data.get(number)

    @property
    def is_bytes(self) -> bool:
        """Whether the elements are stored as bytes, not as numbers of variable length."""
        is_known = self.kind in _NAMES
        return is_known and (self.is_external or self.field is not None or not self.nbytes)


def nbytes_of(dtype: str, dims: tuple[int, ...]) -> int:
    """Return how many bytes the elements of a tensor take, packed."""
    return -(-_BITS[dtype] * prod(dims) // BYTE_BITS)


class OnnxModel(NamedTuple):
    """What is read of a model: everything but its nodes."""

    metadata: dict[str, str]
    initializers: list[Initializer]
    # names of sparse initializers
    sparse: list[str]
    # whether its graph has nodes, which use the initializers
    has_nodes: bool


def read_model(file: BinaryIO, nbytes: int) -> OnnxModel:
    """Read a model of `nbytes` bytes. Fails if it is damaged."""
    metadata: dict[str, str] = {}
    found, sparse = [], []
    has_graph = has_nodes = False
    for field in fields(file, 0, nbytes):
        if field.number == _METADATA:
            key, text = _entry_of_map(file, field)
            metadata[key] = text
        elif field.number == GRAPH:
            has_graph = True
            for inner in fields(file, field.content, field.end):
                has_nodes |= inner.number == _NODE
                if inner.number == INITIALIZER:
                    found.append(read_initializer(file, inner))
                elif inner.number == _SPARSE:
                    sparse += [
                        read_initializer(file, values).name
                        for values in fields(file, inner.content, inner.end)
                        if values.number == _SPARSE_VALUES
                    ]
    if not has_graph:
        msg = "it has no graph"
        raise MemdescError(msg)
    return OnnxModel(metadata, found, sparse, has_nodes)


def _entry_of_map(file: BinaryIO, field: ProtoField) -> tuple[str, str]:
    held = {_KEY: "", _VALUE: ""}
    for inner in fields(file, field.content, field.end):
        if inner.number in held:
            held[inner.number] = _text(file, inner)
    return held[_KEY], held[_VALUE]


def _text(file: BinaryIO, field: ProtoField) -> str:
    try:
        return field_bytes(file, field, _MAX_TEXT).decode()
    except UnicodeDecodeError:
        msg = f"a string at byte {field.start} is not UTF-8"
        raise MemdescError(msg) from None


def read_initializer(file: BinaryIO, field: ProtoField) -> Initializer:
    """Read the fields of an initializer. Fails if it is damaged."""
    name, kind, location = "", 0, 0
    dims: list[int] = []
    data: dict[int, ProtoField] = {}
    external: dict[str, str] = {}
    for inner in fields(file, field.content, field.end):
        if inner.number == _DIMS:
            for size in varints(file, inner):
                dims.append(size)
                checked_shape(dims)  # a damaged model may have any number of them
        elif inner.number == _TYPE:
            kind = inner.value
        elif inner.number == _NAME:
            name = _text(file, inner)
        elif inner.number == _EXTERNAL:
            key, value = _entry_of_map(file, inner)
            external |= {key: value} if key in _EXTERNAL_KEYS else {}
        elif inner.number == _LOCATION:
            location = inner.value
        elif inner.number in _DATA:
            data[inner.number] = inner
    return Initializer(
        check_name(name), kind, checked_shape(dims), data, external, location == _IS_EXTERNAL
    )


def entry_of(
    found: Initializer, path: Path, state: FileState, files: dict[Path, FileState]
) -> Entry:
    """Return the entry of an initializer whose elements are stored as bytes.

    `files` has the known files of external data; a new one is added. Fails if there are more or
    fewer bytes than type and dims need, or they are in a file that is missing or outside the
    folder.
    """
    file, offset, nbytes, field = path, 0, found.nbytes, found.field
    length = field.nbytes if field is not None else 0
    if found.is_external:
        offset, length = (
            _integer(found, key, default) for key, default in (("offset", 0), ("length", nbytes))
        )
        file = safe_path(path.parent, found.external.get("location"), "external data")
        if file not in files:
            files[file] = FileState.at(file)
        state = files[file]
    elif field is not None:
        offset = field.content
    if length != nbytes:
        msg = (
            f"initializer {short_repr(found.name)}: {found.dtype} of shape "
            f"{short_repr(found.dims)} takes {nbytes} bytes, but {length} are stored"
        )
        raise MemdescError(msg)
    return Entry(found.name, found.dtype, found.dims, file, offset, nbytes, state)


def _integer(found: Initializer, key: str, default: int) -> int:
    text = found.external.get(key, str(default))
    if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS:
        return int(text)
    msg = f"initializer {short_repr(found.name)}: {key} is not a number, but {short_repr(text)}"
    raise MemdescError(msg)


# the most bytes of a model without its initializers: protobuf's limit
_MAX_MODEL = 2**31 - 1


def read(path: Path) -> Container:
    """Read the initializers of a model that are stored as bytes.

    Strings, numbers in fields such as `int64_data`, and sparse tensors stay part of the model.

    Fails if the model or a file of external data is damaged, missing or outside the folder.
    """
    files: dict[Path, FileState] = {}
    with open_container(path, "an ONNX model") as (file, state):
        model = read_model(file, state.nbytes)
        found = [each for each in model.initializers if each.is_bytes]
        texts, metadata = split_metadata(model.metadata, {each.name for each in found})
        entries = described([entry_of(each, path, state, files) for each in found], texts)
        names = Counter(each.name for each in model.initializers)
        double, count = names.most_common(1)[0] if names else ("", 0)
        if count > 1:
            msg = f"{count} initializers are called {short_repr(double)}"
            raise MemdescError(msg)
    for place in (path, *files):
        check_entries(entry for entry in entries if entry.file == place)
    named = {entry.name: entry for entry in entries}
    others = [each.name for each in model.initializers if not each.is_bytes]
    left_out = (*others, *model.sparse)
    return Container("onnx", named, metadata, (path, *files), left_out, model.has_nodes)
