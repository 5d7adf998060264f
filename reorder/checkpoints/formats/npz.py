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
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from memdesc import MemdescError
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import about, short_repr
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

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
# an extra field that readers skip, as Android's zipalign writes it
_PADDING, _ALIGNMENT = 0xD935, 64
# in the header of a member: where its checksum and the lengths of its last two fields are
_CRC, _LENGTHS = 14, 26


def read(path: Path) -> Container:
    """Read the headers of all members, which must not be compressed."""
    with _opened(path) as archive:
        found = [_entry(archive, path, name) for name in _arrays(archive)]
        return Container("npz", check_entries(found), {}, (path,))


def read_all(path: Path, max_nbytes: int | None = None, name: str | None = None) -> Container:
    """Read all members with their bytes, compressed or not, and check their checksums.

    All members together may unpack to `max_nbytes`; by default to 64 times the size of the file,
    and at least 1 GiB; compressed weights are far below that. With `name` only that tensor's bytes
    are read, and the other entries have no data.
    """
    with _opened(path) as archive:
        limit = max(_MIN_LIMIT, _MAX_RATIO * path.stat().st_size)
        limit = limit if max_nbytes is None else max_nbytes
        nbytes = sum(info.file_size for info in archive.infolist())
        if nbytes > limit:
            raise MemdescError(
                f"its members unpack to {nbytes} bytes, more than the {limit} allowed; pass "
                f"max_nbytes={nbytes} if you trust it"
            )
        found = [_entry(archive, path, each, wanted=(name or each,)) for each in _arrays(archive)]
        return Container("npz", {entry.name: entry for entry in found}, {}, (path,))


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
    """Return the names of the arrays."""
    names = archive.namelist()
    twice, count = Counter(names or [""]).most_common(1)[0]
    if count > 1:
        raise MemdescError(
            f"it has {count} members called {short_repr(twice)}; write it again, with a name for "
            "each"
        )
    found = [check_name(name.removesuffix(_ENDING)) for name in names if name.endswith(_ENDING)]
    if names and not found:
        raise MemdescError(
            f"none of its {len(names)} members is a .npy: it is another kind of .zip"
        )
    return found


def _entry(archive: zipfile.ZipFile, path: Path, name: str, wanted: tuple[str, ...] = ()) -> Entry:
    """Return an array; it has its bytes if it is one of those `wanted`, which may be compressed."""
    infos, raw = archive.NameToInfo, cast("BinaryIO", archive.fp)
    info, beside = infos[f"{name}{_ENDING}"], infos.get(f"{name}{_DESCRIPTOR}")
    for each in () if wanted else filter(None, (info, beside)):
        if each.compress_type != zipfile.ZIP_STORED or each.flag_bits & 1:
            raise MemdescError(
                f"member {short_repr(each.filename)} is compressed; reorder.load_all reads it, and "
                "save writes members as they are"
            )
    with _unpacked(archive, info) as file:
        with about(f"{short_repr(name)} is not a .npy file, or a damaged one"):
            header = read_header(file)
            check_size(header, info.file_size)
        data = np.empty(0, np.uint8)
        if name in wanted:
            with about(short_repr(name)):
                data = read_data(file, header, info.file_size)
            file.read(1)  # zipfile compares the checksum at the end of a member
    start = _start_of(raw, info) + len(header.raw)
    entry = entry_of(name, header, (path, start, FileState.of(raw.fileno())))
    if beside is not None:
        place = f"the member {short_repr(beside.filename)}"
        if header.is_fortran:
            raise MemdescError(
                f"{short_repr(name)} is not row-major as its descriptor is; remove {place}"
            )
        if beside.file_size > MAX_DESCRIPTOR:
            raise MemdescError(f"{place} has more than {MAX_DESCRIPTOR} bytes")
        with _unpacked(archive, beside) as file:
            entry = describe(entry, file.read().decode(), place)
    return replace(entry, source=partial(_given, data)) if wanted else entry


def _given(data: NDArray[np.uint8], _: Entry) -> NDArray[np.uint8]:
    return data


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
    file.seek(info.header_offset + _LENGTHS)
    name_nbytes, extra_nbytes = struct.unpack("<2H", file.read(4))
    return info.header_offset + _LENGTHS + 4 + int(name_nbytes) + int(extra_nbytes)


def plan(name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]) -> PlannedFile:
    """Plan a file; arrays start at multiples of 64 bytes, and checksums are added at the end."""
    del metadata  # a .npz has no room for it
    check_planned(name, tensors)
    pieces: list[tuple[int, bytes]] = []
    spans: dict[str, Span] = {}
    members: list[zipfile.ZipInfo] = []
    at = 0
    for tensor in tensors:
        header, text = _form_of(tensor)
        if len(tensor.name.encode()) + len(_DESCRIPTOR) > _MAX_NAME:
            raise MemdescError(
                f"{short_repr(tensor.name)} is too long for the name of a member of {name!r}"
            )
        for ending, head, nbytes in (
            (_ENDING, header.raw, tensor.nbytes),
            (_DESCRIPTOR, f"{text}\n".encode(), 0),
        ):
            member = zipfile.ZipInfo(f"{tensor.name}{ending}")
            size = len(head) + nbytes
            member.header_offset, member.CRC = at, 0
            member.file_size = member.compress_size = size
            local = _local_header(member)
            members.append(member)
            pieces.append((at, local + head))
            start = at + len(local)
            spans.setdefault(tensor.name, Span(start + len(head), nbytes))
            at = start + size
    end = _End(at)
    _write_members(end, members)
    pieces.append((at, end.getvalue()))
    seal = partial(_write_checksums, members=members, end=at)
    return PlannedFile(name, at + len(pieces[-1][1]), tuple(pieces), spans, seal)


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
    kind = DATA_TYPES.get(tensor.dtype)
    if kind is not None and not kind.is_packed:
        # numpy's own types, or words instead of those of ml_dtypes
        own = kind.numpy if kind.numpy.isbuiltin == 1 else kind.bits_dtype
        header = header_of(own, tensor.shape)
    else:
        header = header_of(np.dtype(np.uint8), (tensor.nbytes,))
    if not header.nbytes == tensor.nbytes == desc.nbytes:
        raise MemdescError(
            f"tensor {short_repr(tensor.name)} has {tensor.nbytes} bytes, but {desc!r} takes "
            f"{desc.nbytes}"
        )
    return header, desc_to_json(desc, tensor.note)


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


def _write_members(file: IO[bytes], members: Sequence[zipfile.ZipInfo]) -> None:
    """Write the list of members, with which an archive ends, where a file is positioned."""
    with zipfile.ZipFile(file, "w") as archive:
        archive.filelist.extend(members)


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
        _write_members(file, members)
