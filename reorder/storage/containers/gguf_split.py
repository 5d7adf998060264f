"""Models of GGUF in several files, read as one: NAME-00001-of-00003.gguf, ...

Each part says how many there are and which one it is; the first has the metadata of the model.
Source: `gguf_writer.py` of gguf 0.19 (`SHARD_NAME_FORMAT`, `Keys.Split`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from memdesc.errors import MemdescError, short_repr
from reorder.storage.containers.entry import Container
from reorder.storage.containers.gguf_types import SCALARS, GgufValue

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from reorder.storage.containers.entry import Entry

__all__ = ["join_parts"]

_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"
_NAME = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf", re.DOTALL)


def join_parts(path: Path, part: Container, read: Callable[[Path], Container]) -> Container:
    """Return the model that a file is a part of, or the file as it is.

    Parameters
    ----------
    path : Path
        Any part.
    part : Container
        What is in it.
    read : callable
        Reads another part.

    Raises
    ------
    MemdescError
        If its name is not that of a part, or the parts do not fit each other.
    """
    count, number = _value(part, _COUNT) or 0, _value(part, _NUMBER) or 0
    if count <= 1:
        return part
    name = _NAME.fullmatch(path.name)
    if name is None or (int(name[2]), int(name[3])) != (number + 1, count):
        msg = (
            f"{str(path)!r} is part {number + 1} of {count} of a model, so it must be called "
            f"NAME-{number + 1:05}-of-{count:05}.gguf, and the other parts likewise"
        )
        raise MemdescError(msg)
    entries: dict[str, Entry] = {}
    files: list[Path] = []
    metadata: dict[str, Any] = {}
    for k in range(count):
        other = path.with_name(f"{name[1]}-{k + 1:05}-of-{count:05}.gguf")
        if not other.exists():
            msg = (
                f"{str(path)!r} is part {number + 1} of {count} of a model: {str(other)!r} is "
                "missing, and all parts must lie in one folder"
            )
            raise MemdescError(msg)
        found = part if k == number else read(other)
        if (_value(found, _NUMBER), _value(found, _COUNT)) != (k, count):
            msg = f"{str(other)!r} does not say that it is part {k + 1} of {count}"
            raise MemdescError(msg)
        if twice := entries.keys() & found.entries.keys():
            msg = f"{str(other)!r} has {short_repr(min(twice))}, which a part before it has"
            raise MemdescError(msg)
        entries |= found.entries
        files.append(other)
        for key, value in found.metadata.items():
            metadata.setdefault(key, value)
    wanted = _value(part, _TENSORS)
    if wanted is not None and wanted != len(entries):
        msg = f"{str(path)!r} says {wanted} tensors in {count} parts, which have {len(entries)}"
        raise MemdescError(msg)
    rest = {key: metadata[key] for key in metadata if key not in {_NUMBER, _COUNT, _TENSORS}}
    return Container(part.format, entries, rest, tuple(files))


def _value(part: Container, key: str) -> int | None:
    """Return an integer of the metadata; None if there is no such key.

    Raises
    ------
    MemdescError
        If it is something else.
    """
    value = part.metadata.get(key)
    if value is None:
        return None
    if isinstance(value, GgufValue) and value.kind in SCALARS:
        return int.from_bytes(value.raw, "little")
    msg = f"{str(part.files[0])!r}: {key} is not an integer"
    raise MemdescError(msg)
