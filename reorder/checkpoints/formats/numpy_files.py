"""Files of numpy: a .npy, one array named like the file, and a .npz, a .zip of such files.

numpy itself must be able to express the array; structured types, objects and subarrays are not
elements of tensors. `save` adds a NAME.npy.json with the descriptor to each member of a .npz.
Members stored without compression, as `numpy.savez` writes them, are read in place; what
`numpy.savez_compressed` writes is unpacked. Sizes that a header claims are compared with those of
the file before memory is allocated.
Source: APPNOTE.TXT 6.3 of .ZIP, with sizes in 64 bits.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from io import BytesIO
from math import prod
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.lib import format as numpy_format
from numpy.typing import NDArray

from memdesc import MemdescError, MemoryDesc, data_type, memory_desc
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import about, short_repr
from reorder.checkpoints.formats.entry import (
    MAX_DESCRIPTOR,
    MAX_NAME,
    Container,
    Entry,
    FileState,
    PlannedFile,
    Tensor,
    check_entries,
    check_name,
    checked_shape,
    desc_to_json,
    describe,
    open_container,
    stored_desc,
)
from reorder.disk import open_file

_ENDING, _DESCRIPTOR = ".npy", ".npy.json"
# version 3 is only for the names of fields in records
_PARSERS = {
    (1, 0): numpy_format.read_array_header_1_0,
    (2, 0): numpy_format.read_array_header_2_0,
}
# the most characters in a header, about numpy's own limit, and in a reason of numpy or zipfile
_MAX_HEADER, _MAX_REASON = 10_000, 160
# the bytes that are read for a header; arrays of up to the latter are read whole, as zipfile then
# compares their checksums
_START, _SMALL = 12_000, 2**16
# the most that an archive may unpack to: a multiple of its size, or 1 GiB if that is more;
# compressed weights are far below that
_MAX_RATIO, _MIN_LIMIT = 64, 2**30
# bytes copied, or added to a checksum, at a time; the former stay cache-resident
_COPIED, _PIECE = 2**18, 2**20
# what zipfile raises for damaged bytes
DAMAGES: tuple[type[Exception], ...] = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ValueError,
    EOFError,
    RuntimeError,
    OverflowError,
    MemoryError,
)
# an extra field that readers skip, as Android's zipalign writes it
_PADDING, _ALIGNMENT = 0xD935, 64
# in the header of a member: where its checksum and the lengths of its last two fields are
_CRC, _LENGTHS = 14, 26


# --- arrays ---


def _header(dtype: np.dtype[Any], shape: tuple[int, ...], *, is_fortran: bool = False) -> bytes:
    file = BytesIO()
    values = {"descr": dtype.str, "fortran_order": is_fortran, "shape": shape}
    numpy_format.write_array_header_1_0(file, values)
    return file.getvalue()


@lru_cache(maxsize=1024)  # archives often have many arrays with equal headers
def _parsed(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape, the order and the type in a header, as numpy reads it."""
    file = BytesIO(header)
    try:
        return _PARSERS[numpy_format.read_magic(file)](file, max_header_size=_MAX_HEADER)
    except KeyError as error:
        raise MemdescError(f"version {error} of the format is not read, only 1 and 2") from None
    except Exception as error:  # noqa: BLE001 - it is parsed as a literal and a type of Python
        reason = str(error)[:_MAX_REASON] or type(error).__name__
        raise MemdescError(f"its header is not one of numpy: {reason}") from None


