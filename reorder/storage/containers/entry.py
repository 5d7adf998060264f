"""What is in files: entries of those that are read, and plans of those that are written.

All offsets of a planned file are known from names and sizes before anything is written.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memdesc.disk import open_file
from memdesc.errors import MemdescError, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from memdesc import MemoryDesc, RecordDesc

__all__ = [
    "Container",
    "Entry",
    "FileState",
    "Place",
    "PlannedFile",
    "Span",
    "Tensor",
    "check_entries",
    "check_name",
    "check_planned",
    "map_file",
    "places_of",
    "safe_path",
]

# bytes of the longest name of a tensor; real ones have a hundred
_MAX_NAME = 2**16 - 1


class FileState(NamedTuple):
    """What changes when a file is written: the same on all machines that share it."""

    nbytes: int
    mtime_ns: int

    @classmethod
    def of(cls, handle: int) -> FileState:
        """Return the state of an open file."""
        status = os.fstat(handle)
        return cls(status.st_size, status.st_mtime_ns)

    @classmethod
    def at(cls, path: Path) -> FileState:
        """Return the state of a file. Fails if it cannot be read."""
        with open_file(path) as file:
            return cls.of(file.fileno())


class Place(NamedTuple):
    """Where a tensor is: a file, the offset of its first byte there, and its size in bytes."""

    path: Path
    start: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor in a container; its bytes are read when they are asked for.

    Parameters
    ----------
    name : str
        Its name in the container.
    dtype : str
        Type of the stored words: the name of a `DataType` or a record, such as ``bf16`` or
        ``q4_0``, or what the container calls it if it is neither.
    shape : tuple of int
        As the container says, the outermost dim first.
    file : Path
        The file that has the bytes.
    offset, nbytes : int
        Where they lie in it.
    state : FileState
        State of the file when its header was read.
    desc : MemoryDesc or RecordDesc, optional
        What the bytes hold, according to the container's metadata, else to dtype and shape.
    reason : str
        Why there is no `desc`.
    is_described : bool
        Whether `desc` is from the metadata.
    note : mapping of str to object, optional
        What this tensor and others are together, if it is the first of them; from the metadata.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    offset: int
    nbytes: int
    state: FileState = field(repr=False)
    desc: MemoryDesc | RecordDesc | None = None
    reason: str = ""
    is_described: bool = False
    note: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)

    @property
    def place(self) -> Place:
        """Where its bytes are."""
        return Place(self.file, self.offset, self.nbytes)

    def read(self) -> NDArray[np.uint8]:
        """Read the bytes with system calls: if the file shrinks, that is an error, not a signal.

        Fails if the file cannot be read, or has changed since its header was read.
        """
        data = np.empty(self.nbytes, np.uint8)
        with open_file(self.file) as file:
            _check_unchanged(self.file, file.fileno(), self.state)
            file.seek(self.offset)
            if file.readinto(data) < self.nbytes:  # type: ignore[attr-defined] # binary files have it
                msg = f"{str(self.file)!r} became shorter while {self.name!r} was read"
                raise MemdescError(msg)
        return data

    def check_unchanged(self) -> None:
        """Raise where the file has changed since its header was read."""
        with open_file(self.file) as file:
            _check_unchanged(self.file, file.fileno(), self.state)


class Unread(NamedTuple):
    """Why a shard was not read, and the tensors that it should hold."""

    reason: str
    names: tuple[str, ...] = ()


class Container(NamedTuple):
    """What the headers of a container say."""

    # the format, by its key in the table
    format: str
    entries: dict[str, Entry]
    # what belongs to no tensor, in the form of the format, without our descriptors
    metadata: Mapping[str, Any]
    # the files with tensors; of several, their names in a folder
    files: tuple[Path, ...]
    # tensors without an entry, because the file does not store their elements as bytes
    left_out: tuple[str, ...] = ()
    # whether the file has a graph, whose nodes may give tensors their scales
    has_nodes: bool = False
    # shards that were not read: why, and the names of their tensors as far as an index has them
    unread: Mapping[str, Unread] = {}


def check_name(name: object) -> str:
    """Return the name of a tensor; refuse one that cannot be printed or stored.

    Fails if it is not a string, is empty, too long, has a zero byte, or half of a character.
    """
    if isinstance(name, str) and name and "\0" not in name:
        try:
            if len(name.encode()) <= _MAX_NAME:
                return name
        except UnicodeEncodeError:
            pass
    msg = (
        f"the name of a tensor must be a string of 1 to {_MAX_NAME} bytes of UTF-8 without zero "
        f"bytes, not {short_repr(name)}"
    )
    raise MemdescError(msg)


def check_planned(file: str, tensors: Iterable[Tensor]) -> None:
    """Refuse tensors of a planned file if two share a name, or a name cannot be stored."""
    found: set[str] = set()
    for tensor in tensors:
        if check_name(tensor.name) in found:
            msg = f"two tensors would be called {short_repr(tensor.name)} in {file!r}"
            raise MemdescError(msg)
        found.add(tensor.name)


def check_entries(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Return entries of one file by name; refuse equal names, shared bytes, and bytes beyond it."""
    found: dict[str, Entry] = {}
    for entry in entries:
        if check_name(entry.name) in found:
            msg = f"{str(entry.file)!r}: two tensors are called {short_repr(entry.name)}"
            raise MemdescError(msg)
        found[entry.name] = entry
        size = entry.state.nbytes
        if not 0 <= entry.offset <= entry.offset + entry.nbytes <= size:
            msg = (
                f"{str(entry.file)!r}: {short_repr(entry.name)} takes bytes {entry.offset} to "
                f"{entry.offset + entry.nbytes} of {size}; the file was cut off or is damaged"
            )
            raise MemdescError(msg)
    by_place = sorted((each for each in found.values() if each.nbytes), key=_place)
    for one, other in pairwise(by_place):
        if one.offset + one.nbytes > other.offset:
            msg = (
                f"{str(one.file)!r}: {short_repr(one.name)} and {short_repr(other.name)} overlap: "
                f"the first ends at byte {one.offset + one.nbytes}, the other starts at "
                f"{other.offset}"
            )
            raise MemdescError(msg)
    return found


