"""The folder in which an output grows: its lock and its files.

It lies beside the target under a name that others can predict, so its content is not trusted: links
are not followed, only the names below are removed, and anything else is an error.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from memdesc.disk import reason_of
from memdesc.errors import MemdescError

if os.name == "posix":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = [
    "FILES",
    "JOURNAL",
    "OLD",
    "InUseError",
    "Partial",
    "cannot",
    "exchange",
    "is_in_use",
    "partial_folder",
    "remove_left",
    "reserve",
    "try_lock",
]

# names in such a folder: the files of the output, the folder that they replace, the journal
FILES, OLD, JOURNAL = "files", "old", "journal"
_BINARY = getattr(os, "O_BINARY", 0)
_HAS_LOCKS = os.name == "posix"
# a file may turn out to be a pipe, and opening one would wait
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK
# others, such as workers of other users, may read the folder but not add files
_MODE, _OTHERS_WRITE = 0o755, 0o022
# renameat2: paths relative to the working folder; exchange two names
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class InUseError(MemdescError):
    """Another process writes the same output."""


def partial_folder(target: Path) -> Path:
    """Return where an output grows until it is whole."""
    return target.parent / f".{target.name}.memdesc-partial"


class Partial:
    """The locked folder in which an output grows; it is made if it does not exist.

    Files in it are named relative to it, as in ``files/model.safetensors``.

    Raises
    ------
    InUseError
        If another process has the lock.
    MemdescError
        If it cannot be made, or something has its name that no conversion of this user made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._process = os.getpid()
        try:
            self.handle = _locked(path)
        except OSError as error:
            raise cannot(path, error) from None

    @property
    def is_ours(self) -> bool:
        """Whether this process has the lock; a forked child has not."""
        return self._process == os.getpid()

    def close(self) -> None:
        """Give the lock back, and remove the folder if it is empty."""
        if self.is_ours:
            with suppress(OSError):
                self.path.rmdir()
            unlock(self.handle)
        os.close(self.handle)

    def open(self, name: str, flags: int) -> int:
        """Open a regular file without following links; `O_CREAT` makes its folders as well."""
        with self._folder_of(name, is_made=bool(flags & os.O_CREAT)) as (folder, last):
            handle = os.open(last, flags | _NO_LINK | _BINARY, 0o666, dir_fd=folder)
        try:
            _check_regular(self.path / name, os.fstat(handle))
        except BaseException:
            os.close(handle)
            raise
        return handle

    def write_at(self, name: str, offset: int, data: Any) -> None:
        """Write bytes into a file that exists.

        Raises
        ------
        MemdescError
            If that fails, as on a full disk.
        """
        rest = memoryview(np.ascontiguousarray(data).reshape(-1).view(np.uint8))  # type: ignore[arg-type] # arrays of bytes are buffers
        with self._opened(name, os.O_WRONLY) as handle:
            while rest.nbytes:
                count = os.pwrite(handle, rest, offset)
                rest, offset = rest[count:], offset + count

    def sync(self, name: str) -> None:
        """Wait until a file is on disk.

        Raises
        ------
        MemdescError
            If the system could not write it.
        """
        with self._opened(name, os.O_RDONLY) as handle:
            os.fsync(handle)

    def sync_names(self) -> None:
        """Wait until the names of all files and of their folders are on disk."""
        for _, _, _, folder in os.fwalk(FILES, dir_fd=self.handle):
            os.fsync(folder)

    def nbytes_of(self, name: str) -> int | None:
        """Return the size of a file; None if there is no such file."""
        with suppress(MemdescError), self._opened(name, os.O_RDONLY) as handle:
            return os.fstat(handle).st_size
        return None

    def names(self) -> set[str]:
        """Return the names of all files of the output, relative to their folder."""
        return {
            (PurePosixPath(folder) / name).relative_to(FILES).as_posix()
            for folder, _, names, _ in os.fwalk(FILES, dir_fd=self.handle)
            for name in names
        }

    def remove(self, name: str) -> None:
        """Remove a file."""
        with self._folder_of(name, is_made=False) as (folder, last):
            os.unlink(last, dir_fd=folder)

    def listed(self) -> list[str]:
        """Return what lies in the folder itself."""
        return os.listdir(self.handle)  # noqa: PTH208 - an open folder

    def clear(self) -> None:
        """Remove all that a conversion left: the journal first, which says what is in the files."""
        found = self.listed()
        for name in (JOURNAL, FILES, OLD):
            if name not in found:
                continue
            if stat.S_ISDIR(os.stat(name, dir_fd=self.handle, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=self.handle)
            else:
                os.unlink(name, dir_fd=self.handle)
            os.fsync(self.handle)

    def discard(self) -> None:
        """Remove what a conversion left, as far as possible; `close` removes the folder."""
        with suppress(OSError):
            self.clear()

    @contextmanager
    def _folder_of(self, name: str, *, is_made: bool) -> Iterator[tuple[int, str]]:
        """Open the folder of a file; yields it and the name of the file there."""
        *parents, last = PurePosixPath(name).parts
        with ExitStack() as opened:
            folder = self.handle
            for parent in parents:
                if is_made:
                    with suppress(FileExistsError):
                        os.mkdir(parent, dir_fd=folder)
                folder = os.open(parent, _FOLDER, dir_fd=folder)
                opened.callback(os.close, folder)
            yield folder, last

    @contextmanager
    def _opened(self, name: str, flags: int) -> Iterator[int]:
        """Open a file; errors of the system name it."""
        try:
            handle = self.open(name, flags)
            try:
                yield handle
            finally:
                os.close(handle)
        except OSError as error:
            raise cannot(self.path / name, error) from None


def is_in_use(path: Path) -> bool:
    """Whether a process has the lock of such a folder."""
    try:
        handle = os.open(path, _FOLDER)
    except OSError:
        return False
    try:
        return not try_lock(handle)
    finally:
        unlock(handle)
        os.close(handle)


def remove_left(target: Path) -> None:
    """Remove what a process left that ended after its output had its name."""
    folder = partial_folder(target)
    if os.path.lexists(folder):
        left = Partial(folder)
        left.discard()
        left.close()


def try_lock(handle: int) -> bool:
    """Lock an open file or folder; return False if another process holds the lock."""
    if not _HAS_LOCKS:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def unlock(handle: int) -> None:
    """Give a lock back: closing alone does not if a forked child has the handle too."""
    if _HAS_LOCKS:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)


