"""Entries of files that are read, plans of files that are written, and descriptors in both.

All offsets of a planned file are known from names and sizes before anything is written. A tensor's
descriptor in the metadata says what it holds; without one, its dtype and shape do.
"""

from __future__ import annotations

import json
import mmap
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path, PurePosixPath
from time import time_ns
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from memdesc import MemdescError, MemoryDesc, UnknownFormatError, memory_desc
from memdesc.descriptor_json import SCHEMA
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import about, short_repr
from memdesc.layout import memory_order
from memdesc.record import RecordDesc, record_desc
from reorder.disk import open_file
from reorder.values.formats import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    Desc = MemoryDesc | RecordDesc

# the most bytes in the name of a tensor; real names have about a hundred
_MAX_NAME = 2**16 - 1
# metadata keys: this, then the name of the tensor
PREFIX = "memdesc."
# the most characters of a descriptor; the longest one written has a few thousand
MAX_DESCRIPTOR = 2**20
_MAX_NDIMS = 64
# what messages say about tensors without an entry
NOT_BYTES = (
    "the file does not store them as bytes (strings, sparse tensors, or numbers in int32_data and "
    "the like)"
)
# how long file systems may give the same time to all that is written: FAT 2 s, Linux 4 ms
_CLOCK_STEP_NS = 2 * 10**9
# the key of the note about several tensors, in the descriptor of the first of them
_NOTE = "value"


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
    # its bytes, if they are in memory: those of a mapped file or a compressed member
    data: NDArray[np.uint8] | None = field(default=None, repr=False, compare=False)
    # an indirection table, as for a `Place`
    rows: tuple[int, ...] = field(default=(), repr=False)

    @property
    def known_desc(self) -> Desc:
        """What the bytes hold. Fails if no descriptor describes such a tensor."""
        if self.desc is None:
            msg = f"tensor {short_repr(self.name)} of {self.dtype}: {self.reason}"
            raise MemdescError(msg)
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
        made = replace(self, shape=shape, nbytes=nbytes, desc=desc, reason=reason, rows=rows)
        return made if self.data is None else replace(made, data=made.in_rows(self.data))

    @property
    def stored_nbytes(self) -> int:
        """How many bytes from `offset` on hold it in the file."""
        last = max(self.rows, default=-1) + 1
        return self.nbytes // len(self.rows) * last if self.rows else self.nbytes

    def in_rows(self, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return its bytes, given those in the file."""
        if not self.rows:
            return data
        rows: NDArray[np.uint8] = data.reshape(-1, self.nbytes // len(self.rows))[[*self.rows]]
        return rows.reshape(-1)

    def read(self) -> NDArray[np.uint8]:
        """Read the bytes with system calls: if the file shrinks, that is an error, not a signal.

        Fails if the file cannot be read, or has changed since its header was read.
        """
        if self.data is not None:
            return self.data
        data = np.empty(self.stored_nbytes, np.uint8)
        with _open_unchanged(self.file, self.state) as file:
            file.seek(self.offset)
            if file.readinto(data) < data.nbytes:  # type: ignore[attr-defined] # binary files have it
                msg = f"{str(self.file)!r} became shorter while {self.name!r} was read"
                raise MemdescError(msg)
        return self.in_rows(data)

    def check_unchanged(self) -> None:
        """Raise if the file has changed since its header was read."""
        with _open_unchanged(self.file, self.state):
            pass


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
    """Return the name of a tensor; refuse one that cannot be printed or stored.

    Fails if it is not a string, is empty or too long, or has a zero byte or half a character.
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


def check_nbytes(tensor: Tensor, nbytes: float) -> None:
    """Refuse a planned tensor unless its size is `nbytes`, what its dtype and shape take."""
    if nbytes != tensor.nbytes:
        msg = (
            f"tensor {short_repr(tensor.name)}: {tensor.dtype} of shape {tensor.shape} takes "
            f"{nbytes:.15g} bytes, not {tensor.nbytes}"
        )
        raise MemdescError(msg)


def check_entries(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Return the entries of a file by name; refuse equal names, shared bytes, and bytes past it."""
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
    by_place = sorted(
        (each for each in found.values() if each.nbytes),
        key=lambda each: (each.offset, each.nbytes),
    )
    for one, other in pairwise(by_place):
        if one.offset + one.nbytes > other.offset:
            msg = (
                f"{str(one.file)!r}: {short_repr(one.name)} and {short_repr(other.name)} overlap: "
                f"the first ends at byte {one.offset + one.nbytes}, the other starts at "
                f"{other.offset}"
            )
            raise MemdescError(msg)
    return found


def map_file(path: Path, state: FileState) -> NDArray[np.uint8]:
    """Map a file for reading; it stays mapped as long as the array lives.

    Fails if it cannot be mapped, or has changed since its header was read.
    """
    if not state.nbytes:
        return np.empty(0, np.uint8)  # an empty file cannot be mapped
    with _open_unchanged(path, state) as file:
        return np.frombuffer(mmap.mmap(file.fileno(), state.nbytes, access=mmap.ACCESS_READ), "u1")


@contextmanager
def _open_unchanged(path: Path, state: FileState) -> Iterator[BinaryIO]:
    with open_file(path) as file:
        if not state.is_of(file.fileno()):
            nbytes = os.fstat(file.fileno()).st_size
            change = (
                f"it has {nbytes} bytes, and had {state.nbytes}"
                if nbytes != state.nbytes
                else "it was written"
            )
            msg = f"{str(path)!r} has changed since it was opened: {change}; open it again"
            raise MemdescError(msg)
        yield file


@contextmanager
def open_container(path: Path, what: str) -> Iterator[tuple[BinaryIO, FileState]]:
    """Open a file of a format; errors about what is in it name the file and the format."""
    with open_file(path) as file, about(f"{str(path)!r} is not {what}, or a damaged one"):
        yield file, FileState.of(file.fileno())


class Tensor(NamedTuple):
    """A tensor to be written: what a header says about it.

    `dtype` and `shape` are those of the stored words, as in an `Entry`; `desc` is what they hold,
    and is written unless dtype and shape already say it. `note` says what several tensors are
    together, in values of JSON; only the first of them has it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    desc: Desc | None = None
    note: Mapping[str, Any] | None = None


class Span(NamedTuple):
    """Where the bytes of a tensor are in a file."""

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
    # called with the complete file before it gets its name, to write what depends on the data
    seal: Callable[[Path], None] | None = None


def safe_path(folder: Path, name: object, what: str) -> Path:
    """Return the path of a file that a header names; refuse one outside its folder.

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


def desc_to_json(desc: Desc, note: Mapping[str, Any] | None = None) -> str:
    """Write what a tensor holds: a layout as `to_json` does, a record by its name.

    `note` says what several tensors are together, if this is the first of them. Fails for a record
    without a name, and for one of several tensors.
    """
    if isinstance(desc, MemoryDesc):
        text = desc.to_json()
    elif not desc.name or len(desc.tensors) > 1:
        msg = f"{desc!r} is not one tensor of a format with a name; describe each of its tensors"
        raise MemdescError(msg)
    else:
        text = json.dumps({"schema": SCHEMA, **record_fields(desc)})
    return text if note is None else json.dumps({**json.loads(text), _NOTE: note})


def record_fields(desc: RecordDesc) -> dict[str, Any]:
    """Return what `record_of` needs to make a record again, as JSON values.

    Fails if it has no name.
    """
    if not desc.name:
        msg = f"{desc!r} has no name, and a file names the format of a record"
        raise MemdescError(msg)
    return {"record": desc.name, "dims": desc.dims, "options": dict(desc.options)}


def record_of(fields: Mapping[str, Any]) -> RecordDesc:
    """Return the record that a file names. Fails if no record has that name and these options."""
    name, options = fields.get("record"), fields.get("options", {})
    if not isinstance(name, str):
        msg = f"the name of a record must be a string, not {short_repr(name)}"
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
        return MemoryDesc.from_json(text), note
    if fields.get("schema") != SCHEMA:
        msg = f"not a descriptor of a record of schema {SCHEMA}: {short_repr(fields)}"
        raise MemdescError(msg)
    desc = record_of(fields)
    if len(desc.tensors) > 1:
        msg = f"{desc!r} is a record of several tensors, not of one"
        raise MemdescError(msg)
    return desc, note


def split_metadata(
    metadata: Mapping[str, str], names: Collection[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return descriptors by the names of tensors, and the metadata without them.

    A key that begins like those of descriptors is other metadata, unless it names a tensor or has
    the text of a descriptor.
    """
    texts, rest = dict[str, str](), dict[str, str]()
    for key, text in metadata.items():
        name = key.removeprefix(PREFIX)
        if name != key and (name in names or _is_descriptor(text)):
            texts[name] = text
        else:
            rest[key] = text
    return texts, rest


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


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape from the metadata of a file as a tuple of int.

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


def described(entries: Iterable[Entry], texts: Mapping[str, str]) -> list[Entry]:
    """Return entries with their `desc`; `texts` has the metadata's descriptors by name.

    Fails where `describe` does, if a descriptor has no tensor, or if it is that of a tensor which
    another program has converted or transposed since.
    """
    found = [describe(each, texts.get(each.name)) for each in entries]
    for each in found:
        if each.is_described:
            _check_words(each)
    if unknown := texts.keys() - {each.name for each in found}:
        msg = f"a descriptor of {short_repr(min(unknown))}, which it does not have"
        raise MemdescError(msg)
    return found


def _check_words(entry: Entry) -> None:
    """Refuse a tensor of other elements, or of other axes, than its descriptor means.

    Integers may be words of anything. Outer axes may be joined, as GGUF needs, and scales of some
    records are stored in their padded dims, whatever their layout is.
    """
    desc, shape = entry.desc, [size for size in entry.shape if size > 1]
    meant = desc.dtype.name if isinstance(desc, MemoryDesc) else "u8"
    fits = entry.dtype in INTEGERS or entry.dtype not in DATA_TYPES or not entry.nbytes
    if isinstance(desc, MemoryDesc) and entry.dtype == meant and entry.nbytes:
        blocks = [block.extent for block in sorted(desc.blocks, key=memory_order)]
        meant += f" of shape {(*blocks,)}"
        orders = [blocks] if len(blocks) == desc.ndims else [blocks, desc.padded_dims]
        axes = [[size for size in order if size > 1] for order in orders]
        fits = desc.dtype.is_packed or any(
            shape[1:] == each[len(each) - len(shape) + 1 :] for each in axes
        )
    if not fits:
        msg = (
            f"{short_repr(entry.name)} is stored as {entry.dtype} of shape {entry.shape}, but its "
            f"descriptor {desc!r} means {meant}: another program changed the tensor, and kept the "
            f"descriptor; remove {short_repr(PREFIX + entry.name)} from the metadata"
        )
        raise MemdescError(msg)


def describe(entry: Entry, text: str | None) -> Entry:
    """Return an entry with its `desc`, from its descriptor if it has one.

    Fails if that is not a descriptor, or takes another number of bytes than the tensor.
    """
    if text is None:
        desc, reason = stored_desc(entry.dtype, entry.shape)
        return replace(entry, desc=desc, reason=reason)
    with about(f"the descriptor of {short_repr(entry.name)}"):
        found, note = desc_from_json(text)
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
