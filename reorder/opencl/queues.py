"""Queues of callers, and the events that they pass to wait for."""

from __future__ import annotations

from typing import Any

import pyopencl as cl

from memdesc import MemdescError
from memdesc.errors import short_repr

__all__ = ["check_queue", "checked_events"]


def check_queue(queue: Any) -> None:
    """Refuse what is no command queue, or one whose context is gone."""
    if not isinstance(queue, cl.CommandQueue):
        msg = f"queue must be a pyopencl.CommandQueue, not {short_repr(queue)}"
        raise MemdescError(msg)
    try:
        queue.context  # noqa: B018 - the attribute raises if the context is gone
    except cl.Error as error:
        # Intel's queues do not keep their context
        msg = (
            f"the queue has no context any more ({error}); "
            "keep the Context as long as its queues are used"
        )
        raise MemdescError(msg) from None


def checked_events(queue: cl.CommandQueue, wait_for: Any) -> list[cl.Event]:
    """Return the events that a caller waits for; refuse others, and those of other contexts."""
    if wait_for is None:
        return []
    if not isinstance(wait_for, list | tuple) or not all(
        isinstance(event, cl.Event) for event in wait_for
    ):
        msg = f"wait_for must be a list of pyopencl.Event, not {short_repr(wait_for)}"
        raise MemdescError(msg)
    if any(_context_of(event) != queue.context for event in wait_for):
        msg = (
            "wait_for has an event of another context than the queue; "
            "wait for it on the host: event.wait()"
        )
        raise MemdescError(msg)
    return list(wait_for)


def _context_of(event: Any) -> Any:
    """Return the context of an event; None if it is gone, which Intel's events do not prevent."""
    try:
        return event.context
    except cl.Error:
        return None
