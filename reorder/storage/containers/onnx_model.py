"""The initializers of an ONNX model: what the messages of its file say of each.

Source: `onnx.proto` of onnx 1.18.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from memdesc.disk import open_file
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import MemdescError, short_repr
from reorder.storage.containers.descriptors import PREFIX, checked_shape
from reorder.storage.containers.entry import Entry, FileState, check_name
from reorder.storage.containers.paths import safe_path
from reorder.storage.containers.protobuf import Part, field_bytes, fields, varints

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

__all__ = [
    "GRAPH",
    "INITIALIZER",
    "NUMBERS",
    "Initializer",
    "Model",
    "entry_of",
    "nbytes_of",
    "read_initializer",
    "read_model",
]

# numbers of fields: of ModelProto, GraphProto, TensorProto, StringStringEntryProto
GRAPH, _METADATA = 7, 14
_NODE, INITIALIZER = 1, 5
_DIMS, _TYPE, _NAME, _RAW, _EXTERNAL, _LOCATION = 1, 2, 8, 9, 13, 14
_KEY, _VALUE = 1, 2
# fields of typed values that lie as raw bytes do, by the type: floats and doubles
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
# the others that are numbers, by ONNX's names, and their bits
_OTHERS = {14: ("complex64", 64), 15: ("complex128", 128), 25: ("uint2", 2), 26: ("int2", 2)}
_NAMES = _TYPES | {number: name for number, (name, _) in _OTHERS.items()}
NUMBERS = {name: number for number, name in _NAMES.items()}
_BITS = {name: DATA_TYPES[name].bits for name in _TYPES.values()} | dict(_OTHERS.values())
_BYTE_BITS = 8
# digits of an offset
_MAX_DIGITS = 19
# what is read of external data
_EXTERNAL_KEYS = {"location", "offset", "length"}
# bytes of a name, of a location, and of a descriptor
_MAX_TEXT = 2**20


class Initializer(NamedTuple):
    """What the fields of a TensorProto say."""

    name: str
    kind: int
    dims: tuple[int, ...]
    # the fields that may hold the elements as bytes, by number
    data: dict[int, Part]
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
    def part(self) -> Part | None:
        """The field whose content is the elements as they lie in memory."""
        number = _RAW if _RAW in self.data else _TYPED.get(self.kind, _RAW)
        return self.data.get(number)

    @property
    def is_bytes(self) -> bool:
        """Whether the elements lie somewhere as bytes; else they are numbers of variable length."""
        is_known = self.kind in _NAMES
        return is_known and (self.is_external or self.part is not None or not self.nbytes)


def nbytes_of(dtype: str, dims: tuple[int, ...]) -> int:
    """Return how many bytes the elements of a tensor take, packed."""
    return -(-_BITS[dtype] * prod(dims) // _BYTE_BITS)


class Model(NamedTuple):
    """What a model says beside its nodes."""

    # descriptors by the names of initializers, and the other properties
    texts: dict[str, str]
    metadata: dict[str, str]
    initializers: list[Initializer]
    # whether its graph has nodes, which use the initializers
    has_nodes: bool


def read_model(file: BinaryIO, nbytes: int) -> Model:
    """Read a model of some bytes.

    Raises
    ------
    MemdescError
        If it is damaged.
    """
    texts: dict[str, str] = {}
    metadata: dict[str, str] = {}
    found = []
    has_graph = has_nodes = False
    for part in fields(file, 0, nbytes):
        if part.number == _METADATA:
            key, text = _entry_of_map(file, part)
            held = texts if key.startswith(PREFIX) else metadata
            held[key.removeprefix(PREFIX)] = text
        elif part.number == GRAPH:
            has_graph = True
            for inner in fields(file, part.content, part.end):
                has_nodes |= inner.number == _NODE
                if inner.number == INITIALIZER:
                    found.append(read_initializer(file, inner))
    if not has_graph:
        msg = "it has no graph"
        raise MemdescError(msg)
    return Model(texts, metadata, found, has_nodes)


def _entry_of_map(file: BinaryIO, part: Part) -> tuple[str, str]:
    held = {_KEY: "", _VALUE: ""}
    for inner in fields(file, part.content, part.end):
        if inner.number in held:
            held[inner.number] = _text(file, inner)
    return held[_KEY], held[_VALUE]


def _text(file: BinaryIO, part: Part) -> str:
    try:
        return field_bytes(file, part, _MAX_TEXT).decode()
    except UnicodeDecodeError:
        msg = f"a string at byte {part.start} is not UTF-8"
        raise MemdescError(msg) from None


def read_initializer(file: BinaryIO, part: Part) -> Initializer:
    """Return what the fields of an initializer say; raises as `read_model`."""
    name, kind, location = "", 0, 0
    dims: list[int] = []
    data: dict[int, Part] = {}
    external: dict[str, str] = {}
    for inner in fields(file, part.content, part.end):
        if inner.number == _DIMS:
            for size in varints(file, inner):
                dims.append(size)
                checked_shape(dims)  # of a damaged model there may be any number
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
    """Return where the elements of an initializer lie.

    Parameters
    ----------
    found : Initializer
        One whose elements lie as bytes.
    path : Path
        The model.
    state : FileState
        Of the model.
    files : dict of Path to FileState
        Files of external data; those that are new are added.

    Raises
    ------
    MemdescError
        If there are more or fewer bytes than the type and the dims mean, or they lie in a file
        that is missing or elsewhere.
    """
    file, offset, nbytes, part = path, 0, found.nbytes, found.part
    length = part.nbytes if part is not None else 0
    if found.is_external:
        offset, length = (
            _integer(found, key, default) for key, default in (("offset", 0), ("length", nbytes))
        )
        file = safe_path(path.parent, found.external.get("location"), "external data")
        if file not in files:
            with open_file(file) as opened:
                files[file] = FileState.of(opened.fileno())
        state = files[file]
    elif part is not None:
        offset = part.content
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
