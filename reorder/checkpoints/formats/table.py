"""The table of formats, and functions that look up a format and use it."""

from __future__ import annotations

import os
import re
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from memdesc.disk import as_path, open_file
from memdesc.errors import MemdescError
from reorder.checkpoints.formats.shards import INDEX_ENDING, read_folder, read_index

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from reorder.checkpoints.formats.entry import Container, PlannedFile, Tensor

# how many bytes of a file are compared with `Format.start`
_START = 64


class _Module(Protocol):
    """What the module of a format provides."""

    def read(self, path: Path) -> Container: ...
    def plan(
        self, name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]
    ) -> tuple[PlannedFile, ...]: ...


class Format(NamedTuple):
    """A format: its name, which is also its module's, and how its files start and end."""

    name: str
    ending: str
    # a pattern of the first bytes of its files; None if they have no magic number
    start: bytes | None
    # whether files have room for metadata
    has_metadata: bool = True
    # whether it stores the names of tensors
    has_names: bool = True
    # whether tensors may have no dims
    has_scalars: bool = True
    # whether every reader sees the order of a permuted tensor's axes
    shows_order: bool = False
    is_written: bool = True

    def is_start(self, data: bytes) -> bool:
        """Whether the first bytes of a file are those of this format."""
        return self.start is not None and re.match(self.start, data, re.DOTALL) is not None

    @property
    def module(self) -> _Module:
        """The functions of the format."""
        module: Any = import_module(f"reorder.checkpoints.formats.{self.name}")
        return module  # type: ignore[no-any-return] # modules have no static type


# A new format is one more module, and its row here.
FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        row.name: row
        for row in (
            # the length of the header, about 100 MB at most, and its brace; no other pattern fits
            Format("safetensors", ".safetensors", rb".{3}[\0-\5]\0{4}\{"),
            Format("gguf", ".gguf", b"GGUF", has_scalars=False),
            Format(
                "npy", ".npy", b"\x93NUMPY", has_metadata=False, has_names=False, shows_order=True
            ),
            Format("npz", ".npz", b"PK", has_metadata=False),
            Format("onnx", ".onnx", None, is_written=False),
        )
    }
)


def format_of(path: str | os.PathLike[str]) -> Format:
    """Return the format that the ending of a path names. Fails if none does."""
    given = as_path(path)
    for row in FORMATS.values():
        if given.name.endswith(row.ending):
            return row
    endings = ", ".join(row.ending for row in FORMATS.values())
    msg = f"the ending of {str(given)!r} names no format of checkpoints; they are {endings}"
    raise MemdescError(msg)


def format_in(path: Path) -> Format | None:
    """Return the format that the first bytes of a file show; None if they show none."""
    with open_file(path) as file:
        start = file.read(_START)
    return next((row for row in FORMATS.values() if row.is_start(start)), None)


def read_container(path: str | os.PathLike[str], *, skip_unreadable: bool = False) -> Container:
    """Read the headers of a checkpoint: a file, an index of shards, or a folder of a model.

    With `skip_unreadable`, shards that are missing or damaged are listed in `unread`, as long as
    one can be read. Fails if there is no checkpoint, or it is damaged otherwise.
    """
    given = as_path(path)
    if os.path.isdir(given):  # noqa: PTH112 - names of any length
        return read_folder(given, skip_unreadable=skip_unreadable)
    if given.name.endswith(INDEX_ENDING):
        return read_index(given, skip_unreadable=skip_unreadable)
    # without a known start, the module of the ending says what is wrong
    return (format_in(given) or format_of(given)).module.read(given)


def plan_file(
    path: str | os.PathLike[str], tensors: Sequence[Tensor], metadata: Mapping[str, Any]
) -> tuple[PlannedFile, ...]:
    """Plan the file of a checkpoint in the format that the path names.

    Fails if the format is only read, or cannot hold a tensor.
    """
    given = as_path(path)
    row = format_of(given)
    if not row.is_written:
        endings = ", ".join(each.ending for each in FORMATS.values() if each.is_written)
        msg = f"{str(given)!r}: a {row.ending} is read but not written; name one of {endings}"
        raise MemdescError(msg)
    return row.module.plan(given.name, tensors, metadata)
