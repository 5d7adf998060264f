"""Files of tensors that commands read: .npy, one tensor of a .npz, and what others are."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError, data_type
from memdesc.disk import as_path, open_file
from reorder.cli.kinds import NPY, PICKLES, ZIP, kind_of, refuse
from reorder.cli.layouts import buffer_name, desc_of
from reorder.memory.inputs import as_memory
from reorder.memory.memory import Memory
from reorder.storage.archive import load_archive
from reorder.storage.arrays import other_type
from reorder.storage.containers.table import read_container
from reorder.storage.files import load, sidecar
from reorder.storage.siblings import siblings_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from numpy.typing import NDArray

    from memdesc import DataType
    from reorder.cli.kinds import Kind

__all__ = [
    "SOURCE",
    "check_output",
    "codes_note",
    "is_archive",
    "load_file",
    "load_tensor",
    "may_be_raw",
    "open_raw",
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
            kind = _kind_of(path)
            if kind is not None and kind is not NPY:
                raise refuse(path, kind) from None
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
        pairs += [] if _kind_of(str(file)) is NPY else [(out, file)]
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
    """Open a file of raw bytes at an offset, and say how many bytes follow.

    A file of another kind is refused, unless an offset says where in it the bytes are.
    """
    kind = kind_of(path) if offset is None else None
    if kind is not None:
        msg = (
            f"{refuse(path, kind)}; if it does hold raw bytes, `memdesc decode` reads "
            "them with --offset 0, or the number of bytes in front of them"
        )
        raise MemdescError(msg)
    start = offset or 0
    with open_file(as_path(path)) as file:
        nbytes = file.seek(0, os.SEEK_END)
        if not 0 <= start <= nbytes:
            msg = f"--offset {offset}: a tensor cannot start in {path!r} there, of {nbytes} bytes"
            raise MemdescError(msg)
        file.seek(start)
        yield file, nbytes - start


def read_bytes(path: str, offset: int | None = None) -> NDArray[np.uint8]:
    """Read the bytes of a raw file from an offset on."""
    with open_raw(path, offset) as (file, nbytes):
        return np.fromfile(file, np.uint8, nbytes)


def read_words(path: str, dtype: DataType | None) -> Memory | NDArray[Any] | None:
    """Read an array whose bytes count, as elements of a type; None for files of raw bytes.

    Bytes, and elements without a type, may be of any type, and integers hold words of 4-bit types;
    an array of another type is refused.
    """
    file, _ = split_name(path)
    if Path(file).suffix not in {".npy", ".npz"} and _kind_of(file) not in {NPY, ZIP}:
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
    kind = _kind_of(path)
    if kind in PICKLES:
        raise refuse(path, kind)
    return kind is ZIP


def _kind_of(path: str) -> Kind | None:
    """Return the kind of a file; None also where it cannot be read: whoever reads it says why."""
    try:
        return kind_of(path)
    except MemdescError:
        return None
