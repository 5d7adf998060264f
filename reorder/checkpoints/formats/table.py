"""The formats of files by their first bytes and endings: formats that are read, and others."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from memdesc.errors import MemdescError
from memdesc.tuples import NamedTuple
from reorder.checkpoints.formats import gguf, onnx, safetensors
from reorder.checkpoints.formats import numpy_files as npy
from reorder.checkpoints.formats.entry import Container, PlannedFile, Tensor, check_planned
from reorder.checkpoints.formats.safetensors import INDEX_ENDING, read_folder, read_index
from reorder.disk import as_path, open_file

# what reads a file of one of the formats if the command at hand does not
_ARRAYS = "`memdesc reorder` reads it; with `--to plain` it writes the values row by row"


class Format(NamedTuple):
    """A format: its name, which is the ending of its files, how they start, and what reads them."""

    name: str
    # a pattern of the first bytes of its files; None if they have no magic number
    start: bytes | None
    # what messages call such a file
    what: str
    read: Callable[[Path], Container]
    # None if it is only read
    plan: Callable[[str, Sequence[Tensor], Mapping[str, Any]], PlannedFile] | None
    # whether files have room for metadata
    has_metadata: bool = True
    # whether it holds one array without a name, and every reader sees the order of its axes
    is_array: bool = False
    # compares the bytes of a file with its checksums, if such files have them
    check: Callable[[Path], None] | None = None

    @property
    def ending(self) -> str:
        """The ending of the names of its files."""
        return f".{self.name}"


_ZIP, _NPY = rb"PK(\x03\x04|\x05\x06)", b"\x93NUMPY"
# the length of the header, about 100 MB at most, and its brace
_SAFETENSORS = rb".{3}[\0-\5]\0{4}\{"
# A new format is one more module, and its row here.
_ROWS = (
    Format("safetensors", _SAFETENSORS, "a .safetensors file", safetensors.read, safetensors.plan),
    Format("gguf", b"GGUF", "a GGUF file", gguf.read, gguf.plan),
    Format(
        "npy", _NPY, "a .npy file", npy.read_npy, npy.plan_npy, has_metadata=False, is_array=True
    ),
    Format(
        "npz",
        _ZIP,
        "a .npz, or another .zip",
        npy.read_npz,
        npy.plan_npz,
        has_metadata=False,
        check=npy.check_npz,
    ),
    Format("onnx", None, "an ONNX model", onnx.read, None),
)
FORMATS: Mapping[str, Format] = MappingProxyType({row.name: row for row in _ROWS})


class Foreign(NamedTuple):
    """A format of files that is not read: how it starts, and what reads it."""

    what: str
    start: bytes | None
    way_out: str


_PICKLE = (
    "reading it may run code, so memdesc does not. In Python, reorder.save('x.safetensors', "
    "torch.load(path, weights_only=True)) makes a file that it reads"
)
_TEXT = (
    "numpy.loadtxt(path, skiprows=N) reads the numbers after N lines of a header, and numpy.save "
    "writes them into a .npy of their shape"
)
_HDF5 = "h5py reads it, and numpy.save writes its arrays"
# a .zip, told from a .npz by its members
_TORCH = Foreign("a file of torch.save", None, _PICKLE)
_FOREIGN = (
    # protocol 2 and later: what torch.save wrote before version 1.6, and other programs write
    Foreign(
        "a pickle, perhaps of torch.save",
        rb"\x80[\x02-\x05]([\x80-\x95]|[\](})cKXMGNI])",
        _PICKLE,
    ),
    Foreign("an HDF5 file", rb"\x89HDF\r\n\x1a\n", _HDF5),
    # OpenVINO's text dumps start with the shape; other programs write lines of numbers
    Foreign("text", rb"shape: \[|[-+0-9.eE,; \t]{1,40}\r?\n[-+0-9]", _TEXT),
    Foreign("compressed by gzip", rb"\x1f\x8b\x08", "decompress it first"),
    Foreign("compressed by zstd", rb"\x28\xb5\x2f\xfd", "decompress it first"),
    Foreign("compressed by xz", rb"\xfd7zXZ\0", "decompress it first"),
)
# endings of files of tensors that are neither read nor written
FOREIGN_ENDINGS = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".ggml")


def format_of(path: str | os.PathLike[str]) -> Format:
    """Return the format that the ending of a path names. Fails if none does."""
    given = as_path(path)
    for row in FORMATS.values():
        if given.name.endswith(row.ending):
            return row
    endings = ", ".join(row.ending for row in FORMATS.values())
    raise MemdescError(
        f"the ending of {str(given)!r} names no format of checkpoints; they are {endings}"
    )


def sniff(path: Path) -> Format | Foreign | None:
    """Return the format of a file by its first bytes and ending; None if it may be raw bytes."""
    with open_file(path) as file:
        start = file.read(64)
        rows: list[Format | Foreign] = [*FORMATS.values(), *_FOREIGN]
        for row in rows:
            if row.start is not None and re.match(row.start, start, re.DOTALL):
                with suppress(*npy.DAMAGES):  # reading it will report the error
                    names = zipfile.ZipFile(file).namelist() if row is FORMATS["npz"] else ()
                    if any(f"/{name}".endswith("/data.pkl") for name in names):
                        return _TORCH
                return row
    # an ONNX model has no mark at its start: only the ending of its name says what it is
    return FORMATS["onnx"] if path.suffix == FORMATS["onnx"].ending else None


def check_sums(path: Path) -> None:
    """Refuse a file whose bytes differ from the checksums that it has of them."""
    row = sniff(path)
    if isinstance(row, Format) and row.check is not None:
        row.check(path)


def refusal(path: Path, row: Format | Foreign) -> MemdescError:
    """Return the error for a file of a format that a caller does not read."""
    way_out = row.way_out if isinstance(row, Foreign) else _ARRAYS
    return MemdescError(f"{str(path)!r} is {row.what}: {way_out}")


def read_container(path: str | os.PathLike[str], *, skip_unreadable: bool = False) -> Container:
    """Read the headers of a checkpoint: a file, an index of shards, or a folder of a model.

    With `skip_unreadable`, shards that are missing or damaged are listed in `unread`, as long as
    one can be read. Fails if there is no checkpoint, or it is damaged otherwise.
    """
    given = as_path(path)
    is_folder = os.path.isdir(given)  # noqa: PTH112 - names of any length
    if is_folder or given.name.endswith(INDEX_ENDING):
        container = read_folder(given) if is_folder else read_index(given)
        if container.unread and not skip_unreadable:
            raise MemdescError(next(iter(container.unread.values())).reason)
        return container
    row = sniff(given)
    if isinstance(row, Foreign):
        raise refusal(given, row)
    # without a known start, the module of the ending says what is wrong
    return (row or format_of(given)).read(given)


def plan_file(
    path: str | os.PathLike[str], tensors: Sequence[Tensor], metadata: Mapping[str, Any]
) -> PlannedFile:
    """Plan the file of a checkpoint in the format that the path names."""
    given = as_path(path)
    row = format_of(given)
    check_planned(given.name, tensors)
    if row.plan is None:
        endings = ", ".join(form.ending for form in FORMATS.values() if form.plan)
        raise MemdescError(
            f"{str(given)!r}: a {row.ending} is read but not written; name one of {endings}"
        )
    return row.plan(given.name, tensors, metadata)
