"""A .npz of numpy or of `save`: members that are .npy files. `save` adds a NAME.npy.json to each.

Members stored without compression, as `numpy.savez` writes them, are read in place.
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
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from memdesc import DataType, MemdescError, MemoryDesc, data_type
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import about, short_repr
from memdesc.layout import memory_order
from reorder.checkpoints.formats.descriptors import MAX_DESCRIPTOR, desc_to_json, describe
from reorder.checkpoints.formats.entry import (
    Container,
    Entry,
    FileState,
    PlannedFile,
    Span,
    Tensor,
    check_entries,
    check_name,
    check_planned,
    stored_desc,
)
from reorder.checkpoints.formats.npy import (
    Header,
    check_size,
    entry_of,
    header_of,
    read_data,
    read_header,
)
from reorder.disk import open_file

try:
    import lzma
except ImportError:
    lzma = None  # type: ignore[assignment] # then zipfile refuses such members


_ENDING, _DESCRIPTOR = ".npy", ".npy.json"
# the longest name of a member, in bytes
_MAX_NAME = 2**16 - 1
_MAX_REASON = 200
# the most that an archive may unpack to: a multiple of its size, or 1 GiB if that is more
_MAX_RATIO, _MIN_LIMIT = 64, 2**30
# members of up to this many bytes are unpacked into memory as a whole, in steps of `_STEP`
_SMALL, _STEP = 2**16, 4096
# bytes added to a checksum at a time
_PIECE = 2**20
# what zipfile and its decompressors raise for damaged bytes; some Pythons lack lzma
DAMAGES: tuple[type[Exception], ...] = (
    *([lzma.LZMAError] if lzma else []),
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ValueError,
    EOFError,
    RuntimeError,
    OverflowError,
    MemoryError,
)
_LOCAL, _LOCAL_SIGN = struct.Struct("<4s5H3L2H"), b"PK\3\4"
_CENTRAL, _CENTRAL_SIGN = struct.Struct("<4s6H3L5H2L"), b"PK\1\2"
# version 4.5, which has sizes in 64 bits; names in UTF-8; no compression; 1980-01-01
_FIELDS = _VERSION, _UTF8, _STORED, _TIME, _DATE = 45, 0x800, 0, 0, 0x21
_IN_EXTRA = 0xFFFFFFFF
# the extra field with the sizes in 64 bits; the value above in the header refers to it
_SIZES = 1
# an extra field that readers skip, as Android's zipalign writes it
_PADDING, _ALIGNMENT = 0xD935, 64
# where the checksum is in the two headers of a member
_LOCAL_CRC, _CENTRAL_CRC = 14, 16


def read(path: Path) -> Container:
    """Read the headers of all members, which must not be compressed."""
    with _opened(path) as archive:
        entries = [member.entry for member in _members(archive, path, must_be_stored=True)]
        return Container("npz", check_entries(entries), {}, (path,))


def read_all(path: Path, max_nbytes: int | None = None, name: str | None = None) -> Container:
    """Read all members with their bytes, compressed or not, and check their checksums.

    All members together may unpack to `max_nbytes`; by default to 64 times the size of the file,
    and at least 1 GiB; compressed weights are far below that. With `name` only that tensor's bytes
    are read, and the other entries have no data.
    """
    found = {}
    with _opened(path) as archive:
        limit = max(_MIN_LIMIT, _MAX_RATIO * path.stat().st_size)
        limit = limit if max_nbytes is None else max_nbytes
        nbytes = sum(info.file_size for info in archive.infolist())
        if nbytes > limit:
            raise MemdescError(
                f"its members unpack to {nbytes} bytes, more than the {limit} allowed; pass "
                f"max_nbytes={nbytes} if you trust it"
            )
        for info, file, header, entry in _members(archive, path, must_be_stored=False):
            data = np.empty(0, np.uint8)
            if name in {None, entry.name}:
                with about(short_repr(entry.name)):
                    data = read_data(file, header, info.file_size)
                file.read(1)  # zipfile compares the checksum at the end of a member
            found[entry.name] = replace(entry, data=data)
    return Container("npz", found, {}, (path,))


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


class _Member(NamedTuple):
    """An array that is being read; the file is positioned after its header."""

    info: zipfile.ZipInfo
    file: BinaryIO
    header: Header
    entry: Entry


def _members(archive: zipfile.ZipFile, path: Path, *, must_be_stored: bool) -> Iterator[_Member]:
    """Read the header and the descriptor of each array."""
    infos = {info.filename: info for info in archive.infolist()}
    counts = Counter(info.filename for info in archive.infolist())
    twice, count = counts.most_common(1)[0] if counts else ("", 0)
    if count > 1:
        raise MemdescError(
            f"it has {count} members called {short_repr(twice)}; write it again, with a name for "
            "each"
        )
    arrays = [name for name in infos if name.endswith(_ENDING)]
    if infos and not arrays:
        raise MemdescError(
            f"none of its {len(infos)} members is a .npy: it is another kind of .zip"
        )
    raw: Any = archive.fp
    state = FileState.of(raw.fileno())
    for info in map(infos.__getitem__, arrays):
        name = check_name(info.filename.removesuffix(_ENDING))
        beside = infos.get(f"{name}{_DESCRIPTOR}")
        for each in filter(None, (info, beside)) if must_be_stored else ():
            _check_stored(each)
        with _unpacked(archive, info) as file:
            with about(f"{short_repr(name)} is not a .npy file, or a damaged one"):
                header = read_header(file)
                check_size(header, info.file_size)
            entry = entry_of(name, header, (path, _start_of(raw, info) + len(header.raw), state))
            if beside is not None:
                entry = describe(entry, _text_of(archive, beside))
                _check_form(header, entry)
            yield _Member(info, file, header, entry)


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> BinaryIO:
    """Open a member so that no read unpacks much more than it is asked for."""
    file = archive.open(info)
    if info.file_size > _SMALL and info.compress_type in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        return file  # type: ignore[return-value] # zipfile's readers are binary files
    # other decompressors unpack all that they are given, and small members are faster as a whole
    with file:
        return BytesIO(b"".join(iter(lambda: file.read(_STEP), b"")))


def _start_of(file: BinaryIO, info: zipfile.ZipInfo) -> int:
    """Return where a member's bytes start in the file; zipfile has checked its header."""
    file.seek(info.header_offset)
    *_, name_nbytes, extra_nbytes = _LOCAL.unpack(file.read(_LOCAL.size))
    nbytes: int = _LOCAL.size + name_nbytes + extra_nbytes
    return info.header_offset + nbytes