def _place(entry: Entry) -> tuple[int, int]:
    return entry.offset, entry.nbytes


def map_file(path: Path, state: FileState) -> NDArray[np.uint8]:
    """Map a file for reading; it stays mapped as long as the array lives.

    Fails if it cannot be mapped, or has changed since its header was read.
    """
    if not state.nbytes:
        return np.empty(0, np.uint8)  # an empty file cannot be mapped
    with open_file(path) as file:
        _check_unchanged(path, file.fileno(), state)
        return np.frombuffer(mmap.mmap(file.fileno(), state.nbytes, access=mmap.ACCESS_READ), "u1")


def _check_unchanged(path: Path, handle: int, state: FileState) -> None:
    found = FileState.of(handle)
    if found != state:
        change = (
            f"it has {found.nbytes} bytes, and had {state.nbytes}"
            if found.nbytes != state.nbytes
            else "it was written"
        )
        msg = f"{str(path)!r} has changed since it was opened: {change}; open it again"
        raise MemdescError(msg)


class Tensor(NamedTuple):
    """A tensor to be written: what a header says about it.

    `dtype` and `shape` are those of the stored words, as in an `Entry`; `desc` is what they hold,
    and is written if dtype and shape do not say it. `origin` is the input tensor that this one
    copies byte for byte; empty if it is not a copy. `note` says what several tensors are
    together, in values of JSON; only the first of them has it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    desc: MemoryDesc | RecordDesc | None = None
    origin: str = ""
    note: Mapping[str, Any] | None = None


class Span(NamedTuple):
    """Where the bytes of a tensor lie in a file."""

    offset: int
    nbytes: int


class PlannedFile(NamedTuple):
    """A file of an output: its size, where its tensors go, and the bytes of everything else.

    Headers, indices and small files such as config.json are known before any tensor is written.
    """

    # its name in the folder of the output
    name: str
    nbytes: int
    # the bytes that are not those of tensors, each part with its offset
    headers: tuple[tuple[int, bytes], ...]
    spans: Mapping[str, Span]
    # called with the complete file before it gets its name: writes what depends on the data
    seal: Callable[[Path], None] | None = None


def places_of(files: Iterable[PlannedFile], folder: Path) -> dict[str, Place]:
    """Return where the tensors of files are if these lie in a folder."""
    return {
        name: Place(folder / file.name, *span)
        for file in files
        for name, span in file.spans.items()
    }


def safe_path(folder: Path, name: object, what: str) -> Path:
    """Return a file that a header names in its folder; refuse those that lie elsewhere.

    Fails if the name is absolute, has ``..``, or leads out of the folder by a link; links from
    `snapshots/REVISION` into `blobs`, as in the cache of huggingface_hub 0.30, are followed.
    """
    if not isinstance(name, str) or not name or "\0" in name or "\\" in name:
        msg = f"{what} is not the name of a file: {short_repr(name)}"
        raise MemdescError(msg)
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts:
        msg = f"{what} {short_repr(name)} leads out of {str(folder)!r}, which is not followed"
        raise MemdescError(msg)
    path = folder / pure
    try:
        home, real = folder.resolve(), path.resolve()
    except (OSError, RuntimeError, ValueError):
        msg = f"{what} {short_repr(name)} cannot be followed"
        raise MemdescError(msg) from None
    is_cache = home.parent.name == "snapshots" and real.parent == home.parent.parent / "blobs"
    if not real.is_relative_to(home) and not is_cache:
        msg = f"{what} {short_repr(name)} is a link out of {str(folder)!r}, which is not followed"
        raise MemdescError(msg)
    return path
