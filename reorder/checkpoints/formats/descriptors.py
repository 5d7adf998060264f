"""Descriptors in the metadata of a file: what tensors hold if dtype and shape do not say it.

A layout is written as `to_json` does, a record by its name. A descriptor may have a note, which
says what its tensor and others are together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from memdesc import MemdescError, MemoryDesc
from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.errors import about, short_repr
from memdesc.layout import memory_order
from memdesc.record import RecordDesc, record_desc
from memdesc.written import SCHEMA
from reorder.checkpoints.formats.entry import (
    Container,
    Desc,
    Entry,
    Tensor,
    check_entries,
    stored_desc,
)
from reorder.values.formats import INTEGERS

# metadata keys: this, then the name of the tensor
PREFIX = "memdesc."
# the most characters of a descriptor; the longest one written has a few thousand
MAX_DESCRIPTOR = 2**20
# of a tensor of GGUF
_MAX_AXES = 4
# the key of the note about several tensors, in the descriptor of the first of them
_NOTE = "value"


def desc_to_json(desc: Desc, note: Mapping[str, Any] | None = None) -> str:
    """Write what a tensor holds, and what several are together if it is the first of them."""
    if isinstance(desc, MemoryDesc):
        text = desc.to_json()
    elif not desc.name or len(desc.tensors) > 1:
        raise MemdescError(
            f"{desc!r} is not one tensor of a format with a name; describe each of its tensors"
        )
    else:
        text = json.dumps({"schema": SCHEMA, **record_fields(desc)})
    return text if note is None else json.dumps({**json.loads(text), _NOTE: note})


def record_fields(desc: RecordDesc) -> dict[str, Any]:
    """Return what `record_of` needs to make a record again, as JSON values."""
    if not desc.name:
        raise MemdescError(f"{desc!r} has no name, and a file names the format of a record")
    return {"record": desc.name, "dims": desc.dims, "options": dict(desc.options)}


def record_of(fields: Mapping[str, Any]) -> RecordDesc:
    """Return the record that a file names. Fails if no record has that name and these options."""
    name, options = fields.get("record"), fields.get("options", {})
    if not isinstance(name, str):
        raise MemdescError(f"the name of a record must be a string, not {short_repr(name)}")
    if not isinstance(options, dict) or options.keys() & {"dims", "name"}:
        raise MemdescError(
            f"the options of a record are not those of record_desc: {short_repr(options)}"
        )
    return record_desc(fields.get("dims", ()), name, **options)


@lru_cache(maxsize=64)
def desc_from_json(text: str) -> tuple[Desc, Mapping[str, Any] | None]:
    """Read what `desc_to_json` wrote; many tensors of a model have equal descriptors."""
    if len(text) > MAX_DESCRIPTOR:
        raise MemdescError(
            f"a descriptor of {len(text)} characters; at most {MAX_DESCRIPTOR} are read"
        )
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MemdescError(f"not a descriptor: {error}") from None
    note = fields.get(_NOTE) if isinstance(fields, dict) else None
    if not isinstance(note, dict | None):
        raise MemdescError(
            f"{_NOTE!r} in a descriptor is not a JSON object, but {short_repr(note)}"
        )
    if not isinstance(fields, dict) or "record" not in fields:
        return MemoryDesc.from_json(text), note
    if fields.get("schema") != SCHEMA:
        raise MemdescError(f"not a descriptor of a record of schema {SCHEMA}: {short_repr(fields)}")
    desc = record_of(fields)
    if len(desc.tensors) > 1:
        raise MemdescError(f"{desc!r} is a record of several tensors, not of one")
    return desc, note


def container_of(
    form: str, path: Path, entries: Sequence[Entry], metadata: Mapping[str, Any]
) -> Container:
    """Return what a file's headers say, given its tensors without and metadata with descriptors."""
    names = {each.name for each in entries}
    texts, rest = dict[str, str](), dict[str, Any]()
    for key, text in metadata.items():
        name = key.removeprefix(PREFIX)
        # other metadata may have such keys
        if name != key and isinstance(text, str) and (name in names or _is_descriptor(text)):
            texts[name] = text
        else:
            rest[key] = text
    if unknown := texts.keys() - names:
        raise MemdescError(f"a descriptor of {short_repr(min(unknown))}, which it does not have")
    found = check_entries(describe(each, texts.get(each.name)) for each in entries)
    return Container(form, found, rest, (path,))


