"""An output that threads write in any order, and that gets its name when it is whole.

It grows in a folder beside the target, `.NAME.memdesc-partial`: files that are being written are in
`growing`, finished ones in `files`, and `facts` says what each file is made of. A later process
keeps the finished files whose facts are those of its own plan, and writes the others from their
beginning. A process locks the folder while it writes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Self

from memdesc.disk import cannot, check_writable, read_small, sync_folder
from memdesc.errors import MemdescError, first_of, short_repr
from reorder.checkpoints.formats.entry import Place, PlannedFile
from reorder.checkpoints.formats.partial import (
    FACTS,
    FILES,
    GROWING,
    OLD,
    Partial,
    exchange,
    partial_folder,
    reserve,
)
from reorder.checkpoints.formats.shards import is_shard

# the most bytes in a name, if the system does not report it
_MAX_NAME = 255
# the most bytes of facts; a thousand shards take some 100 KB
_MAX_FACTS = 1 << 26
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

    The target is the only file, or a folder for all files. `facts` says what each file is made of;
    with `resume`, files that an earlier process finished with equal facts are kept, and with
    `overwrite` the target may exist. `together` has the names of files that are only kept together.
    The target is checked when the writer is made, which writes nothing, and again under the lock,
    before the work and before the output gets its name: other processes may make files in between.

    Fails if the target exists or cannot be written; as it begins, also if another process is
    writing it, or the disk does not have enough room.
    """

    def __init__(  # noqa: PLR0913 - what is written, where, and what may be kept or lost
        self,
        target: Path,
        files: Sequence[PlannedFile],
        *,
        is_folder: bool = False,
        overwrite: bool = False,
        resume: bool = False,
        facts: Mapping[str, str] | None = None,
        together: Iterable[frozenset[str]] = (),
    ) -> None:
        self.target = target
        #: the names of finished files
        self.finished: set[str] = set()
        self._files = {file.name: file for file in files}
        self._homes = {
            name: (file.name, span) for file in files for name, span in file.spans.items()
        }
        self._is_folder, self._overwrite, self._resume = is_folder, overwrite, resume
        self._facts, self._together = dict(facts or {}), tuple(together)
        # unfinished files have another path in each run, so that a worker that was lost and still
        # writes does not reach files of a later one
        self._run = f"{GROWING}/{os.urandom(8).hex()}"
        self._partial: Partial | None = None
        self._lock = Lock()
        self._check_target()

    def begin(self) -> Self:
        """Take the lock, and create the files, as entering the context does.

        Also fails if the target has come into existence since the writer was made.
        """
        self._partial = Partial(partial_folder(self.target))
        try:
            if self._is_folder:
                self._restore_old()
            self._check_target()
            self._keep_finished()
            self._create()
        except BaseException as error:
            self.close() if self.finished else self.discard()
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

    @property
    def names(self) -> Collection[str]:
        """The names of all tensors."""
        return self._homes

    def home_of(self, name: str) -> str:
        """Return the name of the file that has a tensor."""
        return self._homes[name][0]

    def where(self, name: str) -> Place:
        """Return where the bytes of a tensor are, until the output gets its name."""
        file, span = self._homes[name]
        return Place(self.open.path / self._path_of(file), *span)

    def complete(self, name: str) -> None:
        """Finish a file of which all bytes are written. Fails if it cannot be put on the disk."""
        file, grown = self._files[name], self._path_of(name)
        try:
            if file.seal is not None:
                file.seal(self.open.at(grown))
            self.open.sync(grown)
            with self._lock:
                self.open.at(grown).replace(self.open.at(f"{FILES}/{name}", is_made=True))
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
            (self.open.path / FILES).mkdir(exist_ok=True)  # of a folder without files
            self.open.sync_names()
            self._check_target()
            if self._is_folder:
                self._publish_folder()
            else:
                (name,) = self._files
                self.open.at(f"{FILES}/{name}").replace(self.target)
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
        if not target.is_dir():
            check_writable(target)  # a pipe is not replaced
        if os.path.lexists(target) and not self._overwrite:
            msg = f"{str(target)!r} exists; it is only replaced with --overwrite"
            raise MemdescError(msg)
        if not target.is_symlink():
            _check_replaced(target, {*self._files})

    def _restore_old(self) -> None:
        """Give a folder its name back if a process ended while it was replacing it."""
        old = self.open.at(OLD)
        if os.path.lexists(old) and not os.path.lexists(self.target):
            old.replace(self.target)

    def _path_of(self, file: str) -> str:
        """Return the path of a file while the output grows, relative to the folder."""
        return f"{FILES if file in self.finished else self._run}/{file}"

    def _keep_finished(self) -> None:
        """Remove everything that an earlier process left but finished files with equal facts."""
        left = _facts_in(self.open.path / FACTS) if self._resume else {}
        kept = {
            name
            for name, file in self._files.items()
            if name in left
            and left[name] == self._facts.get(name)
            and self.open.nbytes_of(f"{FILES}/{name}") == file.nbytes
        }
        while split := [each for each in self._together if each & kept and not each <= kept]:
            kept = kept.difference(*split)
        self.open.clear(except_for=kept)
        self.finished = kept
        # a file is finished only after its facts are on disk
        text = json.dumps(self._facts).encode()
        with self.open.open(FACTS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as handle:
            os.write(handle, text)
            os.fsync(handle)
        sync_folder(self.open.path)

    def _create(self) -> None:
        """Create the files that are not finished in full size, with their headers."""
        new = {name: file for name, file in self._files.items() if name not in self.finished}
        needed = sum(file.nbytes for file in new.values())
        free = shutil.disk_usage(self.open.path).free
        if needed > free:
            msg = (
                f"{str(self.target)!r} takes {needed} bytes, but its disk has {free} left; nothing "
                "was written"
            )
            raise MemdescError(msg)
        for name, file in new.items():
            path = self._path_of(name)
            with self.open.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as handle:
                if file.nbytes:
                    reserve(handle, file.nbytes)
            for offset, data in file.headers:
                self.open.write_at(path, offset, data)


def _facts_in(path: Path) -> dict[str, object]:
    """Return what an earlier process said each file is made of; nothing if that is not known."""
    with suppress(MemdescError, ValueError, RecursionError):
        found = json.loads(read_small(path, _MAX_FACTS))
        return found if isinstance(found, dict) else {}
    return {}
