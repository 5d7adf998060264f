"""An output that threads write in any order, and that gets its name when it is whole.

It grows in a folder beside the target, `.NAME.memdesc-partial`, so that a later process can resume
it: `files/` has the files of the plan, and `journal` is the caller's. A process locks that folder
while it writes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from memdesc.disk import cannot, check_writable, sync_folder
from memdesc.errors import MemdescError, first_of, short_repr
from reorder.storage.containers.entry import Place, PlannedFile, places_of
from reorder.storage.containers.partial import (
    FILES,
    OLD,
    Partial,
    exchange,
    partial_folder,
    reserve,
)
from reorder.storage.containers.shards import is_shard

# the most bytes in a name, if the system does not report it
_MAX_NAME = 255
# how many files a message lists
_SHOWN = 3


def _check_name(target: Path) -> None:
    """Refuse a name if the longer one that the output has while it grows would be too long."""
    try:
        longest = os.pathconf(target.parent, "PC_NAME_MAX")
    except (AttributeError, OSError, ValueError):
        longest = _MAX_NAME
    name, grown = (len(os.fsencode(path.name)) for path in (target, partial_folder(target)))
    if grown > longest:
        msg = (
            f"{str(target)!r} cannot be written: its name has {name} bytes, and may have at most "
            f"{longest - grown + name}, so that it can grow under a longer one"
        )
        raise MemdescError(msg)


def _is_moved(target: Path, name: str) -> bool:
    """Whether a file already has its final name because a process ended before the last one."""
    grown = partial_folder(target) / FILES
    return grown.is_dir() and not os.path.lexists(grown / name)


def _check_replaced(target: Path, written: set[str]) -> None:
    """Refuse to replace a folder whose files would be lost, or a mount point."""
    if target.is_mount():
        msg = f"{str(target)!r} is a mount point, which cannot be replaced; write elsewhere"
        raise MemdescError(msg)
    lost: list[str] = []
    for folder, folders, names in os.walk(target):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]  # noqa: PTH114, PTH118 - of many files
        for name in (*names, *links):
            kept = os.path.relpath(os.path.join(folder, name), target)  # noqa: PTH118 - of many files
            if kept not in written and not is_shard(kept):
                lost.append(kept)
    if lost:
        named = first_of(map(short_repr, sorted(lost)), _SHOWN)
        msg = (
            f"{str(target)!r} is not replaced: it holds {named}, which this conversion does "
            "not write and would delete; move them away, or write elsewhere"
        )
        raise MemdescError(msg)


class Writer:
    """Writes planned files; use it as a context, which releases the lock.

    The target is a file, or a folder for all files. If there are several files and it is not a
    folder, the last one is the target, and the others get their names beside it. With `resume` it
    continues what an earlier process wrote, which is removed otherwise; with `overwrite` the target
    may exist. The target is checked when the writer is made, which writes nothing, and again under
    the lock, before the work and before the output gets its name: other processes may make files in
    between.

    Fails if the target exists or cannot be written; as it begins, also if another process is
    writing it, or the disk does not have enough room.
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
        #: whether to continue what was left; this may change until the writer begins
        self.resume = resume
        #: whether an earlier process left all files, in the sizes of the plan
        self.is_resumed = False
        self._files = {file.name: file for file in files}
        self._is_folder, self._overwrite = is_folder, overwrite
        self._places = places_of(files, partial_folder(target) / FILES)
        self._partial: Partial | None = None
        self._check_target()

    def begin(self) -> Self:
        """Take the lock, and create the files, as entering the context does.

        Also fails if the target has come into existence since the writer was made.
        """
        self._partial = Partial(partial_folder(self.target))
        try:
            if self._is_folder:
                self._restore_old()
            elif self.resume:
                self._take_back()
            self._check_target()
            self.is_resumed = self.resume and all(map(self._is_there, self._files.values()))
            if self.is_resumed:
                for name in self.open.names() - {*self._files}:
                    self.open.at(f"{FILES}/{name}").unlink()
            else:
                self.open.clear()
                self._create()
            for file in self._files.values():
                for offset, data in file.headers:
                    self.open.write_at(f"{FILES}/{file.name}", offset, data)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise cannot(self.target, "written", error) from None
            raise
        return self

    def __enter__(self) -> Self:
        return self.begin() if self._partial is None else self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def open(self) -> Partial:
        """The folder in which it grows, until `close`."""
        if self._partial is None:
            msg = f"{str(self.target)!r} is no longer being written"
            raise MemdescError(msg)
        return self._partial

    def where(self, name: str) -> Place:
        """Return where the bytes of a tensor are written, until the output gets its name."""
        return self._places[name]

    def sync(self) -> None:
        """Wait until all files are on disk. Fails if the system could not write them."""
        for file in self._files:
            self.open.sync(f"{FILES}/{file}")

    def finish(self, complete: Callable[[Path], None] | None = None) -> None:
        """Wait until everything is on disk, then give the output its name.

        If a target that is not a folder has several files, it gets its name last, so that one
        rename switches to the new output. `complete` is called with the folder of the complete
        files before they get their names. If that fails, or the target exists by then, the output
        does not get its name.
        """
        grown = partial_folder(self.target) / FILES
        files = tuple(self._files.values())
        try:
            for file in files:
                if file.seal is not None:
                    file.seal(grown / file.name)
            if complete is not None:
                complete(grown)
            self.sync()
            self.open.sync_names()
            self._check_target()
            if self._is_folder:
                self._publish_folder()
            else:
                for name in self._files:
                    self.open.at(f"{FILES}/{name}").replace(self.target.parent / name)
            sync_folder(self.target.parent)
        except OSError as error:
            raise cannot(self.target, "written", error) from None
        self.discard()

    def _publish_folder(self) -> None:
        """Give a folder its name; the folder that had it becomes `old`.

        If the system cannot exchange two names, the name is free for a moment; if the process ends
        in that moment, the next one gives it back.
        """
        files, old = self.open.at(FILES), self.open.at(OLD)
        if not os.path.lexists(self.target):
            files.replace(self.target)
            return
        files.rename(old)
        if exchange(old, self.target):
            return
        old.rename(files)
        self.target.rename(old)
        try:
            files.replace(self.target)
        except BaseException:
            self._restore_old()
            raise

    def discard(self) -> None:
        """Remove what has been written."""
        if self._partial is not None and self._partial.is_ours:
            self._partial.discard()
        self.close()

    def close(self) -> None:
        """Release the lock; what has been written stays, so that it can be resumed."""
        if self._partial is not None:
            self._partial.close()
            self._partial = None

    def _check_target(self) -> None:
        """Refuse a target that exists, unless it may be replaced, or that cannot be written.

        If the target is a link, the link itself is replaced. A folder is replaced if it holds only
        shards and files that this output has too.
        """
        target = self.target
        if not self._is_folder and target.is_dir():
            msg = f"{str(target)!r} is a folder; name a file"
            raise MemdescError(msg)
        _check_name(target)
        beside = () if self._is_folder else [*self._files][:-1]
        for path in (target, *(target.parent / name for name in beside)):
            if not target.is_dir():
                check_writable(path)  # a pipe is not replaced
            if not os.path.lexists(path) or self._overwrite:
                continue
            if path != target and self.resume and _is_moved(target, path.name):
                continue
            msg = f"{str(path)!r} exists; it is only replaced with --overwrite"
            raise MemdescError(msg)
        if not target.is_symlink():
            _check_replaced(target, {*self._files})

    def _restore_old(self) -> None:
        """Give a folder its name back if a process ended while it was replacing it."""
        old = self.open.at(OLD)
        if os.path.lexists(old) and not os.path.lexists(self.target):
            old.replace(self.target)

    def _take_back(self) -> None:
        """Take back files that already have their final names, if the target does not exist yet."""
        for name in [*self._files][:-1]:
            final = self.target.parent / name
            if _is_moved(self.target, name) and final.is_file():
                final.rename(self.open.at(f"{FILES}/{name}"))

    def _is_there(self, file: PlannedFile) -> bool:
        return self.open.nbytes_of(f"{FILES}/{file.name}") == file.nbytes

    def _create(self) -> None:
        """Create the files in full size; one that is missing later has its final name."""
        needed = sum(file.nbytes for file in self._files.values())
        free = shutil.disk_usage(self.open.path).free
        if needed > free:
            msg = (
                f"{str(self.target)!r} takes {needed} bytes, but its disk has {free} left; nothing "
                "was written"
            )
            raise MemdescError(msg)
        try:
            for name, file in self._files.items():
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                with self.open.open(f"{FILES}/{name}", flags) as handle:
                    if file.nbytes:
                        reserve(handle, file.nbytes)
        except MemdescError:
            self.open.clear()
            raise
