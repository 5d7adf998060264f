"""A .npz of numpy, or of `save_archive`: members that are .npy files, and their descriptors.

Members that are stored without compression, as `numpy.savez` writes them, are read where they lie.
Source: APPNOTE.TXT 6.3 of .ZIP, with sizes in 64 bits.
"""

from __future__ import annotations

import struct
import zipfile
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError, MemoryDesc, to_json
from memdesc.disk import open_file
from memdesc.errors import short_repr
from reorder.storage.archive import DAMAGES
from reorder.storage.arrays import check_member
from reorder.storage.containers.descriptors import desc_from_json
from reorder.storage.containers.entry import Container, FileState, check_entries, check_name
from reorder.storage.containers.npy_form import array_form, entry_of
from reorder.storage.containers.plan import PlannedFile, Span
from reorder.storage.crc32 import crc32_of_file
from reorder.storage.npy import NpyError, read_header
from reorder.storage.sidecar import MAX_DESCRIPTOR

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from reorder.storage.containers.entry import Entry
    from reorder.storage.containers.plan import Tensor

__all__ = ["is_format", "plan", "read"]

_ENDING, _DESCRIPTOR = ".npy", ".npy.json"
# the longest name of a member, in bytes
_MAX_NAME = 2**16 - 1
_MAX_REASON = 200
_LOCAL, _LOCAL_SIGN = struct.Struct("<4s5H3L2H"), b"PK\3\4"
_CENTRAL, _CENTRAL_SIGN = struct.Struct("<4s6H3L5H2L"), b"PK\1\2"
# version 4.5, which has sizes in 64 bits; names in UTF-8; no compression; 1980-01-01
_VERSION, _UTF8, _STORED, _TIME, _DATE = 45, 0x800, 0, 0, 0x21
_IN_EXTRA = 0xFFFFFFFF
_SIZES = 1
# an extra field that readers skip: zipalign's of Android
_PADDING, _ALIGNMENT = 0xD935, 64
# where the checksum is in the two headers of a member
_LOCAL_CRC, _CENTRAL_CRC = 14, 16


def is_format(start: bytes) -> bool:
    """Whether the first bytes of a file are those of this format."""
    return start.startswith(b"PK")


def read(path: Path) -> Container:
    """Read the headers of all members.

    Raises
    ------
    MemdescError
        If one is damaged or compressed, or a descriptor does not fit its array.
    """
    with open_file(path) as file, _refusing(path):
        state = FileState.of(file.fileno())
        with zipfile.ZipFile(file) as archive:
            members = {info.filename: info for info in archive.infolist()}
            if len(members) < len(archive.infolist()):
                msg = "two of its members have one name"
                raise MemdescError(msg)
            entries = [
                _entry(file, archive, members, (info, path, state))
                for name, info in members.items()
                if name.endswith(_ENDING)
            ]
    return Container("npz", check_entries(entries), {}, (path,))


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except NpyError as error:
        msg = f"{str(path)!r}: a member is not a .npy file, or a damaged one: {error}"
        raise MemdescError(msg) from None
    except MemdescError as error:
        msg = f"{str(path)!r}: {error}"
        raise MemdescError(msg) from None
    except DAMAGES as error:
        reason = str(error)[:_MAX_REASON] or type(error).__name__
        msg = f"{str(path)!r} is not a .npz file, or a damaged one: {reason}"
        raise MemdescError(msg) from None


def _entry(
    file: BinaryIO,
    archive: zipfile.ZipFile,
    members: Mapping[str, zipfile.ZipInfo],
    what: tuple[zipfile.ZipInfo, Path, FileState],
) -> Entry:
    info, path, state = what
    _check_stored(info)
    file.seek(info.header_offset)
    local = file.read(_LOCAL.size)
    if len(local) < _LOCAL.size or not local.startswith(_LOCAL_SIGN):
        msg = f"member {short_repr(info.filename)} has no header at byte {info.header_offset}"
        raise MemdescError(msg)
    *_, name_nbytes, extra_nbytes = _LOCAL.unpack(local)
    start = info.header_offset + _LOCAL.size + name_nbytes + extra_nbytes
    file.seek(start)
    header = read_header(file)
    if len(header.raw) + header.nbytes > info.file_size:
        msg = (
            f"member {short_repr(info.filename)} has {info.file_size} bytes, but its header means "
            f"{header.nbytes} and has {len(header.raw)}"
        )
        raise MemdescError(msg)
    name = info.filename.removesuffix(_ENDING)
    entry = entry_of(name, header, (path, start + len(header.raw), state))
    beside = members.get(f"{name}{_DESCRIPTOR}")
    if beside is None:
        return entry
    if beside.file_size > MAX_DESCRIPTOR:
        msg = f"{short_repr(beside.filename)} has more than {MAX_DESCRIPTOR} bytes"
        raise MemdescError(msg)
    _check_stored(beside)
    with archive.open(beside) as member:
        desc = desc_from_json(member.read(MAX_DESCRIPTOR).decode())
    if not isinstance(desc, MemoryDesc):
        msg = f"{short_repr(beside.filename)} describes a record, which files of numpy do not hold"
        raise MemdescError(msg)
    check_member(header, desc, name)
    return replace(entry, desc=desc, reason="", is_described=True)


