"""The journal of a conversion: which tasks are on disk, so that a later process can continue.

The first line says which conversion it is; every other line has finished tasks and the checksums of
what they wrote; a task whose bytes have changed since then runs again. A task is listed once its
bytes are on disk, so a conversion resumes even after a power failure. A journal that cannot grow on
a full disk does not stop the conversion, since room for the output is reserved.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Self

from memdesc import MemdescError
from memdesc.disk import open_file, sync_folder
from reorder.storage.containers.partial import JOURNAL, Partial, partial_folder

# A line is written after this many seconds, or bytes. A killed process loses at most what was
# written since the last line. Waiting for the disk takes only some 10 ms, because the system starts
# to write long runs at once.
SECONDS, NBYTES = 0.5, 256 << 20
# the most bytes in a first line; a thousand shards take some 100 KB
_MAX_FACTS = 1 << 26


class Journal:
    """Lists tasks that are done; use it as a context.

    `folder` has it, and `facts` say which conversion it is, as JSON values: the journal of another
    conversion is replaced. `sync` waits until everything that was written is on disk. Fails if the
    file cannot be started.
    """

    def __init__(self, folder: Partial, facts: object, sync: Callable[[], None]) -> None:
        self._folder, self._sync = folder, sync
        self._lock, self._due, self._is_ended = Lock(), Event(), False
        self._pending: list[tuple[int, int]] = []
        self._nbytes = 0
        self._error: BaseException | None = None
        self.done = self._begin(json.dumps(facts))
        self._thread = Thread(target=self._work, name="memdesc-journal", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._is_ended = True
        self._due.set()
        self._thread.join()
        if kind is None and self._error is not None:
            raise self._error

    def add(self, task: int, nbytes: int, checksum: int) -> None:
        """List a task that has written all its bytes, with their number and their checksum."""
        with self._lock:
            self._pending.append((task, checksum))
            self._nbytes += nbytes
            if self._nbytes >= NBYTES:
                self._due.set()

    def _begin(self, facts: str) -> dict[int, int]:
        """Return the tasks that are listed, with their checksums.

        The journal of another conversion is replaced by a new one.
        """
        with self._folder.open(JOURNAL, os.O_RDWR | os.O_CREAT) as handle:
            with os.fdopen(handle, "r+b", buffering=0, closefd=False) as file:
                done, nbytes = _trusted(file.read(), facts.encode())
                # the rest was being written when the process ended
                file.truncate(nbytes)
                if not nbytes:
                    file.seek(0)
                    file.write(f"{facts}\n".encode())
            sync_folder(self._folder.path)
        return done

    def _work(self) -> None:
        try:
            while not self._is_ended:
                self._due.wait(SECONDS)
                self._due.clear()
                self._flush()
            self._flush()
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            self._error = error

    def _flush(self) -> None:
        with self._lock:
            tasks, self._pending = self._pending, []
            self._nbytes = 0
        if not tasks:
            return
        self._sync()
        if not self._append(f"{json.dumps(dict(tasks))}\n".encode()):
            with self._lock:
                self._pending = tasks + self._pending

    def _append(self, line: bytes) -> bool:
        """Append a line, and wait until it is on disk; return False if there was no room for it."""
        with suppress(MemdescError), self._folder.open(JOURNAL, os.O_WRONLY) as handle:
            nbytes = os.lseek(handle, 0, os.SEEK_END)
            if os.write(handle, line) == len(line):
                os.fsync(handle)
                return True
            os.ftruncate(handle, nbytes)
        return False


def facts_left(target: Path) -> Any:
    """Return the facts of the conversion that left a journal beside a target; None without one."""
    try:
        with open_file(partial_folder(target) / JOURNAL) as file:
            return json.loads(file.readline(_MAX_FACTS))
    except (MemdescError, ValueError, RecursionError):
        return None


def _trusted(text: bytes, facts: bytes) -> tuple[dict[int, int], int]:
    """Return the tasks that a journal lists, with their checksums, and how many bytes to trust.

    It lists none of ours if it is another conversion's. Nothing from a damaged line on is trusted;
    those tasks run again.
    """
    first, *lines = text.split(b"\n")
    done: dict[int, int] = {}
    if first != facts or not lines:
        return done, 0
    nbytes = len(first) + 1
    for line in lines[:-1]:
        try:
            found = {int(task): checksum for task, checksum in json.loads(line).items()}
        except (ValueError, RecursionError, AttributeError):
            break
        if not all(type(checksum) is int for checksum in found.values()):
            break
        done |= found
        nbytes += len(line) + 1
    return done, nbytes
