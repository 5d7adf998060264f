"""Files of tensors that commands read: .npy, one tensor of a .npz, and what others are."""

from __future__ import annotations

import os
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX

from memdesc import MemdescError, data_type
from memdesc.disk import as_path, open_file
from reorder.cli.layouts import buffer_name, desc_of
from reorder.memory.inputs import as_memory
from reorder.memory.memory import Memory
from reorder.storage.archive import load_archive
from reorder.storage.containers.table import read_container
from reorder.storage.files import load, sidecar
from reorder.storage.npy import NpyError, read_header
from reorder.storage.siblings import siblings_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "SOURCE",
    "codes_note",
    "is_archive",
    "load_file",
    "load_tensor",
    "may_be_raw",
    "may_hold",
    "read_bytes",
    "split_name",
    "tensors_in",
]

SOURCE = "a .npy; if a descriptor lies beside it, it is read as that says. Or FILE.npz:NAME"
_ZIP = b"PK"
# protocol 2 and later: what torch.save wrote before version 1.6, and other programs write
_PICKLE = b"\x80"
_ARCHIVE = ".npz:"
_RAW_HINT = "`memdesc decode` makes a .npy of a file of raw bytes"
# names of tensors in one message
_SHOWN = 8


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

    The hint says what to do where the file may hold raw bytes.
    """
    tensors = tensors_in(path)
    if tensors is None:
        try:
            return load(path, dtype)
        except MemdescError as error:
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
        msg = f"{path!r} says {memory.dtype}, not {dtype}"
        raise MemdescError(msg)
    return memory


def tensors_in(path: str) -> dict[str, Memory] | None:
    """Return the tensors of a .npz, or the one that a name behind it selects; None for others.

    Raises
    ------
    MemdescError
        If there is no such tensor, or the file is one of PyTorch or a pickle.
    """
    file, name = split_name(path)
    if not is_archive(file):
        return None
    tensors = load_archive(file)
    if name is None:
        return tensors
    if name not in tensors:
        shown = ", ".join([*tensors][:_SHOWN])
        msg = f"{file!r} has no tensor {name!r}; it has {len(tensors)}: {shown}"
        raise MemdescError(msg)
    return {name: tensors[name]}


def may_hold(path: str, dtype: str) -> bool:
    """Whether a file may hold a type that it does not name: as words, or without a type."""
    with suppress(MemdescError, NpyError):
        if not sidecar(path).exists():
            with open_file(as_path(path)) as file:
                found = read_header(file).dtype
            wanted = data_type(dtype).numpy
            return found.kind in "Vu" and (found.kind == "V" or found.itemsize == wanted.itemsize)
    return False


def split_name(path: str) -> tuple[str, str | None]:
    """Return the file of ``FILE.npz:NAME``, and the name; None for a file alone."""
    if _ARCHIVE in path and not Path(path).exists():
        stem, _, name = path.partition(_ARCHIVE)
        return f"{stem}{_ARCHIVE[:-1]}", name
    return path, None


def may_be_raw(path: str) -> bool:
    """Whether a file is there and neither starts nor is called as a .npy or a .npz."""
    if Path(path).suffix in {".npy", ".npz"}:
        return False
    try:
        with open_file(Path(path)) as file:
            return not file.read(len(MAGIC_PREFIX)).startswith((MAGIC_PREFIX, _ZIP))
    except MemdescError:
        return False


def read_bytes(path: str, offset: int = 0) -> NDArray[np.uint8]:
    """Read the bytes of a file from an offset on; folders, pipes and devices are refused."""
    with open_file(as_path(path)) as file:
        nbytes = file.seek(0, os.SEEK_END)
        if not 0 <= offset <= nbytes:
            msg = f"--offset {offset}: a tensor cannot start in {path!r} there, of {nbytes} bytes"
            raise MemdescError(msg)
        file.seek(offset)
        return np.fromfile(file, np.uint8)


def codes_note(path: str) -> str:
    """Return what turns the codes of a tensor of a .npz into numbers; of others nothing."""
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


def is_archive(path: str) -> bool:
    """Whether a file is a .zip of arrays; refuse pickles, with what to do."""
    try:
        with open_file(Path(path)) as file:
            start = file.read(len(_ZIP))
            is_zip = start == _ZIP
            names = zipfile.ZipFile(file).namelist() if is_zip else []
    except (MemdescError, OSError, ValueError, zipfile.BadZipFile):
        return False  # whoever reads the file says what is wrong
    is_torch = any(name == "data.pkl" or name.endswith("/data.pkl") for name in names)
    if is_torch or start.startswith(_PICKLE):
        kind = "a file of torch.save" if is_torch else "a pickle, perhaps of torch.save"
        msg = (
            f"{path!r} is {kind}: reading it may run code, so memdesc does not. In Python, "
            "reorder.save_archive('x.npz', torch.load(path, weights_only=True)) makes a file that "
            "it reads"
        )
        raise MemdescError(msg)
    return is_zip
