"""Tensors on disk: a .npy of the buffer, and its descriptor as JSON beside it.

`.npy` knows neither layouts nor bf16, f8 and 4-bit types; the sidecar `NAME.npy.json`
says what the bytes are. Plain layouts are stored as arrays in memory order, others
as raw bytes (uint8).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError, data_type, from_json, to_json
from reorder.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from numpy.typing import NDArray

__all__ = ["load", "save", "sidecar"]


def sidecar(path: str | os.PathLike[str]) -> Path:
    """Return where the descriptor of a .npy lies."""
    return Path(f"{os.fspath(path)}.json")


def load(path: str | os.PathLike[str], dtype: str | None = None) -> Memory | NDArray[Any]:
    """Read a tensor: a Memory if a descriptor lies beside it, else the array.

    Parameters
    ----------
    path : path
        A .npy file.
    dtype : str, optional
        What an array without descriptor holds where .npy cannot say it, such as bf16.

    Raises
    ------
    MemdescError
        If a file is missing, damaged, or the two do not fit each other.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - any path, also one of os.PathLike
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        msg = f"{os.fspath(path)!r} cannot be read as .npy: {error}"
        raise MemdescError(msg) from None
    beside = sidecar(path)
    if not beside.exists():
        return array if dtype is None else _relabel(array, dtype)
    try:
        desc = from_json(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"{str(beside)!r}: {error}"
        raise MemdescError(msg) from None
    if dtype is not None and data_type(dtype) != desc.dtype:
        msg = f"{str(beside)!r} says {desc.dtype}, not {dtype}"
        raise MemdescError(msg)
    return Memory(desc, np.ascontiguousarray(array).reshape(-1).view(np.uint8), zero_pad=False)


def save(path: str | os.PathLike[str], memory: Memory) -> None:
    """Write a tensor and, beside it, its descriptor; nothing is left half written.

    Raises
    ------
    MemdescError
        If a file cannot be written.
    """
    desc = memory.desc
    array = memory.data
    if len(desc.blocks) == len(desc.axes) == desc.ndims and desc.is_dense and not desc.offset0 and not desc.dtype.is_packed:
        # .npy knows numpy's own types, not those of ml_dtypes
        is_own = desc.dtype.numpy.isbuiltin == 1
        array = memory.elements.view(desc.dtype.numpy if is_own else desc.dtype.bits_dtype)
        array = array.reshape([block.extent for block in sorted(desc.blocks, key=lambda b: (-b.stride, -b.extent, b.axis))])
    target, beside = Path(path), sidecar(path)
    staged: list[Path] = []
    try:
        staged.append(_stage(target, lambda file: np.lib.format.write_array(file, array)))
        staged.append(_stage(beside, lambda file: file.write(f"{to_json(desc)}\n".encode())))
        staged[0].replace(target)
        staged[1].replace(beside)
    except OSError as error:
        msg = f"{os.fspath(path)!r} cannot be written: {error}"
        raise MemdescError(msg) from None
    finally:
        for left in staged:
            left.unlink(missing_ok=True)


def _relabel(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return an array as another type of the same width."""
    wanted = data_type(dtype)
    if wanted.is_packed or wanted.numpy.itemsize != array.itemsize:
        msg = f"an array of {array.dtype} cannot be read as {wanted}: its elements have {8 * array.itemsize} bits"
        raise MemdescError(msg)
    return array.view(wanted.numpy)


def _stage(target: Path, write: Callable[[BinaryIO], Any]) -> Path:
    """Write a file under another name in the folder of its target, to be renamed."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        Path(name).chmod(0o666 & ~_umask())
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
