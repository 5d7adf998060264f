"""Tensors at rest: what headers say about them, what they hold, and how they are stored.

All formats read into `Entry` and `Container`, and write from `Tensor` and `PlannedFile`. If dtype
and shape do not say what a tensor holds, the metadata has a descriptor: a layout as `to_json`
writes it, or a record by its name. It may have a note: what this tensor and others are together.

Whole elements are stored in their physical shape, with an axis for each block in memory order.
Elements narrower than a byte, or packed into wider words, have as many axes as dims: the outermost
blocks, then the rest as words. That is how 4-bit weights are packed into int32 (AutoGPTQ, AutoAWQ,
vLLM): (in / 8, out) for GPTQ, (in, out / 8) for AWQ.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from math import prod
from pathlib import Path, PurePosixPath
from time import time_ns
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from memdesc import MemdescError, MemoryDesc, UnknownFormatError, data_type, memory_desc
from memdesc.checked import SCHEMA
from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.errors import about, short_repr
from memdesc.layout import memory_order
from memdesc.names.weights import VOCABULARY as WEIGHTS
from memdesc.record import RecordDesc, record_desc
from memdesc.record.rows import SCHEMES
from memdesc.tuples import NamedTuple
from reorder.disk import open_file
from reorder.values.formats import INTEGERS

Desc = MemoryDesc | RecordDesc

# the most bytes in the name of a tensor; real names have about a hundred
MAX_NAME = 2**16 - 1
# what messages say about tensors without an entry
NOT_BYTES = (
    "the file does not store them as bytes (strings, sparse tensors, or numbers in int32_data and "
    "the like)"
)
# how long file systems may give the same time to all that is written: FAT 2 s, Linux 4 ms
_CLOCK_STEP_NS = 2 * 10**9
# metadata keys: this, then the name of the tensor
PREFIX = "memdesc."
# the most characters of a descriptor; the longest one written has a few thousand
MAX_DESCRIPTOR = 2**20
# the most dims of a tensor, and of one of GGUF
MAX_NDIMS, GGUF_NDIMS = 64, 4
# the key of the note about several tensors, in the descriptor of the first of them
_NOTE = "value"
# the role of a record's only tensor
ONE = "data"
# roles of a Quantized's tensors -> the endings of their names
QUANTIZED = MappingProxyType({"memory": "", "scales": "_scale", "zero_points": "_zero_point"})
WEIGHT = ".weight"
# the types of weights that are not quantised
UNQUANTISED = ("f32", "f16", "bf16")
# endings of names beside codes whose name is the prefix, such as experts in one tensor:
# transformers has NAME and NAME_scale_inv; ModelOpt NAME, NAME_weight_scale, NAME_weight_scale_2
_BARE = {"weight": "", "weight_scale_inv": "_scale_inv"}
BARE_ROLES = MappingProxyType({ending.removeprefix("_"): role for role, ending in _BARE.items()})


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
    def element(self) -> str:
        """The type of its elements: a .npz has bf16 as words of 16 bits, with a descriptor."""
        return self.desc.dtype.name if isinstance(self.desc, MemoryDesc) else self.dtype

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
    with suppress(UnicodeEncodeError):
        if isinstance(name, str) and "\0" not in name and 0 < len(name.encode()) <= MAX_NAME:
            return name
    legal = f"a string of 1 to {MAX_NAME} bytes of UTF-8 without zero bytes"
    raise MemdescError(f"the name of a tensor must be {legal}, not {short_repr(name)}")


def check_planned(file: str, tensors: Iterable[Tensor]) -> None:
    """Refuse tensors that share a name, or whose name or shape cannot be stored."""
    names: set[str] = set()
    for tensor in tensors:
        if check_name(tensor.name) in names:
            raise MemdescError(f"two tensors would be called {short_repr(tensor.name)} in {file!r}")
        names.add(tensor.name)
        dtype = DATA_TYPES.get(tensor.dtype)
        bits = prod(tensor.shape) * dtype.bits if dtype else tensor.nbytes * BYTE_BITS
        if bits != tensor.nbytes * BYTE_BITS:
            raise MemdescError(
                f"tensor {short_repr(tensor.name)}: {dtype} of shape {tensor.shape} takes "
                f"{bits / BYTE_BITS:.15g} bytes, not {tensor.nbytes}"
            )


def check_entries(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Return a file's entries by name; refuse equal names, and bytes shared or past its end."""
    by_name: dict[str, Entry] = {}
    for entry in entries:
        if check_name(entry.name) in by_name:
            raise MemdescError(f"two tensors are called {short_repr(entry.name)}")
        by_name[entry.name] = entry
        start, end, size = entry.offset, entry.offset + entry.nbytes, entry.state.nbytes
        if not 0 <= start <= end <= size:
            name = short_repr(entry.name)
            raise MemdescError(f"{name} takes bytes {start} to {end} of {size}; it was cut off")
    places = sorted((x.offset, x.offset + x.nbytes, x.name) for x in by_name.values() if x.nbytes)
    for (_, end, before), (start, _, after) in pairwise(places):
        if end > start:
            names = f"{short_repr(before)} and {short_repr(after)}"
            raise MemdescError(f"{names} overlap: bytes end at {end}, and others start at {start}")
    return by_name


