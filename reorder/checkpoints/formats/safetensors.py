"""safetensors: the length of the header, the header as JSON, and the tensors without gaps.

The package `safetensors` gives numpy neither offsets nor tensors of f8 and 4-bit types, so the file
is read directly. Source: `safetensors/src/tensor.rs` of safetensors 0.7.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from memdesc.desc import MemoryDesc
from memdesc.errors import MemdescError, about, short_repr
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
    described,
    descriptors_of,
    split_metadata,
)
from reorder.disk import naming, open_file

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
# The JSON of a header: an object of flat objects, of at most 4096 bytes each, and of the metadata,
# an object of strings. `json` parses what a pattern matches.
_WHITE, _STRING = rb"[ \t\n\r]*+", rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")'
_KEY, _TEXT = re.compile(_WHITE + _STRING + _WHITE + b":"), re.compile(_WHITE + _STRING)
_FIELDS = re.compile(_WHITE + rb"(\{[^{}]{0,4096}+\})")
_OPEN, _OPEN_OR_NULL = (
    re.compile(_WHITE + rb"(\{(?:" + _WHITE + rb"\})?" + more + b")") for more in (b"", b"|null")
)
_NEXT, _END = re.compile(_WHITE + b"([,}])"), re.compile(_WHITE + b"()$")
# how many bytes of the header a message quotes
_SHOWN = 40


def read(path: Path) -> Container:
    """Read the header of a file.

    Fails if the file is damaged; the message names the rule, the tensor and the numbers.
    """
    with open_file(path) as file:
        state = FileState.of(file.fileno())
        length = int.from_bytes(file.read(_LENGTH), "little")
        if state.nbytes < _LENGTH or length > min(state.nbytes - _LENGTH, _MAX_HEADER):
            msg = (
                f"{str(path)!r} is not a safetensors file, or a damaged one: its header would have "
                f"{length} bytes, and the file has {state.nbytes}; at most {_MAX_HEADER} are read"
            )
            raise MemdescError(msg)
        text = file.read(length)
    with naming(path):
        header, metadata = _parse(text)
        texts, metadata = split_metadata(metadata, header.keys())
        start = _LENGTH + length
        entries = described(
            [_entry(name, fields, (path, start, state)) for name, fields in header.items()], texts
        )
    found = check_entries(entries)
    if start + sum(entry.nbytes for entry in entries) != state.nbytes:
        msg = (
            f"{str(path)!r}: its tensors have {sum(entry.nbytes for entry in entries)} bytes, but "
            f"{state.nbytes - start} follow the header; a safetensors file has no gaps"
        )
        raise MemdescError(msg)
    return Container("safetensors", found, metadata, (path,))


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        double, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        msg = f"its header has the key {short_repr(double)} twice"
        raise MemdescError(msg)
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_without_doubles)


class _Header:
    """Reads a header's text; only what safetensors allows becomes Python objects."""

    def __init__(self, text: bytes) -> None:
        self._text, self._at = text, 0

    def take(self, pattern: re.Pattern[bytes]) -> bytes:
        """Return what matches a pattern, and move past it."""
        found = pattern.match(self._text, self._at)
        if found is None:
            rest = self._text[self._at : self._at + _SHOWN]
            msg = f"its header is not the JSON of safetensors at byte {self._at}: {rest!r}"
            raise MemdescError(msg)
        self._at = found.end()
        return found[1]

    def value(self, pattern: re.Pattern[bytes]) -> Any:
        """Return a value of JSON that matches a pattern."""
        try:
            return _DECODER.decode(self.take(pattern).decode())
        except MemdescError:
            raise
        except ValueError as error:
            msg = f"its header is not JSON: {error}"
            raise MemdescError(msg) from None

    def members(self, opened: re.Pattern[bytes]) -> Iterator[str]:
        """Yield the keys of an object; the caller takes each value before the next key."""
        names: set[str] = set()
        more = self.take(opened) == b"{"
        while more:
            name = self.value(_KEY)
            if name in names:
                msg = f"its header has the key {short_repr(name)} twice"
                raise MemdescError(msg)
            names.add(name)
            yield name
            more = self.take(_NEXT) == b","


