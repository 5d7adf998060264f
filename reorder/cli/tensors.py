"""Files that commands read: what kind each one is, and the tensors and bytes in it."""

from __future__ import annotations

import os
import re
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memdesc import MemdescError, MemoryDesc, memory_desc
from memdesc.disk import as_path, open_file
from reorder.cli.command import buffer_name, desc_of
from reorder.memory.inputs import as_memory
from reorder.memory.memory import Memory
from reorder.memory.padding import find_nonzero
from reorder.storage.containers.npz import DAMAGES
from reorder.storage.containers.table import read_container
from reorder.storage.files import (
    desc_of_entry,
    memory_of,
    name_of_only,
    other_type,
    read_stored,
    save,
    save_raw,
    saving_format,
)
from reorder.storage.siblings import siblings_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping
    from typing import BinaryIO

    from numpy.typing import NDArray

    from memdesc import DataType
    from reorder.cli.command import Facts
    from reorder.storage.containers.entry import Entry

__all__ = [
    "NPY",
    "SOURCE",
    "add_limit",
    "add_output",
    "check_output",
    "codes_note",
    "kind_of",
    "load_file",
    "load_tensor",
    "locate",
    "may_be_raw",
    "open_raw",
    "padding_facts",
    "read_bytes",
    "read_words",
    "split_name",
    "tensors_in",
    "write_output",
]

SOURCE = (
    "a .npy, .npz or .safetensors, read as the descriptor in it says if it has one; of several "
    "tensors FILE:NAME"
)
_OUTPUT = (
    "the file to write: a .safetensors or .npz with the descriptor in it, or a .npy where numpy "
    "has such arrays"
)
_ENDINGS = (".npy", ".npz", ".safetensors")
_NAMED = re.compile(r"(.*?\.(?:npz|safetensors)):(.*)", re.DOTALL)
_RAW_HINT = "`memdesc decode` makes a .npy of a file of raw bytes"
# names of tensors in one message
_SHOWN = 8
# how many bytes at the start of a file are compared
_START = 64
_ARRAYS = "`memdesc reorder` reads it; with `--to plain` it writes the values row by row"
_CHECKPOINT = "`memdesc inspect` lists its tensors, and `memdesc convert` makes a .safetensors"
_DECOMPRESS = "decompress it first"
_PICKLE = (
    "reading it may run code, so memdesc does not. In Python, reorder.save('x.safetensors', "
    "torch.load(path, weights_only=True)) makes a file that it reads"
)


class Kind(NamedTuple):
    """A kind of file that is not raw bytes: what it is, how it starts, and what reads it."""

    what: str
    start: re.Pattern[bytes]
    way_out: str


def _kind(what: str, start: bytes, way_out: str) -> Kind:
    return Kind(what, re.compile(start, re.DOTALL), way_out)


NPY = _kind("a .npy file", rb"\x93NUMPY", _ARRAYS)
_ZIP = _kind("a .npz, or another .zip", rb"PK(\x03\x04|\x05\x06)", _ARRAYS)
# an object of JSON behind its length in 8 bytes
_SAFETENSORS = _kind("a .safetensors file", rb".{5}\0\0\0\{[\s\"}]", _ARRAYS)
_READ = (NPY, _ZIP, _SAFETENSORS)
_TORCH = _kind("a file of torch.save", _ZIP.start.pattern, _PICKLE)
# protocol 2 and later: what torch.save wrote before version 1.6, and other programs write
_PICKLED = _kind(
    "a pickle, perhaps of torch.save", rb"\x80[\x02-\x05]([\x80-\x95]|[\](})cKXMGNI])", _PICKLE
)
_PICKLES = (_TORCH, _PICKLED)
# it does not start in a way of its own: its name tells
_ONNX = _kind("an ONNX model", b"", _CHECKPOINT)
_KINDS = (
    NPY,
    _ZIP,
    _kind("a GGUF file", rb"GGUF", _CHECKPOINT),
    _SAFETENSORS,
    _PICKLED,
    _kind("an HDF5 file", rb"\x89HDF\r\n\x1a\n", "h5py reads it, and numpy.save writes its arrays"),
    _kind("compressed by gzip", rb"\x1f\x8b\x08", _DECOMPRESS),
    _kind("compressed by zstd", rb"\x28\xb5\x2f\xfd", _DECOMPRESS),
    _kind("compressed by xz", rb"\xfd7zXZ\0", _DECOMPRESS),
)


def kind_of(path: str) -> Kind | None:
    """Return the kind of a file; None if it may hold raw bytes.

    Raises
    ------
    MemdescError
        If it cannot be read.
    """
    given = as_path(path)
    with open_file(given) as file:
        start = file.read(_START)
        found = next((kind for kind in _KINDS if kind.start.match(start)), None)
        if found is _ZIP and _is_of_torch(file):
            return _TORCH
    return _ONNX if found is None and given.suffix == ".onnx" else found


