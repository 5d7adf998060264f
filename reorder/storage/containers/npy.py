"""A .npy: one tensor, called as the file without its ending, and the descriptor beside it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from memdesc import DATA_TYPES, MemdescError, MemoryDesc, data_type, memory_desc
from memdesc.disk import open_file
from reorder.memory.memory import Memory
from reorder.storage.arrays import form_of
from reorder.storage.containers.entry import Container, Entry, FileState, check_entries
from reorder.storage.containers.plan import PlannedFile, Span
from reorder.storage.files import load, write_sidecar
from reorder.storage.npy import Header, NpyError, header_of, read_header

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from reorder.storage.containers.plan import Tensor

__all__ = ["entry_of", "header_for", "is_format", "plan", "read"]

_ENDING = ".npy"


def is_format(start: bytes) -> bool:
    """Whether the first bytes of a file are those of this format."""
    return start.startswith(b"\x93NUMPY")


def read(path: Path) -> Container:
    """Read the header of a file, and the descriptor beside it.

    Raises
    ------
    MemdescError
        If one is damaged, or they do not fit.
    """
    try:
        with open_file(path) as file:
            state = FileState.of(file.fileno())
            header = read_header(file)
    except NpyError as error:
        msg = f"{str(path)!r} is no .npy file, or a damaged one: {error}"
        raise MemdescError(msg) from None
    entry = entry_of(path.name.removesuffix(_ENDING), header, (path, len(header.raw), state))
    if header.dtype.kind != "V":
        found = load(path, mmap=True)
        if isinstance(found, Memory):
            entry = replace(entry, desc=found.desc, reason="", is_described=True)
    return Container("npy", check_entries([entry]), {}, (path,))


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


def header_for(tensor: Tensor) -> Header:
    """Return the header of a tensor's array: the form in which `save` stores what it holds.

    Raises
    ------
    MemdescError
        If no array holds it.
    """
    if isinstance(tensor.desc, MemoryDesc):
        kind, shape = form_of(tensor.desc)
    elif tensor.desc is None and tensor.dtype in DATA_TYPES:
        kind, shape = form_of(memory_desc(tensor.shape or (1,), tensor.dtype))
    else:
        msg = f"tensor {tensor.name!r}: a .npy holds no {tensor.desc or tensor.dtype}"
        raise MemdescError(msg)
    header = header_of(Header(kind, shape, is_fortran=False, generation=0, raw=b""), 0)
    if header.nbytes != tensor.nbytes:
        msg = f"tensor {tensor.name!r} has {tensor.nbytes} bytes, but its array {header.nbytes}"
        raise MemdescError(msg)
    return header


def plan(
    name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]
) -> tuple[PlannedFile, ...]:
    """Plan a file of one tensor; its descriptor gets its name with it.

    Raises
    ------
    MemdescError
        If there are several tensors, or no array holds what it is.
    """
    del metadata  # there is no place for it
    if len(tensors) != 1:
        msg = f"{name!r}: a .npy holds one tensor, not {len(tensors)}; write a .npz or .safetensors"
        raise MemdescError(msg)
    (tensor,) = tensors
    header = header_for(tensor)
    start = len(header.raw)
    seal = None
    if isinstance(tensor.desc, MemoryDesc):
        seal = partial(write_sidecar, desc=tensor.desc)
    spans = {tensor.name: Span(start, tensor.nbytes)}
    return (PlannedFile(name, start + tensor.nbytes, ((0, header.raw),), spans, seal),)
