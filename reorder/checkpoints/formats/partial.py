"""The folder in which an output grows: its lock and its files.

It is beside the target, under a name that others can predict, so its content is not trusted: links
are not followed, only the names below are removed, and anything else is an error. Nobody else can
write into it. If another folder has taken its name since it was locked, that is an error too.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NoReturn

from memdesc.disk import NO_LINK, cannot, reason_of, sync_folder, write_at
from memdesc.errors import MemdescError
from reorder.system import system_function

if os.name == "posix":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

# names in such a folder: the finished files of the output, those that are being written, the folder
# that they replace, and what each file is made of
FILES, GROWING, OLD, FACTS = "files", "growing", "old", "facts"
_FOLDERS = (FILES, GROWING)
# on systems that cannot lock folders: the file that the process with the lock has created
_LOCK = "lock"
_HAS_LOCKS = os.name == "posix"
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | NO_LINK
# others, such as workers of other users, may read the folder but not add files
_MODE, _OTHERS_WRITE = 0o755, 0o022
# renameat2: paths relative to the working folder; exchange two names
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class InUseError(MemdescError):
    """Another process writes the same output."""


def partial_folder(target: Path) -> Path:
    """Return the folder in which an output grows until it is whole."""
    return target.parent / f".{target.name}.memdesc-partial"


class Partial:
    """The locked folder in which an output grows; it is made if it does not exist.

    Files in it are named relative to it, as in ``files/model.safetensors``.

    Fails with an `InUseError` if another process has the lock; also if it cannot be made, or its
    name belongs to something that was not made by a conversion of this user.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._process = os.getpid()
        try:
            self._handle = _locked(path)
        except OSError as error:
            raise cannot(path, "written", error) from None

    @property
    def is_ours(self) -> bool:
        """Whether this process has the lock; a forked child does not."""
        return self._process == os.getpid()

    def close(self) -> None:
        """Release the lock, and remove the folder if it is empty."""
        if self.is_ours:
            _remove_lock_file(self.path)
            with suppress(OSError):
                self.path.rmdir()
            _unlock(self._handle)
        _close(self._handle)

    def at(self, name: str, *, is_made: bool = False) -> Path:
        """Return the path of a file or a folder in it; if `is_made`, its parents are created.

        Fails with an `OSError` if one of its parents is a link or a file, and with a MemdescError
        if another folder has taken the name of this one.
        """
        if self._handle is not None and not _is_same(self._handle, self.path):
            _refuse(self.path, "it is no longer the folder that was locked")
        *parents, last = PurePosixPath(name).parts
        path = self.path
        for parent in parents:
            path /= parent
            if is_made:
                with suppress(FileExistsError):
                    path.mkdir()
            _check_folder(path)
        return path / last

    @contextmanager
    def open(self, name: str, flags: int) -> Iterator[int]:
        """Open a regular file without following links; `O_CREAT` makes its folders as well.

        Errors of the system name the file.
        """
        try:
            path = self.at(name, is_made=bool(flags & os.O_CREAT))
            if os.path.lexists(path):
                _check_regular(path, path.lstat())
            handle = os.open(path, flags | NO_LINK, 0o666)
            try:
                yield handle
            finally:
                os.close(handle)
        except OSError as error:
            raise cannot(self.path / name, "written", error) from None

    def write_at(self, name: str, offset: int, data: bytes | memoryview) -> None:
        """Write bytes into a file that exists; a full disk is an error."""
        with self.open(name, os.O_WRONLY) as handle:
            write_at(handle, memoryview(data), offset)

    def sync(self, name: str) -> None:
        """Wait until a file is on disk. Fails if the system could not write it."""
        # Windows can only sync files that are open for writing
        with self.open(name, os.O_WRONLY) as handle:
            os.fsync(handle)

    def sync_names(self) -> None:
        """Wait until the names of all files and of their folders are on disk."""
        for folder, _, _ in os.walk(self.at(FILES)):
            sync_folder(Path(folder))

    def nbytes_of(self, name: str) -> int | None:
        """Return the size of a file, or None if it does not exist."""
        with suppress(MemdescError), self.open(name, os.O_RDONLY) as handle:
            return os.fstat(handle).st_size
        return None

    def clear(self, *, except_for: Collection[str] = ()) -> None:
        """Remove everything that a conversion left, except for some finished files by name."""
        files = self.at(FILES)
        for folder, _, names in os.walk(files) if except_for else ():
            for path in (Path(folder, name) for name in names):
                if path.relative_to(files).as_posix() not in except_for:
                    path.unlink()
        for name in (GROWING, OLD) if except_for else (FACTS, FILES, GROWING, OLD):
            path = self.at(name)
            if not os.path.lexists(path):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
            sync_folder(self.path)

    def discard(self) -> None:
        """Remove what a conversion left, as far as possible; `close` removes the folder."""
        with suppress(OSError, MemdescError):
            self.clear()