def _is_of_torch(file: BinaryIO) -> bool:
    try:
        names = zipfile.ZipFile(file).namelist()
    except DAMAGES:
        return False  # whoever reads the file says what is wrong
    return any(name == "data.pkl" or name.endswith("/data.pkl") for name in names)


def _refusal(path: str, kind: Kind) -> MemdescError:
    """Return the error for a file of a kind that a command does not read."""
    return MemdescError(f"{path!r} is {kind.what}: {kind.way_out}")


def load_tensor(
    path: str, dtype: str | None = None, tag: str | None = None, *, raw_hint: str = _RAW_HINT
) -> Memory:
    """Read a tensor whose axes lie as `--from` says; a descriptor in the file must say the same.

    The hint says what to do if the file may hold raw bytes.
    """
    memory, is_described = _load(path, dtype, raw_hint)
    if tag is None:
        return memory
    if not is_described:
        return as_memory(memory.numpy(), buffer_name(tag))
    if desc_of(tag, memory.desc.dims, str(memory.dtype)) != memory.desc:
        msg = f"the descriptor of {path!r} says {memory.desc!r}, not {tag!r}; leave --from out"
        raise MemdescError(msg)
    return memory


def load_file(path: str, dtype: str | None = None) -> Memory | NDArray[Any]:
    """Read a tensor as a descriptor in the file says, or an array where it has none."""
    memory, is_described = _load(path, dtype, _RAW_HINT)
    return memory if is_described else memory.numpy()


def _load(path: str, dtype: str | None, raw_hint: str) -> tuple[Memory, bool]:
    """Read the only tensor of a file, or the one that is named, and whether it is described."""
    stored = _stored(path, raw_hint)
    file, name = split_name(path)
    entry, read = stored[name_of_only(as_path(file), stored) if name is None else name]
    try:
        memory = memory_of(entry, read(), dtype)
    except MemdescError as error:
        msg = f"{file!r}: {error}"
        raise MemdescError(msg) from None
    return memory, entry.is_described


def tensors_in(path: str) -> dict[str, Memory]:
    """Return the tensors of a file, or the one that a name behind it selects.

    Raises
    ------
    MemdescError
        If there is no such tensor, or the file is of another kind.
    """
    stored = _stored(path, _RAW_HINT)
    _, name = split_name(path)
    return {
        each: memory_of(entry, read())
        for each, (entry, read) in stored.items()
        if name in {None, each}
    }


def _stored(path: str, raw_hint: str) -> Mapping[str, tuple[Entry, Callable[[], NDArray[Any]]]]:
    """Return the tensors of a file that commands read; one that is named is among them."""
    file, name = split_name(path)
    given, kind = as_path(file), _kind_of(file)
    if kind is not None and kind not in _READ:
        raise _refusal(file, kind)
    if kind is None and may_be_raw(file):
        msg = f"{file!r} is not a file of tensors, such as {SOURCE.partition(',')[0]}; {raw_hint}"
        raise MemdescError(msg)
    stored = read_stored(given, name=name)
    if name is not None and name not in stored:
        shown = ", ".join([*stored][:_SHOWN])
        msg = f"{file!r} has no tensor {name!r}; it has {len(stored)}: {shown}"
        raise MemdescError(msg)
    return stored


def split_name(path: str) -> tuple[str, str | None]:
    """Return the file of ``FILE.npz:NAME``, and the name; None for a file alone."""
    found = _NAMED.fullmatch(path)
    if found is None or os.path.exists(path):  # noqa: PTH110 - of any length
        return path, None
    return found[1], found[2]


def may_be_raw(path: str) -> bool:
    """Whether a file is there, of no known kind, and not called as one that commands read."""
    if Path(path).suffix in _ENDINGS:
        return False
    try:
        return kind_of(path) is None
    except MemdescError:
        return False


