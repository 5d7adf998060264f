"""The journal of a conversion: which tasks are on disk, so that a later process goes on with it.

The first line says which conversion it is; each other line lists tasks that are done. A task is
listed after its bytes are on disk, so that also a machine that loses power resumes. A journal that
cannot grow, on a full disk, stops nothing: room for the output is reserved.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from reorder.storage.containers.partial import cannot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

__all__ = ["Journal", "is_journal_of"]


class Journal:
    """Lists tasks that are done; use it as a context.

    Parameters
    ----------
    path : Path
        The file.
    fingerprint : str
        Which conversion it is; a journal of another one is replaced.
    sync : callable
        Waits until all that was written is on disk.
    seconds : float
        How often tasks are listed.

    Raises
    ------
    MemdescError
        If the file cannot be begun.
    """

    def __init__(
        self, path: Path, fingerprint: str, sync: Callable[[], None], seconds: float
    ) -> None:
        self._path, self._sync, self._seconds = path, sync, seconds
        self._lock, self._end = Lock(), Event()
        self._pending: list[int] = []
        self._error: BaseException | None = None
        self.done = _read(path, fingerprint)
        if not self.done:
            try:
                path.write_text(f"{json.dumps(fingerprint)}\n")
            except OSError as error:
                raise cannot(path, error) from None
        self._thread = Thread(target=self._work, name="memdesc-journal", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()
        if kind is None and self._error is not None:
            raise self._error

    def add(self, task: int) -> None:
        """List a task that has written all its bytes."""
        with self._lock:
            self._pending.append(task)

    def _work(self) -> None:
        try:
            while not self._end.wait(self._seconds):
                self._flush()
            self._flush()
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            self._error = error

    def _flush(self) -> None:
        with self._lock:
            tasks, self._pending = self._pending, []
        if not tasks:
            return
        self._sync()
        if not _append(self._path, f"{json.dumps(tasks)}\n"):
            with self._lock:
                self._pending = tasks + self._pending


def _append(path: Path, text: str) -> bool:
    """Write a line to the end of a file, and wait until it is on disk; False if there is no room.

    What was written of it is taken back.
    """
    with suppress(OSError), path.open("r+b", buffering=0) as file:
        nbytes, data = file.seek(0, os.SEEK_END), text.encode()
        if file.write(data) == len(data):
            os.fsync(file.fileno())
            return True
        file.truncate(nbytes)
    return False


def is_journal_of(path: Path, fingerprint: str) -> bool:
    """Whether there is a journal of a conversion."""
    return _lines(path)[0] == json.dumps(fingerprint)


def _lines(path: Path) -> list[str]:
    """Return the lines of a journal; an empty one of what is none."""
    try:
        return path.read_text().split("\n")
    except (OSError, UnicodeDecodeError):
        return [""]


def _read(path: Path, fingerprint: str) -> set[int]:
    """Return the tasks that a journal lists; none of one that is another conversion's.

    Lines from a damaged one on are not trusted; their tasks run again.
    """
    lines = _lines(path)
    if lines[0] != json.dumps(fingerprint):
        return set()
    done: set[int] = set()
    # what follows the last newline was being written when the process ended
    for line in lines[1:-1]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(found, list) or not all(type(task) is int for task in found):
            break
        done.update(found)
    return done
