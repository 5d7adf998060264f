"""A .npy: one tensor that numpy itself can express, named like its file without the ending.

The size that a header claims is compared with that of the file before memory is allocated.
Structured types, objects and subarrays are not elements of tensors.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from io import BytesIO
from math import prod
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as numpy_format

from memdesc import MemdescError, MemoryDesc, data_type, memory_desc
from memdesc.record import RecordDesc
from reorder.checkpoints.formats.entry import (
    Container,
    Entry,
    FileState,
    PlannedFile,
    Span,
    check_entries,
    checked_shape,
    open_container,
    stored_desc,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from reorder.checkpoints.formats.entry import Tensor

_ENDING = ".npy"
# how numpy parses a header, and the form of its length, by the version; version 3 is only for the
# names of fields in records
_PARSERS = {
    b"\1\0": (numpy_format.read_array_header_1_0, "<H"),
    b"\2\0": (numpy_format.read_array_header_2_0, "<I"),
}
# the most bytes in a header, which is numpy's own limit, and of a reason that it gives
_MAX_HEADER, _MAX_REASON = 10_000, 160
# members of archives are copied as they are read, in pieces that stay cache-resident
_CHUNK = 2**18


class Header(NamedTuple):
    """What a .npy says about its array, and the bytes of the header."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool
    raw: bytes

    @property
    def nbytes(self) -> int:
        """Size of the data after the header, in bytes."""
        return prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype} of shape {self.shape}"


def header_of(dtype: np.dtype[Any], shape: tuple[int, ...], *, is_fortran: bool = False) -> Header:
    """Return the header that numpy writes for an array of one of its own types."""
    file = BytesIO()
    values = {"descr": dtype.str, "fortran_order": is_fortran, "shape": shape}
    numpy_format.write_array_header_1_0(file, values)
    return Header(dtype, shape, is_fortran=is_fortran, raw=file.getvalue())


def read_header(file: BinaryIO) -> Header:
    """Read a header; the file is then positioned at the data."""
    start = file.read(numpy_format.MAGIC_LEN)
    magic, version = numpy_format.MAGIC_PREFIX, start[-2:]
    if not start.startswith(magic) or version not in _PARSERS:
        raise MemdescError(
            f"it starts with {start!r}, not with {magic!r} and version 1 or 2 of the format"
        )
    form = _PARSERS[version][1]
    length = file.read(struct.calcsize(form))
    nbytes = struct.unpack(form, length)[0] if len(length) == struct.calcsize(form) else 0
    if nbytes > _MAX_HEADER:
        raise MemdescError(f"its header has {nbytes} bytes, more than the {_MAX_HEADER} allowed")
    text = file.read(nbytes)
    if len(text) < nbytes or not text:
        raise MemdescError("it ends within its header")
    return _parse(version, start + length + text)


@lru_cache(maxsize=1024)  # archives often have many arrays with equal headers
def _parse(version: bytes, raw: bytes) -> Header:
    file = BytesIO(raw)
    file.seek(numpy_format.MAGIC_LEN)
    try:
        shape, is_fortran, dtype = _PARSERS[version][0](file, max_header_size=_MAX_HEADER)
    except Exception as error:  # noqa: BLE001 - it is parsed as a literal and a type of Python
        reason = str(error)[:_MAX_REASON] or type(error).__name__
        raise MemdescError(f"its header is not one of numpy: {reason}") from None
    if dtype.hasobject:
        raise MemdescError("Object arrays cannot be loaded when allow_pickle=False")
    if dtype.names is not None or dtype.subdtype is not None or not dtype.itemsize:
        raise MemdescError(
            f"it holds records, or elements of no bytes, not elements of one type: {dtype.str}"
        )
    return Header(dtype, checked_shape(shape), is_fortran, raw)