def add_output(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the file to write, and the flag for its bytes alone."""
    parser.add_argument(name, help=_OUTPUT)
    parser.add_argument(
        "--raw",
        action="store_true",
        help="write the bytes alone, as a C kernel takes them, into a file of any other ending",
    )


def write_output(target: str, memory: Memory, *, is_raw: bool) -> None:
    """Write the result of a command."""
    (save_raw if is_raw else save)(target, memory)


def check_output(target: str, *sources: str, is_raw: bool) -> None:
    """Refuse an output whose name says no format, or that would replace what is read.

    A .npy, which holds nothing else, may be replaced by what is made of it.
    """
    if not is_raw:
        saving_format(as_path(target))
    for source in sources:
        file, _ = split_name(source)
        is_same = os.path.realpath(as_path(target)) == os.path.realpath(as_path(file))
        if is_same and _kind_of(file) is not NPY:
            msg = f"{target!r} cannot be written: it would replace {file!r}; name another file"
            raise MemdescError(msg)


@contextmanager
def open_raw(path: str, offset: int | None = None) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file of raw bytes at an offset, and return how many bytes follow.

    A file of another kind is refused unless an offset says where in it the bytes are.
    """
    kind = kind_of(path) if offset is None else None
    if kind is not None:
        msg = (
            f"{_refusal(path, kind)}; if it does hold raw bytes, `memdesc decode` reads "
            "them with --offset 0, or the number of bytes in front of them"
        )
        raise MemdescError(msg)
    start = offset or 0
    with open_file(as_path(path)) as file:
        nbytes = file.seek(0, os.SEEK_END)
        if not 0 <= start <= nbytes:
            msg = f"--offset {offset}: {path!r} has {nbytes} bytes, so no tensor can start there"
            raise MemdescError(msg)
        file.seek(start)
        yield file, nbytes - start


def read_bytes(path: str, offset: int | None = None) -> NDArray[np.uint8]:
    """Read the bytes of a raw file from an offset on."""
    with open_raw(path, offset) as (file, nbytes):
        return np.fromfile(file, np.uint8, nbytes)


def read_words(path: str, dtype: DataType | None) -> Memory | NDArray[Any] | None:
    """Read an array for its bytes, as elements of a type; None for files of raw bytes.

    Bytes and elements without a type may be of any type, and integers may be words of 4-bit types;
    an array of another type is refused.
    """
    file, _ = split_name(path)
    if Path(file).suffix not in _ENDINGS and _kind_of(file) not in _READ:
        return None
    try:
        found = load_file(path)
    except MemdescError:
        if dtype is None:
            raise
        return load_file(path, dtype.name)  # elements without a type
    held = np.dtype(found.dtype.numpy if isinstance(found, Memory) else found.dtype)
    is_words = held == np.uint8 or (dtype is not None and dtype.is_packed and held.kind in "iu")
    if dtype is not None and held != dtype.numpy and not is_words:
        said = f"{path!r} holds {held}"
        raise other_type(said, dtype, "name that one")
    return found


def codes_note(path: str) -> str:
    """Return what turns the codes of a tensor of a .npz into numbers; empty for other tensors."""
    file, name = split_name(path)
    if name is None:
        return ""
    try:
        found = siblings_of(read_container(file).entries, name)
    except (MemdescError, KeyError):  # who reads it says what is wrong
        return ""
    others = ", ".join(each for each in found.names if each != name)
    return (
        f"{name} holds codes: {others} turn them into numbers, and are not applied"
        if others
        else ""
    )


def _kind_of(path: str) -> Kind | None:
    """Return the kind of a file; None if it is unknown or cannot be read: reading it says why."""
    try:
        return kind_of(path)
    except MemdescError:
        return None


def locate(path: str, dtype: str | None, tag: str | None) -> tuple[MemoryDesc, Entry] | None:
    """Return what `load_tensor` would read, and where it lies; None if it must be read whole.

    Refusals are left to `load_tensor`.
    """
    file, name = split_name(path)
    try:
        entries = read_container(file).entries
        entry = entries[name] if name is not None else next(iter(entries.values()))
        if len(entries) > 1 and name is None:
            return None
        desc = _located(entry, dtype, tag)
    except (MemdescError, KeyError, StopIteration):
        return None
    is_whole = desc is not None and desc.min_nbytes <= entry.nbytes
    return (desc, entry) if desc is not None and is_whole else None


def _located(entry: Entry, dtype: str | None, tag: str | None) -> MemoryDesc | None:
    desc = desc_of_entry(entry, dtype)
    if tag is None:
        return desc
    if entry.is_described:
        return desc if desc_of(tag, desc.dims, str(desc.dtype)) == desc else None
    # one element that is repeated has the dims, and is not copied
    one = np.broadcast_to(np.zeros((), desc.dtype.numpy), desc.dims)
    dims = as_memory(one, buffer_name(tag)).desc.dims
    is_row_major = desc == memory_desc(desc.dims, desc.dtype)
    return memory_desc(dims, desc.dtype, tag) if is_row_major else None


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Add the flag for how many places are listed."""
    parser.add_argument(
        "--limit",
        type=int,
        default=10,
        metavar="N",
        help="how many nonzero places in the padding are listed (default 10)",
    )


def padding_facts(memory: Memory, limit: int, key: str) -> Facts:
    """Return how much padding there is, whether it is zero (as `key`), and where it is not."""
    if limit < 0:
        msg = f"--limit {limit}: give how many places to list, 0 or more"
        raise MemdescError(msg)
    desc = memory.desc
    count, places = find_nonzero(memory.data, desc, limit)
    facts: Facts = {"padding_elements": desc.padded_nelems - desc.nelems, key: not count}
    if count:
        facts |= {
            "not_zero": count,
            "places": [
                {"index": place.at, "byte": place.byte, "bits": f"{place.bits:#x}"}
                for place in places
            ],
        }
    return facts