def _read_entry(
    file: IO[bytes], nbytes: int, name: str, where: tuple[Path, int, FileState]
) -> tuple[Entry, bool, bytes]:
    """Return the entry of a .npy, whether it is column-major, and the data that is read with it.

    `where` has the path of the file, the offset of the array, and the state of the file.
    """
    (path, offset, state), magic = where, numpy_format.MAGIC_LEN
    start = file.read(_SMALL if nbytes <= _SMALL else _START)
    # in version 1, the length of the header has 2 bytes
    data = magic + (2 if start[magic - 2 : magic - 1] == b"\1" else 4)
    data += int.from_bytes(start[magic:data], "little")
    sizes, is_fortran, dtype = _parsed(start[:data])
    if dtype.hasobject:
        raise MemdescError("Object arrays cannot be loaded when allow_pickle=False")
    if dtype.names is not None or dtype.subdtype is not None or not dtype.itemsize:
        raise MemdescError(f"it holds no elements of one type, but {dtype.str}")
    shape = checked_shape(sizes)
    wanted, there = prod(shape) * dtype.itemsize, nbytes - data
    if wanted > there:
        what = f"{wanted} bytes, {dtype} of shape {shape}"
        raise MemdescError(f"its header means {what}, but {there} follow; it was cut off")
    desc, reason, element = None, "", dtype.str
    try:
        element = data_type(dtype).name
        strides = _column_major(shape) if is_fortran and shape else None
        desc = memory_desc(shape or (1,), element, strides=strides)
    except MemdescError as error:
        reason = str(error)
    entry = Entry(name, element, shape, path, offset + data, wanted, state, desc, reason)
    return entry, is_fortran, start[data:]


def _read_data(file: IO[bytes], wanted: int, first: bytes) -> NDArray[np.uint8]:
    """Return the bytes of an array, whose first ones are read; the file is behind these."""
    try:
        data = np.empty(wanted, np.uint8)
    except (MemoryError, ValueError):
        raise MemdescError(f"there is no memory for the {wanted} bytes that it holds") from None
    at = min(len(first), wanted)
    data[:at] = np.frombuffer(first, np.uint8, at)
    while at < wanted:
        count = file.readinto(data[at : at + _COPIED])  # type: ignore[attr-defined] # files have it
        if not count:
            raise MemdescError(f"it ended after {at} of {wanted} bytes")
        at += count
    return data


def _column_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[:dim]) for dim in range(len(shape)))


def read_npy(path: Path) -> Container:
    """Read the header of a .npy. Fails if it is damaged."""
    with open_container(path, "a .npy file") as (file, state):
        # the name of a file may be any bytes, but the name of a tensor is text
        name = path.name.removesuffix(_ENDING).encode(errors="backslashreplace").decode()
        entry, *_ = _read_entry(file, state.nbytes, name, (path, 0, state))
        if rest := state.nbytes - entry.offset - entry.nbytes:
            data = f"its data, {entry.dtype} of shape {entry.shape}"
            raise MemdescError(f"{rest} bytes follow {data}; numpy.load reads further arrays")
        return Container("npy", check_entries([entry]), {}, (path,))


def plan_npy(name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]) -> PlannedFile:
    """Plan a .npy of one tensor, an array with its elements in the same order."""
    del metadata  # it has no room for it
    if len(tensors) != 1:
        raise MemdescError(
            f"{name!r}: a .npy holds one tensor, not {len(tensors)}; write a .npz or .safetensors"
        )
    (tensor,) = tensors
    desc = tensor.desc or stored_desc(tensor.dtype, tensor.shape)[0]
    way = "convert it to f32 and 'plain'" if isinstance(desc, MemoryDesc) else "decode it"
    if isinstance(desc, MemoryDesc) and desc.dtype.numpy.isbuiltin == 1:
        way = "reorder it to 'plain'"
        for strides in (None, _column_major(desc.dims)):
            if desc == memory_desc(desc.dims, desc.dtype, strides=strides):
                shape = desc.dims if tensor.shape else ()
                head = _header(desc.dtype.numpy, shape, is_fortran=strides is not None)
                span = (len(head), tensor.nbytes)
                return PlannedFile(name, sum(span), ((0, head),), {tensor.name: span})
    raise MemdescError(
        f"{name!r}: a .npy has no place for {desc or tensor.dtype}: it holds row-major and "
        "column-major arrays of numpy's own types. Write a .safetensors or a .npz, which keep it; "
        "or only its bytes, as a C kernel takes them, with --raw or reorder.checkpoints.save_raw; "
        f"or {way}"
    )


# --- archives ---


def read_npz(path: Path) -> Container:
    """Read the headers of all members, which must not be compressed."""
    with _opened(path) as archive:
        entries = [_entry(archive, path, name) for name in _arrays(archive)]
        return Container("npz", check_entries(entries), {}, (path,))


