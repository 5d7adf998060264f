"""Several tensors in one file: a .npz with a descriptor beside each array.

`numpy.load` reads the arrays of such a file; the member `NAME.npy.json` says how
the bytes of `NAME.npy` lie in memory.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError, from_json, memory_desc, to_json
from memdesc.disk import as_path, open_file, write_files
from memdesc.errors import short_repr
from memdesc.int64 import checked_int
from reorder.api import reorder
from reorder.memory.memory import Memory
from reorder.storage.arrays import array_of, check_member, memory_of
from reorder.storage.npy import NpyError, array_from, read_data, read_header
from reorder.storage.sidecar import MAX_DESCRIPTOR

try:
    import lzma
except ImportError:
    lzma = None  # type: ignore[assignment] # such members are refused by zipfile then

if TYPE_CHECKING:
    from typing import BinaryIO

    from numpy.typing import NDArray

    from memdesc import MemoryDesc
    from reorder.memory.dlpack import Exporter

__all__ = ["DAMAGES", "load_archive", "save_archive"]

# the same members give the same bytes
_EPOCH = (1980, 1, 1, 0, 0, 0)
# the longest name of a member that .zip has, less the endings
_MAX_NAME = 2**16 - 1 - len(".npy.json")
# limit of the unpacked size of an archive: a multiple of its bytes, or 1 GiB if that is more
_MAX_RATIO = 64
_MIN_LIMIT = 2**30
# members up to this many bytes are read into memory at once, in pieces of `_PIECE`
_SMALL = 2**16
_PIECE = 4096
_MAX_REASON = 200
# what zipfile and its decompressors raise for damaged bytes; not every Python has all of these
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


def save_archive(
    path: str | os.PathLike[str], tensors: Mapping[str, Memory | NDArray[Any] | Exporter]
) -> None:
    """Write tensors and their descriptors into one .npz; nothing is left half written.

    Parameters
    ----------
    path : path
        The file, named as it is: no ending is added.
    tensors : mapping of str to Memory, ndarray or tensor with DLPack
        What `reorder` takes, such as a `state_dict` of torch. Arrays and tensors of other
        libraries are written as row-major ones of their data type.

    Raises
    ------
    MemdescError
        If a name is no name or a value no tensor, or the file cannot be written.

    Examples
    --------
    >>> import os, tempfile, ml_dtypes, numpy as np, reorder
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> w = reorder.reorder(np.ones((16, 3, 3, 3), ml_dtypes.bfloat16), "OIhw16o4i")
    >>> reorder.save_archive(path, {"conv1.weight": w, "conv1.bias": np.zeros(16, np.float32)})
    >>> {name: str(m.desc.dtype) for name, m in reorder.load_archive(path).items()}
    {'conv1.weight': 'bf16', 'conv1.bias': 'f32'}
    """
    if not isinstance(tensors, Mapping):
        msg = (  # type: ignore[unreachable] # callers without types
            "tensors must be a mapping of names to tensors, such as a dict, not "
            f"{type(tensors).__name__}"
        )
        raise MemdescError(msg)
    memories = {}
    for name, tensor in tensors.items():
        if not _is_name(name):
            msg = (
                f"a tensor's name must be a string of 1 to {_MAX_NAME} bytes without an ending "
                f".json, not {short_repr(name)}"
            )
            raise MemdescError(msg)
        memories[name] = _as_stored(name, tensor)
    write_files({as_path(path): lambda file: _write(file, memories)})


def _as_stored(name: str, tensor: Any) -> Memory:
    """Return a tensor of a caller as memory; arrays and tensors of others as row-major ones."""
    if isinstance(tensor, Memory):
        return tensor
    try:
        memory: Memory = reorder(tensor, "plain")
    except MemdescError as error:
        msg = f"{short_repr(name)} is no tensor that can be stored: {error}"
        raise MemdescError(msg) from None
    return memory


def load_archive(
    path: str | os.PathLike[str], *, max_nbytes: int | None = None
) -> dict[str, Memory]:
    """Read all tensors of a .npz; an array without a descriptor is a row-major tensor.

    *Law*: `load_archive` gives back what `save_archive` was given, bit for bit.

    Parameters
    ----------
    path : path
        A .npz file, of `save_archive` or of numpy.
    max_nbytes : int, optional
        Bytes that all members together may unpack to; more is refused before any is read.
        By default 64 times the size of the file, and at least 1 GiB: compressed weights are far
        below that.

    Raises
    ------
    MemdescError
        If the file is missing or damaged, unpacks to more than allowed, has two members of one
        name, or a descriptor does not fit its array.

    Examples
    --------
    >>> import os, tempfile, numpy as np, reorder
    >>> path = os.path.join(tempfile.mkdtemp(), "x.npz")
    >>> np.savez_compressed(path, x=np.zeros(1000))
    >>> reorder.load_archive(path, max_nbytes=4000)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    memdesc.errors.MemdescError: '...x.npz': its members unpack to 8128 bytes, more than ...
    """
    given = as_path(path)
    if max_nbytes is not None:
        max_nbytes = checked_int("max_nbytes", max_nbytes)
    with open_file(given) as file:
        limit = max(_MIN_LIMIT, _MAX_RATIO * os.fstat(file.fileno()).st_size)
        try:
            with zipfile.ZipFile(file) as archive:
                return _read(archive, limit if max_nbytes is None else max_nbytes)
        except MemdescError as error:
            msg = f"{str(given)!r}: {error}"
            raise MemdescError(msg) from None
        except DAMAGES as error:
            # zipfile shows names, of whatever length
            reason = str(error)[:_MAX_REASON] or type(error).__name__
            msg = f"{str(given)!r} is no .npz file, or a damaged one: {reason}"
            raise MemdescError(msg) from None


def _open(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> BinaryIO:
    """Open a member for reading, so that no read unpacks much more than it is asked for."""
    file = archive.open(info)
    if info.file_size > _SMALL and info.compress_type in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        return file  # type: ignore[return-value] # zipfile's readers are binary files
    # other decompressors unpack all that they are given; small members are read faster at once
    with file:
        return BytesIO(b"".join(iter(lambda: file.read(_PIECE), b"")))


def _descriptor(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    if info.file_size > MAX_DESCRIPTOR:
        msg = f"{short_repr(info.filename)} has more than {MAX_DESCRIPTOR} bytes"
        raise MemdescError(msg)
    return _open(archive, info).read()


def _members(archive: zipfile.ZipFile, limit: int) -> dict[str, zipfile.ZipInfo]:
    """Return the members of an archive by their names."""
    infos = archive.infolist()
    nbytes = sum(info.file_size for info in infos)
    if nbytes > limit:
        msg = (
            f"its members unpack to {nbytes} bytes, more than the {limit} allowed; pass "
            f"max_nbytes={nbytes} if you trust it"
        )
        raise MemdescError(msg)
    members = {info.filename: info for info in infos}
    if len(members) < len(infos):
        twice = Counter(info.filename for info in infos).most_common(1)[0]
        msg = (
            f"it has {twice[1]} members called {short_repr(twice[0])}; write it again, with a name "
            "for each"
        )
        raise MemdescError(msg)
    return members


def _read(archive: zipfile.ZipFile, limit: int) -> dict[str, Memory]:
    members = _members(archive, limit)
    tensors: dict[str, Memory] = {}
    # many tensors of a model have equal descriptors
    described: dict[bytes, MemoryDesc] = {}
    plain: dict[tuple[tuple[int, ...], np.dtype[Any]], MemoryDesc] = {}
    for member, info in members.items():
        if not member.endswith(".npy"):
            continue
        name = member.removesuffix(".npy")
        beside = members.get(f"{member}.json")
        try:
            with _open(archive, info) as file:
                header = read_header(file)
                desc = None
                if beside is not None:
                    text = _descriptor(archive, beside)
                    desc = described[text] = described.get(text) or from_json(text.decode())
                    check_member(header, desc, name)
                data = read_data(file, header, info.file_size)
                file.read(1)  # at the end of a member its checksum is compared
                if desc is None:
                    key = header.shape, header.dtype
                    desc = plain[key] = plain.get(key) or memory_desc(*key)
        except NpyError as error:
            msg = f"{short_repr(name)} is no .npy file, or a damaged one: {error}"
            raise MemdescError(msg) from None
        tensors[name] = memory_of(array_from(data, header), desc)
    return tensors


def _is_name(name: object) -> bool:
    if not isinstance(name, str) or "\0" in name or name.endswith(".json"):
        return False
    try:
        return 1 <= len(name.encode()) <= _MAX_NAME
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _write(file: BinaryIO, memories: Mapping[str, Memory]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, memory in memories.items():
            with archive.open(
                zipfile.ZipInfo(f"{name}.npy", _EPOCH), "w", force_zip64=True
            ) as member:
                np.lib.format.write_array(member, array_of(memory))
            archive.writestr(
                zipfile.ZipInfo(f"{name}.npy.json", _EPOCH), f"{to_json(memory.desc)}\n"
            )
