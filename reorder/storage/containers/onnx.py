"""ONNX: the initializers of a graph, in the model or in files of external data.

`read` and `plan` are at the end of this file. Models are read from the file as protobuf messages,
field by field, since `onnx.load` copies all of it into memory; `onnx` writes them. The rest of a
model stays as it is, including the initializers of inner graphs (the bodies of `If` and `Loop`).
Nodes are written for the types and shapes of their inputs, so an initializer that the model refers
to is copied or refused.
Source: `ExternalData.md` and `onnx.proto` of onnx 1.18; the encoding of protobuf,
https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from importlib import import_module
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from memdesc.disk import open_file
from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.errors import MemdescError, first_of, short_repr
from reorder.storage.containers.entry import (
    PREFIX,
    Container,
    Entry,
    FileState,
    PlannedFile,
    Span,
    Tensor,
    check_entries,
    check_name,
    check_nbytes,
    check_planned,
    checked_shape,
    described,
    descriptors_of,
    open_container,
    safe_path,
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


def message_field(number: int, content: bytes | bytearray) -> bytes:
    """Write a field that is a message, or bytes."""
    return _varint_bytes(number << 3 | _BYTES) + _varint_bytes(len(content)) + content


def _varint_bytes(value: int) -> bytes:
    raw = bytearray()
    while value > 127:  # noqa: PLR2004 - seven bits a byte
        raw.append(value & 127 | 128)
        value >>= 7
    return bytes([*raw, value])


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
NUMBERS = {name: number for number, name in _NAMES.items()}
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

    # descriptors by the names of initializers, and the other properties
    texts: dict[str, str]
    metadata: dict[str, str]
    initializers: list[Initializer]
    # names of sparse initializers
    sparse: list[str]
    # whether its graph has nodes, which use the initializers
    has_nodes: bool


def read_model(file: BinaryIO, nbytes: int) -> OnnxModel:
    """Read a model of `nbytes` bytes. Fails if it is damaged."""
    texts: dict[str, str] = {}
    metadata: dict[str, str] = {}
    found, sparse = [], []
    has_graph = has_nodes = False
    for field in fields(file, 0, nbytes):
        if field.number == _METADATA:
            key, text = _entry_of_map(file, field)
            held = texts if key.startswith(PREFIX) else metadata
            held[key.removeprefix(PREFIX)] = text
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
    return OnnxModel(texts, metadata, found, sparse, has_nodes)


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
_IR_VERSION, _OPSET = 10, 21
# how many names a message lists
_SHOWN = 3


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        msg = "writing ONNX needs the package onnx: pip install 'memdesc[onnx]'"
        raise MemdescError(msg) from None


def empty_model() -> Any:
    """Return a model without nodes. Fails if `onnx` is not installed."""
    model = _package("onnx").ModelProto()
    model.ir_version = _IR_VERSION
    model.graph.name = "initializers"
    model.opset_import.add(domain="", version=_OPSET)
    return model


def model_of(source: Path, name: str, tensors: Sequence[Tensor]) -> Any:
    """Return a model without the initializers that `read` lists, and without its metadata.

    Fails if it refers to one that would change, since its nodes would compute something else.
    """
    model = _package("onnx").ModelProto()
    with open_file(source) as file:
        nbytes = FileState.of(file.fileno()).nbytes
        held = {each.name: each for each in read_model(file, nbytes).initializers if each.is_bytes}
        text = _without_initializers(file, nbytes)
    try:
        model.ParseFromString(text)
    except _package("google.protobuf.message").DecodeError as error:
        msg = f"{str(source)!r} is not an ONNX model, or a damaged one: {error}"
        raise MemdescError(msg) from None
    del model.metadata_props[:]
    _embed_external(model, source)
    kept = {each.name for each in tensors if _is_kept(each, held)}
    changed = sorted(((held.keys() | {each.name for each in tensors}) - kept) & _strings(model))
    if changed:
        shown = first_of(map(short_repr, changed), _SHOWN)
        other = f"{name.removesuffix('.onnx')}.safetensors"
        msg = (
            f"{name!r} would not load, or would compute something else: the model refers to "
            f"tensors that would change, {shown}; keep their names, types, layouts and "
            f"values, or write {other!r}"
        )
        raise MemdescError(msg)
    return model


def _is_kept(tensor: Tensor, held: Mapping[str, Initializer]) -> bool:
    """Whether a tensor is an unchanged initializer of the model."""
    old = held.get(tensor.name)
    same = old is not None and (tensor.dtype, tensor.shape) == (old.dtype, old.dims)
    return same and tensor.origin == tensor.name


def _messages(model: Any) -> Iterator[Any]:
    """Yield a protobuf message and all messages in it."""
    found = [model]
    while found:
        message = found.pop()
        yield message
        for field, values in _held(message):
            found += values if field.cpp_type == field.CPPTYPE_MESSAGE else ()


def _held(message: Any) -> Iterator[tuple[Any, Sequence[Any]]]:
    """Yield the fields of a message that are set, each with its values."""
    for field, value in message.ListFields():
        yield field, value if isinstance(value, MutableSequence) else [value]


def _strings(model: Any) -> set[str]:
    """Return all strings of a model, among them the names of all tensors."""
    return {
        each
        for message in _messages(model)
        for field, values in _held(message)
        if field.cpp_type == field.CPPTYPE_STRING
        for each in values
        if isinstance(each, str)
    }


def _embed_external(model: Any, source: Path) -> None:
    """Embed the tensors of inner graphs and attributes whose elements are in other files.

    Fails if such a file is missing, too short or outside the folder, or a model cannot hold them.
    """
    files: dict[Path, FileState] = {}
    left = _MAX_MODEL
    for tensor in _messages(model):
        if tensor.DESCRIPTOR.name != "TensorProto" or tensor.data_location != _IS_EXTERNAL:
            continue
        name = tensor.name or "of an attribute"
        pairs = {each.key: each.value for each in tensor.external_data}
        held = Initializer(name, tensor.data_type, tuple(tensor.dims), {}, pairs, is_external=True)
        if not held.is_bytes:
            msg = f"tensor {short_repr(name)} has type {held.kind}, which cannot be in another file"
            raise MemdescError(msg)
        entry = entry_of(held, source, FileState(0, 0), files)
        check_entries([entry])
        left -= entry.nbytes
        if left < 0:
            msg = f"the tensors of its inner graphs exceed the {_MAX_MODEL} bytes of a model"
            raise MemdescError(msg)
        tensor.raw_data = entry.read().tobytes()
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")


def serialized(model: Any) -> bytes:
    """Return the bytes of a model. Fails if they exceed protobuf's limit."""
    try:
        return bytes(model.SerializeToString())
    except (ValueError, _package("google.protobuf.message").EncodeError) as error:
        msg = f"the model without its large tensors is too large for protobuf: {error}"
        raise MemdescError(msg) from None


