"""ONNX: the initializers of a graph, in the model or in files of external data.

Models are read as the messages that they are, since `onnx.load` copies all of a file into memory;
`onnx` writes them. Initializers of inner graphs (bodies of `If` and `Loop`) stay in the model; so
do those that the model refers to, since nodes are written for the type and the shape they have.
Source: `ExternalData.md` of onnx 1.18.
"""

from __future__ import annotations

from collections import Counter
from io import BytesIO
from typing import TYPE_CHECKING, Any

from memdesc.disk import open_file
from memdesc.errors import MemdescError, short_repr
from reorder.storage.containers.descriptors import describe, descriptors_of, stored_desc
from reorder.storage.containers.entry import Container, Entry, FileState, check_entries, check_name
from reorder.storage.containers.onnx_graph import empty_model, model_of, serialized
from reorder.storage.containers.onnx_model import NUMBERS, entry_of, nbytes_of, read_model
from reorder.storage.containers.plan import PlannedFile, Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from reorder.storage.containers.onnx_model import Model
    from reorder.storage.containers.plan import Tensor

__all__ = ["is_format", "plan", "read"]

# Tensors of fewer bytes stay in the model, as `onnx.save` leaves them; others lie in the file of
# external data, where they start at a multiple of this.
_SMALL, _ALIGNMENT = 1024, 4096
_IS_EXTERNAL = 1
# where the graph of a model that is written comes from; a key of metadata
_MODEL = "onnx.model"


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
                describe(entry_of(each, path, state, files), model.texts.get(each.name))
                for each in model.initializers
                if each.is_bytes
            ]
            _check_names(model, entries)
        except MemdescError as error:
            msg = f"{str(path)!r} is not an ONNX model, or a damaged one: {error}"
            raise MemdescError(msg) from None
    for place in (path, *files):
        check_entries(entry for entry in entries if entry.file == place)
    named = {entry.name: entry for entry in entries}
    left_out = tuple(each.name for each in model.initializers if not each.is_bytes)
    metadata = {**model.metadata, _MODEL: path}
    return Container("onnx", named, metadata, (path, *files), left_out, model.has_nodes)


def _check_names(model: Model, entries: Sequence[Entry]) -> None:
    names = Counter(each.name for each in model.initializers)
    double, count = names.most_common(1)[0] if names else ("", 0)
    if count > 1:
        msg = f"{count} initializers are called {short_repr(double)}"
        raise MemdescError(msg)
    if unknown := model.texts.keys() - {entry.name for entry in entries}:
        msg = f"a descriptor of {short_repr(min(unknown))}, which it does not have"
        raise MemdescError(msg)


def plan(
    name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]
) -> tuple[PlannedFile, ...]:
    """Plan a model and its file of external data; small initializers lie in the model.

    The graph is that of the model that the metadata is from; without one it has no nodes.

    Raises
    ------
    MemdescError
        If the format has no such type, two tensors have one name, a tensor that the graph refers
        to would change, or `onnx` is not installed.
    """
    for tensor in tensors:
        _check(tensor)
    if len({check_name(tensor.name) for tensor in tensors}) < len(tensors):
        msg = f"two tensors of {name!r} would have one name"
        raise MemdescError(msg)
    source = metadata.get(_MODEL)
    model = empty_model() if source is None else model_of(source, name, tensors)
    described = descriptors_of((each, stored_desc(each.dtype, each.shape)[0]) for each in tensors)
    strings = {key: text for key, text in metadata.items() if isinstance(text, str)}
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
    head = serialized(model)
    small = {tensor.name for tensor in tensors} - spans.keys()
    found = read_model(BytesIO(head), len(head))
    inner = {
        each.name: Span(each.part.content if each.part else 0, each.nbytes)
        for each in found.initializers
        if each.name in small
    }
    made_model = PlannedFile(name, len(head), _around(head, inner.values()), inner)
    return (PlannedFile(f"{name}.data", at, (), spans), made_model) if spans else (made_model,)


def _around(head: bytes, spans: Iterable[Span]) -> tuple[tuple[int, bytes], ...]:
    """Return the bytes of a model without those of tensors, each part with its offset."""
    at, parts = 0, []
    for span in sorted(spans):
        parts.append((at, head[at : span.offset]))
        at = span.offset + span.nbytes
    return (*parts, (at, head[at:]))


def _check(tensor: Tensor) -> None:
    what = f"tensor {short_repr(tensor.name)}"
    if tensor.dtype not in NUMBERS:
        msg = f"{what}: ONNX has no type {tensor.dtype!r}; store it as u8, with a descriptor"
        raise MemdescError(msg)
    nbytes = nbytes_of(tensor.dtype, tensor.shape)
    if nbytes != tensor.nbytes:
        msg = f"{what}: {tensor.dtype} of shape {tensor.shape} takes {nbytes}, not {tensor.nbytes}"
        raise MemdescError(msg)
