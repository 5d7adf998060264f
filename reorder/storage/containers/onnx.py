"""ONNX: the initializers of a graph, in the model or in files of external data.

Models are read as the messages that they are, since `onnx.load` copies all of a file into memory;
`onnx` writes them. Initializers of inner graphs (bodies of `If` and `Loop`) stay in the model.
Source: `ExternalData.md` of onnx 1.18.
"""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from io import BytesIO
from math import prod
from typing import TYPE_CHECKING, Any

from memdesc.disk import open_file
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import MemdescError, short_repr
from reorder.storage.containers.descriptors import describe, descriptors_of, stored_desc
from reorder.storage.containers.entry import Container, Entry, FileState, check_entries, check_name
from reorder.storage.containers.onnx_model import (
    GRAPH,
    INITIALIZER,
    NUMBERS,
    read_initializer,
    read_model,
)
from reorder.storage.containers.paths import safe_path
from reorder.storage.containers.plan import PlannedFile, Span
from reorder.storage.containers.protobuf import field_bytes, fields, message_field

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from reorder.storage.containers.onnx_model import Initializer, Model
    from reorder.storage.containers.plan import Tensor
    from reorder.storage.containers.protobuf import Part

__all__ = ["is_format", "plan", "read"]

# Tensors of fewer bytes stay in the model, as `onnx.save` leaves them; others lie in the file of
# external data, where they start at a multiple of this.
_SMALL, _ALIGNMENT = 1024, 4096
# bytes of a model without its initializers: the most that protobuf has
_MAX_MODEL = 2**31 - 1
_IS_EXTERNAL, _BYTE_BITS = 1, 8
# where the graph of a model that is written comes from; a key of metadata
_MODEL = "onnx.model"
_IR_VERSION, _OPSET = 10, 21
# digits of an offset
_MAX_DIGITS = 19


def is_format(start: bytes) -> bool:
    """Whether the first bytes of a file are those of this format, which has no mark: never."""
    del start
    return False


def read(path: Path) -> Container:
    """Read the initializers of a model: those whose elements lie as bytes in a file.

    Strings, and small integers that `int64_data` and the like hold, are part of the model.

    Raises
    ------
    MemdescError
        If the model or a file of external data is damaged, missing, or elsewhere.
    """
    with open_file(path) as file:
        state = FileState.of(file.fileno())
        try:
            model = read_model(file, state.nbytes)
            files: dict[Path, FileState] = {}
            entries = [
                describe(_entry(each, path, state, files), model.texts.get(each.name))
                for each in model.initializers
                if each.is_bytes
            ]
            _check_names(model, entries)
        except MemdescError as error:
            msg = f"{str(path)!r} is no ONNX model, or a damaged one: {error}"
            raise MemdescError(msg) from None
    for place in (path, *files):
        check_entries(entry for entry in entries if entry.file == place)
    named = {entry.name: entry for entry in entries}
    return Container("onnx", named, {**model.metadata, _MODEL: path}, (path, *files))


def _check_names(model: Model, entries: Sequence[Entry]) -> None:
    names = Counter(each.name for each in model.initializers)
    double, count = names.most_common(1)[0] if names else ("", 0)
    if count > 1:
        msg = f"{count} initializers are called {short_repr(double)}"
        raise MemdescError(msg)
    if unknown := model.texts.keys() - {entry.name for entry in entries}:
        msg = f"a descriptor of {short_repr(min(unknown))}, which it does not have"
        raise MemdescError(msg)


def _entry(found: Initializer, path: Path, state: FileState, files: dict[Path, FileState]) -> Entry:
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
    msg = f"initializer {short_repr(found.name)}: {key} is no number, but {short_repr(text)}"
    raise MemdescError(msg)


def plan(
    name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]
) -> tuple[PlannedFile, ...]:
    """Plan a model and its file of external data; small initializers lie in the model.

    The graph is that of the model that the metadata is from; without one it has no nodes.

    Raises
    ------
    MemdescError
        If the format has no such type, two tensors have one name, or `onnx` is not installed.
    """
    for tensor in tensors:
        _check(tensor)
    if len({check_name(tensor.name) for tensor in tensors}) < len(tensors):
        msg = f"two tensors of {name!r} would have one name"
        raise MemdescError(msg)
    model = _model_of(metadata)
    described = descriptors_of(
        {each.name: (each.desc, stored_desc(each.dtype, each.shape)[0]) for each in tensors}
    )
    strings = {key: text for key, text in metadata.items() if isinstance(text, str)}
    del model.metadata_props[:]
    for key, text in {**strings, **described}.items():
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
    head = model.SerializeToString()
    small = {tensor.name for tensor in tensors} - spans.keys()
    found = read_model(BytesIO(head), len(head))
    inner = {
        each.name: Span(each.part.content if each.part else 0, each.nbytes)
        for each in found.initializers
        if each.name in small
    }
    made_model = PlannedFile(name, len(head), ((0, head),), inner)
    return (PlannedFile(f"{name}.data", at, (), spans), made_model) if spans else (made_model,)


def _check(tensor: Tensor) -> None:
    what = f"tensor {short_repr(tensor.name)}"
    if tensor.dtype not in NUMBERS:
        msg = f"{what}: ONNX has no type {tensor.dtype!r}; store it as u8, with a descriptor"
        raise MemdescError(msg)
    nbytes = -(-DATA_TYPES[tensor.dtype].bits * prod(tensor.shape) // _BYTE_BITS)
    if nbytes != tensor.nbytes:
        msg = f"{what}: {tensor.dtype} of shape {tensor.shape} takes {nbytes}, not {tensor.nbytes}"
        raise MemdescError(msg)


def _model_of(metadata: Mapping[str, Any]) -> Any:
    """Return the model that the metadata is from, without the initializers that `read` lists."""
    try:
        onnx = import_module("onnx")
    except ImportError:
        msg = "writing ONNX needs the package onnx: pip install 'memdesc[onnx]'"
        raise MemdescError(msg) from None
    model = onnx.ModelProto()
    source = metadata.get(_MODEL)
    if source is None:
        model.ir_version = _IR_VERSION
        model.graph.name = "initializers"
        model.opset_import.add(domain="", version=_OPSET)
        return model
    with open_file(source) as file:
        text = b"".join(_without_initializers(file, FileState.of(file.fileno()).nbytes))
    model.ParseFromString(text)
    return model


def _without_initializers(file: BinaryIO, nbytes: int) -> Iterator[bytes]:
    """Return the fields of a model; those of its graph without initializers that lie as bytes."""
    for part in fields(file, 0, nbytes):
        if part.number != GRAPH:
            yield _whole(file, part)
            continue
        kept = [
            _whole(file, inner)
            for inner in fields(file, part.content, part.end)
            if inner.number != INITIALIZER or not read_initializer(file, inner).is_bytes
        ]
        yield message_field(GRAPH, b"".join(kept))


def _whole(file: BinaryIO, part: Part) -> bytes:
    return field_bytes(file, part._replace(content=part.start), _MAX_MODEL)
