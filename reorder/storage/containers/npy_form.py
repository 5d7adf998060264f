"""The array that stands for a tensor in a .npy, and the entry of one."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memdesc import MemdescError, MemoryDesc, data_type, memory_desc
from memdesc.errors import short_repr
from reorder.storage.arrays import form_of, is_bytes
from reorder.storage.containers.descriptors import stored_desc
from reorder.storage.containers.entry import Entry, FileState
from reorder.storage.npy import Header, header_of

if TYPE_CHECKING:
    from pathlib import Path

    from reorder.storage.containers.plan import Tensor

__all__ = ["array_form", "entry_of"]


def entry_of(name: str, header: Header, where: tuple[Path, int, FileState]) -> Entry:
    """Return the entry of an array that no descriptor describes."""
    path, offset, state = where
    desc, reason, dtype = None, "", header.dtype.str
    try:
        dtype = data_type(header.dtype).name
        strides = _columns(header.shape) if header.is_fortran and header.shape else None
        desc = memory_desc(header.shape or (1,), dtype, strides=strides)
    except MemdescError as error:
        reason = str(error)
    return Entry(name, dtype, header.shape, path, offset, header.nbytes, state, desc, reason)


def _columns(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[:dim]) for dim in range(len(shape)))


def array_form(tensor: Tensor, *, has_words: bool = False) -> tuple[Header, MemoryDesc]:
    """Return the header of a tensor's array, as `save` stores it, and the descriptor beside it.

    With `has_words`, what `save` stores as bytes are words in their shape.

    Raises
    ------
    MemdescError
        If no array holds it.
    """
    desc = tensor.desc or stored_desc(tensor.dtype, tensor.shape)[0]
    if not isinstance(desc, MemoryDesc):
        msg = (
            f"tensor {short_repr(tensor.name)}: files of numpy hold no {desc or tensor.dtype}; "
            "write .safetensors"
        )
        raise MemdescError(msg)
    kind, shape = form_of(desc)
    if has_words and is_bytes(desc) and not data_type(tensor.dtype).is_packed:
        kind, shape = form_of(memory_desc(tensor.shape or (1,), tensor.dtype))[0], tensor.shape
    header = header_of(Header(kind, shape, is_fortran=False, generation=0, raw=b""), 0)
    if header.nbytes != tensor.nbytes:
        msg = (
            f"tensor {short_repr(tensor.name)} has {tensor.nbytes} bytes, but {desc!r} takes "
            f"{header.nbytes}"
        )
        raise MemdescError(msg)
    return header, desc
