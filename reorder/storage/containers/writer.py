"""An output that is written in any order, by several threads, and gets its name when it is whole.

It grows in a folder beside the target, `.NAME.memdesc-partial`, so that a later process can go on
with it: `files/` holds the files of the plan, anything else in it is the caller's, such as a
journal. A process holds the lock of that folder as long as it writes.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc.disk import check_writable
from memdesc.errors import MemdescError, short_repr
from reorder.storage.containers.partial import (
    cannot,
    clear,
    locked,
    partial_folder,
    reserve,
    sync,
    write_at,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from reorder.storage.containers.plan import PlannedFile, Span

__all__ = ["Writer", "check_target", "partial_folder", "write_at"]


def check_target(
    target: Path, files: Sequence[PlannedFile], *, is_folder: bool, overwrite: bool
) -> None:
    """Refuse a target that exists, unless it may be replaced, or that cannot be written.

    Raises
    ------
    MemdescError
        With the path.
    """
    if not is_folder and target.is_dir():
        msg = f"{str(target)!r} is a folder; name a file"
        raise MemdescError(msg)
    if is_folder and not target.is_dir():
        check_writable(target)  # a pipe or a device is no output that a folder may replace
    finals = () if is_folder else tuple(target.parent / file.name for file in files)
    for path in finals:
        check_writable(path)
    for path in (target, *finals):
        if os.path.lexists(path) and not overwrite:
            msg = f"{str(path)!r} exists; it is replaced with --overwrite only"
            raise MemdescError(msg)


class Writer:
    """Writes planned files; use it as a context, which gives the lock back.

    Parameters
    ----------
    target : Path
        What the output is called when it is whole: a file, or a folder with all files.
    files : sequence of PlannedFile
        What it consists of. Of several files for a target that is no folder, all get their names
        beside it; the last one is the target.
    is_folder : bool
        Whether the target is a folder.
    resume : bool
        Whether to go on with what an earlier process has written; else that is removed.
    overwrite : bool
        Whether the target may exist.

    Raises
    ------
    MemdescError
        If the target exists, another process is writing it, or the disk has not enough room.
    """

    def __init__(
        self,
        target: Path,
        files: Sequence[PlannedFile],
        *,
        is_folder: bool = False,
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        self.target = target
        self.partial = partial_folder(target)
        self._files = {file.name: file for file in files}
        self._is_folder = is_folder
        self._spans = {
            name: (file.name, span) for file in files for name, span in file.spans.items()
        }
        check_target(target, files, is_folder=is_folder, overwrite=overwrite)
        self._lock: int | None = locked(self.partial)
        try:
            self._restore_old()
            #: whether files of an earlier process are there, of the sizes of the plan
            self.is_resumed = resume and all(self._is_there(file) for file in files)
            if not self.is_resumed:
                clear(self.partial)
                self._create()
            for file in files:
                for offset, data in file.pieces:
                    write_at(self.path_of(file.name), offset, np.frombuffer(data, np.uint8))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def path_of(self, file: str) -> Path:
        """Return where a file of the plan grows."""
        return self.partial / "files" / file

    def _final(self, file: str) -> Path:
        """Return what a file of the plan is called in the end."""
        return (self.target if self._is_folder else self.target.parent) / file

    def where(self, name: str) -> tuple[Path, Span]:
        """Return the file that a tensor grows in, and its bytes there: for `write_at`."""
        file, span = self._spans[name]
        return self.path_of(file), span

    def write(self, name: str, offset: int, data: Any) -> None:
        """Write bytes of a tensor; threads may do so at the same time, in any order.

        Parameters
        ----------
        name : str
            The tensor.
        offset : int
            Its first byte to be written.
        data : ndarray or buffer
            C-contiguous.

        Raises
        ------
        MemdescError
            If the bytes exceed the tensor, or cannot be written.
        """
        path, span = self.where(name)
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        if not 0 <= offset <= offset + flat.nbytes <= span.nbytes:
            msg = (
                f"bytes {offset} to {offset + flat.nbytes} of {short_repr(name)}, which has "
                f"{span.nbytes}"
            )
            raise MemdescError(msg)
        write_at(path, span.offset + offset, flat)

    def read(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        """Read bytes of a tensor back.

        Raises
        ------
        MemdescError
            If that fails.
        """
        path, span = self.where(name)
        data = np.empty(stop - start, np.uint8)
        try:
            with path.open("rb", buffering=0) as file:
                file.seek(span.offset + start)
                count = file.readinto(memoryview(data))  # type: ignore[arg-type] # arrays of bytes are buffers
        except OSError as error:
            raise cannot(path, error) from None
        if count != data.nbytes:
            msg = f"{str(path)!r} became shorter while it was read"
            raise MemdescError(msg)
        return data

    def sync(self, files: Iterable[str] | None = None) -> None:
        """Wait until files are on disk; by default all.

        Raises
        ------
        MemdescError
            If the system could not write them.
        """
        for file in self._files if files is None else files:
            sync(self.path_of(file))

    def finish(self) -> None:
        """Wait until all is on disk, and give the output its name.

        Raises
        ------
        MemdescError
            If that fails; the output has not got its name then.
        """
        grown = self.partial / "files"
        try:
            for name, file in self._files.items():
                if file.seal is not None:
                    file.seal(self.path_of(name), self._final(name))
            others = sorted({path.name for path in grown.iterdir()} - self._files.keys())
            for name in (*others, *self._files):
                sync(grown / name)
            sync(grown)
            if self._is_folder:
                self._publish_folder(grown)
            else:
                for name in (*others, *self._files):
                    (grown / name).replace(self._final(name))
            sync(self.target.parent)
        except OSError as error:
            raise cannot(self.target, error) from None
        self.discard()

    def _publish_folder(self, grown: Path) -> None:
        if self.target.exists():
            self.target.rename(self.partial / "old")
        grown.rename(self.target)

    def discard(self) -> None:
        """Remove what has been written without a name."""
        shutil.rmtree(self.partial, ignore_errors=True)
        self.close()

    def close(self) -> None:
        """Give the lock back; what has been written stays, to be resumed."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _restore_old(self) -> None:
        """Give a folder its name back that a process was about to replace when it ended."""
        old = self.partial / "old"
        if old.exists() and not self.target.exists():
            old.rename(self.target)

    def _is_there(self, file: PlannedFile) -> bool:
        try:
            return self.path_of(file.name).stat().st_size == file.nbytes
        except OSError:
            return False

    def _create(self) -> None:
        """Create the files with all their room."""
        needed = sum(file.nbytes for file in self._files.values())
        free = shutil.disk_usage(self.partial).free
        if needed > free:
            msg = (
                f"{str(self.target)!r} takes {needed} bytes, but its disk has {free} left; nothing "
                "was written"
            )
            raise MemdescError(msg)
        for file in self._files.values():
            path = self.path_of(file.name)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as opened:
                    if file.nbytes:
                        reserve(opened.fileno(), file.nbytes)
            except OSError as error:
                clear(self.partial)
                raise cannot(path, error) from None
