"""Which array stands for a descriptor in a .npy, and what a .npy without a descriptor holds.

Plain layouts are stored as arrays in memory order, images as their pixels, others as raw bytes
(uint8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError, data_type, image_desc
from memdesc.layout import memory_order
from reorder.memory.memory import Memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import DataType, MemoryDesc
    from reorder.storage.npy import Header

    Form = tuple[np.dtype[Any], tuple[int, ...]]

__all__ = [
    "array_of",
    "check_form",
    "check_member",
    "form_of",
    "form_of_image",
    "is_bytes",
    "memory_of",
    "other_type",
    "typed",
]


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


def form_of_image(desc: MemoryDesc, name: str) -> Form:
    """Return the dtype and the shape of an image's pixels; the descriptor is its buffer's."""
    image = image_desc(desc.dims, desc.dtype, name)
    if image.desc != desc:
        msg = f"it says image {name!r}, but not its pixels: {desc!r}"
        raise MemdescError(msg)
    return _kind_of(desc.dtype), (image.height, image.width, image.channels)


def _kind_of(dtype: DataType) -> np.dtype[Any]:
    """Return the dtype of a type in .npy, which knows numpy's types and not those of ml_dtypes."""
    return dtype.numpy if dtype.numpy.isbuiltin == 1 else dtype.bits_dtype


def array_of(memory: Memory) -> NDArray[Any]:
    """Return the array that a file of a tensor holds.

    A buffer may end with its last element; the bytes to the end of the row are zeros then.
    """
    kind, shape = form_of(memory.desc)
    data = memory.data
    if data.nbytes < memory.desc.nbytes:
        data = np.concatenate([data, np.zeros(memory.desc.nbytes - data.nbytes, np.uint8)])
    return data.view(kind).reshape(shape)


def check_form(header: Header, form: Form, names: tuple[str, str]) -> None:
    """Refuse an array that is not the one that a descriptor means; messages name both files.

    Raises
    ------
    MemdescError
        If somebody has written another array over the one that was described.
    """
    kind, shape = form
    if header.dtype != kind or header.shape != shape:
        what, beside = names
        msg = (
            f"{what} is an array of {header.dtype} and shape {header.shape}, but the descriptor "
            "beside it means "
            f"{kind} and {shape}; if the array is newer, delete {beside}"
        )
        raise MemdescError(msg)


def is_bytes(desc: MemoryDesc) -> bool:
    """Whether the array of a descriptor has its bytes alone, or one element.

    Members of archives may be arrays of words of any shape then, as of converted checkpoints.
    """
    return form_of(desc)[1] == (desc.nbytes,) or desc.nelems == 1


def check_member(header: Header, desc: MemoryDesc, name: str) -> None:
    """Refuse a member of an archive that is not the array that its descriptor means.

    Raises
    ------
    MemdescError
        As `check_form`.
    """
    if not is_bytes(desc) or header.nbytes != desc.nbytes or header.is_fortran:
        check_form(header, form_of(desc), (repr(name), "its descriptor"))


def memory_of(array: NDArray[Any], desc: MemoryDesc) -> Memory:
    """Return the memory that an array of the form of its descriptor was written from."""
    return Memory(desc, np.ascontiguousarray(array).reshape(-1).view(np.uint8), zero_pad=False)


def typed(array: NDArray[Any], dtype: str | None, path: str) -> NDArray[Any]:
    """Return an array as the type that its file could not name."""
    if dtype is None:
        if array.dtype.kind != "V":
            return array
        msg = (
            f"{path!r} holds elements of {array.itemsize} bytes without a type; say which: "
            "dtype='bf16', or on the command line --dtype bf16, or what `compare` takes, such as "
            "--layout-a bf16:bfyx:1x2x3x4"
        )
        raise MemdescError(msg)
    wanted = data_type(dtype)
    if array.dtype == wanted.numpy:
        return array
    if array.dtype.kind != "V":
        said = f"{path!r} holds {array.dtype}"
        raise other_type(said, wanted)
    if wanted.is_packed or wanted.numpy.itemsize != array.itemsize:
        msg = (
            f"{path!r} of {array.dtype} cannot be read as {wanted}: its elements have "
            f"{8 * array.itemsize} bits"
        )
        raise MemdescError(msg)
    return array.view(wanted.numpy)


def other_type(said: str, wanted: DataType, way_out: str | None = None) -> MemdescError:
    """Return the error of a type that is not the one that a file gives its elements."""
    kind = wanted.numpy.type
    converted = (
        f"--to-dtype {wanted} on the command line, or reorder(x, layout, dtype={wanted.name!r}), "
        "converts its values"
    )
    return MemdescError(
        f"{said}, not {wanted}; a file says its own type: {way_out or converted}. If its elements "
        f"are the bits of {wanted}, save x.view({kind.__module__}.{kind.__name__})"
    )
