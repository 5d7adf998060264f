"""The .npy format: headers as numpy writes them, read without evaluating them.

A header says how many bytes of data follow; that is compared with what the file has before memory
is taken for it. Records (structured types), objects and subarrays are no elements of tensors.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memdesc.errors import MemdescError, short_repr

if TYPE_CHECKING:
    from typing import BinaryIO

    from numpy.typing import NDArray

__all__ = [
    "MAX_GENERATION",
    "Header",
    "NpyError",
    "array_from",
    "check_end",
    "header_of",
    "map_data",
    "read_data",
    "read_header",
]

# spaces before the closing brace; numpy leaves at least this many after it
MAX_GENERATION = 16

_MAGIC = b"\x93NUMPY"
# numpy's limit, too
_MAX_HEADER = 10_000
_MAX_NDIMS = 64
# numpy leaves place in which the largest extent can be overwritten by any other
_EXTENT_DIGITS = 21
_ALIGNMENT = 64
# members of archives are copied on their way, through the cache
_CHUNK = 2**18
_ENTRY = re.compile(
    r"""\s*(?P<quote>['"])(?P<key>\w{1,20})(?P=quote)\s*:\s*"""
    r"""(?:(?P<quote2>['"])(?P<text>[^'"]*)(?P=quote2)|(?P<flag>True|False)|"""
    r"""\((?P<shape>[0-9L,\s]*)\))"""
    r"""\s*(?:,|(?=\}))"""
)
_RECORDS = re.compile(r"""['"]descr['"]\s*:\s*[\[(]""")
_END = re.compile(r"(?P<spaces>\s*)\}\s*")
_DTYPE = re.compile(
    r"[<>|=]?(?:\?|b1|[iu][1248]|f(?:2|4|8|12|16)|c(?:8|16|24|32)|[SUV][1-9][0-9]{0,8}|"
    r"[mM]8(?:\[[0-9]{0,9}[A-Za-z]{1,2}\])?)"
)
_EXTENT = re.compile(r"\s*([0-9]{1,40})L?\s*")


class NpyError(MemdescError):
    """Bytes are not a .npy file; the caller, which knows the name, adds it to the message."""


class Header(NamedTuple):
    """What a .npy says of its array, and the bytes that say it."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool
    generation: int
    raw: bytes

    @property
    def nbytes(self) -> int:
        """Bytes of the data behind the header."""
        return prod(self.shape) * self.dtype.itemsize


def header_of(array: NDArray[Any] | Header, generation: int) -> Header:
    """Return the header of a row-major array.

    Parameters
    ----------
    array : ndarray or Header
        Of one of numpy's own types; only dtype and shape are used.
    generation : int
        0 for the header that numpy writes; others, up to `MAX_GENERATION`, are that many spaces
        in front of the closing brace, and fewer behind it. Readers of .npy skip them.
    """
    spare = _EXTENT_DIGITS - len(repr(array.shape[0])) if array.shape else 0
    text = f"{{'descr': {array.dtype.str!r}, 'fortran_order': False, 'shape': {array.shape!r}, "
    text += " " * generation + "}" + " " * (spare - generation)
    head = len(_MAGIC) + 4
    text += " " * (_ALIGNMENT - (head + len(text) + 1) % _ALIGNMENT) + "\n"
    raw = _MAGIC + b"\1\0" + struct.pack("<H", len(text)) + text.encode("latin1")
    return Header(array.dtype, array.shape, is_fortran=False, generation=generation, raw=raw)


def read_header(file: BinaryIO) -> Header:
    """Read a header; the file is then positioned at the data.

    Raises
    ------
    NpyError
        If it is damaged, or means something else than elements of one type.
    """
    start = file.read(len(_MAGIC) + 2)
    if start[: len(_MAGIC)] != _MAGIC:
        msg = f"it starts with {start[: len(_MAGIC)]!r}, not with {_MAGIC!r}"
        raise NpyError(msg)
    version = start[len(_MAGIC) :]
    if version not in {b"\1\0", b"\2\0", b"\3\0"}:
        msg = f"it has version {version!r} of the format, not 1, 2 or 3"
        raise NpyError(msg)
    form = "<H" if version == b"\1\0" else "<I"
    length = file.read(struct.calcsize(form))
    nbytes = struct.unpack(form, length)[0] if len(length) == struct.calcsize(form) else 0
    if nbytes > _MAX_HEADER:
        msg = f"its header has {nbytes} bytes, more than the {_MAX_HEADER} allowed"
        raise NpyError(msg)
    raw = file.read(nbytes)
    if len(raw) < nbytes or not raw:
        msg = "it ends within its header"
        raise NpyError(msg)
    try:
        text = raw.decode("utf-8" if version == b"\3\0" else "latin1")
    except UnicodeDecodeError:
        msg = "its header is not UTF-8"
        raise NpyError(msg) from None
    return _parse(text, start + length + raw)


@lru_cache(maxsize=1024)
def _parse(text: str, raw: bytes) -> Header:
    # many arrays of an archive have equal headers
    values: dict[str, re.Match[str]] = {}
    at = len(text) - len(text.lstrip()) + 1
    is_legal = text.lstrip().startswith("{")
    while is_legal and (entry := _ENTRY.match(text, at)):
        is_legal = entry["key"] not in values
        values[entry["key"]] = entry
        at = entry.end()
    end = _END.fullmatch(text, at)
    if _RECORDS.search(text):
        msg = "it holds records, not elements of one type"
        raise NpyError(msg)
    if not is_legal or end is None or values.keys() != {"descr", "fortran_order", "shape"}:
        msg = (
            "its header is not {'descr': ..., 'fortran_order': ..., 'shape': ...}, but "
            f"{short_repr(text.strip())}"
        )
        raise NpyError(msg)
    dtype = _dtype_of(values["descr"]["text"])
    flag = values["fortran_order"]["flag"]
    if flag is None:
        msg = "fortran_order in its header is neither True nor False"
        raise NpyError(msg)
    generation = min(max(len(end["spaces"]) - 1, 0), MAX_GENERATION + 1)
    shape = _shape_of(values["shape"]["shape"])
    return Header(dtype, shape, flag == "True", generation, raw)


def _dtype_of(text: str | None) -> np.dtype[Any]:
    if text is not None and text.endswith("O"):
        msg = "Object arrays cannot be loaded when allow_pickle=False"
        raise NpyError(msg)
    if text is not None and _DTYPE.fullmatch(text):
        try:
            return np.dtype(text)
        except (TypeError, ValueError):  # no such unit of time, or no such type on this machine
            pass
    msg = f"its header names no data type: {short_repr(text)}"
    raise NpyError(msg)


def _shape_of(text: str | None) -> tuple[int, ...]:
    parts = [] if text is None else text.split(",")
    # without a comma only the empty tuple is one
    if len(parts) > 1 or (parts and not parts[0].strip()):
        if not parts[-1].strip():
            del parts[-1]
        matches = [_EXTENT.fullmatch(part) for part in parts]
        if None not in matches and len(parts) <= _MAX_NDIMS:
            return tuple(int(match[1]) for match in matches if match)
    msg = f"its header gives no shape, but {short_repr(text)}"
    raise NpyError(msg)


def read_data(file: BinaryIO, header: Header, nbytes: int) -> NDArray[np.uint8]:
    """Read the data behind a header, as flat bytes.

    Parameters
    ----------
    file : file object
        It stands at the data.
    header : Header
        What was in front of it.
    nbytes : int
        Bytes that the file has, header and data.

    Raises
    ------
    NpyError
        If it holds fewer bytes than the header means, or more than the memory of the system.
    """
    wanted = _wanted(header, nbytes)
    try:
        data = np.empty(wanted, np.uint8)
    except (MemoryError, ValueError):
        msg = f"it holds {wanted} bytes, more than the system has memory for"
        raise NpyError(msg) from None
    rest = memoryview(data)  # type: ignore[arg-type] # arrays of bytes are buffers
    while rest.nbytes:
        count = file.readinto(rest[:_CHUNK])  # type: ignore[attr-defined] # binary files have it
        if not count:
            msg = f"it ended after {wanted - rest.nbytes} of {wanted} bytes"
            raise NpyError(msg)
        rest = rest[count:]
    return data


def map_data(file: BinaryIO, header: Header, nbytes: int) -> NDArray[np.uint8]:
    """Return the data behind a header as a `numpy.memmap`, read-only; parameters as `read_data`.

    Raises
    ------
    NpyError
        If it holds fewer bytes than the header means, or cannot be mapped.
    """
    wanted = _wanted(header, nbytes)
    if not wanted:
        return np.empty(0, np.uint8)  # no system maps nothing
    try:
        return np.memmap(file, np.uint8, "r", offset=len(header.raw), shape=(wanted,))
    except (OSError, ValueError) as error:
        msg = f"it cannot be mapped: {error}"
        raise NpyError(msg) from None


def _wanted(header: Header, nbytes: int) -> int:
    """Return the bytes that a header means; refuse more than a file has."""
    wanted, there = header.nbytes, nbytes - len(header.raw)
    if wanted > there:
        msg = (
            f"its header means {wanted} bytes, {header.dtype} of shape {header.shape}, but {there} "
            "follow; it was cut off, or never was written to its end"
        )
        raise NpyError(msg)
    return wanted


def check_end(header: Header, nbytes: int) -> None:
    """Refuse a file that does not end with its data, such as one of several arrays.

    Raises
    ------
    NpyError
        With how many bytes follow.
    """
    rest = nbytes - len(header.raw) - header.nbytes
    if rest > 0:
        msg = (
            f"{rest} bytes follow its data, {header.dtype} of shape {header.shape}; if they are "
            "further arrays, read them with numpy.load, and save each into a file"
        )
        raise NpyError(msg)


def array_from(data: NDArray[np.uint8], header: Header) -> NDArray[Any]:
    """Return the array that the data behind a header is.

    Raises
    ------
    NpyError
        If numpy has no arrays of the shape.
    """
    try:
        return np.ndarray(header.shape, header.dtype, data, order="F" if header.is_fortran else "C")
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        msg = f"numpy has no array of its shape {short_repr(header.shape)}: {error}"
        raise NpyError(msg) from None
