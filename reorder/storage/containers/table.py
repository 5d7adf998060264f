"""The table of formats, and the functions that look a format up in it."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from memdesc.disk import as_path, open_file
from memdesc.errors import MemdescError
from reorder.storage.containers.shards import INDEX_ENDING, read_folder, read_index

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from reorder.storage.containers.entry import Container
    from reorder.storage.containers.plan import PlannedFile, Tensor

__all__ = ["FORMATS", "format_of", "plan_file", "read_container"]

_START = 64


class _Module(Protocol):
    """What the module of a format has."""

    def is_format(self, start: bytes) -> bool: ...
    def read(self, path: Path) -> Container: ...
    def plan(
        self, name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]
    ) -> tuple[PlannedFile, ...]: ...


class Format(NamedTuple):
    """A format: its name, which is that of its module here, and the ending of its files."""

    name: str
    ending: str
    # whether files have a place for what belongs to no tensor
    has_metadata: bool = True

    @property
    def module(self) -> _Module:
        """The functions of the format."""
        module: Any = import_module(f"reorder.storage.containers.{self.name}")
        return module  # type: ignore[no-any-return] # modules have no static type


# A new format is one more module, and its row here.
FORMATS: dict[str, Format] = {
    row.name: row
    for row in (
        Format("safetensors", ".safetensors"),
        Format("gguf", ".gguf"),
        Format("npy", ".npy", has_metadata=False),
        Format("npz", ".npz", has_metadata=False),
        Format("onnx", ".onnx"),
    )
}


def format_of(path: str | os.PathLike[str]) -> Format:
    """Return the format that the ending of a path names.

    Raises
    ------
    MemdescError
        If none does.
    """
    given = as_path(path)
    for row in FORMATS.values():
        if given.name.endswith(row.ending):
            return row
    endings = ", ".join(row.ending for row in FORMATS.values())
    msg = f"the ending of {str(given)!r} names no format of checkpoints; they are {endings}"
    raise MemdescError(msg)


def read_container(path: str | os.PathLike[str]) -> Container:
    """Read the headers of a checkpoint: a file, an index of shards, or a folder of a model.

    Raises
    ------
    MemdescError
        If there is none, or it is damaged.
    """
    given = as_path(path)
    if os.path.isdir(given):  # noqa: PTH112 - names of any length
        return read_folder(given)
    if given.name.endswith(INDEX_ENDING):
        return read_index(given)
    with open_file(given) as file:
        start = file.read(_START)
    for row in FORMATS.values():
        if row.module.is_format(start):
            return row.module.read(given)
    # the format says what is wrong
    return format_of(given).module.read(given)


def plan_file(
    path: str | os.PathLike[str], tensors: Sequence[Tensor], metadata: Mapping[str, Any]
) -> tuple[PlannedFile, ...]:
    """Plan the file, or the files, of a checkpoint in the format that the path names.

    Raises
    ------
    MemdescError
        If the format cannot hold a tensor.
    """
    given = as_path(path)
    return format_of(given).module.plan(given.name, tensors, metadata)