def unpack_npz(path: Path, name: str | None = None) -> Container:
    """Read all members with their bytes, compressed or not, and check their checksums.

    With `name` only that tensor's bytes are read, and the other entries have no data.
    """
    with _opened(path) as archive:
        limit = max(_MIN_LIMIT, _MAX_RATIO * path.stat().st_size)
        nbytes = sum(info.file_size for info in archive.infolist())
        if nbytes > limit:
            raise MemdescError(
                f"its members unpack to {nbytes} bytes, more than the {limit} allowed; numpy.load "
                "reads it if you trust it"
            )
        entries = [_entry(archive, path, key, wanted=(name or key,)) for key in _arrays(archive)]
        return Container("npz", {entry.name: entry for entry in entries}, {}, (path,))


def check_npz(path: Path) -> None:
    """Compare the bytes of all members with their checksums. Fails if they differ."""
    if not zipfile.is_zipfile(path):
        return  # raw numbers, such as those of an ONNX model, may start like an archive
    with _opened(path) as archive:
        if name := archive.testzip():
            raise MemdescError(f"member {short_repr(name)} does not match its checksum")


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    with open_file(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                yield archive
        except MemdescError as error:
            raise MemdescError(f"{str(path)!r}: {error}") from None
        except DAMAGES as error:
            # zipfile quotes names of any length
            reason = str(error)[:_MAX_REASON] or type(error).__name__
            raise MemdescError(
                f"{str(path)!r} is not a .npz file, or a damaged one: {reason}"
            ) from None


def _arrays(archive: zipfile.ZipFile) -> list[str]:
    names = archive.namelist()
    twice, count = Counter(names or [""]).most_common(1)[0]
    if count > 1:
        raise MemdescError(f"it has {count} members called {short_repr(twice)}")
    arrays = [check_name(name.removesuffix(_ENDING)) for name in names if name.endswith(_ENDING)]
    if names and not arrays:
        raise MemdescError(f"none of its {len(names)} members is a .npy: it is another .zip")
    return arrays


def _entry(archive: zipfile.ZipFile, path: Path, name: str, wanted: tuple[str, ...] = ()) -> Entry:
    """Return an array; it has its bytes if it is one of those `wanted`, which may be compressed."""
    infos, raw = archive.NameToInfo, cast("IO[bytes]", archive.fp)
    info, beside = infos[f"{name}{_ENDING}"], infos.get(f"{name}{_DESCRIPTOR}")
    legal = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED} if wanted else {zipfile.ZIP_STORED}
    for member in filter(None, (info, beside)):
        if member.compress_type not in legal or member.flag_bits & 1:
            raise MemdescError(
                f"member {short_repr(member.filename)} is compressed, or has a password; "
                "reorder.load_all reads what numpy.savez_compressed writes"
            )
    # zipfile compares a checksum only of what is read once, from the start to the end
    with archive.open(info) as file:
        where = path, _start_of(raw, info), FileState.of(raw.fileno())
        with about(f"{short_repr(name)} is not a .npy file, or a damaged one"):
            entry, is_fortran, first = _read_entry(file, info.file_size, name, where)
        data = np.empty(0, np.uint8)
        if name in wanted:
            with about(short_repr(name)):
                data = _read_data(file, entry.nbytes, first)
            file.read(1)  # zipfile compares the checksum at the end of a member
    if beside is not None:
        place, who = f"the member {short_repr(beside.filename)}", short_repr(name)
        if is_fortran:
            raise MemdescError(f"{who} is not row-major as its descriptor is; remove {place}")
        if beside.file_size > MAX_DESCRIPTOR:
            raise MemdescError(f"{place} has more than {MAX_DESCRIPTOR} bytes")
        with archive.open(beside) as file:  # a bound, because it may unpack to more than it claims
            entry = describe(entry, file.read(MAX_DESCRIPTOR + 1).decode(), place)
    return replace(entry, source=lambda _: data) if wanted else entry


