"""An output that threads write in any order, and that gets its name when it is whole.

It grows in a folder beside the target, `.NAME.memdesc-partial`: files that are being written are in
`growing`, finished ones in `files`, and `facts` says what each file is made of. A later process
keeps the finished files whose facts are those of its own plan, and writes the others from their
beginning. A process holds `lock` while it writes. Others can predict the folder's name, so one
that they could write into is refused; what is in it is then this user's own.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn, Self

from memdesc.errors import MemdescError, first_of, short_repr
from reorder.checkpoints.formats.entry import Place
from reorder.checkpoints.formats.shards import is_shard
from reorder.disk import (
    NO_LINK,
    cannot,
    check_writable,
    read_small,
    reason_of,
    sync_folder,
    write_at,
)
from reorder.system import system_function

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment] # then `lock` is created exclusively

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from reorder.checkpoints.formats.entry import PlannedFile

_FILES, _GROWING, _OLD, _FACTS, _LOCK = "files", "growing", "old", "facts", "lock"
# others, such as workers of other users, may read the folder but not add files
_MODE, _OTHERS_WRITE = 0o755, 0o022
# the most bytes of facts; a thousand shards take some 100 KB
_MAX_FACTS = 1 << 26
# how many files a message lists
_SHOWN = 3
# renameat2: paths relative to the working folder; exchange two names
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class InUseError(MemdescError):
    """Another process writes the same output."""


def partial_folder(target: Path) -> Path:
    """Return the folder in which an output grows until it is whole."""
    return target.parent / f".{target.name}.memdesc-partial"


def has_finished(target: Path) -> bool:
    """Whether an interrupted conversion to this target, which no process writes, left files."""
    folder = partial_folder(target)
    with suppress(OSError):  # a folder of another user may not be readable
        is_left = not folder.is_symlink() and any((folder / _FILES).iterdir())
        return is_left and not _is_in_use(folder / _LOCK)
    return False


def _is_in_use(lock: Path) -> bool:
    """Whether a process holds a lock. Fails if the system cannot lock files."""
    if not lock.exists() or not fcntl:
        return lock.exists()
    with lock.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


class Writer:
    """Writes planned files; use it as a context, which releases the lock.

    The target is the only file, or a folder for all files. `facts` says what each file is made of;
    with `resume`, files that an earlier process finished with equal facts are kept, and with
    `overwrite` the target may exist. The target is checked when the writer is made, which writes
    nothing, and again under the lock, before the work and before the output gets its name: other
    processes may make files in between.

    Fails if the target exists or cannot be written; as it begins, also if another process is
    writing it, or the disk does not have enough room.
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
        #: the names of finished files
        self.finished: set[str] = set()
        self._files = {file.name: file for file in files}
        self._homes = {
            name: (file.name, span) for file in files for name, span in file.spans.items()
        }
        self._is_folder, self._overwrite, self._resume = is_folder, overwrite, resume
        self._facts = dict(facts or {})
        # unfinished files have another path in each run, so that a worker that was lost and still
        # writes does not reach files of a later one
        self._growing = self.folder / _GROWING / os.urandom(8).hex()
        self._handle: int | None = None
        self._process, self._renaming = os.getpid(), Lock()
        self._check_target()

    def begin(self) -> Self:
        """Take the lock, and create the files, as entering the context does.

        Also fails if the target has come into existence since the writer was made.
        """
        try:
            self._handle = _locked(self.folder)
            self._check_target()
            self._keep_finished()
            if self._is_folder and os.path.lexists(self.target):
                self._check_exchange()
            self._create()
        except BaseException as error:
            self.close() if self.finished else self.discard()
            if isinstance(error, OSError):
                raise cannot(self.folder, "written", error) from None
            raise
        return self

    def __enter__(self) -> Self:
        return self.begin() if self._handle is None else self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def homes(self) -> Mapping[str, str]:
        """The names of the files by those of their tensors."""
        return {name: file for name, (file, _) in self._homes.items()}

    def where(self, name: str) -> Place:
        """Return where the bytes of a tensor are, until the output gets its name."""
        if self._handle is None:
            msg = f"{str(self.target)!r} is no longer being written"
            raise MemdescError(msg)
        file, span = self._homes[name]
        return Place(self._path_of(file), *span)

    def complete(self, name: str) -> None:
        """Finish a file of which all bytes are written. Fails if it cannot be put on the disk."""
        file, grown = self._files[name], self._growing / name
        try:
            if file.seal is not None:
                file.seal(grown)
            # Windows can only sync files that are open for writing
            with grown.open("r+b") as opened:
                os.fsync(opened.fileno())
            with self._renaming:
                self._check_folder()
                whole = self.folder / _FILES / name
                whole.parent.mkdir(parents=True, exist_ok=True)
                grown.replace(whole)
                self.finished.add(name)
        except OSError as error:
            raise cannot(self.target, "written", error) from None

    def finish(self) -> None:
        """Finish all files, and give the output its name.

        If that fails, or the target exists by then, the output does not get its name.
        """
        for name in [*self._files.keys() - self.finished]:
            self.complete(name)
        try:
            self._check_folder()
            files = self.folder / _FILES
            files.mkdir(exist_ok=True)  # of a folder without files
            for folder, _, _ in os.walk(files):
                sync_folder(Path(folder))
            self._check_target()
            if self._is_folder:
                self._publish_folder(files)
            else:
                (name,) = self._files
                (files / name).replace(self.target)
            sync_folder(self.target.parent)
        except OSError as error:
            raise cannot(self.target, "written", error) from None
        self.discard()

    def _publish_folder(self, files: Path) -> None:
        """Give a folder its name; the folder that had it becomes `old`."""
        old = self.folder / _OLD
        if not os.path.lexists(self.target):
            files.replace(self.target)
            return
        files.rename(old)  # what is in `files` is finished, which the old output never is
        if not _exchange(old, self.target):
            self._refuse_to_replace()

    def discard(self) -> None:
        """Remove what has been written, as far as possible."""
        if self._handle is not None and self._process == os.getpid():
            with suppress(OSError, MemdescError):
                self._check_folder()
                self._clear()
        self.close()

    def close(self) -> None:
        """Release the lock; what has been written stays, so that it can be resumed."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        if self._process == os.getpid():  # a child that was forked does not have the lock
            with suppress(OSError, MemdescError):
                _check_same(handle, self.folder)
                (self.folder / _LOCK).unlink()
                self.folder.rmdir()
        os.close(handle)

    def _check_target(self) -> None:
        """Refuse a target that exists, unless it may be replaced, or that cannot be written.

        If the target is a link, the link itself is replaced. A folder is replaced if it holds only
        shards and files that this output has too.
        """
        target = self.target
        if not self._is_folder and target.is_dir():
            msg = f"{str(target)!r} is a folder; name a file"
            raise MemdescError(msg)
        if not target.is_dir():
            check_writable(target)  # a pipe is not replaced
        if os.path.lexists(target) and not self._overwrite:
            msg = f"{str(target)!r} exists; it is only replaced with --overwrite"
            raise MemdescError(msg)
        if not target.is_symlink():
            _check_replaced(target, {*self._files})

    def _check_folder(self) -> None:
        """Refuse to go on if another folder has taken the name of the locked one."""
        if self._handle is not None:
            _check_same(self._handle, self.folder)

    def _check_exchange(self) -> None:
        """Refuse to replace a folder if the system cannot do that in one step."""
        made, other = (self.folder / name for name in (_GROWING, _OLD))
        for path in (made, other):
            path.mkdir()
        can_exchange = _exchange(made, other)
        other.rmdir()
        if not can_exchange:
            self._refuse_to_replace()

    def _refuse_to_replace(self) -> NoReturn:
        msg = (
            f"{str(self.target)!r} exists, and this system cannot replace a folder in one step; "
            "move it away, or write elsewhere"
        )
        raise MemdescError(msg)

    def _path_of(self, file: str) -> Path:
        """Return the path of a file while the output grows."""
        return (self.folder / _FILES if file in self.finished else self._growing) / file

    def _keep_finished(self) -> None:
        """Remove everything that an earlier process left but finished files with equal facts."""
        files = self.folder / _FILES
        left = _facts_in(self.folder / _FACTS) if self._resume else {}
        self.finished = {
            name
            for name, file in self._files.items()
            if name in left
            and left[name] == self._facts.get(name)
            and (files / name).is_file()
            and (files / name).stat().st_size == file.nbytes
        }
        self._clear(except_for={files / name for name in self.finished})
        # a file is finished only after its facts are on disk
        with (self.folder / _FACTS).open("wb") as file:
            file.write(json.dumps(self._facts).encode())
            file.flush()
            os.fsync(file.fileno())

    def _clear(self, except_for: Collection[Path] = ()) -> None:
        """Remove everything that a conversion left, except for some finished files."""
        if not except_for:
            # first: without facts, no file is taken to be finished
            (self.folder / _FACTS).unlink(missing_ok=True)
            sync_folder(self.folder)
        for path in (self.folder / _FILES).rglob("*"):
            if path not in except_for and not path.is_dir():
                path.unlink()
        for name in (_GROWING, _OLD, *(() if except_for else (_FILES,))):
            path = self.folder / name
            if path.is_symlink():  # the old output was one
                path.unlink()
            elif path.exists():
                shutil.rmtree(path)

    def _create(self) -> None:
        """Create the files that are not finished in full size, with their headers."""
        new = [file for name, file in self._files.items() if name not in self.finished]
        needed, free = sum(file.nbytes for file in new), shutil.disk_usage(self.folder).free
        if needed > free:
            msg = (
                f"{str(self.target)!r} takes {needed} bytes, but its disk has {free} left; nothing "
                "was written"
            )
            raise MemdescError(msg)
        for file in new:
            path = self._growing / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as opened:
                _reserve(opened.fileno(), file.nbytes)
                for offset, data in file.headers:
                    write_at(opened.fileno(), memoryview(data), offset)


def _locked(folder: Path) -> int:
    """Return the handle of the lock in a folder, which is made if it does not exist."""
    while True:
        _make(folder)
        flags = os.O_RDWR | os.O_CREAT | NO_LINK | (0 if fcntl else os.O_EXCL)
        try:
            handle = os.open(folder / _LOCK, flags, 0o600)
        except FileNotFoundError:
            continue  # the process that had the lock removed the folder
        except FileExistsError:
            _refuse_in_use(folder)
        try:
            if fcntl:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _check_same(handle, folder)
        except (BlockingIOError, MemdescError) as error:
            os.close(handle)
            if isinstance(error, BlockingIOError):
                _refuse_in_use(folder)
        except OSError as error:
            os.close(handle)
            with suppress(OSError):
                (folder / _LOCK).unlink()
                folder.rmdir()
            msg = (
                f"{str(folder)!r} cannot be locked, so another process could write into it too: "
                f"{reason_of(error)}; write to a file system that supports locks"
            )
            raise MemdescError(msg) from None
        else:
            return handle


def _make(folder: Path) -> None:
    """Make a folder; refuse one that others made or may write into."""
    with suppress(FileExistsError):
        folder.mkdir(_MODE)
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return  # it was removed meanwhile: the caller looks again
    if not stat.S_ISDIR(status.st_mode):
        _refuse(folder, "it is a link or a file")
    if fcntl and status.st_uid != os.geteuid():
        _refuse(folder, f"it belongs to another user, {status.st_uid}")
    if fcntl and status.st_mode & _OTHERS_WRITE:
        _refuse(folder, "other users may write into it")


def _check_same(handle: int, folder: Path) -> None:
    """Refuse a folder whose lock is not the one that is held."""
    with suppress(FileNotFoundError, NotADirectoryError):
        if os.path.samestat(os.fstat(handle), (folder / _LOCK).lstat()):
            return
    _refuse(folder, "it is no longer the folder that was locked")


def _refuse_in_use(folder: Path) -> NoReturn:
    msg = f"another process is writing into {str(folder)!r}; wait for it"
    if not fcntl:
        lock = str(folder / _LOCK)
        msg += f", or, if there is none, delete {lock!r}, which a killed process left"
    raise InUseError(msg)


def _refuse(path: Path, reason: str) -> NoReturn:
    msg = (
        f"{str(path)!r} is where a conversion writes, but {reason}; move it away, or write "
        "elsewhere"
    )
    raise MemdescError(msg)


def _check_replaced(target: Path, written: Collection[str]) -> None:
    """Refuse to replace a folder whose files would be lost, or a mount point."""
    if target.is_mount():
        msg = f"{str(target)!r} is a mount point, which cannot be replaced; write elsewhere"
        raise MemdescError(msg)
    lost: list[str] = []
    for folder, folders, names in os.walk(target):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        held = (os.path.relpath(Path(folder, name), target) for name in (*names, *links))
        lost += (name for name in held if name not in written and not is_shard(name))
    if lost:
        named = first_of(map(short_repr, sorted(lost)), _SHOWN)
        msg = (
            f"{str(target)!r} is not replaced: it holds {named}, which this conversion does "
            "not write and would delete; move them away, or write elsewhere"
        )
        raise MemdescError(msg)


def _facts_in(path: Path) -> dict[str, object]:
    """Return what an earlier process said each file is made of; nothing if that is not known."""
    with suppress(MemdescError, ValueError, RecursionError):
        found = json.loads(read_small(path, _MAX_FACTS))
        return found if isinstance(found, dict) else {}
    return {}


def _reserve(handle: int, nbytes: int) -> None:
    """Give a file its size, and reserve room on the disk if the system can."""
    if hasattr(os, "posix_fallocate") and nbytes:
        try:
            os.posix_fallocate(handle, 0, nbytes)
        except OSError as error:
            if error.errno not in {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}:
                raise
        else:
            return
    os.ftruncate(handle, nbytes)


def _exchange(path: Path, other: Path) -> bool:
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
