"""The table of formats, and functions that look up a format and use it."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from memdesc.disk import as_path, open_file
from memdesc.errors import MemdescError
from reorder.storage.containers.shards import INDEX_ENDING, read_folder, read_index

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from reorder.storage.containers.entry import Container, PlannedFile, Tensor

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

    def is_start(self, data: bytes) -> bool:
        """Whether the first bytes of a file are those of this format."""
        return self.start is not None and re.match(self.start, data, re.DOTALL) is not None

    @property
    def module(self) -> _Module:
        """The functions of the format."""
        module: Any = import_module(f"reorder.storage.containers.{self.name}")
        return module  # type: ignore[no-any-return] # modules have no static type


# A new format is one more module, and its row here.
FORMATS: dict[str, Format] = {
    row.name: row
    for row in (
        # the length of the header, about 100 MB at most, and its brace; no other pattern fits that
        Format("safetensors", ".safetensors", rb".{3}[\0-\5]\0{4}\{"),
        Format("gguf", ".gguf", b"GGUF", has_scalars=False),
        Format("npy", ".npy", b"\x93NUMPY", has_metadata=False, has_names=False, shows_order=True),
        Format("npz", ".npz", b"PK", has_metadata=False),
        Format("onnx", ".onnx", None),
    )
}


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
    """Plan the file, or the files, of a checkpoint in the format that the path names.

    Fails if the format cannot hold a tensor.
    """
    given = as_path(path)
    return format_of(given).module.plan(given.name, tensors, metadata)


def plan_replacement(
    path: Path, tensors: Sequence[Tensor], metadata: Mapping[str, Any], *, is_kept: bool
) -> tuple[tuple[PlannedFile, ...], tuple[Path, ...]]:
    """Plan the files of a checkpoint that may replace an existing one, which stays if `is_kept`.

    Files that the existing one refers to, such as ONNX's external data, stay until the last file is
    replaced, so that one rename switches to the new checkpoint. New files get other names. Return
    the files, and the paths of old files that nothing refers to once the new ones have their names.
    If the existing checkpoint stays, the files have the names that it already uses.
    """
    used = _files_beside(path)
    names = [path.name, *(f"{path.stem}.{k}{path.suffix}" for k in range(1, len(used) + 1))]
    module = format_of(path).module
    first: tuple[PlannedFile, ...] | None = None
    for name in names:
        *beside, last = module.plan(name, tensors, metadata)
        files = (*beside, last._replace(name=path.name))
        first = first or files
        if used.isdisjoint(file.name for file in beside) != (is_kept and bool(used)):
            first = files
            break
    stale = {each for each in used if any(each.startswith(f"{name}.") for name in names)}
    left = () if is_kept else sorted(stale)
    return first or (), tuple(path.with_name(name) for name in left)


def _files_beside(path: Path) -> set[str]:
    """Return the names of the files that a checkpoint refers to; none if it cannot be read."""
    with suppress(MemdescError):
        if path.is_file():
            files = read_container(path).files
            return {each.name for each in files if each.parent == path.parent} - {path.name}
    return set()
