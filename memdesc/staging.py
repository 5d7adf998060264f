"""Files that get their names when they are complete; those of killed processes are removed.

On Linux a file is written without a name (`O_TMPFILE`) and then linked into its folder: the
system frees it with the process. A name that exists cannot be replaced by a link, so there the
file has a temporary name between two system calls, `link` and `rename`. Where the system has no
files without names, it has that name from the start. Files with temporary names are locked
by their process; the first file that another process writes into the folder removes those
that nobody locks.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from functools import lru_cache
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

if os.name == "posix":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

__all__ = ["StagedFile", "own_turn", "remove_abandoned", "try_lock", "unlock"]

_TEMPORARY = re.compile(r"\.memdesc\.[0-9a-f]{16}\.tmp")
# the folder of names of open files, and the flag that opens a file without a name
_OPEN_FILES = Path("/proc/self/fd")
_UNNAMED = getattr(os, "O_TMPFILE", 0)
# Windows removes no open files, which is as good as a lock
_HAS_LOCKS = os.name == "posix"
# How long a turn is waited for, and how long between two tries. Other programs may lock folders for
# purposes of their own, as long as they run.
_MAX_WAIT_SECONDS, _TRY_SECONDS = 10.0, 0.001


class StagedFile:
    """A file that is written in the folder of its target, and not there until it is published."""

    def __init__(self, target: Path, write: Callable[[BinaryIO], object]) -> None:
        self._target = target
        self._name: Path | None = None
        remove_abandoned(target.parent)
        self._file = self._create()
        try:
            write(self._file)
            self._file.flush()
            os.fsync(self._file.fileno())
        except BaseException:
            # closing writes the buffered rest, which may fail on a full disk
            with contextlib.suppress(OSError):
                self.discard()
            raise

    def publish(self) -> None:
        """Give the file the name of its target, in place of what has it now."""
        target = str(self._target)
        if self._name is None and not os.path.lexists(target):
            with contextlib.suppress(OSError):  # others may have made it meanwhile
                self._link(target)
                self._close()
                return
        if self._name is None:
            # `link` and `rename` follow each other directly, so that the name exists briefly
            name = str(_temporary_name(self._target.parent))
            self._name = Path(name)
            try:
                self._link(name)
            except OSError:  # files without names exist here, but not links to them
                self._copy()
            else:
                os.replace(name, target)  # noqa: PTH105 - a Path takes longer to make
                self._name = None
        if self._name is not None:
            if not _HAS_LOCKS:
                self._file.close()  # Windows renames no open files
            self._name.replace(target)
            self._name = None
        self._close()

    def discard(self) -> None:
        """Remove what has not been published."""
        try:
            self._file.close()
        finally:
            if self._name is not None:
                self._name.unlink(missing_ok=True)
                self._name = None

    def _create(self) -> BinaryIO:
        """Open a new file without a name, or else with a temporary one."""
        if _UNNAMED and _OPEN_FILES.exists():
            # not every file system has them; if something else is wrong, the other way says it
            with contextlib.suppress(OSError):
                handle = os.open(self._target.parent, _UNNAMED | os.O_RDWR, 0o666)
                try_lock(handle)
                return os.fdopen(handle, "w+b")
        self._name, file = _create_named(self._target.parent)
        return file

    def _link(self, name: str) -> None:
        handle = self._file.fileno()
        # with a handle of a folder, which is not used, Python calls linkat, which follows the
        # link to the open file
        os.link(f"{_OPEN_FILES}/{handle}", name, src_dir_fd=handle)

    def _copy(self) -> None:
        """Copy a file without a name into one with a temporary name, which takes its place."""
        unnamed = self._file
        self._name, self._file = _create_named(self._target.parent)
        with unnamed:
            unnamed.seek(0)
            shutil.copyfileobj(unnamed, self._file)
        self._file.flush()
        os.fsync(self._file.fileno())

    def _close(self) -> None:
        self._file.close()
        _sync_folder(self._target.parent)


def _temporary_name(folder: Path) -> Path:
    return folder / f".memdesc.{os.urandom(8).hex()}.tmp"


def _create_named(folder: Path) -> tuple[Path, BinaryIO]:
    """Create a file with a temporary name, locked."""
    while True:
        name = _temporary_name(folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        handle = os.open(name, flags, 0o666)
        try_lock(handle)
        # another process may have taken it for abandoned before it was locked
        if os.fstat(handle).st_nlink or not _HAS_LOCKS:
            return name, os.fdopen(handle, "w+b")
        os.close(handle)


def try_lock(handle: int) -> bool:
    """Lock an open file; returns whether no other process holds the lock."""
    if not _HAS_LOCKS:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def unlock(handle: int) -> None:
    """Give a lock back: closing alone does not, as a child that was forked has the handle too."""
    if _HAS_LOCKS:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)


@contextlib.contextmanager
def own_turn(folder: Path) -> Iterator[None]:
    """Keep other savers, threads and processes, from giving files of a folder their names.

    Without effect where the system has no locks of folders, or one is held for too long.
    """
    handle = None
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY) if _HAS_LOCKS else None
    if handle is None:
        yield
        return
    try:
        end = monotonic() + _MAX_WAIT_SECONDS
        while not try_lock(handle) and monotonic() < end:
            sleep(_TRY_SECONDS)
        yield
    finally:
        unlock(handle)
        os.close(handle)


@lru_cache(maxsize=4096)
def remove_abandoned(folder: Path) -> None:
    """Remove files with temporary names whose processes have ended; once for each folder."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not _TEMPORARY.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            with contextlib.suppress(OSError):
                if not _HAS_LOCKS:
                    Path(entry.path).unlink()
                    continue
                handle = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    if try_lock(handle):
                        Path(entry.path).unlink()
                finally:
                    os.close(handle)


def _sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk, where the system supports that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
