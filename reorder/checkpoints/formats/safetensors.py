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
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import MemdescError, about, short_repr
from reorder.checkpoints.formats.descriptors import container_of, descriptors_of
from reorder.checkpoints.formats.entry import (
    Container,
    Entry,
    PlannedFile,
    Span,
    Tensor,
    check_nbytes,
    check_planned,
    checked_shape,
    open_container,
)

_LENGTH = 8
# the limit of the package
_MAX_HEADER = 100_000_000
_METADATA = "__metadata__"
# types that the format spells in capitals, with I for s, and those that it spells otherwise
_SPELLED = "u8 s8 u16 s16 u32 s32 u64 s64 f8_e5m2 f8_e4m3 f8_e4m3fnuz f8_e5m2fnuz f16 bf16 f32 f64"
_NAMES = {name: name.upper().replace("S", "I") for name in _SPELLED.split()} | {
    "boolean": "BOOL",
    "f4_e2m1": "F4",
    "e8m0": "F8_E8M0",
}
_TYPES = {theirs: ours for ours, theirs in _NAMES.items()}
# bits of each type, also of those that have no name here
_BITS = {theirs: DATA_TYPES[ours].bits for ours, theirs in _NAMES.items()}
_BITS |= {"F6_E2M3": 6, "F6_E3M2": 6, "C64": 64}
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
        end = start = _LENGTH + length
        entries = []
        for name, fields in header.items():
            with about(f"tensor {short_repr(name)}"):
                dtype, shape, at, nbytes = _checked(fields)
            entries.append(Entry(name, dtype, shape, path, start + at, nbytes, state))
            end += nbytes
        found = container_of("safetensors", path, entries, metadata)
        if end != state.nbytes:
            raise MemdescError(
                f"its tensors end at byte {end} of {state.nbytes}, by the sizes in the header; a "
                "safetensors file has no gaps"
            )
        return found


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


def _checked(fields: Any) -> tuple[str, tuple[int, ...], int, int]:
    """Return the type of a tensor, its shape, its offset and its size in bytes."""
    if not isinstance(fields, dict) or fields.keys() != _ENTRY_KEYS:
        raise MemdescError(
            f"it has other fields than {', '.join(sorted(_ENTRY_KEYS))}: {short_repr(fields)}"
        )
    kind: Any = fields["dtype"]
    shape, span = checked_shape(fields["shape"]), fields["data_offsets"]
    bits = _BITS.get(kind) if isinstance(kind, str) else None
    if not bits:
        raise MemdescError(f"{short_repr(kind)} is not a data type of safetensors")
    is_list = isinstance(span, list) and [type(each) for each in span] == [int, int]
    if not is_list or not 0 <= span[0] <= span[1]:
        raise MemdescError(f"data_offsets are not a range, but {short_repr(span)}")
    nbytes = span[1] - span[0]
    if bits * prod(shape) != 8 * nbytes:
        raise MemdescError(
            f"{kind} of shape {short_repr(shape)} takes {short_repr(bits * prod(shape))} bits, "
            f"but its data_offsets span {nbytes} bytes"
        )
    return _TYPES.get(kind, kind), shape, span[0], nbytes


def plan(name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]) -> PlannedFile:
    """Plan a file; its order keeps elements aligned, and most tensors at multiples of 64 bytes."""
    check_planned(name, tensors)
    texts = {**metadata, **descriptors_of(tensors)}
    if wrong := [key for key, text in texts.items() if not isinstance(text, str)]:
        raise MemdescError(f"metadata {short_repr(wrong[0])} of {name!r} is not a string")
    header: dict[str, Any] = {_METADATA: texts} if texts else {}
    at, places = 0, dict[str, int]()
    for tensor in sorted(tensors, key=_sort_key):
        if tensor.name == _METADATA:
            raise MemdescError(
                f"a tensor of safetensors cannot be called {_METADATA!r}; give another name"
            )
        kind, end = _NAMES.get(tensor.dtype, tensor.dtype), at + tensor.nbytes
        header[tensor.name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": (at, end)}
        places[tensor.name], at = at, end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH + len(text)) % _ALIGNMENT)
    if len(text) > _MAX_HEADER:
        raise MemdescError(
            f"the header of {name!r} would have {len(text)} bytes; at most {_MAX_HEADER} are read"
        )
    head = len(text).to_bytes(_LENGTH, "little") + text
    spans = {each.name: Span(len(head) + places[each.name], each.nbytes) for each in tensors}
    return PlannedFile(name, len(head) + at, ((0, head),), spans)


def _sort_key(tensor: Tensor) -> tuple[bool, int]:
    """Return the sort key: multiples of the alignment first, then wider elements first."""
    bits = _BITS.get(_NAMES.get(tensor.dtype, tensor.dtype))
    if not bits:
        raise MemdescError(
            f"tensor {short_repr(tensor.name)}: safetensors has no type {tensor.dtype!r}; an "
            "output in the format of the input keeps it, and a .npz has all types of memdesc"
        )
    check_nbytes(tensor, bits * prod(tensor.shape) / 8)
    width = tensor.desc.dtype.bits if isinstance(tensor.desc, MemoryDesc) else bits
    return tensor.nbytes % _ALIGNMENT != 0, -width