def _is_descriptor(text: str) -> bool:
    """Whether a text has the form of a descriptor, right or wrong."""
    with suppress(ValueError, RecursionError):
        fields = json.loads(text[:MAX_DESCRIPTOR])
        return isinstance(fields, dict) and "schema" in fields
    return len(text) > MAX_DESCRIPTOR


def descriptors_of(tensors: Iterable[Tensor]) -> dict[str, str]:
    """Return the metadata for tensors whose dtype and shape alone do not say what they hold."""
    found = {}
    for tensor in tensors:
        implied, _ = stored_desc(tensor.dtype, tensor.shape)
        desc = tensor.desc or implied
        if desc is not None and (desc != implied or tensor.note):
            found[f"{PREFIX}{tensor.name}"] = desc_to_json(desc, tensor.note)
    return found


def describe(entry: Entry, text: str | None, source: str = "") -> Entry:
    """Return an entry with its `desc`, from its descriptor, in the metadata or `source`."""
    if text is None:
        desc, reason = stored_desc(entry.dtype, entry.shape)
        return replace(entry, desc=desc, reason=entry.reason or reason)
    with about(f"the descriptor of {short_repr(entry.name)}"):
        desc, note = desc_from_json(text)
        if isinstance(desc, MemoryDesc) and desc.has_broadcast:
            raise MemdescError(f"{desc!r} repeats elements, which a stored tensor does not")
    if desc.nbytes != entry.nbytes:
        raise MemdescError(
            f"{short_repr(entry.name)} has {entry.nbytes} bytes, but its descriptor {desc!r} takes "
            f"{desc.nbytes}"
        )
    if problem := _misfit(entry, desc):
        place = source or f"{short_repr(PREFIX + entry.name)} from the metadata"
        raise MemdescError(
            f"{short_repr(entry.name)} is stored as {entry.dtype} of shape {entry.shape}, but its "
            f"descriptor {desc!r} means {problem}: another program changed the tensor, and kept "
            f"the descriptor; remove {place}"
        )
    return replace(entry, desc=desc, reason="", is_described=True, note=note)


def _misfit(entry: Entry, desc: Desc) -> str:
    """Return the elements that a descriptor means if a tensor has others, or other axes.

    Blocks may be words or bytes of any shape, and elements in their order wider integers or flat
    bytes. Otherwise integers as wide replace types that a container lacks, and the axes are those
    of the descriptor, with the outer ones joined in GGUF; scales of some records have padded dims.
    """
    held, is_integer = DATA_TYPES.get(entry.dtype), entry.dtype in INTEGERS
    if isinstance(desc, RecordDesc):
        return "" if held is None or is_integer or not entry.nbytes else "u8"
    if not entry.nbytes or desc.layout.xor:
        return ""  # of a swizzle there are only bytes
    dtype = desc.dtype
    blocks = [block.extent for block in sorted(desc.blocks, key=memory_order)]
    meant = f"{dtype} of shape {(*blocks,)}"
    is_whole = desc.is_dense and not (desc.offset0 or dtype.is_packed or desc.extra)
    is_plain = is_whole and len(blocks) == len(desc.axes) == desc.ndims and desc.nelems != 1
    is_flat = entry.dtype == "u8" and entry.shape == (entry.nbytes,)
    if held is None or (is_integer and held.bits != dtype.bits):
        is_wider = held is not None and held.bits > dtype.bits and dtype.name in INTEGERS
        return "" if not is_plain or is_flat or is_wider else meant
    is_replaced = dtype.name in INTEGERS or dtype.numpy.isbuiltin != 1 or dtype.bits == BYTE_BITS
    is_same = held == dtype or (is_integer and is_replaced)
    shape = [size for size in entry.shape if size > 1]
    orders = [blocks] if len(blocks) == desc.ndims else [blocks, desc.padded_dims]
    axes = [[size for size in order if size > 1] for order in orders]
    is_joined = any(shape[1:] == each[len(each) - len(shape) + 1 :] for each in axes)
    if is_plain:
        is_alike = shape in axes or (is_joined and len(blocks) > len(entry.shape) == _MAX_AXES)
        return "" if is_flat or (is_same and is_alike) else meant
    return "" if is_same and (dtype.is_packed or is_joined) else meant
