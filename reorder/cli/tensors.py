"""Files that commands read: what kind each one is, and the tensors and bytes in it."""

from __future__ import annotations

import os
import re
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memdesc import MemdescError, MemoryDesc, array_desc, data_type, memory_desc
from memdesc.disk import as_path, open_file
from reorder.cli.command import buffer_name, desc_of
from reorder.memory.inputs import as_memory
from reorder.memory.memory import Memory
from reorder.memory.padding import find_nonzero
from reorder.storage.archive import DAMAGES, load_archive
from reorder.storage.arrays import other_type
from reorder.storage.containers.table import read_container
from reorder.storage.files import load, sidecar
from reorder.storage.siblings import siblings_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import BinaryIO

    from numpy.typing import NDArray

    from memdesc import DataType
    from reorder.cli.command import Facts
    from reorder.storage.containers.entry import Entry

__all__ = [
    "SOURCE",
    "add_limit",
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
]

SOURCE = "a .npy; if a descriptor lies beside it, it is read as that says. Or FILE.npz:NAME"
_ARCHIVE = ".npz:"
_RAW_HINT = "`memdesc decode` makes a .npy of a file of raw bytes"
# names of tensors in one message
_SHOWN = 8
# how many bytes at the start of a file are compared
_START = 64
_ARRAYS = "`memdesc reorder` reads it; with `--to plain` it writes the values row by row"
_CHECKPOINT = "`memdesc inspect` lists its tensors, and `memdesc convert` writes them into a .npz"
_DECOMPRESS = "decompress it first"
_PICKLE = (
    "reading it may run code, so memdesc does not. In Python, reorder.save_archive('x.npz', "
    "torch.load(path, weights_only=True)) makes a file that it reads"
)


class Kind(NamedTuple):
    """A kind of file that is not raw bytes: what it is, how it starts, and what reads it."""

    what: str
    start: re.Pattern[bytes]
    way_out: str


def _kind(what: str, start: bytes, way_out: str) -> Kind:
    return Kind(what, re.compile(start, re.DOTALL), way_out)


