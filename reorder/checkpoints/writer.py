"""An output that threads write in any order, and that gets its name when it is complete.

It grows in a folder beside the target, `.NAME.memdesc-partial`: files that are being written are in
`growing`, and finished ones in `files`, each in a folder named after what it is made of. A later
process keeps the finished files of its own plan, and writes the others from their beginning. A
process holds `lock` while it writes. Other users can predict the folder's name, so a folder that
they could write into is refused; whatever is in it is then this user's own.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self

from memdesc.errors import MemdescError, short_repr
from reorder.checkpoints.formats.entry import Place
from reorder.checkpoints.formats.safetensors import is_file_of, stem_of
from reorder.disk import NO_LINK, check_writable, errors_of, reason_of, sync_folder, write_at
from reorder.messages import first_of
from reorder.system import system_function

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment] # then `lock` is created exclusively

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from reorder.checkpoints.formats.entry import PlannedFile

_FILES, _GROWING, _WHOLE, _LOCK = "files", "growing", "whole", "lock"
# others, such as workers of other users, may read the folder but not add files
_MODE, _OTHERS_WRITE = 0o755, 0o022
# renameat2: paths relative to the working folder; exchange two names
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class InUseError(MemdescError):
    """Another process writes the same output."""


def partial_folder(target: Path) -> Path:
    """Return the folder in which an output grows until it is whole."""
    return target.parent / f".{target.name}.memdesc-partial"


def has_finished(target: Path) -> bool:
    """Whether an interrupted conversion to this target left finished files."""
    folder = partial_folder(target)
    with suppress(OSError):  # a folder of another user may not be readable
        return not folder.is_symlink() and any((folder / _FILES).iterdir())
    return False


class Writer:
    """Writes planned files into a file or a folder; it is a context, which holds the lock.

    `facts` has a digest of what each file is made of; with `resume`, files that an earlier process
    finished with equal ones are kept. The target is checked when the writer is made, which writes
    nothing, and under the lock, before the work and before the output gets its name.
    """

    def __init__(
        self,
        target: Path,
        files: Sequence[PlannedFile],
        *,
        is_folder: bool = False,
        overwrite: bool = False,
        resume: bool = False,
        facts: Mapping[str, str] | None = None,
    ) -> None:
        self.target, self.folder = target, partial_folder(target)
        #: all files, and the names of those that are finished
        self.files = {file.name: file for file in files}
        self.finished: set[str] = set()
        #: the names of the files by those of their tensors
        self.homes = {name: file.name for file in files for name in file.spans}
        self._is_folder, self._overwrite, self._resume = is_folder, overwrite, resume
        self._facts = dict(facts or {})
        #: where unfinished files are: a new folder in each run, so that a lost worker that is still
        #: writing does not reach the files of a later run
        self.growing = self.folder / _GROWING / os.urandom(8).hex()
        self._lock: _Lock | None = None
        self._check_target()

    def begin(self) -> Self:
        """Take the lock and create the files, unless that has been done."""
        if self._lock is not None:
            return self
        try:
            with errors_of(self.folder, "written"):
                self._lock = _Lock(self.folder)
                self._check_target()
                for name in self._facts if self._resume else ():
                    path, nbytes = self._finished(name), self.files[name].nbytes
                    if path.is_file() and path.stat().st_size == nbytes:
                        self.finished.add(name)
                self._clear(except_for={self._finished(name) for name in self.finished})
                if self._is_folder and os.path.lexists(self.target):
                    # fails now rather than at the end
                    growing, whole = (self.folder / name for name in (_GROWING, _WHOLE))
                    growing.mkdir()
                    whole.mkdir()
                    _exchange(growing, whole, self.target)
                    whole.rmdir()
                self._create()
        except BaseException:
            self.close() if self.finished else self.discard()
            raise
        return self

    __enter__ = begin

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_resumable(self) -> bool:
        """Whether a later process can keep a file that is finished."""
        return not self.finished.isdisjoint(self._facts)

    def where(self, name: str) -> Place:
        """Return where the bytes of a tensor are, until the output gets its name."""
        if self._lock is None:
            raise MemdescError(f"{str(self.target)!r} is no longer being written")
        file = self.homes[name]
        path = self._finished(file) if file in self.finished else self.growing / file
        return Place(path, *self.files[file].spans[name])

    def complete(self, name: str) -> None:
        """Finish a file of which all bytes are written. Fails if it cannot be put on the disk."""
        file, grown, finished = self.files[name], self.growing / name, self._finished(name)
        with errors_of(self.target, "written"):
            if file.seal is not None:
                file.seal(grown)
            # Windows can only sync files that are open for writing
            with grown.open("r+b") as opened:
                os.fsync(opened.fileno())
            self._check_lock()
            finished.parent.mkdir(parents=True, exist_ok=True)
            grown.replace(finished)
            self.finished.add(name)

    def finish(self) -> None:
        """Finish all files, and give the output its name; a folder that had the name is removed."""
        for name in [*self.files.keys() - self.finished]:
            self.complete(name)
        with errors_of(self.target, "written"):
            self._check_lock()
            self._check_target()
            whole = self.folder / _WHOLE
            if self._is_folder:
                for name in self.files:
                    (whole / name).parent.mkdir(parents=True, exist_ok=True)
                    self._finished(name).replace(whole / name)
                whole.mkdir(exist_ok=True)
                for folder, _, _ in os.walk(whole):
                    sync_folder(Path(folder))
            else:
                (name,) = self.files
                whole = self._finished(name)
            if self._is_folder and os.path.lexists(self.target):
                _exchange(whole, self.target, self.target)
            else:
                whole.replace(self.target)
            sync_folder(self.target.parent)
        self.discard()

    def discard(self) -> None:
        """Remove what has been written, as far as possible."""
        if self._lock is not None and self._lock.is_held:
            with suppress(OSError):
                self._clear()
        self.close()

    def close(self) -> None:
        """Release the lock; what has been written stays, so that it can be resumed."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _check_lock(self) -> None:
        """Refuse to go on if another folder has taken the name of the locked one."""
        if self._lock is not None and not self._lock.is_held:
            _refuse(self.folder, "it is no longer the folder that was locked")

    def _check_target(self) -> None:
        """Refuse a target that exists, unless it may be replaced, or that cannot be written."""
        target = self.target
        if not self._is_folder and target.is_dir():
            raise MemdescError(f"{str(target)!r} is a folder; name a file")
        if not target.is_dir():
            check_writable(target)  # a pipe is not replaced
        if os.path.lexists(target) and not self._overwrite:
            raise MemdescError(f"{str(target)!r} exists; it is only replaced with --overwrite")
        if not target.is_symlink():  # if it is a link, the link itself is replaced
            _check_replaced(target, self.files, self.homes)

    def _finished(self, name: str) -> Path:
        """Return where a file is once it is finished."""
        return self.folder / _FILES / self._facts.get(name, "new") / name

    def _clear(self, except_for: Collection[Path] = ()) -> None:
        """Remove everything that a conversion left, except for some finished files."""
        for path in (self.folder / _FILES).rglob("*"):
            if path not in except_for and not path.is_dir():
                path.unlink()
        for name in (_GROWING, _WHOLE, *(() if except_for else (_FILES,))):
            path = self.folder / name
            if path.is_symlink():  # the old output was one
                path.unlink()
            elif path.exists():
                shutil.rmtree(path)

    def _create(self) -> None:
        """Create the files that are not finished in full size, with their headers."""
        new = [file for name, file in self.files.items() if name not in self.finished]
        needed, free = sum(file.nbytes for file in new), shutil.disk_usage(self.folder).free
        if needed > free:
            raise MemdescError(
                f"{str(self.target)!r} takes {needed} bytes, but its disk has {free} left; nothing "
                "was written"
            )
        for file in new:
            path = self.growing / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as opened:
                _reserve(opened.fileno(), file.nbytes)
                for offset, data in file.headers:
                    write_at(opened.fileno(), memoryview(data), offset)


