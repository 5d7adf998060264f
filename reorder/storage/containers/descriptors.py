"""What a stored tensor holds: what its descriptor says, or else its dtype and shape."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from memdesc import (
    DATA_TYPES,
    MemdescError,
    MemoryDesc,
    RecordDesc,
    UnknownFormatError,
    from_json,
    memory_desc,
    record_desc,
    to_json,
)
from memdesc.descriptor_json import SCHEMA
from memdesc.errors import short_repr

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reorder.storage.containers.entry import Entry, Tensor

    Desc = MemoryDesc | RecordDesc

__all__ = [
    "MAX_DESCRIPTOR",
    "PREFIX",
    "checked_shape",
    "desc_from_json",
    "desc_to_json",
    "describe",
    "described",
    "descriptors_of",
    "record_fields",
    "record_of",
    "split_metadata",
    "stored_desc",
]

# metadata keys: this, then the name of the tensor
PREFIX = "memdesc."
# most bytes of a descriptor; the longest one written has a few thousand
MAX_DESCRIPTOR = 2**20
_MAX_NDIMS = 64
# the key of the note about several tensors, in the descriptor of the first of them
_NOTE = "value"


def desc_to_json(desc: Desc, note: Mapping[str, Any] | None = None) -> str:
    """Write what a tensor holds: a layout as `to_json` does, a record by its name.

    `note` says what several tensors are together, if this is the first of them. Fails for a record
    without a name, or of several tensors.
    """
    if isinstance(desc, MemoryDesc):
        text = to_json(desc)
    elif not desc.name or len(desc.tensors) > 1:
        msg = f"{desc!r} is not one tensor of a format with a name; describe each of its tensors"
        raise MemdescError(msg)
    else:
        text = json.dumps({"schema": SCHEMA, **record_fields(desc)})
    return text if note is None else json.dumps({**json.loads(text), _NOTE: note})


def record_fields(desc: RecordDesc) -> dict[str, Any]:
    """Return what `record_of` needs to make a record again, in the values of JSON.

    Fails if it has no name.
    """
    if not desc.name:
        msg = f"{desc!r} has no name, and a file names the format of a record"
        raise MemdescError(msg)
    return {"record": desc.name, "dims": desc.dims, "options": dict(desc.options)}


def record_of(fields: Mapping[str, Any]) -> RecordDesc:
    """Return the record that a file names. Fails if there is no such record."""
    name, options = fields.get("record"), fields.get("options", {})
    if not isinstance(name, str):
        msg = f"a record is called by a string, not {short_repr(name)}"
        raise MemdescError(msg)
    if not isinstance(options, dict) or options.keys() & {"dims", "name"}:
        msg = f"the options of a record are not those of record_desc: {short_repr(options)}"
        raise MemdescError(msg)
    return record_desc(fields.get("dims", ()), name, **options)


@lru_cache(maxsize=64)
def desc_from_json(text: str) -> tuple[Desc, Mapping[str, Any] | None]:
    """Read what `desc_to_json` wrote; many tensors of a model have equal descriptors.

    Fails if it is not a descriptor.
    """
    if len(text) > MAX_DESCRIPTOR:
        msg = f"a descriptor of {len(text)} characters; at most {MAX_DESCRIPTOR} are read"
        raise MemdescError(msg)
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"not a descriptor: {error}"
        raise MemdescError(msg) from None
    note = fields.get(_NOTE) if isinstance(fields, dict) else None
    if not isinstance(note, dict | None):
        msg = f"{_NOTE!r} in a descriptor is not a JSON object, but {short_repr(note)}"
        raise MemdescError(msg)
    if not isinstance(fields, dict) or "record" not in fields:
        return from_json(text), note
    if fields.get("schema") != SCHEMA:
        msg = f"not a descriptor of a record of schema {SCHEMA}: {short_repr(fields)}"
        raise MemdescError(msg)
    desc = record_of(fields)
    if len(desc.tensors) > 1:
        msg = f"{desc!r} is a record of several tensors, not of one"
        raise MemdescError(msg)
    return desc, note


def split_metadata(metadata: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return descriptors by the names of tensors, and the metadata without them."""
    texts = {
        key.removeprefix(PREFIX): text for key, text in metadata.items() if key.startswith(PREFIX)
    }
    rest = {key: text for key, text in metadata.items() if not key.startswith(PREFIX)}
    return texts, rest


def descriptors_of(tensors: Iterable[tuple[Tensor, Desc | None]]) -> dict[str, str]:
    """Return the metadata for tensors, each given with what its dtype and shape alone say."""
    found = {}
    for tensor, implied in tensors:
        desc = tensor.desc or implied
        if desc is not None and (desc != implied or tensor.note):
            found[f"{PREFIX}{tensor.name}"] = desc_to_json(desc, tensor.note)
    return found


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape that a file gives, as a tuple of int.

    Fails if it is not a list of at most 64 integers of 0 or more.
    """
    if (
        isinstance(shape, list | tuple)
        and len(shape) <= _MAX_NDIMS
        and all(type(size) is int and 0 <= size < 2**63 for size in shape)
    ):
        return tuple(shape)
    msg = f"its shape is not a list of at most {_MAX_NDIMS} sizes, but {short_repr(shape)}"
    raise MemdescError(msg)


def stored_desc(dtype: str, shape: tuple[int, ...]) -> tuple[Desc | None, str]:
    """Return what dtype and shape say, or None and the reason.

    A scalar has the dims (1,).
    """
    try:
        if dtype in DATA_TYPES:
            return memory_desc(shape or (1,), dtype, "plain"), ""
        return record_desc(shape, dtype), ""
    except UnknownFormatError:
        return None, f"memdesc has no data type and no record called {short_repr(dtype)}"
    except MemdescError as error:
        return None, str(error)


def described(entries: Iterable[Entry], texts: Mapping[str, str]) -> list[Entry]:
    """Return entries with what they hold; `texts` has the metadata's descriptors by name.

    Fails where `describe` does, or if a descriptor has no tensor.
    """
    found = [describe(each, texts.get(each.name)) for each in entries]
    if unknown := texts.keys() - {each.name for each in found}:
        msg = f"a descriptor of {short_repr(min(unknown))}, which it does not have"
        raise MemdescError(msg)
    return found


def describe(entry: Entry, text: str | None) -> Entry:
    """Return an entry with what it holds, according to its descriptor if it has one.

    Fails if that is not a descriptor, or takes another number of bytes than the tensor.
    """
    if text is None:
        desc, reason = stored_desc(entry.dtype, entry.shape)
        return replace(entry, desc=desc, reason=reason)
    try:
        found, note = desc_from_json(text)
    except MemdescError as error:
        msg = f"the descriptor of {short_repr(entry.name)}: {error}"
        raise MemdescError(msg) from None
    if isinstance(found, MemoryDesc) and found.has_broadcast:
        msg = (
            f"the descriptor of {short_repr(entry.name)}, {found!r}, repeats elements, which a "
            "stored tensor does not"
        )
        raise MemdescError(msg)
    if found.nbytes != entry.nbytes:
        msg = (
            f"{short_repr(entry.name)} has {entry.nbytes} bytes, but its descriptor {found!r} "
            f"takes {found.nbytes}"
        )
        raise MemdescError(msg)
    return replace(entry, desc=found, reason="", is_described=True, note=note)