def _locked(path: Path) -> int:
    """Create or open a folder, and lock it."""
    while True:
        is_new = True
        try:
            path.mkdir(_MODE)
        except FileExistsError:
            is_new = False
        try:
            handle = os.open(path, _FOLDER)
        except FileNotFoundError:
            continue  # the process that had the lock removed it
        except NotADirectoryError:
            _refuse(path, "it is a link or a file")
        try:
            if not try_lock(handle):
                _refuse_in_use(path)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), path.lstat()):
                    if not is_new:
                        _check_content(path, handle)
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _check_content(path: Path, handle: int) -> None:
    """Refuse a folder that others made, or that holds what no conversion puts there."""
    status = os.fstat(handle)
    if status.st_uid != os.geteuid():
        _refuse(path, f"it belongs to another user, {status.st_uid}")
    with suppress(OSError):  # some file systems have no such modes
        os.fchmod(handle, stat.S_IMODE(status.st_mode) & ~_OTHERS_WRITE)
    for name in os.listdir(handle):
        if name not in {FILES, OLD, JOURNAL}:
            _refuse(path / name, "no conversion made it")
        found = os.stat(name, dir_fd=handle, follow_symlinks=False)
        if name == JOURNAL:
            _check_regular(path / name, found)
        elif name == FILES:
            if not stat.S_ISDIR(found.st_mode):
                _refuse(path / name, "it is a link or a file")
            _check_files(path, handle)


def _check_files(path: Path, handle: int) -> None:
    for folder, folders, names, below in os.fwalk(FILES, dir_fd=handle):
        for name in (*folders, *names):
            status = os.stat(name, dir_fd=below, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                _check_regular(path / folder / name, status)


def _check_regular(path: Path, status: os.stat_result) -> None:
    """Refuse links, pipes, and files that also have another name."""
    if not stat.S_ISREG(status.st_mode):
        _refuse(path, "it is not a regular file")
    if status.st_nlink > 1:
        _refuse(path, "the same file has another name too")


def _refuse_in_use(path: Path) -> NoReturn:
    msg = f"another process is writing into {str(path)!r}; wait for it"
    raise InUseError(msg)


def _refuse(path: Path, reason: str) -> NoReturn:
    msg = (
        f"{str(path)!r} is in the place of what a conversion writes, but {reason}; move it away, "
        "or write elsewhere"
    )
    raise MemdescError(msg)


def reserve(handle: int, nbytes: int) -> None:
    """Give a file its size, and reserve room on the disk if the system can."""
    try:
        os.posix_fallocate(handle, 0, nbytes)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}:
            raise
        os.ftruncate(handle, nbytes)


def exchange(folder: int, name: str, target: Path) -> bool:
    """Exchange two names atomically: one in an open folder, and a path.

    Returns whether the system and the file system can do that.
    """
    rename = _renameat2()
    given = (folder, os.fsencode(name), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE)
    return rename is not None and rename(*given) == 0


@cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    """Return the function of Linux; None on other systems."""
    found = getattr(ctypes.CDLL(None), "renameat2", None)
    if found is not None:
        found.argtypes = (*(ctypes.c_int, ctypes.c_char_p) * 2, ctypes.c_uint)
        found.restype = ctypes.c_int
    return found


def cannot(path: Path, error: OSError) -> MemdescError:
    """Return the error for a file that the system cannot write."""
    return MemdescError(f"{str(path)!r} cannot be written: {reason_of(error)}")