def has_finished(target: Path) -> bool:
    """Whether an interrupted conversion to this target left finished files."""
    folder = partial_folder(target)
    files = folder / FILES
    if folder.is_symlink() or files.is_symlink():  # not ours, and never followed
        return False
    with suppress(OSError):  # a folder of another user may not be readable
        return files.is_dir() and any(files.iterdir())
    return False


def is_in_use(path: Path) -> bool:
    """Whether a process has the lock of such a folder."""
    if not _HAS_LOCKS:
        return os.path.lexists(path / _LOCK)
    try:
        handle = os.open(path, _FOLDER)
    except OSError:
        return False
    try:
        return not try_lock(path, handle)
    except MemdescError:  # nobody can lock it on this file system
        return False
    finally:
        _unlock(handle)
        os.close(handle)


def try_lock(path: Path, handle: int | None) -> bool:
    """Lock a folder; return False if another process has locked it.

    Without a handle, the lock is a file in the folder. Fails if the file system does not support
    locks.
    """
    if handle is None:
        try:
            os.close(os.open(path / _LOCK, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        msg = (
            f"{str(path)!r} cannot be locked, so another process could write into it too: "
            f"{reason_of(error)}; write to a file system that supports locks"
        )
        raise MemdescError(msg) from None
    return True


def _unlock(handle: int | None) -> None:
    """Release a lock: closing is not enough if a forked child has the handle too."""
    if handle is not None:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)


def _close(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)


def _remove_lock_file(path: Path) -> None:
    """Release a lock that is a file; with it, the folder could not be removed."""
    if not _HAS_LOCKS:
        with suppress(OSError):
            (path / _LOCK).unlink()


def _locked(path: Path) -> int | None:
    """Create or open a folder, and lock it; return its handle, if the system locks folders."""
    while True:
        is_new = True
        try:
            path.mkdir(_MODE)
        except FileExistsError:
            is_new = False
        try:
            handle = _opened(path)
        except FileNotFoundError:
            continue  # the process that had the lock removed it
        except NotADirectoryError:
            _refuse(path, "it is a link or a file")
        try:
            if not try_lock(path, handle):
                _refuse_in_use(path)
            if handle is None or _is_same(handle, path):
                if not is_new:
                    _check_content(path, handle)
                return handle
        except BaseException as error:
            if not isinstance(error, InUseError):
                _remove_lock_file(path)
                if is_new:
                    with suppress(OSError):
                        path.rmdir()
            _close(handle)
            raise
        _close(handle)


def _opened(path: Path) -> int | None:
    """Open a folder, if the system can; a link is not followed."""
    if _HAS_LOCKS:
        return os.open(path, _FOLDER)
    _check_folder(path)
    return None


def _is_same(handle: int, path: Path) -> bool:
    """Whether a path still leads to an open folder."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), path.lstat())
    return False


def _check_folder(path: Path) -> None:
    if not stat.S_ISDIR(path.lstat().st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(path))


def _check_content(path: Path, handle: int | None) -> None:
    """Refuse a folder that others made, or that holds something no conversion makes."""
    if handle is not None:
        status = os.fstat(handle)
        if status.st_uid != os.geteuid():
            _refuse(path, f"it belongs to another user, {status.st_uid}")
        with suppress(OSError):  # some file systems do not have modes
            os.fchmod(handle, stat.S_IMODE(status.st_mode) & ~_OTHERS_WRITE)
    known = {FILES, GROWING, OLD, FACTS, *(() if _HAS_LOCKS else (_LOCK,))}
    for found in path.iterdir():
        if found.name not in known:
            _refuse(found, "no conversion made it")
        if found.name == FACTS:
            _check_regular(found, found.lstat())
        elif found.name in _FOLDERS:
            if not stat.S_ISDIR(found.lstat().st_mode):
                _refuse(found, "it is a link or a file")
            _check_files(found)


def _check_files(path: Path) -> None:
    for folder, folders, names in os.walk(path):
        for name in (*folders, *names):
            found = Path(folder, name)
            status = found.lstat()
            if not stat.S_ISDIR(status.st_mode):
                _check_regular(found, status)


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
        f"{str(path)!r} is where a conversion writes, but {reason}; move it away, or write "
        "elsewhere"
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


def exchange(path: Path, other: Path) -> bool:
    """Exchange two names, atomically; return whether the system and the file system can do that."""
    rename = _renameat2()
    if rename is None:
        return False
    one, two = (os.fsencode(each) for each in (path, other))
    return bool(rename(_AT_FDCWD, one, _AT_FDCWD, two, _RENAME_EXCHANGE) == 0)


@cache
def _renameat2() -> Any:
    """Return the function of Linux; None on other systems."""
    return system_function("renameat2", *(ctypes.c_int, ctypes.c_char_p) * 2, ctypes.c_uint)
