"""Files that callers name: paths, reading regular files, and writing small files atomically.

Outputs that several threads write over a long time have their own writer in `reorder.checkpoints`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from memdesc.errors import MemdescError, about, short_repr

# Without O_NONBLOCK, opening waits if the file has become a pipe; without O_BINARY, Windows changes
# line ends. Not every system has these flags.
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
NO_LINK = _FLAGS | getattr(os, "O_NOFOLLOW", 0)
# the permission bits of a mode
_PERMISSIONS = 0o777
# Whether one call reads or writes at an offset, and whether folders can be opened. Windows has
# neither.
_HAS_OFFSETS = hasattr(os, "preadv") and hasattr(os, "pwrite")
_OPENS_FOLDERS = os.name == "posix"
# Without such calls one thread at a time moves the position, and reads at most this many bytes.
_seeking = Lock()
_MOST_READ = 1 << 20


def as_path(path: object) -> Path:
    """Return the path that a caller gave; refuse anything else.

    pathlib takes an empty string, such as an unset variable of a shell, for the current folder.
    """
    name: object = None
    with suppress(TypeError, UnicodeEncodeError):
        name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
        if isinstance(name, str):
            os.fsencode(name)  # raises for half of a surrogate pair, which no name has
            if name and name != "-" and "\0" not in name:
                return Path(name)
    msg = f"a path is a string or a pathlib.Path, not {short_repr(path)}"
    if name == "-":
        msg = "'-' is not a file: nothing is read from stdin or written to stdout here; name a file"
    raise MemdescError(msg)


def reason_of(error: OSError) -> str:
    """Return the reason that the system gives, or Python's if the error is its own."""
    return error.strerror or str(error) or type(error).__name__


def cannot(path: Path, what: str, error: OSError) -> MemdescError:
    """Return the error for a file that cannot be `what`: ``read``, ``written``, ..."""
    return MemdescError(f"{str(path)!r} cannot be {what}: {reason_of(error)}")


@contextmanager
def errors_of(path: Path, what: str) -> Iterator[None]:
    """Turn errors of the system into one that says that a file cannot be read or written."""
    try:
        yield
    except OSError as error:
        raise cannot(path, what, error) from None


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading; folders, pipes and devices are refused without waiting."""
    with errors_of(path, "read"):
        _check_regular(path, path.stat(), "read")
        # it may have been replaced by a pipe meanwhile, whose open would wait for a writer
        handle = os.open(path, os.O_RDONLY | _FLAGS)
        with os.fdopen(handle, "rb") as file:
            _check_regular(path, os.fstat(handle), "read")
            yield file


def read_if_exists(path: Path, max_nbytes: int) -> bytes | None:
    """Return what `read_small` returns, or None if there is no file of that name."""
    try:
        path.lstat()
    except OSError:  # it does not exist, its folder cannot be reached, or its name is too long
        return None
    return read_small(path, max_nbytes)


def read_small(path: Path, max_nbytes: int) -> bytes:
    """Return the bytes of a small file; refuse a larger one."""
    with open_file(path) as file:
        data = file.read(max_nbytes + 1)
    if len(data) > max_nbytes:
        raise MemdescError(f"{str(path)!r} has more than {max_nbytes} bytes")
    return data


def naming(path: Path) -> AbstractContextManager[None]:
    """Add the name of a file to messages about what is in it."""
    return about(repr(str(path)))


def write_file(target: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file completely or not at all: under a temporary name, then renamed.

    An existing file keeps its permissions, and an existing link leads to the new file. The file is
    on disk when this returns; if it cannot be written, an existing file is unchanged. `write` is
    called with a new file in the same folder, open for reading and writing.
    """
    check_writable(target)
    try:
        real = Path(os.path.realpath(target))
    except OSError as error:  # the folder that a relative name starts from was deleted
        raise cannot(target, "written", error) from None
    partial = real.with_name(f".memdesc.{os.urandom(8).hex()}.tmp")
    try:
        with partial.open("x+b") as file:
            write(file)
            file.flush()
            with suppress(FileNotFoundError):
                partial.chmod(real.stat().st_mode & _PERMISSIONS)
            os.fsync(file.fileno())
        os.replace(partial, real)  # noqa: PTH105 - the call that tests record
        with suppress(OSError):
            sync_folder(real.parent)
    except OSError as error:
        raise cannot(target, "written", error) from None
    finally:
        with suppress(OSError):
            partial.unlink()


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk, if the system can open folders."""
    if not _OPENS_FOLDERS:
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_at(handle: int, into: memoryview, offset: int) -> int:
    """Read bytes at an offset of an open file; return how many, 0 at its end.

    Threads may share the handle, if all of them use this function and `write_at`.
    """
    if _HAS_OFFSETS:
        return os.preadv(handle, (into,), offset)
    with _seeking:
        os.lseek(handle, offset, os.SEEK_SET)
        data = os.read(handle, min(len(into), _MOST_READ))
    into[: len(data)] = data
    return len(data)


def write_at(handle: int, data: memoryview, offset: int, most: int = 1 << 30) -> None:
    """Write bytes at an offset of an open file, at most `most` of them in one call.

    Threads may share the handle.
    """
    while data:
        if _HAS_OFFSETS:
            count = os.pwrite(handle, data[:most], offset)
        else:
            with _seeking:
                os.lseek(handle, offset, os.SEEK_SET)
                count = os.write(handle, data[:most])
        data, offset = data[count:], offset + count


def check_writable(target: Path) -> None:
    """Refuse a target that exists and cannot be replaced: a folder, a device, a protected file."""
    try:
        status = target.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise cannot(target, "written", error) from None
    _check_regular(target, status, "written")
    if not os.access(target, os.W_OK):
        raise MemdescError(f"{str(target)!r} is write-protected")


def _check_regular(path: Path, status: os.stat_result, what: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise MemdescError(
            f"{str(path)!r} cannot be {what}: it is a folder or a device; name a file"
        )