class _Lock:
    """The lock of a folder, which is made if it does not exist; it is held until it is released."""

    def __init__(self, folder: Path) -> None:
        self._path, self._process = folder / _LOCK, os.getpid()
        while True:
            _make(folder)
            with suppress(FileNotFoundError):  # the process that had it removed the folder
                self._handle = _taken(self._path)
                if self.is_held:
                    break
                os.close(self._handle)

    @property
    def is_held(self) -> bool:
        """Whether this process, not a forked child, holds it, and it still has its name."""
        with suppress(FileNotFoundError, NotADirectoryError):
            is_same = os.path.samestat(os.fstat(self._handle), self._path.lstat())
            return is_same and self._process == os.getpid()
        return False

    def release(self) -> None:
        """Give it back, and remove the folder if nothing is left in it."""
        if self.is_held:
            _remove(self._path)
        os.close(self._handle)


def _taken(path: Path) -> int:
    """Open and lock a file; return its handle."""
    in_use = f"another process is writing into {str(path.parent)!r}; wait for it"
    try:
        flags = os.O_RDWR | os.O_CREAT | NO_LINK | (0 if fcntl else os.O_EXCL)
        handle = os.open(path, flags, 0o600)
    except FileExistsError:
        hint = f"or, if there is none, delete {str(path)!r}, which a killed process left"
        raise InUseError(f"{in_use}, {hint}") from None
    try:
        if fcntl:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            raise InUseError(in_use) from None
        _remove(path)
        raise MemdescError(
            f"{str(path.parent)!r} cannot be locked, so another process could write into it too: "
            f"{reason_of(error)}; write to a file system that supports locks"
        ) from None
    return handle