def _text_of(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> str:
    if info.file_size > MAX_DESCRIPTOR:
        raise MemdescError(f"{short_repr(info.filename)} has more than {MAX_DESCRIPTOR} bytes")
    with _unpacked(archive, info) as file:
        return file.read().decode()


def _check_form(header: Header, entry: Entry) -> None:
    """Refuse an array of whole elements that does not match its descriptor.

    Flat bytes, and integers packed into wider words, may have any shape.
    """
    wanted = _plain_form(entry.desc) or (header.dtype, header.shape)
    as_bytes = np.dtype(np.uint8), (entry.nbytes,)
    has_words = (
        wanted[0].kind in "iu"
        and header.dtype.kind in "iu"
        and header.dtype.itemsize > wanted[0].itemsize
    )
    is_other = (header.dtype, header.shape) not in {wanted, as_bytes} and not has_words
    if is_other or header.is_fortran:
        raise MemdescError(
            f"{short_repr(entry.name)} is an array of {header.dtype} and shape {header.shape}, but "
            f"its descriptor means {wanted[0]} and {wanted[1]} in row-major order; if the array is "
            f"newer, delete the member {short_repr(entry.name + _DESCRIPTOR)}"
        )


def _plain_form(desc: object) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return the dtype and the shape of an array without blocks, gaps or packed elements."""
    if (
        isinstance(desc, MemoryDesc)
        and not desc.layout.xor
        and len(desc.blocks) == len(desc.axes) == desc.ndims
        and desc.is_dense
        and not (desc.offset0 or desc.dtype.is_packed or desc.extra)
        and desc.nelems != 1
    ):
        blocks = sorted(desc.blocks, key=memory_order)
        return _numpy_type(desc.dtype), tuple(block.extent for block in blocks)
    return None


def _numpy_type(dtype: DataType) -> np.dtype[Any]:
    """Return the dtype in a .npy for a type: numpy's own, or words instead of an ml_dtypes one."""
    return dtype.numpy if dtype.numpy.isbuiltin == 1 else dtype.bits_dtype


def _check_stored(info: zipfile.ZipInfo) -> None:
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
        raise MemdescError(
            f"member {short_repr(info.filename)} is compressed; reorder.load_all reads it, and "
            "save writes members as they are"
        )


def plan(
    name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]
) -> tuple[PlannedFile, ...]:
    """Plan a file; arrays start at multiples of 64 bytes, and checksums are added at the end."""
    del metadata  # a .npz has no room for it
    check_planned(name, tensors)
    pieces: list[tuple[int, bytes]] = []
    spans: dict[str, Span] = {}
    # where each member is listed, and its bytes: the first and how many
    listed: list[tuple[int, int, int]] = []
    central, at = bytearray(), 0
    for tensor in tensors:
        header, text = _form_of(tensor)
        stem = tensor.name.encode()
        if len(stem) + len(_DESCRIPTOR) > _MAX_NAME:
            raise MemdescError(
                f"{short_repr(tensor.name)} is too long for the name of a member of {name!r}"
            )
        for member, head, nbytes in (
            (stem + _ENDING.encode(), header.raw, tensor.nbytes),
            (stem + _DESCRIPTOR.encode(), f"{text}\n".encode(), 0),
        ):
            size = len(head) + nbytes
            local = _local_header(member, size, at)
            start = at + len(local)
            spans.setdefault(tensor.name, Span(start + len(head), nbytes))
            pieces.append((at, local + head))
            listed.append((len(central), start, size))
            central += _central_header(member, size, at)
            at = start + size
    end = _end(len(listed), len(central), at)
    pieces.append((at, bytes(central) + end))
    seal = partial(_write_checksums, central=at, members=listed)
    return (PlannedFile(name, at + len(central) + len(end), tuple(pieces), spans, seal),)


