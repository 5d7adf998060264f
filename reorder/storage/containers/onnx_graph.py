"""The model around the initializers of an ONNX file: kept as it is where tensors are written.

Nodes are written for the types and the shapes that their inputs have, so a tensor that the model
refers to is copied or refused. Tensors of inner graphs and attributes stay in the model.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from memdesc.disk import open_file
from memdesc.errors import MemdescError, short_repr
from reorder.storage.containers.entry import FileState, check_entries
from reorder.storage.containers.onnx_model import (
    GRAPH,
    INITIALIZER,
    Initializer,
    entry_of,
    read_initializer,
    read_model,
)
from reorder.storage.containers.protobuf import field_bytes, fields, message_field

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from reorder.storage.containers.plan import Tensor
    from reorder.storage.containers.protobuf import Part

__all__ = ["empty_model", "model_of", "serialized"]

# bytes of a model without its initializers: the most that protobuf has
_MAX_MODEL = 2**31 - 1
_IR_VERSION, _OPSET = 10, 21
_IS_EXTERNAL = 1
# names in one message
_SHOWN = 3


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        msg = "writing ONNX needs the package onnx: pip install 'memdesc[onnx]'"
        raise MemdescError(msg) from None


def empty_model() -> Any:
    """Return a model of no nodes.

    Raises
    ------
    MemdescError
        If `onnx` is not installed.
    """
    model = _package("onnx").ModelProto()
    model.ir_version = _IR_VERSION
    model.graph.name = "initializers"
    model.opset_import.add(domain="", version=_OPSET)
    return model


def model_of(source: Path, name: str, tensors: Sequence[Tensor]) -> Any:
    """Return a model without the initializers that `read` lists, and without its metadata.

    Raises
    ------
    MemdescError
        If it refers to one that is not copied as it is: nodes would compute something else.
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
        shown = ", ".join(map(short_repr, changed[:_SHOWN]))
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        other = f"{name.removesuffix('.onnx')}.safetensors"
        msg = (
            f"{name!r} would not load, or would compute something else: the model refers to "
            f"tensors that would change, {shown}{more}; keep their names, types, layouts and "
            f"values, or write {other!r}"
        )
        raise MemdescError(msg)
    return model


def _is_kept(tensor: Tensor, held: Mapping[str, Initializer]) -> bool:
    """Whether a tensor is an initializer of the model as it was."""
    old = held.get(tensor.name)
    same = old is not None and (tensor.dtype, tensor.shape) == (old.dtype, old.dims)
    return same and tensor.origin == tensor.name


def _messages(model: Any) -> Iterator[Any]:
    """Return a message of protobuf and all messages in it."""
    found = [model]
    while found:
        message = found.pop()
        yield message
        for field, values in _held(message):
            found += values if field.cpp_type == field.CPPTYPE_MESSAGE else ()


def _held(message: Any) -> Iterator[tuple[Any, Sequence[Any]]]:
    for field, value in message.ListFields():
        yield field, value if isinstance(value, MutableSequence) else [value]


def _strings(model: Any) -> set[str]:
    """Return all strings of a model: every name of a tensor is among them."""
    return {
        each
        for message in _messages(model)
        for field, values in _held(message)
        if field.cpp_type == field.CPPTYPE_STRING
        for each in values
        if isinstance(each, str)
    }


def _embed_external(model: Any, source: Path) -> None:
    """Embed the tensors of inner graphs and attributes whose elements lie in other files.

    Raises
    ------
    MemdescError
        If such a file is missing, too short, or outside of the folder; or they exceed a model.
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
            msg = (
                f"tensor {short_repr(name)} has type {held.kind}, which cannot lie in another file"
            )
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
    """Return the bytes of a model.

    Raises
    ------
    MemdescError
        If they exceed what protobuf holds.
    """
    try:
        return bytes(model.SerializeToString())
    except (ValueError, _package("google.protobuf.message").EncodeError) as error:
        msg = f"the model without its large tensors is too large for protobuf: {error}"
        raise MemdescError(msg) from None


def _without_initializers(file: BinaryIO, nbytes: int) -> bytes:
    """Return a model without those initializers of its graph whose elements lie as bytes."""
    model = bytearray()
    for part in fields(file, 0, nbytes):
        if part.number != GRAPH:
            model += _whole(file, part)
            continue
        graph = bytearray()
        for inner in fields(file, part.content, part.end):
            if inner.number != INITIALIZER or not read_initializer(file, inner).is_bytes:
                graph += _whole(file, inner)
        model += message_field(GRAPH, graph)
    return bytes(model)


def _whole(file: BinaryIO, part: Part) -> bytes:
    return field_bytes(file, part._replace(content=part.start), _MAX_MODEL)
