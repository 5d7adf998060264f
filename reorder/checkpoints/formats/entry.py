"""The values that all formats read into (`Entry`, `Container`) and write from (`PlannedFile`).

All offsets of a planned file are known from names and sizes before anything is written.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath
from time import time_ns
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from memdesc import MemdescError, MemoryDesc, UnknownFormatError, memory_desc
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import about, short_repr
from memdesc.record import RecordDesc, record_desc
from memdesc.tuples import NamedTuple
from reorder.disk import open_file

Desc = MemoryDesc | RecordDesc


# the most bytes in the name of a tensor; real names have about a hundred
_MAX_NAME = 2**16 - 1
_MAX_NDIMS = 64
# what messages say about tensors without an entry
NOT_BYTES = (
    "the file does not store them as bytes (strings, sparse tensors, or numbers in int32_data and "
    "the like)"
)
# how long file systems may give the same time to all that is written: FAT 2 s, Linux 4 ms
_CLOCK_STEP_NS = 2 * 10**9


class FileState(NamedTuple):
    """What changes when a file is written or replaced."""

    nbytes: int
    mtime_ns: int
    # which file it is, if it was so new that another one could have the same time; otherwise 0,
    # since file systems in user space may number a file anew
    inode: int = 0

    @classmethod
    def of(cls, handle: int) -> FileState:
        """Return the state of an open file."""
        status = os.fstat(handle)
        is_new = time_ns() - status.st_mtime_ns < _CLOCK_STEP_NS
        return cls(status.st_size, status.st_mtime_ns, status.st_ino if is_new else 0)

    @property
    def shared(self) -> tuple[int, int]:
        """What is the same on all machines that share the file, and in a copy with its times."""
        return self.nbytes, self.mtime_ns

    def is_of(self, handle: int) -> bool:
        """Whether an open file is in this state."""
        status = os.fstat(handle)
        return self == (status.st_size, status.st_mtime_ns, self.inode and status.st_ino)

    def is_at(self, path: Path) -> bool:
        """Whether the file of a path is in this state. Fails if it cannot be read."""
        with open_file(path) as file:
            return self.is_of(file.fileno())

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
    # an indirection table: which row in the file each row of the tensor is; empty if there is none
    rows: tuple[int, ...] = ()

    def spans(self, start: int, nbytes: int) -> Iterator[tuple[int, int]]:
        """Yield where bytes of the tensor are in the file: offsets, and how many bytes."""
        if not self.rows:
            yield self.start + start, nbytes
            return
        size = self.nbytes // len(self.rows)
        while nbytes > 0:
            row, at = divmod(start, size)
            count = min(size - at, nbytes)
            yield self.start + self.rows[row] * size + at, count
            start, nbytes = start + count, nbytes - count


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor in a container; its bytes are read when they are asked for."""

    name: str
    # the type of the stored words: the name of a `DataType` or a record, such as ``bf16`` or
    # ``q4_0``, or what the container calls it if it is neither
    dtype: str
    # as stored in the container, the outermost dim first
    shape: tuple[int, ...]
    # where the bytes are, and the state of that file when its header was read
    file: Path
    offset: int
    nbytes: int
    state: FileState = field(repr=False)
    # what the bytes hold, according to the metadata if it `is_described`, else to dtype and shape;
    # or why it is None
    desc: Desc | None = None
    reason: str = ""
    is_described: bool = False
    # what this tensor and others are together, from the metadata; only the first of them has it
    note: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)
    # returns its bytes in the file, if they are mapped or unpacked
    source: Callable[[Entry], NDArray[np.uint8]] | None = field(
        default=None, repr=False, compare=False
    )
    # an indirection table, as for a `Place`
    rows: tuple[int, ...] = field(default=(), repr=False)

    @property
    def known_desc(self) -> Desc:
        """What the bytes hold. Fails if no descriptor describes such a tensor."""
        if self.desc is None:
            raise MemdescError(f"tensor {short_repr(self.name)} of {self.dtype}: {self.reason}")
        return self.desc

    @property
    def place(self) -> Place:
        """Where its bytes are."""
        return Place(self.file, self.offset, self.nbytes, self.rows)

    def by_rows(self, rows: tuple[int, ...]) -> Entry:
        """Return the tensor whose rows are these rows of this one."""
        shape = (len(rows), *self.shape[1:])
        nbytes = self.nbytes // self.shape[0] * len(rows)
        desc, reason = stored_desc(self.dtype, shape)
        return replace(self, shape=shape, nbytes=nbytes, desc=desc, reason=reason, rows=rows)

    @property
    def stored_nbytes(self) -> int:
        """How many bytes from `offset` on hold it in the file."""
        last = max(self.rows, default=-1) + 1
        return self.nbytes // len(self.rows) * last if self.rows else self.nbytes

    def read(self) -> NDArray[np.uint8]:
        """Return the bytes: of `source` if it is given, else read with system calls."""
        data = (self.source or _read)(self)
        if not self.rows:
            return data
        rows: NDArray[np.uint8] = data.reshape(-1, self.nbytes // len(self.rows))[[*self.rows]]
        return rows.reshape(-1)


def _read(entry: Entry) -> NDArray[np.uint8]:
    data = np.empty(entry.stored_nbytes, np.uint8)
    with _open_unchanged(entry.file, entry.state) as file:
        file.seek(entry.offset)
        if file.readinto(data) < data.nbytes:  # type: ignore[attr-defined] # binary files have it
            raise MemdescError(f"{str(entry.file)!r} became shorter while {entry.name!r} was read")
    return data


class Maps:
    """The files of a checkpoint, mapped when they are first read, until this is closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[Path, NDArray[np.uint8]] | None = {}

    def of(self, container: Container) -> Container:
        """Return a container whose tensors are read from these maps."""
        entries = {name: replace(e, source=self.read) for name, e in container.entries.items()}
        return container._replace(entries=entries)

    def read(self, entry: Entry) -> NDArray[np.uint8]:
        """Return the bytes of a tensor. Fails if this is closed, or the file has changed."""
        if self._files is None:
            raise MemdescError(f"the checkpoint {str(self._path)!r} is closed; open it again")
        if entry.file not in self._files:
            self._files[entry.file] = map_file(entry.file, entry.state)
        return self._files[entry.file][entry.offset : entry.offset + entry.stored_nbytes]

    def close(self) -> None:
        """Forget the files; the system unmaps each when no array uses it any more."""
        self._files = None


class Unread(NamedTuple):
    """Why a shard was not read, and the tensors that it should hold."""

    reason: str
    names: tuple[str, ...] = ()


class Container(NamedTuple):
    """What the headers of a container say."""

    # the format, by its key in the table
    format: str
    entries: dict[str, Entry]
    # what does not belong to a tensor, in the format's own form, without our descriptors
    metadata: Mapping[str, Any]
    # the paths of its files as the checkpoint names them: links are not resolved
    files: tuple[Path, ...]
    # tensors without an entry, since the file does not store their elements as bytes
    left_out: tuple[str, ...] = ()
    # whether the file has a graph, whose nodes may give tensors their scales
    has_nodes: bool = False
    # shards that were not read: why, and the names of their tensors if an index lists them
    unread: Mapping[str, Unread] = {}


def check_name(name: object) -> str:
    """Return the name of a tensor; refuse one that cannot be printed or stored."""
    if isinstance(name, str) and name and "\0" not in name:
        try:
            if len(name.encode()) <= _MAX_NAME:
                return name
        except UnicodeEncodeError:
            pass
    raise MemdescError(
        f"the name of a tensor must be a string of 1 to {_MAX_NAME} bytes of UTF-8 without zero "
        f"bytes, not {short_repr(name)}"
    )


def check_planned(file: str, tensors: Iterable[Tensor]) -> None:
    """Refuse tensors of a planned file if two share a name, or a name cannot be stored."""
    found: set[str] = set()
    for tensor in tensors:
        if check_name(tensor.name) in found:
            raise MemdescError(f"two tensors would be called {short_repr(tensor.name)} in {file!r}")
        found.add(tensor.name)


def check_nbytes(tensor: Tensor, nbytes: float) -> None:
    """Refuse a planned tensor unless its size is `nbytes`, what its dtype and shape take."""
    if nbytes != tensor.nbytes:
        raise MemdescError(
            f"tensor {short_repr(tensor.name)}: {tensor.dtype} of shape {tensor.shape} takes "
            f"{nbytes:.15g} bytes, not {tensor.nbytes}"
        )


def check_entries(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Return the entries of a file by name; refuse equal names, shared bytes, and bytes past it."""
    found: dict[str, Entry] = {}
    for entry in entries:
        if check_name(entry.name) in found:
            raise MemdescError(f"two tensors are called {short_repr(entry.name)}")
        found[entry.name] = entry
        size, end = entry.state.nbytes, entry.offset + entry.nbytes
        if not 0 <= entry.offset <= end <= size:
            raise MemdescError(
                f"{short_repr(entry.name)} takes bytes {entry.offset} to {end} of {size}; the file "
                "was cut off or is damaged"
            )
    by_place = sorted(
        (each for each in found.values() if each.nbytes),
        key=lambda each: (each.offset, each.nbytes),
    )
    for one, other in pairwise(by_place):
        if one.offset + one.nbytes > other.offset:
            raise MemdescError(
                f"{short_repr(one.name)} and {short_repr(other.name)} overlap: the first ends at "
                f"byte {one.offset + one.nbytes}, the other starts at {other.offset}"
            )
    return found


def joined(path: Path, parts: Sequence[Container]) -> Container:
    """Return the files of a model as one container. Fails if two have a tensor of one name."""
    entries: dict[str, Entry] = {}
    metadata: dict[str, Any] = {}
    for part in parts:
        if twice := entries.keys() & part.entries.keys():
            name = min(twice)
            held, other = (each[name].file.name for each in (entries, part.entries))
            raise MemdescError(f"{str(path)!r}: {short_repr(name)} is in {held!r} and in {other!r}")
        entries |= part.entries
        metadata = {**part.metadata, **metadata}
    files = tuple(file for part in parts for file in part.files)
    return Container(parts[0].format, entries, metadata, files)


def map_file(path: Path, state: FileState) -> NDArray[np.uint8]:
    """Map a file for reading; it stays mapped as long as the array lives."""
    if not state.nbytes:
        return np.empty(0, np.uint8)  # an empty file cannot be mapped
    with _open_unchanged(path, state) as file:
        return np.frombuffer(mmap.mmap(file.fileno(), state.nbytes, access=mmap.ACCESS_READ), "u1")


@contextmanager
def _open_unchanged(path: Path, state: FileState) -> Iterator[BinaryIO]:
    with open_file(path) as file:
        if not state.is_of(file.fileno()):
            nbytes, then = os.fstat(file.fileno()).st_size, state.nbytes
            change = (
                f"it has {nbytes} bytes, and had {then}" if nbytes != then else "it was written"
            )
            raise MemdescError(
                f"{str(path)!r} has changed since it was opened: {change}; open it again"
            )
        yield file


@contextmanager
def open_container(path: Path, what: str) -> Iterator[tuple[BinaryIO, FileState]]:
    """Open a file of a format; errors about what is in it name the file and the format."""
    with open_file(path) as file, about(f"{str(path)!r} is not {what}, or a damaged one"):
        yield file, FileState.of(file.fileno())


class Tensor(NamedTuple):
    """A tensor to be written: what a header says about it, in the terms of an `Entry`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    # written unless dtype and shape already say it
    desc: Desc | None = None
    note: Mapping[str, Any] | None = None


class Span(NamedTuple):
    """Where the bytes of a tensor are in a file."""

    offset: int
    nbytes: int


class PlannedFile(NamedTuple):
    """A file of an output: its size, where its tensors go, and the bytes of everything else."""

    # its name in the folder of the output
    name: str
    nbytes: int
    # the bytes that are not those of tensors, each part with its offset
    headers: tuple[tuple[int, bytes | memoryview], ...]
    spans: Mapping[str, Span]
    # called with the complete file before it gets its name, to write what depends on the data
    seal: Callable[[Path], None] | None = None

    def with_data(self, data: Mapping[str, bytes | memoryview]) -> PlannedFile:
        """Return the file with the bytes of those of its tensors that are known already."""
        held = [
            (self.spans[name].offset, each) for name, each in data.items() if name in self.spans
        ]
        return self._replace(headers=(*self.headers, *held))

    def write(self, out: BinaryIO) -> None:
        """Write the file, of which all bytes are known."""
        for offset, part in self.headers:
            out.seek(offset)
            out.write(part)
        if self.seal is not None:
            out.flush()
            self.seal(Path(out.name))


def safe_path(folder: Path, name: object, what: str) -> Path:
    """Return the path of a file that a header names; refuse one outside its folder."""
    if not isinstance(name, str) or not name or "\0" in name or "\\" in name:
        raise MemdescError(f"{what} is not the name of a file: {short_repr(name)}")
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts:
        raise MemdescError(
            f"{what} {short_repr(name)} leads out of {str(folder)!r}, which is not followed"
        )
    path = folder / pure
    try:
        home, real = folder.resolve(), path.resolve()
    except (OSError, RuntimeError, ValueError):
        raise MemdescError(f"{what} {short_repr(name)} cannot be followed") from None
    is_cache = home.parent.name == "snapshots" and real.parent == home.parent.parent / "blobs"
    if not real.is_relative_to(home) and not is_cache:
        raise MemdescError(
            f"{what} {short_repr(name)} is a link out of {str(folder)!r}, which is not followed"
        )
    return path


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape from the metadata of a file as a tuple of int."""
    if (
        isinstance(shape, list | tuple)
        and len(shape) <= _MAX_NDIMS
        and all(type(size) is int and 0 <= size < 2**63 for size in shape)
    ):
        return tuple(shape)
    raise MemdescError(
        f"its shape is not a list of at most {_MAX_NDIMS} sizes, but {short_repr(shape)}"
    )


def stored_desc(dtype: str, shape: tuple[int, ...]) -> tuple[Desc | None, str]:
    """Return the descriptor that follows from dtype and shape, or None and the reason.

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