def _without_initializers(file: BinaryIO, nbytes: int) -> bytes:
    """Return a model without the initializers of its graph that are stored as bytes."""
    model = bytearray()
    for field in fields(file, 0, nbytes):
        if field.number != GRAPH:
            model += _whole(file, field)
            continue
        graph = bytearray()
        for inner in fields(file, field.content, field.end):
            if inner.number != INITIALIZER or not read_initializer(file, inner).is_bytes:
                graph += _whole(file, inner)
        model += message_field(GRAPH, graph)
    return bytes(model)


def _whole(file: BinaryIO, field: ProtoField) -> bytes:
    """Return the bytes of a field with its tag."""
    return field_bytes(file, field._replace(content=field.start), _MAX_MODEL)


# tensors below this size stay in the model, as with `onnx.save`; others go into the file of
# external data, aligned to this
_SMALL, _ALIGNMENT = 1024, 4096
# metadata key: the model from which a written model takes its graph
_MODEL = "onnx.model"


def read(path: Path) -> Container:
    """Read the initializers of a model that are stored as bytes.

    Strings, numbers in fields such as `int64_data`, and sparse tensors stay part of the model.

    Fails if the model or a file of external data is damaged, missing or outside the folder.
    """
    files: dict[Path, FileState] = {}
    with open_container(path, "an ONNX model") as (file, state):
        model = read_model(file, state.nbytes)
        found = [each for each in model.initializers if each.is_bytes]
        entries = described([entry_of(each, path, state, files) for each in found], model.texts)
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
    metadata = {**model.metadata, _MODEL: path}
    return Container("onnx", named, metadata, (path, *files), left_out, model.has_nodes)


def plan(
    name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]
) -> tuple[PlannedFile, ...]:
    """Plan a model and its file of external data; small initializers stay in the model.

    It keeps the graph of the model that the metadata comes from, if any.

    Fails if ONNX has no such type, two tensors share a name, a tensor that the graph refers to
    would change, or `onnx` is not installed.
    """
    for tensor in tensors:
        if tensor.dtype not in NUMBERS:
            msg = (
                f"tensor {short_repr(tensor.name)}: ONNX has no type {tensor.dtype!r}; store it as "
                "u8, with a descriptor"
            )
            raise MemdescError(msg)
        check_nbytes(tensor, nbytes_of(tensor.dtype, tensor.shape))
    check_planned(name, tensors)
    source = metadata.get(_MODEL)
    model = empty_model() if source is None else model_of(source, name, tensors)
    strings = {key: text for key, text in metadata.items() if isinstance(text, str)}
    for key, text in {**strings, **descriptors_of(tensors)}.items():
        model.metadata_props.add(key=key, value=text)
    spans, at = {}, 0
    for tensor in tensors:
        made = model.graph.initializer.add(
            name=tensor.name, data_type=NUMBERS[tensor.dtype], dims=tensor.shape
        )
        if tensor.nbytes < _SMALL:
            made.raw_data = bytes(tensor.nbytes)
            continue
        made.data_location = _IS_EXTERNAL
        values = {"location": f"{name}.data", "offset": at, "length": tensor.nbytes}
        for key, value in values.items():
            made.external_data.add(key=key, value=str(value))
        spans[tensor.name] = Span(at, tensor.nbytes)
        at += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    head = serialized(model)
    small = {tensor.name for tensor in tensors} - spans.keys()
    found = read_model(BytesIO(head), len(head))
    inner = {
        each.name: Span(each.field.content if each.field else 0, each.nbytes)
        for each in found.initializers
        if each.name in small
    }
    made_model = PlannedFile(name, len(head), _around(head, inner.values()), inner)
    return (PlannedFile(f"{name}.data", at, (), spans), made_model) if spans else (made_model,)


def _around(head: bytes, spans: Iterable[Span]) -> tuple[tuple[int, bytes], ...]:
    """Return the parts of a model between its tensors, with their offsets."""
    at, parts = 0, []
    for span in sorted(spans):
        parts.append((at, head[at : span.offset]))
        at = span.offset + span.nbytes
    return (*parts, (at, head[at:]))
