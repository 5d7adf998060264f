"""What a stored tensor is: descriptors that metadata carries, else dtype and shape."""

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
from memdesc.errors import short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reorder.storage.containers.entry import Entry

    Desc = MemoryDesc | RecordDesc

__all__ = [
    "PREFIX",
    "checked_shape",
    "desc_from_json",
    "desc_to_json",
    "describe",
    "descriptors_of",
    "split_metadata",
    "stored_desc",
]

# keys of metadata: this and the name of the tensor
PREFIX = "memdesc."
# bytes of one descriptor; the longest that is written has a few thousand
_MAX_DESCRIPTOR = 2**20
_MAX_NDIMS = 64


def desc_to_json(desc: Desc) -> str:
    """Write what a tensor holds: a layout as `to_json` does, a record by its name.

    Raises
    ------
    MemdescError
        If it is a record without a name, or of several tensors.
    """
    if isinstance(desc, MemoryDesc):
        return to_json(desc)
    if not desc.name or len(desc.tensors) > 1:
        msg = f"{desc!r} is not one tensor of a format with a name; describe each of its tensors"
        raise MemdescError(msg)
    return json.dumps(
        {"schema": 1, "record": desc.name, "dims": desc.dims, "options": dict(desc.options)}
    )


@lru_cache(maxsize=64)
def desc_from_json(text: str) -> Desc:
    """Read what `desc_to_json` wrote; many tensors of a model have equal descriptors.

    Raises
    ------
    MemdescError
        If it is not a descriptor.
    """
    if len(text) > _MAX_DESCRIPTOR:
        msg = f"a descriptor of {len(text)} characters; at most {_MAX_DESCRIPTOR} are read"
        raise MemdescError(msg)
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"no descriptor: {error}"
        raise MemdescError(msg) from None
    if not isinstance(fields, dict) or "record" not in fields:
        return from_json(text)
    options = fields.get("options", {})
    is_legal = isinstance(options, dict) and not options.keys() & {"dims", "name"}
    if fields.get("schema") != 1 or not is_legal:
        msg = f"no descriptor of a record of schema 1: {short_repr(fields)}"
        raise MemdescError(msg)
    desc = record_desc(fields.get("dims", ()), fields["record"], **options)
    if len(desc.tensors) > 1:
        msg = f"{desc!r} is a record of several tensors, and none of them alone"
        raise MemdescError(msg)
    return desc


def split_metadata(metadata: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return descriptors by the names of tensors, and the metadata without them."""
    texts = {
        key.removeprefix(PREFIX): text for key, text in metadata.items() if key.startswith(PREFIX)
    }
    rest = {key: text for key, text in metadata.items() if not key.startswith(PREFIX)}
    return texts, rest


def descriptors_of(descs: Mapping[str, tuple[Desc | None, Desc | None]]) -> dict[str, str]:
    """Return metadata for tensors, each with what it holds and what dtype and shape say."""
    return {
        f"{PREFIX}{name}": desc_to_json(desc)
        for name, (desc, implied) in descs.items()
        if desc is not None and desc != implied
    }


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape that a file gives, as a tuple of int.

    Raises
    ------
    MemdescError
        If it is not a list of integers from 0 on, or of more than 64.
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
    """Return what dtype and shape say; or None, and why.

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


def describe(entry: Entry, text: str | None) -> Entry:
    """Return an entry with what it holds: the descriptor of its metadata, if it has one.

    Raises
    ------
    MemdescError
        If that is none, or does not take as many bytes as the tensor has.
    """
    if text is None:
        desc, reason = stored_desc(entry.dtype, entry.shape)
        return replace(entry, desc=desc, reason=reason)
    try:
        found = desc_from_json(text)
    except MemdescError as error:
        msg = f"{str(entry.file)!r}: the descriptor of {short_repr(entry.name)}: {error}"
        raise MemdescError(msg) from None
    if isinstance(found, MemoryDesc) and found.has_broadcast:
        msg = (
            f"{str(entry.file)!r}: the descriptor of {short_repr(entry.name)}, {found!r}, repeats "
            "elements, which a stored tensor does not"
        )
        raise MemdescError(msg)
    if found.nbytes != entry.nbytes:
        msg = (
            f"{str(entry.file)!r}: {short_repr(entry.name)} has {entry.nbytes} bytes, but its "
            f"descriptor {found!r} takes {found.nbytes}"
        )
        raise MemdescError(msg)
    return replace(entry, desc=found, is_described=True)
