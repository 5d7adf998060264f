"""A .npy: one tensor that numpy itself can express, named like its file without the ending.

Headers are parsed, not evaluated. The size that a header claims is compared with that of the file
before memory is allocated. Structured types, objects and subarrays are not elements of tensors.

Source: `numpy/lib/format.py` of numpy 2.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from io import BytesIO
from math import prod
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from memdesc import MemdescError, MemoryDesc, data_type, memory_desc
from memdesc.errors import short_repr
from memdesc.record import RecordDesc
from reorder.checkpoints.formats.entry import (
    Container,
    Entry,
    FileState,
    PlannedFile,
    Span,
    check_entries,
    open_container,
    stored_desc,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from reorder.checkpoints.formats.entry import Tensor

_ENDING = ".npy"
_MAGIC = b"\x93NUMPY"
# numpy has the same limit
_MAX_HEADER = 10_000
_MAX_NDIMS = 64
# members of archives are copied as they are read, in pieces that stay cache-resident
_CHUNK = 2**18
_ENTRY = re.compile(
    r"""\s*(?P<quote>['"])(?P<key>\w{1,20})(?P=quote)\s*:\s*"""
    r"""(?:(?P<quote2>['"])(?P<text>[^'"]*)(?P=quote2)|(?P<flag>True|False)|"""
    r"""\((?P<shape>[0-9L,\s]*)\))"""
    r"""\s*(?:,|(?=\}))"""
)
_STRUCTURED = re.compile(r"""['"]descr['"]\s*:\s*[\[(]""")
_END = re.compile(r"\s*\}\s*")
_DTYPE = re.compile(
    r"[<>|=]?(?:\?|b1|[iu][1248]|f(?:2|4|8|12|16)|c(?:8|16|24|32)|[SUV][1-9][0-9]{0,8}|"
    r"[mM]8(?:\[[0-9]{0,9}[A-Za-z]{1,2}\])?)"
)
_EXTENT = re.compile(r"\s*([0-9]{1,40})L?\s*")


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


def header_of(dtype: np.dtype[Any], shape: tuple[int, ...], *, is_fortran: bool = False) -> Header:
    """Return the header that numpy writes for an array of one of its own types."""
    file = BytesIO()
    values = {"descr": dtype.str, "fortran_order": is_fortran, "shape": shape}
    np.lib.format.write_array_header_1_0(file, values)
    return Header(dtype, shape, is_fortran=is_fortran, raw=file.getvalue())


def read_header(file: BinaryIO) -> Header:
    """Read a header; the file is then positioned at the data.

    Fails if it is damaged, or describes something other than elements of one type.
    """
    start = file.read(len(_MAGIC) + 2)
    if start[: len(_MAGIC)] != _MAGIC:
        msg = f"it starts with {start[: len(_MAGIC)]!r}, not with {_MAGIC!r}"
        raise MemdescError(msg)
    version = start[len(_MAGIC) :]
    if version not in {b"\1\0", b"\2\0", b"\3\0"}:
        msg = f"it has version {version!r} of the format, not 1, 2 or 3"
        raise MemdescError(msg)
    form = "<H" if version == b"\1\0" else "<I"
    length = file.read(struct.calcsize(form))
    nbytes = struct.unpack(form, length)[0] if len(length) == struct.calcsize(form) else 0
    if nbytes > _MAX_HEADER:
        msg = f"its header has {nbytes} bytes, more than the {_MAX_HEADER} allowed"
        raise MemdescError(msg)
    raw = file.read(nbytes)
    if len(raw) < nbytes or not raw:
        msg = "it ends within its header"
        raise MemdescError(msg)
    try:
        text = raw.decode("utf-8" if version == b"\3\0" else "latin1")
    except UnicodeDecodeError:
        msg = "its header is not UTF-8"
        raise MemdescError(msg) from None
    return _parse(text, start + length + raw)


@lru_cache(maxsize=1024)  # archives often have many arrays with equal headers
def _parse(text: str, raw: bytes) -> Header:
    values: dict[str, re.Match[str]] = {}
    at = len(text) - len(text.lstrip()) + 1
    is_legal = text.lstrip().startswith("{")
    while is_legal and (entry := _ENTRY.match(text, at)):
        is_legal = entry["key"] not in values
        values[entry["key"]] = entry
        at = entry.end()
    if _STRUCTURED.search(text):
        msg = "it holds records, not elements of one type"
        raise MemdescError(msg)
    if (
        not is_legal
        or not _END.fullmatch(text, at)
        or values.keys() != {"descr", "fortran_order", "shape"}
    ):
        msg = (
            "its header is not {'descr': ..., 'fortran_order': ..., 'shape': ...}, but "
            f"{short_repr(text.strip())}"
        )
        raise MemdescError(msg)
    dtype = _dtype_of(values["descr"]["text"])
    flag = values["fortran_order"]["flag"]
    if flag is None:
        msg = "fortran_order in its header is neither True nor False"
        raise MemdescError(msg)
    return Header(dtype, _shape_of(values["shape"]["shape"]), flag == "True", raw)


def _dtype_of(text: str | None) -> np.dtype[Any]:
    if text is not None and text.endswith("O"):
        msg = "Object arrays cannot be loaded when allow_pickle=False"
        raise MemdescError(msg)
    if text is not None and _DTYPE.fullmatch(text):
        try:
            return np.dtype(text)
        except (TypeError, ValueError):  # an unknown unit of time, or a type this machine lacks
            pass
    msg = f"its header names no data type: {short_repr(text)}"
    raise MemdescError(msg)


def _shape_of(text: str | None) -> tuple[int, ...]:
    parts = [] if text is None else text.split(",")
    # without a comma, only () is a tuple
    if len(parts) > 1 or (parts and not parts[0].strip()):
        if not parts[-1].strip():
            del parts[-1]
        matches = [_EXTENT.fullmatch(part) for part in parts]
        if None not in matches and len(parts) <= _MAX_NDIMS:
            return tuple(int(match[1]) for match in matches if match)
    msg = f"its header gives no shape, but {short_repr(text)}"
    raise MemdescError(msg)


def read_data(file: BinaryIO, header: Header, nbytes: int) -> NDArray[np.uint8]:
    """Read the data after a header, where the file is positioned, as flat bytes.

    `nbytes` is the size of the file: header and data. Fails if there are fewer bytes than the
    header claims, or more than fit into memory.
    """
    _check_size(header, nbytes)
    wanted = header.nbytes
    try:
        data = np.empty(wanted, np.uint8)
    except (MemoryError, ValueError):
        msg = f"it holds {wanted} bytes, more than the system has memory for"
        raise MemdescError(msg) from None
    rest = memoryview(data)  # type: ignore[arg-type] # arrays of bytes are buffers
    while rest.nbytes:
        count = file.readinto(rest[:_CHUNK])  # type: ignore[attr-defined] # binary files have it
        if not count:
            msg = f"it ended after {wanted - rest.nbytes} of {wanted} bytes"
            raise MemdescError(msg)
        rest = rest[count:]
    return data


def _check_size(header: Header, nbytes: int) -> None:
    """Refuse a file that is shorter than its header claims."""
    there = nbytes - len(header.raw)
    if header.nbytes > there:
        msg = (
            f"its header means {header.nbytes} bytes, {header.dtype} of shape {header.shape}, but "
            f"{there} follow; it was cut off, or never written completely"
        )
        raise MemdescError(msg)


def _check_end(header: Header, nbytes: int) -> None:
    """Refuse a file that continues after its data, such as one with several arrays."""
    rest = nbytes - len(header.raw) - header.nbytes
    if rest > 0:
        msg = (
            f"{rest} bytes follow its data, {header.dtype} of shape {header.shape}; if they are "
            "further arrays, read them with numpy.load, and save each into a file"
        )
        raise MemdescError(msg)


def read(path: Path) -> Container:
    """Read the header of a file. Fails if it is damaged."""
    with open_container(path, "a .npy file") as (file, state):
        header = read_header(file)
        _check_size(header, state.nbytes)
        _check_end(header, state.nbytes)
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
        strides = (
            _column_major_strides(header.shape) if header.is_fortran and header.shape else None
        )
        desc = memory_desc(header.shape or (1,), dtype, strides=strides)
    except MemdescError as error:
        reason = str(error)
    return Entry(name, dtype, header.shape, path, offset, header.nbytes, state, desc, reason)


def _column_major_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a column-major array."""
    return tuple(prod(shape[:dim]) for dim in range(len(shape)))


def plan(
    name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]
) -> tuple[PlannedFile, ...]:
    """Plan a file of one tensor.

    Fails if there are several tensors, or numpy has no array of the type and the layout.
    """
    del metadata  # a .npy has no room for it
    if len(tensors) != 1:
        msg = f"{name!r}: a .npy holds one tensor, not {len(tensors)}; write a .npz or .safetensors"
        raise MemdescError(msg)
    (tensor,) = tensors
    header = _header_for(tensor, name)
    start = len(header.raw)
    spans = {tensor.name: Span(start, tensor.nbytes)}
    return (PlannedFile(name, start + tensor.nbytes, ((0, header.raw),), spans),)


def _header_for(tensor: Tensor, name: str) -> Header:
    """Return the header of the array that has a tensor's elements in the same order."""
    desc = tensor.desc or stored_desc(tensor.dtype, tensor.shape)[0]
    if not isinstance(desc, MemoryDesc):
        what = f"a {desc.name} record" if isinstance(desc, RecordDesc) else f"a {tensor.dtype}"
        raise _inexpressible(name, what, "decode it to a float type")
    if desc.dtype.numpy.isbuiltin != 1:
        raise _inexpressible(name, f"elements of {desc.dtype}", "convert it to f32 or another type")
    for strides in (None, _column_major_strides(desc.dims)):
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
