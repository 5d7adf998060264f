"""safetensors: the length of the header, the header as JSON, and the tensors without gaps.

The package `safetensors` gives numpy neither offsets nor tensors of f8 and 4-bit types, so the file
is read directly. Source: `safetensors/src/tensor.rs` of safetensors 0.7.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from memdesc.desc import MemoryDesc
from memdesc.errors import MemdescError, about, short_repr
from reorder.checkpoints.formats.descriptors import described, descriptors_of, split_metadata
from reorder.checkpoints.formats.entry import (
    Container,
    Entry,
    FileState,
    PlannedFile,
    Span,
    Tensor,
    check_entries,
    check_nbytes,
    check_planned,
    checked_shape,
    open_container,
)

_LENGTH = 8
# the limit of the package
_MAX_HEADER = 100_000_000
_METADATA = "__metadata__"
# by the name in the format: bits, and the name of the data type here
_TYPES = {
    "BOOL": (8, "boolean"),
    "F4": (4, "f4_e2m1"),
    "F6_E2M3": (6, None),
    "F6_E3M2": (6, None),
    "U8": (8, "u8"),
    "I8": (8, "s8"),
    "F8_E5M2": (8, "f8_e5m2"),
    "F8_E4M3": (8, "f8_e4m3"),
    "F8_E8M0": (8, "e8m0"),
    "F8_E4M3FNUZ": (8, "f8_e4m3fnuz"),
    "F8_E5M2FNUZ": (8, "f8_e5m2fnuz"),
    "I16": (16, "s16"),
    "U16": (16, "u16"),
    "F16": (16, "f16"),
    "BF16": (16, "bf16"),
    "I32": (32, "s32"),
    "U32": (32, "u32"),
    "F32": (32, "f32"),
    "C64": (64, None),
    "F64": (64, "f64"),
    "I64": (64, "s64"),
    "U64": (64, "u64"),
}
_NAMES = {ours: theirs for theirs, (_, ours) in _TYPES.items() if ours}
# data starts at a multiple of this, so that mapped tensors are aligned for any element
_ALIGNMENT = 64
_ENTRY_KEYS = {"dtype", "shape", "data_offsets"}


def read(path: Path) -> Container:
    """Read the header of a file."""
    with open_container(path, "a safetensors file") as (file, state):
        length = int.from_bytes(file.read(_LENGTH), "little")
        if state.nbytes < _LENGTH or length > min(state.nbytes - _LENGTH, _MAX_HEADER):
            raise MemdescError(
                f"its header would have {length} bytes, and the file has {state.nbytes}; at most "
                f"{_MAX_HEADER} are read"
            )
        header, metadata = _parse(file.read(length))
        start = _LENGTH + length
        texts, metadata = split_metadata(metadata, header.keys())
        found = [_entry(name, fields, (path, start, state)) for name, fields in header.items()]
        entries = check_entries(described(found, texts))
        nbytes = sum(entry.nbytes for entry in found)
        if start + nbytes != state.nbytes:
            raise MemdescError(
                f"its tensors have {nbytes} bytes, but {state.nbytes - start} follow the header; a "
                "safetensors file has no gaps"
            )
    return Container("safetensors", entries, metadata, (path,))


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        double, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise MemdescError(f"its header has the key {short_repr(double)} twice")
    return found


def _parse(text: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields of each tensor, and the metadata."""
    try:
        header = json.loads(text.decode(), object_pairs_hook=_without_doubles)
    except MemdescError:
        raise
    except (ValueError, RecursionError) as error:
        raise MemdescError(f"its header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise MemdescError(f"its header is not an object of JSON, but {short_repr(header)}")
    metadata = header.pop(_METADATA, None)
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict) or not all(isinstance(x, str) for x in metadata.values()):
        raise MemdescError(f"{_METADATA} is not an object of strings, but {short_repr(metadata)}")
    return header, metadata


def _entry(name: str, fields: Any, where: tuple[Path, int, FileState]) -> Entry:
    path, start, state = where
    with about(f"tensor {short_repr(name)}"):
        if not isinstance(fields, dict) or fields.keys() != _ENTRY_KEYS:
            raise MemdescError(
                f"it has other fields than {', '.join(sorted(_ENTRY_KEYS))}: {short_repr(fields)}"
            )
        kind, offsets = fields["dtype"], fields["data_offsets"]
        bits, dtype = _TYPES.get(kind, (0, None)) if isinstance(kind, str) else (0, None)
        if not bits:
            raise MemdescError(f"{short_repr(kind)} is not a data type of safetensors")
        shape = checked_shape(fields["shape"])
        is_range = (
            isinstance(offsets, list)
            and [type(each) for each in offsets] == [int, int]
            and 0 <= offsets[0] <= offsets[1]
        )
        if not is_range:
            raise MemdescError(f"data_offsets are not a range, but {short_repr(offsets)}")
        nbytes = offsets[1] - offsets[0]
        if bits * prod(shape) != 8 * nbytes:
            raise MemdescError(
                f"{kind} of shape {short_repr(shape)} takes {short_repr(bits * prod(shape))} bits, "
                f"but its data_offsets span {nbytes} bytes"
            )
    return Entry(name, dtype or kind, shape, path, start + offsets[0], nbytes, state)


def plan(
    name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]
) -> tuple[PlannedFile, ...]:
    """Plan a file; its order keeps elements aligned, and most tensors at multiples of 64 bytes."""
    check_planned(name, tensors)
    texts = {**metadata, **descriptors_of(tensors)}
    if wrong := [key for key, text in texts.items() if not isinstance(text, str)]:
        raise MemdescError(f"metadata {short_repr(wrong[0])} of {name!r} is not a string")
    header: dict[str, Any] = {_METADATA: texts} if texts else {}
    at, spans = 0, {}
    for tensor in sorted(tensors, key=_sort_key):
        if tensor.name == _METADATA:
            raise MemdescError(
                f"a tensor of safetensors cannot be called {_METADATA!r}; give another name"
            )
        kind, end = _NAMES.get(tensor.dtype, tensor.dtype), at + tensor.nbytes
        header[tensor.name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": (at, end)}
        spans[tensor.name] = Span(at, tensor.nbytes)
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH + len(text)) % _ALIGNMENT)
    if len(text) > _MAX_HEADER:
        raise MemdescError(
            f"the header of {name!r} would have {len(text)} bytes; at most {_MAX_HEADER} are read"
        )
    start = _LENGTH + len(text)
    spans = {each.name: Span(start + spans[each.name].offset, each.nbytes) for each in tensors}
    head = len(text).to_bytes(_LENGTH, "little") + text
    return (PlannedFile(name, start + at, ((0, head),), spans),)


def _sort_key(tensor: Tensor) -> tuple[bool, int]:
    """Return the sort key: multiples of the alignment first, then wider elements first."""
    bits, _ = _TYPES.get(_NAMES.get(tensor.dtype, tensor.dtype), (0, None))
    if not bits:
        raise MemdescError(
            f"tensor {short_repr(tensor.name)}: safetensors has no type {tensor.dtype!r}, and "
            "memdesc does not know what it holds, so it cannot be converted; an output in the "
            "format of the input keeps it as it is"
        )
    check_nbytes(tensor, bits * prod(tensor.shape) / 8)
    width = tensor.desc.dtype.bits if isinstance(tensor.desc, MemoryDesc) else bits
    return tensor.nbytes % _ALIGNMENT != 0, -width