def joined(path: Path, containers: Sequence[Container]) -> Container:
    """Return the files of a model as one container. Fails if two have a tensor of one name."""
    entries: dict[str, Entry] = {}
    metadata: dict[str, Any] = {}
    for container in containers:
        if twice := entries.keys() & container.entries.keys():
            name = min(twice)
            held, other = (side[name].file.name for side in (entries, container.entries))
            raise MemdescError(
                f"{str(path)!r}: {short_repr(name)} is in {held!r} and in {other!r}; name one of "
                "the files, or remove the one that is left over"
            )
        entries |= container.entries
        metadata = {**container.metadata, **metadata}
    files = tuple(file for container in containers for file in container.files)
    return Container(containers[0].format, entries, metadata, files)


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
            sizes = f": it has {nbytes} bytes, and had {then}" if nbytes != then else ""
            raise MemdescError(
                f"{str(path)!r} has changed since it was opened{sizes}; open it again"
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


class PlannedFile(NamedTuple):
    """A file of an output: its size, where its tensors go, and the bytes of everything else."""

    # its name in the folder of the output
    name: str
    nbytes: int
    # the bytes that are not those of tensors, each part with its offset
    headers: tuple[tuple[int, bytes | memoryview], ...]
    # where the bytes of each tensor go: their offset, and how many there are
    spans: Mapping[str, tuple[int, int]]
    # called with the complete file before it gets its name, to write what depends on the data
    seal: Callable[[Path], None] | None = None

    def with_data(self, data: Mapping[str, bytes | memoryview]) -> PlannedFile:
        """Return the file with the bytes of those of its tensors that are known already."""
        held = ((self.spans[name][0], raw) for name, raw in data.items() if name in self.spans)
        return self._replace(headers=(*self.headers, *held))

    def write(self, out: BinaryIO) -> None:
        """Write the file, of which all bytes are known."""
        for offset, data in self.headers:
            out.seek(offset)
            out.write(data)
        if self.seal is not None:
            out.flush()
            self.seal(Path(out.name))


def safe_path(folder: Path, name: object, what: str) -> Path:
    """Return the path of a file that a header names; refuse one outside its folder."""
    if not isinstance(name, str) or not name or "\0" in name or "\\" in name:
        raise MemdescError(f"{what} is not the name of a file: {short_repr(name)}")
    pure, out = PurePosixPath(name), f"out of {str(folder)!r}, which is not followed"
    if pure.is_absolute() or ".." in pure.parts:
        raise MemdescError(f"{what} {short_repr(name)} leads {out}")
    path = folder / pure
    try:
        home, real = folder.resolve(), path.resolve()
    except (OSError, RuntimeError, ValueError):
        raise MemdescError(f"{what} {short_repr(name)} cannot be followed") from None
    # Hugging Face's cache has links, in snapshots and their folders, to files in one folder
    caches = (above.parent for above in home.parents if above.name == "snapshots")
    if not real.is_relative_to(home) and all(real.parent != cache / "blobs" for cache in caches):
        way = "put the file itself there, or a hard link"
        raise MemdescError(f"{what} {short_repr(name)} is a link {out}; {way}")
    return path


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape from the metadata of a file as a tuple of int."""
    if (
        isinstance(shape, list | tuple)
        and len(shape) <= MAX_NDIMS
        and all(type(size) is int and 0 <= size < 2**63 for size in shape)
    ):
        return tuple(shape)
    raise MemdescError(
        f"its shape is not a list of at most {MAX_NDIMS} sizes, but {short_repr(shape)}"
    )


@lru_cache(maxsize=1024)  # a model has many tensors of the same shape
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


# --- descriptors in the metadata ---


def desc_to_json(desc: Desc, note: Mapping[str, Any] | None = None) -> str:
    """Write what a tensor holds, and what several are together if it is the first of them."""
    if isinstance(desc, MemoryDesc):
        text = desc.to_json()
    elif len(desc.tensors) > 1:
        raise MemdescError(f"{desc!r} is not one tensor; describe each of its tensors")
    else:
        text = json.dumps({"schema": SCHEMA, **record_fields(desc)})
    return text if note is None else json.dumps({**json.loads(text), _NOTE: note})


def record_fields(desc: RecordDesc) -> dict[str, Any]:
    """Return what `record_of` needs to make a record again, as JSON values."""
    if not desc.name:
        raise MemdescError(f"{desc!r} has no name, and a file names the format of a record")
    return {"record": desc.name, "dims": desc.dims, "options": dict(desc.options)}


def record_of(fields: Mapping[str, Any]) -> RecordDesc:
    """Return the record that a file names. Fails if no record has that name and these options."""
    name, options = fields.get("record"), fields.get("options", {})
    if not isinstance(name, str):
        raise MemdescError(f"the name of a record must be a string, not {short_repr(name)}")
    if not isinstance(options, dict) or options.keys() & {"dims", "name"}:
        raise MemdescError(
            f"the options of a record are not those of record_desc: {short_repr(options)}"
        )
    return record_desc(fields.get("dims", ()), name, **options)


def read_json(text: str | bytes, otherwise: str, encoding: str = "utf-8", **how: Any) -> Any:
    """Parse JSON; `otherwise` begins the message about text that is not JSON."""
    try:
        return json.loads(text if isinstance(text, str) else text.decode(encoding), **how)
    except (ValueError, RecursionError) as error:
        if isinstance(error, MemdescError):
            raise
        raise MemdescError(f"{otherwise}: {error}") from None


@lru_cache(maxsize=64)
def desc_from_json(text: str) -> tuple[Desc, Mapping[str, Any] | None]:
    """Read what `desc_to_json` wrote; many tensors of a model have equal descriptors."""
    if len(text) > MAX_DESCRIPTOR:
        most = f"at most {MAX_DESCRIPTOR} are read"
        raise MemdescError(f"a descriptor of {len(text)} characters; {most}")
    fields = read_json(text, "not a descriptor")
    note = fields.get(_NOTE) if isinstance(fields, dict) else None
    if not isinstance(note, dict | None):
        raise MemdescError(f"its {_NOTE!r} is not a JSON object, but {short_repr(note)}")
    if not isinstance(fields, dict) or "record" not in fields:
        return MemoryDesc.from_json(text), note
    if fields.get("schema") != SCHEMA:
        raise MemdescError(f"not a descriptor of a record of schema {SCHEMA}: {short_repr(fields)}")
    desc = record_of(fields)
    if len(desc.tensors) > 1:
        raise MemdescError(f"{desc!r} is a record of several tensors, not of one")
    return desc, note


def container_of(
    form: str, path: Path, entries: Sequence[Entry], metadata: Mapping[str, Any]
) -> Container:
    """Return what a file's headers say, given its tensors, and metadata with the descriptors."""
    names = {entry.name for entry in entries}
    texts, rest = dict[str, str](), dict[str, Any]()
    for key, text in metadata.items():
        name = key.removeprefix(PREFIX)
        # other metadata may have such keys
        if name != key and isinstance(text, str) and (name in names or _is_descriptor(text)):
            texts[name] = text
        else:
            rest[key] = text
    if unknown := texts.keys() - names:
        raise MemdescError(f"a descriptor of {short_repr(min(unknown))}, which it does not have")
    checked = check_entries(describe(entry, texts.get(entry.name)) for entry in entries)
    return Container(form, checked, rest, (path,))


def _is_descriptor(text: str) -> bool:
    """Whether a text has the form of a descriptor, right or wrong."""
    with suppress(ValueError, RecursionError):
        fields = json.loads(text[:MAX_DESCRIPTOR])
        return isinstance(fields, dict) and "schema" in fields
    return len(text) > MAX_DESCRIPTOR


def descriptors_of(tensors: Iterable[Tensor]) -> dict[str, str]:
    """Return the metadata for tensors whose dtype and shape alone do not say what they hold."""
    texts = {}
    for tensor in tensors:
        implied, _ = stored_desc(tensor.dtype, tensor.shape)
        desc = tensor.desc or implied
        if desc is not None and (desc != implied or tensor.note):
            texts[f"{PREFIX}{tensor.name}"] = desc_to_json(desc, tensor.note)
    return texts


def describe(entry: Entry, text: str | None, source: str = "") -> Entry:
    """Return an entry with its `desc`, from its descriptor, in the metadata or `source`."""
    if text is None:
        desc, reason = stored_desc(entry.dtype, entry.shape)
        return replace(entry, desc=desc, reason=entry.reason or reason)
    with about(f"the descriptor of {short_repr(entry.name)}"):
        desc, note = desc_from_json(text)
        if isinstance(desc, MemoryDesc) and desc.has_broadcast:
            raise MemdescError(f"{desc!r} repeats elements, which a stored tensor does not")
    if desc.nbytes != entry.nbytes:
        raise MemdescError(
            f"{short_repr(entry.name)} has {entry.nbytes} bytes, but its descriptor {desc!r} takes "
            f"{desc.nbytes}"
        )
    if problem := _misfit(entry, desc):
        place = source or f"{short_repr(PREFIX + entry.name)} from the metadata"
        raise MemdescError(
            f"{short_repr(entry.name)} is stored as {entry.dtype} of shape {entry.shape}, but its "
            f"descriptor {desc!r} means {problem}: another program changed the tensor, and kept "
            f"the descriptor; remove {place}"
        )
    return replace(entry, desc=desc, reason="", is_described=True, note=note)


def _misfit(entry: Entry, desc: Desc) -> str:
    """Return the elements that a descriptor means if a tensor has others, or other axes.

    Blocks may be words or bytes of any shape, and elements in their order wider integers or flat
    bytes. Otherwise integers as wide replace types that a container lacks, and the axes are those
    of the descriptor, with the outer ones joined in GGUF; scales of some records have padded dims.
    """
    held, is_integer = DATA_TYPES.get(entry.dtype), entry.dtype in INTEGERS
    if isinstance(desc, RecordDesc):
        return "" if held is None or is_integer or not entry.nbytes else "u8"
    if not entry.nbytes or desc.layout.xor:
        return ""  # a swizzled layout is stored as bytes only
    dtype = desc.dtype
    blocks = [block.extent for block in sorted(desc.blocks, key=memory_order)]
    meant = f"{dtype} of shape {(*blocks,)}"
    is_whole = desc.is_dense and not (desc.offset0 or dtype.is_packed or desc.extra)
    is_plain = is_whole and len(blocks) == len(desc.axes) == desc.ndims and desc.nelems != 1
    is_flat = entry.dtype == "u8" and entry.shape == (entry.nbytes,)
    if held is None or (is_integer and held.bits != dtype.bits):
        is_wider = held is not None and held.bits > dtype.bits and dtype.name in INTEGERS
        return "" if not is_plain or is_flat or is_wider else meant
    is_replaced = dtype.name in INTEGERS or dtype.numpy.isbuiltin != 1 or dtype.bits == BYTE_BITS
    is_same = held == dtype or (is_integer and is_replaced)
    shape = [size for size in entry.shape if size > 1]
    orders = [blocks] if len(blocks) == desc.ndims else [blocks, desc.padded_dims]
    axes = [[size for size in order if size > 1] for order in orders]
    is_joined = any(shape[1:] == order[len(order) - len(shape) + 1 :] for order in axes)
    if is_plain:
        is_alike = shape in axes or (is_joined and len(blocks) > len(entry.shape) == GGUF_NDIMS)
        return "" if is_flat or (is_same and is_alike) else meant
    return "" if is_same and (dtype.is_packed or is_joined) else meant


# --- how layouts and records are stored ---


def model_axes(desc: RecordDesc) -> str:
    """Return the letters of a record's dims in the order in which models have them as floats."""
    scheme = SCHEMES.get(desc.name)
    model = scheme.model if scheme else ""
    return model if len(model) == len(desc.letters) else desc.letters


def stem_of(name: str, role: str, record: str) -> str:
    """Return what precedes the role in the name of a record's tensor."""
    scheme = SCHEMES.get(record)
    ending = f"{scheme.joint if scheme else '.'}{role}"
    return name.removesuffix(ending if name.endswith(ending) else _BARE.get(role, f"_{role}"))


def stored_layout(name: str, desc: MemoryDesc, words: str | None = None) -> Tensor:
    """Return how a layout is stored: narrow elements in `words`, or else at least in bytes."""
    dtype = desc.dtype
    for word in (words, "u8"):
        if word is None or data_type(word).bits <= dtype.bits:
            continue
        shape = _shape_of_words(desc, data_type(word).bits // dtype.bits)
        if shape is not None:
            return Tensor(name, word, shape, desc.nbytes, desc)
    shape = None if dtype.is_packed or desc.extra is not None else _extents(desc)
    word, shape = ("u8", (desc.nbytes,)) if shape is None else (dtype.name, shape)
    return Tensor(name, word, shape, desc.nbytes, desc)


def is_order_hidden(tensor: Tensor) -> bool:
    """Whether a permuted tensor is stored with the dtype and shape of a row-major one."""
    desc = tensor.desc
    if not isinstance(desc, MemoryDesc) or not desc.nelems or desc.layout.xor:
        return False
    order = [block.axis for block in sorted(desc.blocks, key=memory_order) if block.extent > 1]
    if order == sorted(order) or len(set(order)) < len(order):
        return False
    plain = stored_layout(tensor.name, memory_desc(desc.dims, desc.dtype), tensor.dtype)
    return (plain.dtype, plain.shape) == (tensor.dtype, tensor.shape)


def _extents(desc: MemoryDesc) -> tuple[int, ...] | None:
    """Return the blocks' extents in memory order; None if they leave gaps."""
    if desc.layout.xor:
        return None
    extents = tuple(block.extent for block in sorted(desc.blocks, key=memory_order))
    is_full = prod(extents) == desc.padded_nelems == desc.layout.span and not desc.offset0
    return extents if is_full or not desc.nelems else None


def _shape_of_words(desc: MemoryDesc, count: int) -> tuple[int, ...] | None:
    """Return the shape in words of `count` elements; None if words would be partly filled."""
    extents = _extents(desc)
    if extents is None or desc.nelems == 0:
        return None
    packings = [WEIGHTS.rows[name.text] for name in desc.names() if name.text in WEIGHTS.rows]
    if any(packing.is_in_shape for packing in packings):
        extents = desc.padded_dims
    axes = max(desc.ndims - 1, 0)
    rest = prod(extents[axes:])
    return None if rest % count else (*extents[:axes], rest // count)


def stored_record(name: str, desc: RecordDesc, format_name: str) -> Tensor:
    """Return how a record of one tensor is stored: with its type in GGUF, else as bytes."""
    if format_name == "gguf":
        return Tensor(name, desc.name, desc.dims, desc.nbytes, desc)
    rows = prod(desc.dims[:-1])
    shape = (*desc.dims[:-1], desc.nbytes // rows) if rows else (desc.nbytes,)
    return Tensor(name, "u8", shape, desc.nbytes, desc)


def record_tensors(
    name: str, prefix: str, desc: RecordDesc, format_name: str, *, is_bare: bool = False
) -> dict[str, Tensor]:
    """Return how a record is stored, by the roles of its tensors; `name` is that of the whole.

    With `is_bare`, the codes are called `prefix` itself, and the others `prefix` and an ending.
    """

    def full(stem: str, rest: str) -> str:
        return stem + rest if stem else rest.removeprefix(".")  # a model may be one layer

    scheme = SCHEMES.get(desc.name)
    if scheme is None or [*desc.tensors] == [ONE]:
        called = prefix if is_bare or prefix.endswith(WEIGHT) else full(prefix, WEIGHT)
        return {ONE: stored_record(called, desc, format_name)}
    stem, is_bare = prefix.removesuffix(WEIGHT), is_bare and scheme.joint == "."
    tensors, words = {}, scheme.words(desc)
    for role in desc.tensors:
        end = _BARE.get(role, f"_{role}") if is_bare else f"{scheme.joint}{role}"
        tensors[role] = Tensor(full(stem, end), *words[role])
    return joined_tensors(name, record_fields(desc), tensors)


def joined_tensors(
    name: str, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return tensors by role, the first with the note that joins them.

    `facts` are what `record_fields` returns for a record, or ``quantized`` with axis and groups.
    """
    first = next(iter(tensors))
    note = {"name": name, **facts, "tensors": {role: x.name for role, x in tensors.items()}}
    return {**tensors, first: tensors[first]._replace(note=note)}