def _form_of(tensor: Tensor) -> tuple[Header, str]:
    """Return the header of a tensor's array, and its descriptor.

    Types that numpy lacks become words of as many bits; types narrower than a byte become bytes.
    """
    desc = tensor.desc or stored_desc(tensor.dtype, tensor.shape)[0]
    if desc is None:
        raise MemdescError(
            f"tensor {short_repr(tensor.name)}: a .npz is not written with {tensor.dtype} of shape "
            f"{tensor.shape}, which memdesc does not know as a tensor; write .safetensors"
        )
    form = _plain_form(desc)
    if tensor.dtype in DATA_TYPES and not data_type(tensor.dtype).is_packed:
        kind = _numpy_type(data_type(tensor.dtype))
        is_same = form is not None and form[0].itemsize == kind.itemsize
        header = header_of(*form) if form and is_same else header_of(kind, tensor.shape)
    else:
        header = header_of(np.dtype(np.uint8), (tensor.nbytes,))
    if not header.nbytes == tensor.nbytes == desc.nbytes:
        raise MemdescError(
            f"tensor {short_repr(tensor.name)} has {tensor.nbytes} bytes, but {desc!r} takes "
            f"{desc.nbytes}"
        )
    return header, desc_to_json(desc, tensor.note)


def _local_header(name: bytes, size: int, at: int) -> bytes:
    """Return the header before a member, with which its bytes are aligned."""
    extra = struct.pack("<2H2Q", _SIZES, 16, size, size)
    padding = -(at + _LOCAL.size + len(name) + len(extra) + 4) % _ALIGNMENT
    extra += struct.pack("<2H", _PADDING, padding) + bytes(padding)
    sizes = (_IN_EXTRA, _IN_EXTRA, len(name), len(extra))
    return _LOCAL.pack(_LOCAL_SIGN, *_FIELDS, 0, *sizes) + name + extra


def _central_header(name: bytes, size: int, at: int) -> bytes:
    """Return how a member is listed at the end."""
    extra = struct.pack("<2H3Q", _SIZES, 24, size, size, at)
    sizes = (_IN_EXTRA, _IN_EXTRA, len(name), len(extra))
    fields = (_VERSION, *_FIELDS, 0, *sizes, 0, 0, 0, 0, _IN_EXTRA)
    return _CENTRAL.pack(_CENTRAL_SIGN, *fields) + name + extra


def _end(count: int, nbytes: int, at: int) -> bytes:
    """Return the end of an archive: the 64-bit record, its locator, and the short record."""
    counts = (_VERSION, _VERSION, 0, 0, count, count, nbytes, at)
    return (
        struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, *counts)
        + struct.pack("<4sLQL", b"PK\6\7", 0, at + nbytes, 1)
        + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, _IN_EXTRA, _IN_EXTRA, 0)
    )


def _write_checksums(grown: Path, *, central: int, members: Sequence[tuple[int, int, int]]) -> None:
    """Read each member back, and write its checksum into both of its headers."""
    with grown.open("r+b") as file:
        local = 0
        for listed, start, nbytes in members:
            file.seek(start)
            total, left = 0, nbytes
            while piece := file.read(min(left, _PIECE)):
                total, left = zlib.crc32(piece, total), left - len(piece)
            for at in (local + _LOCAL_CRC, central + listed + _CENTRAL_CRC):
                file.seek(at)
                file.write(struct.pack("<L", total))
            local = start + nbytes
