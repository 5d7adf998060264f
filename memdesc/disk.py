"""Files of callers: their paths, reading regular files, and writing files whole or not at all."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from memdesc.errors import MemdescError, short_repr
from memdesc.staging import StagedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import BinaryIO

__all__ = [
    "as_path",
    "check_writable",
    "open_file",
    "read_if_exists",
    "reason_of",
    "state_of",
    "write_files",
]

# neither exists on every system
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def as_path(path: object) -> Path:
    """Return the path that a caller named; refuse what is not a path."""
    name: object = None
    with suppress(TypeError, UnicodeEncodeError):
        name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
        if isinstance(name, str):
            os.fsencode(name)  # half of a character is in no name
            if "\0" not in name:
                return Path(name)
    msg = f"a path is a string or a pathlib.Path, not {short_repr(path)}"
    raise MemdescError(msg)


def reason_of(error: OSError) -> str:
    """Return what the system says; errors of Python itself have no such text."""
    return error.strerror or str(error) or type(error).__name__


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading; folders, pipes and devices are refused without waiting.

    Raises
    ------
    MemdescError
        If the file is missing, is no regular file, or reading it fails.
    """
    try:
        _check_regular(path, path.stat(), "read")
        # since then it may have been replaced by a pipe, whose open would wait for a writer
        handle = os.open(path, os.O_RDONLY | _FLAGS)
        with os.fdopen(handle, "rb") as file:
            _check_regular(path, os.fstat(handle), "read")
            yield file
    except OSError as error:
        msg = f"{str(path)!r} cannot be read: {reason_of(error)}"
        raise MemdescError(msg) from None


def read_if_exists(path: Path, max_nbytes: int) -> bytes | None:
    """Return the bytes of a small file, or None where there is no file of that name.

    Raises
    ------
    MemdescError
        If there is one and it cannot be read, or is larger.
    """
    try:
        path.lstat()
    except OSError:  # there is none, or its folder cannot be reached, or names are not that long
        return None
    with open_file(path) as file:
        data = file.read(max_nbytes + 1)
    if len(data) > max_nbytes:
        msg = f"{str(path)!r} has more than {max_nbytes} bytes"
        raise MemdescError(msg)
    return data


def state_of(path: Path) -> tuple[int, ...] | None:
    """Return what changes when a file is replaced or written; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def write_files(files: Mapping[Path, Callable[[BinaryIO], object]]) -> None:
    """Write files that belong together; they get their names when all of them are complete.

    First all targets are checked, then all files are written, in the order given. They get
    their names in the reverse order, so a file that describes others is given last, and gets its
    name first. Each is on disk before the next gets its name.

    Raises
    ------
    MemdescError
        If one cannot be written.
    """
    staged: dict[Path, StagedFile] = {}
    target = Path()
    try:
        for target in files:
            check_writable(target)
        for target, write in files.items():
            # the target of a link is written, and the link stays
            real = Path(os.path.realpath(target))
            if real in staged:
                msg = f"{str(target)!r} cannot be written: it is the same file as another of them"
                raise MemdescError(msg)
            staged[real] = StagedFile(real, write)
        for target in reversed(staged):
            staged[target].publish()
    except OSError as error:
        msg = f"{str(target)!r} cannot be written: {reason_of(error)}"
        raise MemdescError(msg) from None
    finally:
        for file in staged.values():
            file.discard()


def check_writable(target: Path) -> None:
    """Refuse a file that is there and cannot be replaced: a folder, a device, a protected one.

    Raises
    ------
    MemdescError
        With the reason.
    """
    try:
        status = target.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        msg = f"{str(target)!r} cannot be written: {reason_of(error)}"
        raise MemdescError(msg) from None
    _check_regular(target, status, "written")
    if not os.access(target, os.W_OK):
        msg = f"{str(target)!r} is write-protected"
        raise MemdescError(msg)


def _check_regular(path: Path, status: os.stat_result, what: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        msg = f"{str(path)!r} cannot be {what}: it is a folder or a device; name a file"
        raise MemdescError(msg)
