"""Run tasks on the threads of this process, within a bound of bytes in memory."""

from __future__ import annotations

from contextlib import suppress
from threading import Condition, Thread, current_thread
from typing import TYPE_CHECKING, Any

from reorder.storage.pieces.files import scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from reorder.storage.pieces.tasks import Task

__all__ = ["run_tasks"]

# how often a waiting caller looks for Ctrl-C
_SECONDS = 0.2


class _Queue:
    """Tasks that threads take in order as long as their bytes fit."""

    def __init__(self, tasks: Iterable[tuple[int, Task]], max_bytes: int) -> None:
        self._tasks = iter(tasks)
        self._next = next(self._tasks, None)
        self._max_bytes, self._held = max_bytes, 0
        self._state = Condition()
        self.error: BaseException | None = None
        self._is_stopped = False
        self._left: set[Thread] = set()

    def take(self, done: Task | None = None) -> tuple[int, Task] | None:
        """Return the next task, once there is room for it; None at the end.

        The bytes of the task that the thread has done are free then. If the next one fits, the same
        thread goes on with its buffers; a thread that has to wait frees its own.
        """
        with self._state:
            self._held -= 0 if done is None else done.nbytes
            self._state.notify_all()
            while (found := None if self._is_stopped else self._next) is not None:
                nbytes = found[1].nbytes
                if not self._held or self._held + nbytes <= self._max_bytes:
                    self._held += nbytes
                    self._next = next(self._tasks, None)
                    break
                scratch.clear()
                self._state.wait()
            return found

    def stop(self, error: BaseException | None) -> None:
        """Let no thread take another task."""
        with self._state:
            self._is_stopped = True
            self.error = self.error or error
            self._state.notify_all()

    def leave(self) -> None:
        """Note that the calling thread takes no more tasks."""
        with self._state:
            self._left.add(current_thread())
            self._state.notify_all()

    def wait_for(self, threads: Iterable[Thread]) -> None:
        """Wait until those of the threads that were started have left.

        `Thread.join` will not do: interrupted by Ctrl-C, it may take a running thread for a dead
        one.
        """
        with self._state:
            while not self._left.issuperset(each for each in threads if each.ident is not None):
                self._state.wait(_SECONDS)


def run_tasks(
    tasks: Iterable[tuple[int, Task]],
    threads: int,
    max_bytes: int,
    finished: Callable[[int, Task, Any], None],
    work: Callable[[Task], Any],
) -> None:
    """Run tasks, each with its number, on some threads; the first error ends all.

    All running tasks together take at most `max_bytes` of memory; a task that needs more runs
    alone. `finished` is called with each task that has run and what `work` returned, by the thread
    that ran it.
    """
    queue = _Queue(tasks, max_bytes)

    def loop() -> None:
        try:
            found = queue.take()
            while found is not None:
                number, task = found
                finished(number, task, work(task))
                found = queue.take(task)
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            queue.stop(error)
        finally:
            queue.leave()

    workers = [Thread(target=loop, name=f"memdesc-convert-{k}") for k in range(threads)]
    try:
        for thread in workers:
            thread.start()
        queue.wait_for(workers)
    except BaseException:
        queue.stop(None)
        # No task may write after this returns: another conversion may use the same names. So a
        # second Ctrl-C does not end the wait for the tasks that run.
        while True:
            with suppress(KeyboardInterrupt):
                queue.wait_for(workers)
                break
        raise
    if queue.error is not None:
        raise queue.error