def read_data(file: BinaryIO, header: Header, nbytes: int) -> NDArray[np.uint8]:
    """Read the data after a header, where the file is positioned, as flat bytes.

    `nbytes` is the size of the file: header and data. Fails if there are fewer bytes than the
    header claims, or more than fit into memory.
    """
    check_size(header, nbytes)
    wanted = header.nbytes
    try:
        data = np.empty(wanted, np.uint8)
    except (MemoryError, ValueError):
        raise MemdescError(
            f"it holds {wanted} bytes, more than the system has memory for"
        ) from None
    rest = memoryview(data)  # type: ignore[arg-type] # arrays of bytes are buffers
    while rest.nbytes:
        count = file.readinto(rest[:_CHUNK])  # type: ignore[attr-defined] # binary files have it
        if not count:
            raise MemdescError(f"it ended after {wanted - rest.nbytes} of {wanted} bytes")
        rest = rest[count:]
    return data


def check_size(header: Header, nbytes: int) -> None:
    """Refuse a file, or a member of an archive, that is shorter than its header claims."""
    there = nbytes - len(header.raw)
    if header.nbytes > there:
        raise MemdescError(
            f"its header means {header.nbytes} bytes, {header}, but {there} follow; it was cut "
            "off, or never written completely"
        )


def read(path: Path) -> Container:
    """Read the header of a file. Fails if it is damaged."""
    with open_container(path, "a .npy file") as (file, state):
        header = read_header(file)
        check_size(header, state.nbytes)
        rest = state.nbytes - len(header.raw) - header.nbytes
        if rest:
            raise MemdescError(
                f"{rest} bytes follow its data, {header}; if they are further arrays, read them "
                "with numpy.load, and save each into a file"
            )
        # the name of a file may be any bytes, but that of a tensor is text
        name = path.name.removesuffix(_ENDING).encode(errors="backslashreplace").decode()
        entry = entry_of(name, header, (path, len(header.raw), state))
        return Container("npy", check_entries([entry]), {}, (path,))


def entry_of(name: str, header: Header, where: tuple[Path, int, FileState]) -> Entry:
    """Return the entry of an array without a descriptor."""
    path, offset, state = where
    desc, reason, dtype = None, "", header.dtype.str
    try:
        dtype = data_type(header.dtype).name
        strides = _column_major(header.shape) if header.is_fortran and header.shape else None
        desc = memory_desc(header.shape or (1,), dtype, strides=strides)
    except MemdescError as error:
        reason = str(error)
    return Entry(name, dtype, header.shape, path, offset, header.nbytes, state, desc, reason)


def _column_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a column-major array."""
    return tuple(prod(shape[:dim]) for dim in range(len(shape)))


def plan(name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]) -> PlannedFile:
    """Plan a file of one tensor."""
    del metadata  # a .npy has no room for it
    if len(tensors) != 1:
        raise MemdescError(
            f"{name!r}: a .npy holds one tensor, not {len(tensors)}; write a .npz or .safetensors"
        )
    (tensor,) = tensors
    header = _header_for(tensor, name)
    start = len(header.raw)
    spans = {tensor.name: Span(start, tensor.nbytes)}
    return PlannedFile(name, start + tensor.nbytes, ((0, header.raw),), spans)


def _header_for(tensor: Tensor, name: str) -> Header:
    """Return the header of the array that has a tensor's elements in the same order."""
    desc = tensor.desc or stored_desc(tensor.dtype, tensor.shape)[0]
    if not isinstance(desc, MemoryDesc):
        what = f"a {desc.name} record" if isinstance(desc, RecordDesc) else f"a {tensor.dtype}"
        raise _inexpressible(name, what, "decode it to a float type")
    if desc.dtype.numpy.isbuiltin != 1:
        raise _inexpressible(name, f"elements of {desc.dtype}", "convert it to f32 or another type")
    for strides in (None, _column_major(desc.dims)):
        if desc == memory_desc(desc.dims, desc.dtype, strides=strides):
            shape = desc.dims if tensor.shape else ()
            return header_of(desc.dtype.numpy, shape, is_fortran=strides is not None)
    raise _inexpressible(name, f"the layout of {desc!r}", "reorder it to 'plain'")


def _inexpressible(name: str, what: str, way_out: str) -> MemdescError:
    return MemdescError(
        f"{name!r}: a .npy has no place for {what}: it holds row-major and column-major arrays of "
        "numpy's own types. Write a .safetensors or a .npz, which keep it; or only its bytes, as a "
        f"C kernel takes them, with --raw or reorder.checkpoints.save_raw; or {way_out}"
    )
