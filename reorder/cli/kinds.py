"""Kinds of files that are not raw bytes: told by how they start, whatever they are called."""

from __future__ import annotations

import re
import zipfile
from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemdescError
from memdesc.disk import as_path, open_file
from reorder.storage.archive import DAMAGES

if TYPE_CHECKING:
    from typing import BinaryIO

__all__ = ["NPY", "PICKLES", "ZIP", "Kind", "kind_of", "refuse"]

# bytes at the start of a file that are compared
_START = 64
_ARRAYS = "`memdesc reorder` reads it; with `--to plain` it writes the values row by row"
_CHECKPOINT = "`memdesc inspect` lists its tensors, and `memdesc convert` writes them into a .npz"
_DECOMPRESS = "decompress it first"
_PICKLE = (
    "reading it may run code, so memdesc does not. In Python, reorder.save_archive('x.npz', "
    "torch.load(path, weights_only=True)) makes a file that it reads"
)


class Kind(NamedTuple):
    """What a file is, how such files start, and what reads them."""

    what: str
    start: re.Pattern[bytes]
    way_out: str


def _kind(what: str, start: bytes, way_out: str) -> Kind:
    return Kind(what, re.compile(start, re.DOTALL), way_out)


NPY = _kind("a .npy file", rb"\x93NUMPY", _ARRAYS)
ZIP = _kind("a .npz, or another .zip", rb"PK(\x03\x04|\x05\x06)", _ARRAYS)
_TORCH = _kind("a file of torch.save", ZIP.start.pattern, _PICKLE)
# protocol 2 and later: what torch.save wrote before version 1.6, and other programs write
_PICKLED = _kind(
    "a pickle, perhaps of torch.save", rb"\x80[\x02-\x05]([\x80-\x95]|[\](})cKXMGNI])", _PICKLE
)
PICKLES = (_TORCH, _PICKLED)
# it has no mark; the ending of its name tells it
_ONNX = _kind("an ONNX model", b"", _CHECKPOINT)
_KINDS = (
    NPY,
    ZIP,
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
    """Return the kind of a file; None for one that may hold raw bytes.

    Raises
    ------
    MemdescError
        If it cannot be read.
    """
    given = as_path(path)
    with open_file(given) as file:
        start = file.read(_START)
        found = next((kind for kind in _KINDS if kind.start.match(start)), None)
        if found is ZIP and _is_of_torch(file):
            return _TORCH
    return _ONNX if found is None and given.suffix == ".onnx" else found


def _is_of_torch(file: BinaryIO) -> bool:
    try:
        names = zipfile.ZipFile(file).namelist()
    except DAMAGES:
        return False  # whoever reads the file says what is wrong
    return any(name == "data.pkl" or name.endswith("/data.pkl") for name in names)


def refuse(path: str, kind: Kind) -> MemdescError:
    """Return the error of a file of a kind, where a command reads something else."""
    return MemdescError(f"{path!r} is {kind.what}: {kind.way_out}")
