"""Entries: where each tensor of a container lies in which file, and what it is."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memdesc.disk import open_file
from memdesc.errors import MemdescError, short_repr

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from memdesc import MemoryDesc, RecordDesc

__all__ = ["Container", "Entry", "FileState", "check_entries", "check_name", "map_file"]

# bytes of the longest name of a tensor; real ones have a hundred
_MAX_NAME = 2**16 - 1


class FileState(NamedTuple):
    """What changes when a file is written; the same on all machines that share it."""

    nbytes: int
    mtime_ns: int

    @classmethod
    def of(cls, handle: int) -> FileState:
        """Return the state of an open file."""
        status = os.fstat(handle)
        return cls(status.st_size, status.st_mtime_ns)

    @classmethod
    def at(cls, path: Path) -> FileState:
        """Return the state of a file.

        Raises
        ------
        MemdescError
            If it cannot be read.
        """
        with open_file(path) as file:
            return cls.of(file.fileno())


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor in a container; its bytes are read when they are asked for.

    Parameters
    ----------
    name : str
        Its name in the container.
    dtype : str
        Type of the words that it is stored as: the name of a `DataType` or of a record where there
        is one, such as ``bf16`` or ``q4_0``, else what the container says.
    shape : tuple of int
        As the container says, the outermost dim first.
    file : Path
        The file that has the bytes.
    offset, nbytes : int
        Where they lie in it.
    state : FileState
        The file when its header was read.
    desc : MemoryDesc or RecordDesc, optional
        What the bytes hold: what the container's metadata says, else what dtype and shape say.
    reason : str
        Why there is no `desc`.
    is_described : bool
        Whether `desc` is from the metadata.
    value : mapping of str to object, optional
        What several tensors are together, of which this is the first; from the metadata.
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
    value: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)

    @property
    def members(self) -> tuple[str, ...]:
        """The tensors that `value` names; none if it is damaged."""
        tensors = (self.value or {}).get("tensors")
        names = (*tensors.values(),) if isinstance(tensors, dict) else ()
        return names if all(isinstance(name, str) for name in names) else ()

    def read(
        self, start: int = 0, stop: int | None = None, out: NDArray[np.uint8] | None = None
    ) -> NDArray[np.uint8]:
        """Read some of the bytes, with system calls: a file that shrinks is an error, no signal.

        Parameters
        ----------
        start, stop : int
            Bytes of the tensor; by default all.
        out : ndarray of uint8, optional
            Where to; contiguous, of that many bytes.

        Raises
        ------
        MemdescError
            If the file cannot be read, or has changed since its header was read.
        """
        end = self.nbytes if stop is None else stop
        data = np.empty(end - start, np.uint8) if out is None else out
        rest = memoryview(data)  # type: ignore[arg-type] # arrays of bytes are buffers
        with open_file(self.file) as file:
            handle = file.fileno()
            _check_unchanged(self.file, handle, self.state)
            at = self.offset + start
            while rest.nbytes:
                count = os.preadv(handle, [rest], at)
                if not count:
                    msg = f"{str(self.file)!r} became shorter while {self.name!r} was read"
                    raise MemdescError(msg)
                rest, at = rest[count:], at + count
        return data

    def check_unchanged(self) -> None:
        """Raise where the file has changed since its header was read.

        Raises
        ------
        MemdescError
            With what has changed.
        """
        with open_file(self.file) as file:
            _check_unchanged(self.file, file.fileno(), self.state)


class Container(NamedTuple):
    """What the headers of a container say."""

    # a key of the table of formats
    format: str
    entries: dict[str, Entry]
    # what belongs to no tensor, as the format has it, without our descriptors
    metadata: Mapping[str, Any]
    # the files with tensors; of several, their names in a folder
    files: tuple[Path, ...]
    # names of tensors without an entry, because the file does not store their elements as bytes
    left_out: tuple[str, ...] = ()
    # whether the file has a graph, whose nodes may give tensors their scales
    has_nodes: bool = False


def check_name(name: object) -> str:
    """Return the name of a tensor; refuse what cannot be printed or stored.

    Raises
    ------
    MemdescError
        If it is not a string, is empty, too long, has a zero byte, or half of a character.
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


def check_entries(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Return entries of one file by name; refuse equal names, shared bytes, and bytes beyond it.

    Raises
    ------
    MemdescError
        With the tensors and their bytes.
    """
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
    """Map a file for reading, as long as the array lives.

    Raises
    ------
    MemdescError
        If it cannot be mapped, or has changed since its header was read.
    """
    if not state.nbytes:
        return np.empty(0, np.uint8)  # no system maps nothing
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
