"""The folder in which an output grows: its lock and its files.

It lies beside the target under a name that others can predict, so its content is not trusted: links
are not followed, only the names below are removed, and anything else is an error.

Where the system has handles of folders, all names are relative to one: what somebody puts into the
place of a folder is not reached. Elsewhere names are paths, which are checked before they are used.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

import numpy as np

from memdesc.disk import reason_of, write_at
from memdesc.errors import MemdescError
from reorder.system import system_function

if os.name == "posix":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "FILES",
    "JOURNAL",
    "OLD",
    "Folder",
    "InUseError",
    "Partial",
    "cannot",
    "is_in_use",
    "partial_folder",
    "remove_left",
    "reserve",
    "try_lock",
]

# names in such a folder: the files of the output, the folder that they replace, the journal
FILES, OLD, JOURNAL = "files", "old", "journal"
# where folders cannot be locked, the file that the process that has the lock created
_LOCK = "lock"
_BINARY = getattr(os, "O_BINARY", 0)
_HAS_HANDLES = os.open in os.supports_dir_fd and hasattr(os, "fwalk")
_HAS_LOCKS = _HAS_HANDLES and os.name == "posix"
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


class Folder(NamedTuple):
    """A folder: an open one, or, where the system has no handles of folders, its path."""

    path: Path
    handle: int | None

    def named(self, name: str) -> tuple[str, int | None]:
        """Return what functions of `os` take: a name, and the folder that it is relative to."""
        if self.handle is None:
            return os.fspath(self.path / name), None
        return name, self.handle

    def within(self, name: str) -> Folder:
        """Open a folder in it; links are not followed."""
        given, at = self.named(name)
        if at is None:
            if not stat.S_ISDIR(os.lstat(given).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), given)
            return Folder(self.path / name, None)
        return Folder(self.path / name, os.open(given, _FOLDER, dir_fd=at))

    def status(self, name: str) -> os.stat_result:
        """Return the status of a name in it; of a link, that of the link."""
        given, at = self.named(name)
        return os.stat(given, dir_fd=at, follow_symlinks=False)

    def listed(self) -> list[str]:
        """Return the names in it."""
        return os.listdir(self.path if self.handle is None else self.handle)  # noqa: PTH208 - perhaps an open folder

    def sync(self) -> None:
        """Wait until its names are on disk, if the system can do that."""
        if self.handle is not None:
            os.fsync(self.handle)

    def close(self) -> None:
        """Close it."""
        if self.handle is not None:
            os.close(self.handle)

    def walk(self, name: str) -> Iterator[tuple[str, list[str], list[str], Folder]]:
        """Walk a folder in it as `os.fwalk` does; paths are relative to this one."""
        given, at = self.named(name)
        if at is not None:
            for folder, folders, names, handle in os.fwalk(given, dir_fd=at):
                yield folder, folders, names, Folder(self.path / folder, handle)
            return
        for folder, folders, names in os.walk(given):
            yield os.path.relpath(folder, self.path), folders, names, Folder(Path(folder), None)


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
            self.folder = _locked(path)
        except OSError as error:
            raise cannot(path, error) from None

    @property
    def is_ours(self) -> bool:
        """Whether this process has the lock; a forked child has not."""
        return self._process == os.getpid()

    def close(self) -> None:
        """Give the lock back, and remove the folder if it is empty."""
        if self.is_ours:
            _remove_lock_file(self.folder)
            with suppress(OSError):
                self.path.rmdir()
            _unlock(self.folder)
        self.folder.close()

    def open(self, name: str, flags: int) -> int:
        """Open a regular file without following links; `O_CREAT` makes its folders as well."""
        with self._folder_of(name, is_made=bool(flags & os.O_CREAT)) as (folder, last):
            given, at = folder.named(last)
            if at is None and os.path.lexists(given):
                _check_regular(self.path / name, folder.status(last))
            handle = os.open(given, flags | _NO_LINK | _BINARY, 0o666, dir_fd=at)
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
                count = write_at(handle, rest, offset)
                rest, offset = rest[count:], offset + count

    def sync(self, name: str) -> None:
        """Wait until a file is on disk.

        Raises
        ------
        MemdescError
            If the system could not write it.
        """
        # Windows writes to the disk only what was opened for writing
        with self._opened(name, os.O_WRONLY) as handle:
            os.fsync(handle)

    def sync_names(self) -> None:
        """Wait until the names of all files and of their folders are on disk."""
        for _, _, _, folder in self.folder.walk(FILES):
            folder.sync()

    def sync_folder(self) -> None:
        """Wait until the names in the folder itself are on disk."""
        self.folder.sync()

    def nbytes_of(self, name: str) -> int | None:
        """Return the size of a file; None if there is no such file."""
        with suppress(MemdescError), self._opened(name, os.O_RDONLY) as handle:
            return os.fstat(handle).st_size
        return None

    def names(self) -> set[str]:
        """Return the names of all files of the output, relative to their folder."""
        return {
            (PurePath(folder) / name).relative_to(FILES).as_posix()
            for folder, _, names, _ in self.folder.walk(FILES)
            for name in names
        }

    def remove(self, name: str) -> None:
        """Remove a file."""
        with self._folder_of(name, is_made=False) as (folder, last):
            given, at = folder.named(last)
            os.unlink(given, dir_fd=at)

    def listed(self) -> list[str]:
        """Return what lies in the folder itself."""
        return self.folder.listed()

    def take_in(self, path: Path, name: str) -> None:
        """Rename a path outside to a name in the folder."""
        given, at = self.folder.named(name)
        os.rename(path, given, dst_dir_fd=at)

    def give_out(self, name: str, path: Path) -> None:
        """Rename what the folder has to a path outside, which must not be a folder with files."""
        given, at = self.folder.named(name)
        os.replace(given, path, src_dir_fd=at)

    def rename(self, name: str, other: str) -> None:
        """Rename what the folder has."""
        (old, at), (new, _) = self.folder.named(name), self.folder.named(other)
        os.rename(old, new, src_dir_fd=at, dst_dir_fd=at)

    def exchange(self, name: str, path: Path) -> bool:
        """Exchange a name in the folder and a path, atomically.

        Returns whether the system and the file system can do that.
        """
        rename = _renameat2()
        if rename is None or self.folder.handle is None:
            return False
        names = (self.folder.handle, os.fsencode(name), _AT_FDCWD, os.fsencode(path))
        return rename(*names, _RENAME_EXCHANGE) == 0

    def clear(self) -> None:
        """Remove all that a conversion left: the journal first, which says what is in the files."""
        found = self.listed()
        for name in (JOURNAL, FILES, OLD):
            if name not in found:
                continue
            given, at = self.folder.named(name)
            if stat.S_ISDIR(self.folder.status(name).st_mode):
                shutil.rmtree(given, dir_fd=at)
            else:
                os.unlink(given, dir_fd=at)
            self.folder.sync()

    def discard(self) -> None:
        """Remove what a conversion left, as far as possible; `close` removes the folder."""
        with suppress(OSError):
            self.clear()

    @contextmanager
    def _folder_of(self, name: str, *, is_made: bool) -> Iterator[tuple[Folder, str]]:
        """Open the folder of a file; yields it and the name of the file there."""
        *parents, last = PurePosixPath(name).parts
        with ExitStack() as opened:
            folder = self.folder
            for parent in parents:
                if is_made:
                    given, at = folder.named(parent)
                    with suppress(FileExistsError):
                        os.mkdir(given, dir_fd=at)
                folder = folder.within(parent)
                opened.callback(folder.close)
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
    if not _HAS_LOCKS:
        return os.path.lexists(path / _LOCK)
    try:
        handle = os.open(path, _FOLDER)
    except OSError:
        return False
    folder = Folder(path, handle)
    try:
        return not try_lock(folder)
    finally:
        _unlock(folder)
        folder.close()


def remove_left(target: Path) -> None:
    """Remove what a process left that ended after its output had its name."""
    folder = partial_folder(target)
    if os.path.lexists(folder):
        left = Partial(folder)
        left.discard()
        left.close()


def try_lock(folder: Folder) -> bool:
    """Lock a folder; return False if another process holds the lock."""
    if not _HAS_LOCKS:
        try:
            os.close(os.open(folder.path / _LOCK, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True
    try:
        fcntl.flock(folder.handle or 0, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _unlock(folder: Folder) -> None:
    """Give a lock back: closing alone does not if a forked child has the handle too."""
    if _HAS_LOCKS:
        with suppress(OSError):
            fcntl.flock(folder.handle or 0, fcntl.LOCK_UN)


def _remove_lock_file(folder: Folder) -> None:
    """Give a lock back that is a file: the folder could not be removed with it."""
    if not _HAS_LOCKS:
        with suppress(OSError):
            (folder.path / _LOCK).unlink()


def _locked(path: Path) -> Folder:
    """Create or open a folder, and lock it."""
    while True:
        is_new = True
        try:
            path.mkdir(_MODE)
        except FileExistsError:
            is_new = False
        try:
            folder = _opened(path)
        except FileNotFoundError:
            continue  # the process that had the lock removed it
        except NotADirectoryError:
            _refuse(path, "it is a link or a file")
        try:
            if not try_lock(folder):
                _refuse_in_use(path)
            with suppress(FileNotFoundError):
                if folder.handle is None or os.path.samestat(os.fstat(folder.handle), path.lstat()):
                    if not is_new:
                        _check_content(folder)
                    return folder
        except BaseException as error:
            if not isinstance(error, InUseError):
                _remove_lock_file(folder)
            folder.close()
            raise
        folder.close()


def _opened(path: Path) -> Folder:
    """Open a folder; a link is not followed."""
    if _HAS_HANDLES:
        return Folder(path, os.open(path, _FOLDER))
    return Folder(path.parent, None).within(path.name)


def _check_content(folder: Folder) -> None:
    """Refuse a folder that others made, or that holds what no conversion puts there."""
    path = folder.path
    if folder.handle is not None:
        status = os.fstat(folder.handle)
        if status.st_uid != os.geteuid():
            _refuse(path, f"it belongs to another user, {status.st_uid}")
        with suppress(OSError):  # some file systems have no such modes
            os.fchmod(folder.handle, stat.S_IMODE(status.st_mode) & ~_OTHERS_WRITE)
    known = {FILES, OLD, JOURNAL} if _HAS_LOCKS else {FILES, OLD, JOURNAL, _LOCK}
    for name in folder.listed():
        if name not in known:
            _refuse(path / name, "no conversion made it")
        found = folder.status(name)
        if name == JOURNAL:
            _check_regular(path / name, found)
        elif name == FILES:
            if not stat.S_ISDIR(found.st_mode):
                _refuse(path / name, "it is a link or a file")
            _check_files(folder)


def _check_files(top: Folder) -> None:
    for folder, folders, names, below in top.walk(FILES):
        for name in (*folders, *names):
            status = below.status(name)
            if not stat.S_ISDIR(status.st_mode):
                _check_regular(top.path / folder / name, status)


def _check_regular(path: Path, status: os.stat_result) -> None:
    """Refuse links, pipes, and files that also have another name."""
    if not stat.S_ISREG(status.st_mode):
        _refuse(path, "it is not a regular file")
    if status.st_nlink > 1:
        _refuse(path, "the same file has another name too")


def _refuse_in_use(path: Path) -> NoReturn:
    msg = f"another process is writing into {str(path)!r}; wait for it"
    if not _HAS_LOCKS:
        msg += f", or, if there is none, delete {str(path / _LOCK)!r}, which a killed process left"
    raise InUseError(msg)


def _refuse(path: Path, reason: str) -> NoReturn:
    msg = (
        f"{str(path)!r} is in the place of what a conversion writes, but {reason}; move it away, "
        "or write elsewhere"
    )
    raise MemdescError(msg)


def reserve(handle: int, nbytes: int) -> None:
    """Give a file its size, and reserve room on the disk if the system can."""
    if not hasattr(os, "posix_fallocate"):
        os.ftruncate(handle, nbytes)
        return
    try:
        os.posix_fallocate(handle, 0, nbytes)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}:
            raise
        os.ftruncate(handle, nbytes)


@cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    """Return the function of Linux; None on other systems."""
    found: Any = system_function("renameat2")
    if found is not None:
        found.argtypes = (*(ctypes.c_int, ctypes.c_char_p) * 2, ctypes.c_uint)
        found.restype = ctypes.c_int
    return cast("Callable[[int, bytes, int, bytes, int], int] | None", found)


def cannot(path: Path, error: OSError) -> MemdescError:
    """Return the error for a file that the system cannot write."""
    return MemdescError(f"{str(path)!r} cannot be written: {reason_of(error)}")