def _start_of(file: IO[bytes], info: zipfile.ZipInfo) -> int:
    file.seek(info.header_offset + _LENGTHS)
    name_nbytes, extra_nbytes = struct.unpack("<2H", file.read(4))
    return info.header_offset + _LENGTHS + 4 + int(name_nbytes) + int(extra_nbytes)


def plan_npz(name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]) -> PlannedFile:
    """Plan a .npz; arrays start at multiples of 64 bytes, and checksums are added at the end."""
    del metadata  # it has no room for it
    pieces: list[tuple[int, bytes]] = []
    spans: dict[str, tuple[int, int]] = {}
    members: list[zipfile.ZipInfo] = []
    at = 0
    for tensor in tensors:
        array, text = _form_of(tensor)
        if len(tensor.name.encode()) + len(_DESCRIPTOR) > MAX_NAME:
            raise MemdescError(f"{short_repr(tensor.name)} is too long for the name of a member")
        for ending, head, nbytes in (
            (_ENDING, array, tensor.nbytes),
            (_DESCRIPTOR, f"{text}\n".encode(), 0),
        ):
            member = zipfile.ZipInfo(f"{tensor.name}{ending}")
            member.header_offset, member.CRC = at, 0
            member.file_size = member.compress_size = len(head) + nbytes
            members.append(member)
            pieces.append((at, _local_header(member) + head))
            start = at + len(pieces[-1][1])
            spans.setdefault(tensor.name, (start, nbytes))
            at = start + nbytes
    pieces.append((at, _end_of(members, at)))
    seal = partial(_write_checksums, members=members, end=at)
    return PlannedFile(name, at + len(pieces[-1][1]), tuple(pieces), spans, seal)


def _form_of(tensor: Tensor) -> tuple[bytes, str]:
    """Return the header of a tensor's array, and its descriptor.

    Types that numpy lacks become words of the same width; types narrower than a byte become bytes.
    """
    desc, dtype = tensor.desc or stored_desc(tensor.dtype, tensor.shape)[0], tensor.dtype
    if desc is None:
        what = f"a .npz is not written with {dtype} of shape {tensor.shape}"
        raise MemdescError(f"tensor {short_repr(tensor.name)}: {what}; write .safetensors")
    held = DATA_TYPES.get(dtype)
    if held is None or held.is_packed:
        return _header(np.dtype(np.uint8), (tensor.nbytes,)), desc_to_json(desc, tensor.note)
    # numpy's own types, or words for types of ml_dtypes
    own = held.numpy if held.numpy.isbuiltin == 1 else held.bits_dtype
    return _header(own, tensor.shape), desc_to_json(desc, tensor.note)


def _local_header(member: zipfile.ZipInfo) -> bytes:
    """Return the header before a member, with which its bytes are aligned."""
    start = member.header_offset + len(member.FileHeader(zip64=True)) + 4
    padding = -start % _ALIGNMENT
    member.extra = struct.pack("<2H", _PADDING, padding) + bytes(padding)
    header = member.FileHeader(zip64=True)
    member.extra = b""
    return header


class _End(BytesIO):
    """The end of a file, from an offset on."""

    def __init__(self, start: int) -> None:
        super().__init__()
        self._start = start

    def tell(self) -> int:
        return self._start + super().tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        return super().seek(offset - self._start, whence)


def _end_of(members: Sequence[zipfile.ZipInfo], start: int) -> bytes:
    """Return the end of an archive, which lists its members, from an offset on."""
    with _End(start) as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.filelist.extend(members)
        return file.getvalue()


def _write_checksums(grown: Path, *, members: Sequence[zipfile.ZipInfo], end: int) -> None:
    """Read each member back, and write its checksum before it and into the list of members."""
    with grown.open("r+b") as file:
        for member in members:
            left, member.CRC = member.file_size, 0
            file.seek(_start_of(file, member))
            while piece := file.read(min(left, _PIECE)):
                member.CRC, left = zlib.crc32(piece, member.CRC), left - len(piece)
            file.seek(member.header_offset + _CRC)
            file.write(struct.pack("<L", member.CRC))
        file.seek(end)
        file.write(_end_of(members, end))
