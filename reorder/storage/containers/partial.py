"""The folder in which an output grows: its lock, its files, and what the system says of them."""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc.disk import reason_of
from memdesc.errors import MemdescError
from memdesc.staging import try_lock

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "InUseError",
    "cannot",
    "clear",
    "locked",
    "partial_folder",
    "reserve",
    "sync",
    "write_at",
]

_BINARY = getattr(os, "O_BINARY", 0)


class InUseError(MemdescError):
    """Another process writes the same output."""


def partial_folder(target: Path) -> Path:
    """Return where an output grows until it is whole."""
    return target.parent / f".{target.name}.memdesc-partial"


def write_at(path: Path, offset: int, data: Any) -> None:
    """Write bytes into a file that exists.

    Raises
    ------
    MemdescError
        If that fails, as on a full disk.
    """
    rest = memoryview(np.ascontiguousarray(data).reshape(-1).view(np.uint8))  # type: ignore[arg-type] # arrays of bytes are buffers
    try:
        handle = os.open(path, os.O_WRONLY | _BINARY)
        try:
            while rest.nbytes:
                count = os.pwrite(handle, rest, offset)
                rest, offset = rest[count:], offset + count
        finally:
            os.close(handle)
    except OSError as error:
        raise cannot(path, error) from None


def locked(folder: Path) -> int:
    """Create a folder and lock it, or raise."""
    try:
        while True:
            folder.mkdir(exist_ok=True)
            handle = os.open(folder, os.O_RDONLY)
            if not try_lock(handle):
                os.close(handle)
                msg = f"another process is writing into {str(folder)!r}; wait for it"
                raise InUseError(msg)
            # the process that had the lock may have removed the folder
            if folder.exists() and os.path.samestat(os.fstat(handle), folder.stat()):
                return handle
            os.close(handle)
    except OSError as error:
        raise cannot(folder, error) from None


def clear(folder: Path) -> None:
    """Remove all that is in a folder."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def reserve(handle: int, nbytes: int) -> None:
    """Give a file its size, with room on the disk where the system can promise that."""
    try:
        os.posix_fallocate(handle, 0, nbytes)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}:
            raise
        os.ftruncate(handle, nbytes)


def sync(path: Path) -> None:
    """Wait until a file or the names in a folder are on disk."""
    try:
        handle = os.open(path, os.O_RDONLY | _BINARY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise cannot(path, error) from None


def cannot(path: Path, error: OSError) -> MemdescError:
    """Return the error of a file that the system does not write."""
    return MemdescError(f"{str(path)!r} cannot be written: {reason_of(error)}")
