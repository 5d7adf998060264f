"""Tensors on disk: a .npy of the buffer, and its descriptor as JSON beside it.

`.npy` knows neither layouts nor bf16, f8 and 4-bit types; the sidecar `NAME.npy.json`
says what the bytes are. Plain layouts are stored as arrays in memory order, others
as raw bytes (uint8).
"""

from __future__ import annotations

from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError, data_type, from_json, to_json
from memdesc.disk import path_of, write_files
from reorder.memory import Memory

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from memdesc import MemoryDesc

__all__ = ["array_of", "attach", "form_of", "load", "save", "sidecar"]


def sidecar(path: str | os.PathLike[str]) -> Path:
    """Return where the descriptor of a .npy lies."""
    return Path(f"{path_of(path)}.json")


def load(path: str | os.PathLike[str], dtype: str | None = None) -> Memory | NDArray[Any]:
    """Read a tensor: a Memory if a descriptor lies beside it, else the array.

    *Law*: `load` gives back what `save` was given, bit for bit.

    Parameters
    ----------
    path : path
        A .npy file.
    dtype : str, optional
        What an array without descriptor holds where .npy cannot say it, such as bf16:
        its elements are void or unsigned there. Nothing is converted.

    Raises
    ------
    MemdescError
        If a file is missing, damaged, or the two do not fit each other.
    """
    given = path_of(path)
    try:
        with given.open("rb") as file:
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        msg = f"{str(given)!r} cannot be read: {error.strerror}"
        raise MemdescError(msg) from None
    except (ValueError, EOFError, TokenError) as error:  # the last for headers that are no Python
        msg = f"{str(given)!r} is no .npy file: {error}"
        raise MemdescError(msg) from None
    beside = sidecar(path)
    if not beside.exists():
        return _typed(array, dtype, str(given))
    try:
        desc = from_json(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"{str(beside)!r}: {error}"
        raise MemdescError(msg) from None
    if dtype is not None and data_type(dtype) != desc.dtype:
        msg = f"{str(beside)!r} says {desc.dtype}, not {dtype}"
        raise MemdescError(msg)
    return attach(array, desc, repr(str(given)), repr(str(beside)))


def save(path: str | os.PathLike[str], memory: Memory) -> None:
    """Write a tensor and, beside it, its descriptor; nothing is left half written.

    Raises
    ------
    MemdescError
        If a file cannot be written.
    """
    if not isinstance(memory, Memory):
        msg = f"save takes a Memory, not {type(memory).__name__}; reorder() makes one of an array"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    array, text = array_of(memory), f"{to_json(memory.desc)}\n".encode()
    write_files({path_of(path): lambda file: np.lib.format.write_array(file, array), sidecar(path): lambda file: file.write(text)})


def attach(array: NDArray[Any], desc: MemoryDesc, what: str, beside: str) -> Memory:
    """Return the memory that an array was written from; the two are named in messages.

    Raises
    ------
    MemdescError
        If somebody has written another array over the one that was described.
    """
    kind, shape = form_of(desc)
    if array.dtype != kind or array.shape != shape:
        msg = (
            f"{what} is an array of {array.dtype} and shape {array.shape}, but the descriptor beside it means "
            f"{kind} and {shape}; if the array is newer, delete {beside}"
        )
        raise MemdescError(msg)
    return Memory(desc, np.ascontiguousarray(array).reshape(-1).view(np.uint8), zero_pad=False)


def array_of(memory: Memory) -> NDArray[Any]:
    """Return the array that a file of a tensor holds; a buffer that ends with its last element is filled up with zeros."""
    kind, shape = form_of(memory.desc)
    data = memory.data
    if data.nbytes < memory.desc.nbytes:
        data = np.concatenate([data, np.zeros(memory.desc.nbytes - data.nbytes, np.uint8)])
    return data.view(kind).reshape(shape)


def form_of(desc: MemoryDesc) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the dtype and the shape of the array that a .npy of a descriptor holds."""
    is_plain = len(desc.blocks) == len(desc.axes) == desc.ndims and desc.is_dense and not desc.offset0
    if not is_plain or desc.dtype.is_packed or desc.extra is not None:
        return np.dtype(np.uint8), (desc.nbytes,)
    # .npy knows numpy's own types, not those of ml_dtypes
    kind = desc.dtype.numpy if desc.dtype.numpy.isbuiltin == 1 else desc.dtype.bits_dtype
    return kind, tuple(block.extent for block in sorted(desc.blocks, key=lambda b: (-b.stride, -b.extent, b.axis)))


def _typed(array: NDArray[Any], dtype: str | None, path: str) -> NDArray[Any]:
    """Return an array as the type that its file could not name."""
    if dtype is None:
        if array.dtype.kind != "V":
            return array
        msg = f"{path!r} holds elements of {array.itemsize} bytes without a type; say which, such as dtype bf16"
        raise MemdescError(msg)
    wanted = data_type(dtype)
    if array.dtype == wanted.numpy:
        return array
    if array.dtype.kind not in "Vu":
        msg = f"{path!r} holds {array.dtype}, not {wanted}; a file says its own type, and nothing is converted yet"
        raise MemdescError(msg)
    if wanted.is_packed or wanted.numpy.itemsize != array.itemsize:
        msg = f"{path!r} of {array.dtype} cannot be read as {wanted}: its elements have {8 * array.itemsize} bits"
        raise MemdescError(msg)
    return array.view(wanted.numpy)