def _check_stored(info: zipfile.ZipInfo) -> None:
    if info.compress_type != _STORED or info.flag_bits & 1:
        msg = (
            f"member {short_repr(info.filename)} is compressed; reorder.load_archive reads it, and "
            "save_archive writes members as they are"
        )
        raise MemdescError(msg)


class _Member(NamedTuple):
    """A member of a planned archive: its first bytes, and how many follow."""

    name: bytes
    head: bytes
    nbytes: int = 0

    @property
    def size(self) -> int:
        return len(self.head) + self.nbytes


def plan(
    name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]
) -> tuple[PlannedFile, ...]:
    """Plan a file; arrays start at multiples of 64 bytes. Checksums are made when it is complete.

    Raises
    ------
    MemdescError
        If no array holds a tensor, or two tensors have one name.
    """
    del metadata  # there is no place for it
    pieces: list[tuple[int, bytes]] = []
    central: list[bytes] = []
    spans: dict[str, Span] = {}
    sums: list[tuple[int, int, int, int]] = []
    at, listed = 0, 0
    for tensor in tensors:
        header, desc = array_form(tensor, has_words=True)
        stem = check_name(tensor.name).encode()
        if tensor.name in spans or len(stem) + len(_DESCRIPTOR) > _MAX_NAME:
            msg = f"two tensors would be called {short_repr(tensor.name)} in {name!r}, or too long"
            raise MemdescError(msg)
        for member in (
            _Member(stem + _ENDING.encode(), header.raw, tensor.nbytes),
            _Member(stem + _DESCRIPTOR.encode(), f"{to_json(desc)}\n".encode()),
        ):
            local = _local_header(member, at)
            start = at + len(local)
            pieces.append((at, local + member.head))
            central.append(_central_header(member, at))
            sums.append((at + _LOCAL_CRC, listed + _CENTRAL_CRC, start, member.size))
            listed += len(central[-1])
            if member.nbytes:
                spans[tensor.name] = Span(start + len(member.head), tensor.nbytes)
            at = start + member.size
        spans.setdefault(tensor.name, Span(at, 0))
    tail = b"".join(central)
    end = _end(len(central), len(tail), at)
    pieces.append((at, tail + end))
    seal = partial(
        _write_checksums,
        members=[(one, at + other, start, nbytes) for one, other, start, nbytes in sums],
    )
    return (PlannedFile(name, at + len(tail) + len(end), tuple(pieces), spans, seal),)


def _local_header(member: _Member, at: int) -> bytes:
    extra = struct.pack("<2H2Q", _SIZES, 16, member.size, member.size)
    padding = -(at + _LOCAL.size + len(member.name) + len(extra) + 4) % _ALIGNMENT
    extra += struct.pack("<2H", _PADDING, padding) + bytes(padding)
    fields = (_VERSION, _UTF8, _STORED, _TIME, _DATE, 0, _IN_EXTRA, _IN_EXTRA)
    head = _LOCAL.pack(_LOCAL_SIGN, *fields, len(member.name), len(extra))
    return head + member.name + extra


def _central_header(member: _Member, at: int) -> bytes:
    extra = struct.pack("<2H3Q", _SIZES, 24, member.size, member.size, at)
    fields = (_VERSION, _VERSION, _UTF8, _STORED, _TIME, _DATE, 0, _IN_EXTRA, _IN_EXTRA)
    head = _CENTRAL.pack(
        _CENTRAL_SIGN, *fields, len(member.name), len(extra), 0, 0, 0, 0, _IN_EXTRA
    )
    return head + member.name + extra


def _end(count: int, nbytes: int, at: int) -> bytes:
    """Return the end of an archive: the record of 64 bits, where it is, and the short one."""
    counts = (_VERSION, _VERSION, 0, 0, count, count, nbytes, at)
    return (
        struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, *counts)
        + struct.pack("<4sLQL", b"PK\6\7", 0, at + nbytes, 1)
        + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, _IN_EXTRA, _IN_EXTRA, 0)
    )


def _write_checksums(
    grown: Path, target: Path, *, members: Sequence[tuple[int, int, int, int]]
) -> None:
    """Write the checksum of each member into its two headers; reads what was written."""
    del target
    with grown.open("r+b") as file:
        for local, central, start, nbytes in members:
            total = crc32_of_file(grown, start, nbytes)
            for at in (local, central):
                file.seek(at)
                file.write(struct.pack("<L", total))
