"""ONNX: the initializers of a graph, in the model or in files of external data.

Models are mapped and read as protobuf messages, field by field, because `onnx.load` would copy all
of them into memory. They are not written: nodes depend on the types and shapes of their inputs, so
a model could only be copied. Source: `ExternalData.md` and `onnx.proto` of onnx 1.18; the encoding
of protobuf, https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from math import prod
from pathlib import Path
from types import MappingProxyType

from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.errors import MemdescError, about, short_repr
from memdesc.tuples import NamedTuple
from reorder.checkpoints.formats.entry import (
    MAX_NDIMS,
    Container,
    Entry,
    FileState,
    check_entries,
    check_name,
    checked_shape,
    describe,
    map_file,
    open_container,
    safe_path,
)
from reorder.disk import naming

# wire types of fields, and how many bytes those of a fixed size have
_VARINT, _BYTES, _FIXED = 0, 2, {1: 8, 5: 4}
# the most bytes in a number of 64 bits; the numbers of fields have 29 bits
_MAX_VARINT, _MAX_NUMBER, _MAX_FIELD = 10, 2**64, 2**29
# the most bytes in a name, and in a location
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
# fields whose last value counts if they are repeated
_SINGLE = {_TYPE, _NAME, _LOCATION, _RAW, *_TYPED.values()}
_IS_EXTERNAL = 1
# TensorProto.DataType from 1 on and from 9 on, without strings; complex and 2-bit numbers are not
# data types here
TYPES = MappingProxyType(
    dict(enumerate(["f32", "u8", "s8", "u16", "s16", "s32", "s64"], 1))
    | dict(enumerate(["boolean", "f16", "f64", "u32", "u64", "complex64", "complex128", "bf16"], 9))
    | dict(enumerate(["f8_e4m3", "f8_e4m3fnuz", "f8_e5m2", "f8_e5m2fnuz", "u4", "s4"], 17))
    | dict(enumerate(["f4_e2m1", "e8m0", "uint2", "int2"], 23))
)
_BITS = {"complex64": 64, "complex128": 128, "uint2": 2, "int2": 2}
_BITS |= {name: DATA_TYPES[name].bits for name in TYPES.values() if name in DATA_TYPES}
# the most digits in an offset
_MAX_DIGITS = 19


class _Field(NamedTuple):
    """A field of a message in a file: its number, and the number or the bytes that it holds."""

    file: memoryview
    number: int
    value: int | None
    # the range of the bytes in the file
    start: int
    end: int

    def fields(self) -> Iterator[_Field]:
        """Yield its fields, if it holds a message."""
        at = self.start
        while at < self.end:
            tag, content = self._varint(at)
            number, wire_type = tag >> 3, tag & 7
            value, nbytes = None, _FIXED.get(wire_type, 0)
            if wire_type == _VARINT:
                value, content = self._varint(content)
            elif wire_type == _BYTES:
                nbytes, content = self._varint(content)
            elif not nbytes:
                raise MemdescError(f"byte {at} does not start a field of a protobuf message")
            if content + nbytes > self.end or not 0 < number < _MAX_FIELD:
                raise MemdescError(
                    f"field {number} at byte {at} ends at byte {content + nbytes} of a message "
                    f"that ends at {self.end}; fields have numbers from 1 to {_MAX_FIELD - 1}"
                )
            at = content + nbytes
            yield _Field(self.file, number, value, content, at)

    def _varint(self, at: int) -> tuple[int, int]:
        value = 0
        for k, byte in enumerate(self.file[at : min(at + _MAX_VARINT, self.end)]):
            value |= (byte & 127) << 7 * k
            if byte < 128 and value < _MAX_NUMBER:  # noqa: PLR2004 - the bit that more follow
                return value, at + k + 1
        raise MemdescError(
            f"a number at byte {at} does not end within {_MAX_VARINT} bytes and 64 bits"
        )

    def numbers(self) -> Iterator[int]:
        """Yield the numbers that it holds: one, or several packed one after another."""
        if self.value is not None:
            yield self.value
        at = self.start
        while at < self.end:
            value, at = self._varint(at)
            yield value

    def text(self) -> str:
        what, nbytes = f"a string at byte {self.start}", self.end - self.start
        if nbytes > _MAX_TEXT:
            raise MemdescError(f"{what} has {nbytes} bytes; at most {_MAX_TEXT} are read")
        try:
            return str(self.file[self.start : self.end], "utf-8")
        except UnicodeDecodeError:
            raise MemdescError(f"{what} is not UTF-8") from None

    def pair(self) -> tuple[str, str]:
        """Return the key and the value of an entry of a map."""
        held = {_KEY: "", _VALUE: ""}
        held |= {field.number: field.text() for field in self.fields() if field.number in held}
        return held[_KEY], held[_VALUE]


def _initializer(
    message: _Field, path: Path, files: dict[Path, FileState]
) -> tuple[str, Entry | None]:
    """Return the name of an initializer, and its entry if bytes hold it; its file is added."""
    last, dims, external = dict[int, _Field](), list[int](), dict[str, str]()
    for field in message.fields():
        if field.number == _DIMS:
            # a damaged model may have any number of dims
            dims += islice(field.numbers(), MAX_NDIMS + 1)
            checked_shape(dims)
        elif field.number == _EXTERNAL:
            external |= [field.pair()]
        elif field.number in _SINGLE:
            last[field.number] = field
    shape = checked_shape(dims)
    name = check_name(last[_NAME].text() if _NAME in last else "")
    number, location = ((last[key].value if key in last else 0) or 0 for key in (_TYPE, _LOCATION))
    dtype, held = TYPES.get(number, ""), last.get(_RAW, last.get(_TYPED.get(number, _RAW)))
    nbytes = -(-_BITS.get(dtype, 0) * prod(shape) // BYTE_BITS)
    is_external = location == _IS_EXTERNAL
    if not dtype or (held is None and not is_external and nbytes):
        return name, None  # not bytes, but numbers of variable length
    with about(f"initializer {short_repr(name)}"):
        home, offset, length = path, 0, 0
        if is_external:
            offset = _integer(external.get("offset", "0"), "offset")
            length = _integer(external.get("length", str(nbytes)), "length")
            home = safe_path(path.parent, external.get("location"), "external data")
            files[home] = files.get(home) or FileState.at(home)
        elif held is not None:
            offset, length = held.start, held.end - held.start
        if length != nbytes:
            what = f"{dtype} of shape {short_repr(shape)}"
            raise MemdescError(f"{what} takes {nbytes} bytes, not {length}")
    return name, Entry(name, dtype, shape, home, offset, nbytes, files[home])


def _integer(text: str, key: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS:
        return int(text)
    raise MemdescError(f"{key} is not a number, but {short_repr(text)}")


def read(path: Path) -> Container:
    """Read the initializers of a model that are stored as bytes.

    Strings, numbers in fields such as `int64_data`, and sparse tensors stay part of the model.
    """
    metadata: dict[str, str] = {}
    initializers: list[tuple[str, Entry | None]] = []
    sparse: list[str] = []
    has_graph = has_nodes = False
    with open_container(path, "an ONNX model") as (_, state):
        files = {path: state}
        file = memoryview(map_file(path, state))  # type: ignore[arg-type] # arrays are buffers
        for field in _Field(file, 0, None, 0, state.nbytes).fields():
            if field.number == _METADATA:
                metadata |= [field.pair()]
            has_graph |= field.number == _GRAPH
            for inner in field.fields() if field.number == _GRAPH else ():
                has_nodes |= inner.number == _NODE
                if inner.number == _INITIALIZER:
                    initializers.append(_initializer(inner, path, files))
                elif inner.number == _SPARSE:
                    values = (value for value in inner.fields() if value.number == _SPARSE_VALUES)
                    sparse += [_initializer(value, path, files)[0] for value in values]
        if not has_graph:
            raise MemdescError("it has no graph")
        double, count = Counter([name for name, _ in initializers] or [""]).most_common(1)[0]
        if count > 1:
            raise MemdescError(f"{count} initializers are called {short_repr(double)}")
        entries = [entry for _, entry in initializers if entry is not None]
        for place in files:
            with naming(place):
                check_entries(entry for entry in entries if entry.file == place)
    others = [name for name, entry in initializers if entry is None] + sparse
    named = {entry.name: describe(entry, None) for entry in entries}
    return Container("onnx", named, metadata, (*files,), (*others,), has_nodes)
