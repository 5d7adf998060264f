"""Tensors on disk: a .npy of the buffer, and its descriptor as JSON beside it.

`.npy` knows neither layouts nor bf16, f8 and 4-bit types; the sidecar `NAME.npy.json`
says what the bytes are. Plain layouts are stored as arrays in memory order, images as
their pixels, others as raw bytes (uint8).
"""

from __future__ import annotations

import json
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError, data_type, from_json, image_desc, to_json
from memdesc.disk import as_path, write_files
from memdesc.layout import memory_order
from reorder.memory.memory import Memory

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from memdesc import DataType, ImageDesc, MemoryDesc

    Form = tuple[np.dtype[Any], tuple[int, ...]]

__all__ = ["array_of", "attach", "form_of", "load", "save", "save_image", "sidecar"]


def sidecar(path: str | os.PathLike[str]) -> Path:
    """Return where the descriptor of a .npy lies."""
    return Path(f"{as_path(path)}.json")


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
    given = as_path(path)
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
        text = beside.read_text(encoding="utf-8")
        desc, image = from_json(text), json.loads(text).get("image")
        form = form_of(desc) if image is None else _form_of_image(desc, image)
    except (OSError, ValueError) as error:
        msg = f"{str(beside)!r}: {error}"
        raise MemdescError(msg) from None
    if dtype is not None and data_type(dtype) != desc.dtype:
        msg = f"{str(beside)!r} says {desc.dtype}, not {dtype}"
        raise MemdescError(msg)
    return attach(array, desc, form, (repr(str(given)), repr(str(beside))))


def save(path: str | os.PathLike[str], memory: Memory) -> None:
    """Write a tensor and, beside it, its descriptor; nothing is left half written.

    Raises
    ------
    MemdescError
        If a file cannot be written.
    """
    if not isinstance(memory, Memory):
        msg = (  # type: ignore[unreachable] # callers without types
            f"save takes a Memory, not {type(memory).__name__}; reorder() makes one of an array"
        )
        raise MemdescError(msg)
    _write(path, array_of(memory), to_json(memory.desc))


def save_image(path: str | os.PathLike[str], pixels: NDArray[Any], image: ImageDesc) -> None:
    """Write the pixels of an image and, beside them, which image they are; `load` makes a Memory of `image.desc` of them.

    Raises
    ------
    MemdescError
        If a file cannot be written.
    """
    kind, shape = _form_of_image(image.desc, image.name)
    _write(
        path,
        pixels.view(kind).reshape(shape),
        json.dumps(json.loads(to_json(image.desc)) | {"image": image.name}),
    )


def _write(path: str | os.PathLike[str], array: NDArray[Any], text: str) -> None:
    beside = f"{text}\n".encode()
    write_files(
        {
            as_path(path): lambda file: np.lib.format.write_array(file, array),
            sidecar(path): lambda file: file.write(beside),
        }
    )


def attach(array: NDArray[Any], desc: MemoryDesc, form: Form, names: tuple[str, str]) -> Memory:
    """Return the memory that an array of a form was written from; messages name it, and what says so.

    Raises
    ------
    MemdescError
        If somebody has written another array over the one that was described.
    """
    kind, shape = form
    if array.dtype != kind or array.shape != shape:
        what, beside = names
        msg = (
            f"{what} is an array of {array.dtype} and shape {array.shape}, but the descriptor "
            "beside it means "
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


def form_of(desc: MemoryDesc) -> Form:
    """Return the dtype and the shape of the array that a .npy of a descriptor holds."""
    is_plain = (
        len(desc.blocks) == len(desc.axes) == desc.ndims and desc.is_dense and not desc.offset0
    )
    if not is_plain or desc.dtype.is_packed or desc.extra is not None:
        return np.dtype(np.uint8), (desc.nbytes,)
    return _kind_of(desc.dtype), tuple(
        block.extent for block in sorted(desc.blocks, key=memory_order)
    )


def _form_of_image(desc: MemoryDesc, name: str) -> Form:
    """Return the dtype and the shape of the pixels of the image that a descriptor is the buffer of."""
    image = image_desc(desc.dims, desc.dtype, name)
    if image.desc != desc:
        msg = f"it says image {name!r}, but not its pixels: {desc!r}"
        raise MemdescError(msg)
    return _kind_of(desc.dtype), (image.height, image.width, image.channels)


def _kind_of(dtype: DataType) -> np.dtype[Any]:
    """Return what stands for a type in .npy, which knows numpy's own types and not those of ml_dtypes."""
    return dtype.numpy if dtype.numpy.isbuiltin == 1 else dtype.bits_dtype


def _typed(array: NDArray[Any], dtype: str | None, path: str) -> NDArray[Any]:
    """Return an array as the type that its file could not name."""
    if dtype is None:
        if array.dtype.kind != "V":
            return array
        msg = (
            f"{path!r} holds elements of {array.itemsize} bytes without a type; say which, such as "
            "dtype bf16"
        )
        raise MemdescError(msg)
    wanted = data_type(dtype)
    if array.dtype == wanted.numpy:
        return array
    if array.dtype.kind not in "Vu":
        msg = (
            f"{path!r} holds {array.dtype}, not {wanted}; a file says its own type, and nothing is "
            "converted yet"
        )
        raise MemdescError(msg)
    if wanted.is_packed or wanted.numpy.itemsize != array.itemsize:
        msg = (
            f"{path!r} of {array.dtype} cannot be read as {wanted}: its elements have "
            f"{8 * array.itemsize} bits"
        )
        raise MemdescError(msg)
    return array.view(wanted.numpy)