def _parse(text: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields of each tensor, and the metadata."""
    header = _Header(text)
    tensors: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    for name in header.members(_OPEN):
        if name == _METADATA:
            metadata = {key: header.value(_TEXT) for key in header.members(_OPEN_OR_NULL)}
        else:
            tensors[name] = header.value(_FIELDS)
    header.take(_END)
    return tensors, metadata


def _entry(name: str, fields: Any, where: tuple[Path, int, FileState]) -> Entry:
    path, start, state = where
    if not isinstance(fields, dict) or fields.keys() != _ENTRY_KEYS:
        msg = f"tensor {short_repr(name)} has other keys than {', '.join(sorted(_ENTRY_KEYS))}"
        raise MemdescError(msg)
    kind, offsets = fields["dtype"], fields["data_offsets"]
    bits, dtype = _TYPES.get(kind, (0, None)) if isinstance(kind, str) else (0, None)
    if not bits:
        msg = f"tensor {short_repr(name)}: {short_repr(kind)} is not a data type of safetensors"
        raise MemdescError(msg)
    with about(f"tensor {short_repr(name)}"):
        shape = checked_shape(fields["shape"])
    if (
        not isinstance(offsets, list)
        or len(offsets) != len(("first", "end"))
        or not all(type(each) is int for each in offsets)
        or not 0 <= offsets[0] <= offsets[1]
    ):
        msg = f"tensor {short_repr(name)}: data_offsets are not a range, but {short_repr(offsets)}"
        raise MemdescError(msg)
    nbytes = offsets[1] - offsets[0]
    if bits * prod(shape) != 8 * nbytes:
        msg = (
            f"tensor {short_repr(name)}: {kind} of shape {short_repr(shape)} takes "
            f"{short_repr(bits * prod(shape))} bits, but its data_offsets span {nbytes} bytes"
        )
        raise MemdescError(msg)
    return Entry(name, dtype or kind, shape, path, start + offsets[0], nbytes, state)


def plan(
    name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]
) -> tuple[PlannedFile, ...]:
    """Plan a file; its order keeps elements aligned, and most tensors at multiples of 64 bytes.

    Fails if safetensors has no such type, or two tensors share a name.
    """
    check_planned(name, tensors)
    texts = {**metadata, **descriptors_of(tensors)}
    if wrong := [key for key, text in texts.items() if not isinstance(text, str)]:
        msg = f"metadata {short_repr(wrong[0])} of {name!r} is not a string"
        raise MemdescError(msg)
    header: dict[str, Any] = {_METADATA: texts} if texts else {}
    at = 0
    for tensor in sorted(tensors, key=_sort_key):
        kind = _NAMES.get(tensor.dtype, tensor.dtype)
        if tensor.name == _METADATA:
            msg = f"a tensor of safetensors cannot be called {_METADATA!r}; give another name"
            raise MemdescError(msg)
        header[tensor.name] = {
            "dtype": kind,
            "shape": tensor.shape,
            "data_offsets": (at, at + tensor.nbytes),
        }
        at += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH + len(text)) % _ALIGNMENT)
    start = _LENGTH + len(text)
    if len(text) > _MAX_HEADER:
        msg = f"the header of {name!r} would have {len(text)} bytes; at most {_MAX_HEADER} are read"
        raise MemdescError(msg)
    spans = {
        tensor.name: Span(start + header[tensor.name]["data_offsets"][0], tensor.nbytes)
        for tensor in tensors
    }
    head = len(text).to_bytes(_LENGTH, "little") + text
    return (PlannedFile(name, start + at, ((0, head),), spans),)


def _sort_key(tensor: Tensor) -> tuple[bool, int]:
    """Return the sort key: multiples of the alignment first, then wider elements first.

    Fails for a type that safetensors lacks, and for a size that does not fit the shape.
    """
    bits, _ = _TYPES.get(_NAMES.get(tensor.dtype, tensor.dtype), (0, None))
    if not bits:
        msg = (
            f"tensor {short_repr(tensor.name)}: safetensors has no type {tensor.dtype!r}, and "
            "memdesc does not know what it holds, so it cannot be converted; an output in the "
            "format of the input keeps it as it is"
        )
        raise MemdescError(msg)
    check_nbytes(tensor, bits * prod(tensor.shape) / 8)
    width = tensor.desc.dtype.bits if isinstance(tensor.desc, MemoryDesc) else bits
    return tensor.nbytes % _ALIGNMENT != 0, -width