_NPY = _kind("a .npy file", rb"\x93NUMPY", _ARRAYS)
_ZIP = _kind("a .npz, or another .zip", rb"PK(\x03\x04|\x05\x06)", _ARRAYS)
_TORCH = _kind("a file of torch.save", _ZIP.start.pattern, _PICKLE)
# protocol 2 and later: what torch.save wrote before version 1.6, and other programs write
_PICKLED = _kind(
    "a pickle, perhaps of torch.save", rb"\x80[\x02-\x05]([\x80-\x95]|[\](})cKXMGNI])", _PICKLE
)
_PICKLES = (_TORCH, _PICKLED)
# it does not start in a way of its own: its name tells
_ONNX = _kind("an ONNX model", b"", _CHECKPOINT)
_KINDS = (
    _NPY,
    _ZIP,
    _kind("a GGUF file", rb"GGUF", _CHECKPOINT),
    # an object of JSON behind its length in 8 bytes
    _kind("a .safetensors file", rb".{5}\0\0\0\{[\s\"}]", _CHECKPOINT),
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


def load_tensor(path: str, dtype: str | None, tag: str | None) -> Memory:
    """Read a file whose axes lie as `--from` says; a descriptor beside it must say the same."""
    x = load_file(path, dtype)
    if tag is None:
        return as_memory(x, None)
    if not isinstance(x, Memory):
        return as_memory(x, buffer_name(tag))
    if desc_of(tag, x.desc.dims, str(x.desc.dtype)) != x.desc:
        msg = f"the descriptor of {path!r} says {x.desc!r}, not {tag!r}; leave --from out"
        raise MemdescError(msg)
    return x


def load_file(
    path: str, dtype: str | None = None, *, raw_hint: str = _RAW_HINT
) -> Memory | NDArray[Any]:
    """Read a tensor of a .npy, or of a .npz that has one or is followed by a colon and a name.

    The hint says what to do if the file may hold raw bytes.
    """
    tensors = tensors_in(path)
    if tensors is None:
        try:
            return load(path, dtype)
        except MemdescError as error:
            kind = _kind_of(path)
            if kind is not None and kind is not _NPY:
                raise _refusal(path, kind) from None
            if not may_be_raw(path):
                raise
            msg = f"{error}; {raw_hint}"
            raise MemdescError(msg) from None
    if len(tensors) != 1:
        names = [*tensors]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        msg = f"{path!r} has {len(names)} tensors; add one as {path}:NAME"
        raise MemdescError(f"{msg}, of {', '.join(names[:_SHOWN])}{more}" if names else msg)
    (memory,) = tensors.values()
    if dtype is not None and data_type(dtype) != memory.dtype:
        said = f"{path!r} says {memory.dtype}"
        raise other_type(said, data_type(dtype))
    return memory


def tensors_in(path: str) -> dict[str, Memory] | None:
    """Return the tensors of a .npz, or the one that a name behind it selects; None for others.

    Raises
    ------
    MemdescError
        If there is no such tensor, or the file is one of PyTorch or a pickle.
    """
    file, name = split_name(path)
    if not _is_archive(file):
        return None
    tensors = load_archive(file)
    if name is None:
        return tensors
    if name not in tensors:
        shown = ", ".join([*tensors][:_SHOWN])
        msg = f"{file!r} has no tensor {name!r}; it has {len(tensors)}: {shown}"
        raise MemdescError(msg)
    return {name: tensors[name]}


def split_name(path: str) -> tuple[str, str | None]:
    """Return the file of ``FILE.npz:NAME``, and the name; None for a file alone."""
    if _ARCHIVE in path and not os.path.exists(path):  # noqa: PTH110 - of any length
        stem, _, name = path.partition(_ARCHIVE)
        return f"{stem}{_ARCHIVE[:-1]}", name
    return path, None


def may_be_raw(path: str) -> bool:
    """Whether a file is there, of no known kind, and not called a .npy or a .npz."""
    if Path(path).suffix in {".npy", ".npz"}:
        return False
    try:
        return kind_of(path) is None
    except MemdescError:
        return False


def check_output(target: str, *sources: str) -> None:
    """Refuse an output that would replace what is read, or the descriptor of another file.

    A .npy may be replaced by what is made of it, together with its descriptor.
    """
    out, beside = as_path(target), sidecar(target)
    stem = as_path(target.removesuffix(".json"))
    replaced = [stem] if stem != out and os.path.exists(stem) else []  # noqa: PTH110 - of any length
    for source in sources:
        file = as_path(split_name(source)[0])
        pairs = [(out, sidecar(file)), (beside, file)]
        pairs += [] if _kind_of(str(file)) is _NPY else [(out, file)]
        replaced += [
            file for made, read in pairs if os.path.realpath(made) == os.path.realpath(read)
        ]
    if replaced:
        msg = (
            f"{target!r} cannot be written: it, or its descriptor {str(beside)!r}, would replace "
            f"{str(replaced[0])!r} or its descriptor; name another file"
        )
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
    if Path(file).suffix not in {".npy", ".npz"} and _kind_of(file) not in {_NPY, _ZIP}:
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


def _is_archive(path: str) -> bool:
    """Whether a file is a .zip of arrays; refuse pickles, with what to do."""
    kind = _kind_of(path)
    if kind in _PICKLES:
        raise _refusal(path, kind)
    return kind is _ZIP


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
        desc = _located(file, entry, dtype, tag)
    except (MemdescError, KeyError, StopIteration):
        return None
    is_whole = desc is not None and desc.min_nbytes <= entry.nbytes
    return (desc, entry) if desc is not None and is_whole else None


def _located(file: str, entry: Entry, dtype: str | None, tag: str | None) -> MemoryDesc | None:
    if entry.is_described or _is_archive(file):
        desc = entry.desc
        if not isinstance(desc, MemoryDesc) or (dtype and data_type(dtype) != desc.dtype):
            return None
        is_told = tag is None or desc_of(tag, desc.dims, str(desc.dtype)) == desc
        return desc if is_told else None
    array = load(file, dtype, mmap=True)
    if isinstance(array, Memory) or array.dtype.kind == "V":
        return None
    if tag is None:
        return array_desc(array)
    # one element that is repeated has the dims, and is not copied
    dims = as_memory(
        np.broadcast_to(np.zeros((), array.dtype), array.shape), buffer_name(tag)
    ).desc.dims
    return memory_desc(dims, array.dtype, tag) if array.flags.c_contiguous else None


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