def _remove(lock: Path) -> None:
    with suppress(OSError):
        lock.unlink()
        lock.parent.rmdir()


def _make(folder: Path) -> None:
    """Make a folder, unless it exists; refuse one that others made or may write into."""
    with suppress(FileExistsError):
        folder.mkdir(_MODE)
    with suppress(FileNotFoundError):  # removed since then
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode):
            _refuse(folder, "it is a link or a file")
        if fcntl and status.st_uid != os.geteuid():
            _refuse(folder, f"it belongs to another user, {status.st_uid}")
        if fcntl and status.st_mode & _OTHERS_WRITE:
            _refuse(folder, "other users may write into it")


def _refuse(folder: Path, reason: str) -> NoReturn:
    raise MemdescError(
        f"{str(folder)!r} is where a conversion writes, but {reason}; move it away, or write "
        "elsewhere"
    )


def _check_replaced(target: Path, written: Collection[str], homes: Mapping[str, str]) -> None:
    """Refuse to replace a folder whose files would be lost, or a mount point."""
    if target.is_mount():
        raise MemdescError(
            f"{str(target)!r} is a mount point, which cannot be replaced; write elsewhere"
        )
    lost: list[str] = []
    # a copied file is a span with a zero byte before its name
    own = stem_of(file for name, file in homes.items() if not name.startswith("\0"))
    for folder, folders, names in os.walk(target):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        held = (os.path.relpath(Path(folder, name), target) for name in (*names, *links))
        lost += (name for name in held if name not in written and not is_file_of(own, name))
    if lost:
        named = first_of(map(short_repr, sorted(lost)))
        raise MemdescError(
            f"{str(target)!r} is not replaced: it holds {named}, which this conversion does "
            "not write and would delete; move them away, or write elsewhere"
        )


def _reserve(handle: int, nbytes: int) -> None:
    """Give a file its size, and reserve room on the disk if the system can."""
    try:
        if hasattr(os, "posix_fallocate") and nbytes:
            os.posix_fallocate(handle, 0, nbytes)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}:
            raise
    os.ftruncate(handle, nbytes)


def _exchange(path: Path, other: Path, target: Path) -> None:
    """Exchange two names, atomically. Fails if the system or the file system cannot do that."""
    rename = system_function("renameat2", *(ctypes.c_int, ctypes.c_char_p) * 2, ctypes.c_uint)
    old, new = (os.fsencode(name) for name in (path, other))
    if not rename or rename(_AT_FDCWD, old, _AT_FDCWD, new, _RENAME_EXCHANGE):
        raise MemdescError(
            f"{str(target)!r} exists, and this system cannot replace a folder in one step; move it "
            "away, or write elsewhere"
        )
