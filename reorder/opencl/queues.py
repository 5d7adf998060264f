"""Queues of callers, and the events that they pass to wait for."""

from __future__ import annotations

from typing import Any

import pyopencl as cl
import pyopencl.array

from memdesc import MemdescError
from memdesc.errors import short_repr

__all__ = ["check_queue", "checked_events", "events_of", "record_event"]


_LISTS = (list, tuple)


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
    events: list[Any] = list(wait_for) if isinstance(wait_for, _LISTS) else [None]
    context = queue.context.int_ptr
    for event in events:
        if not isinstance(event, cl.Event):
            msg = f"wait_for must be a list of pyopencl.Event, not {short_repr(wait_for)}"
            raise MemdescError(msg)
        try:
            found = event.context.int_ptr  # type: ignore[attr-defined] # pyopencl's stubs lack it
        except cl.Error:
            # it is gone, which Intel's events do not prevent
            found = None
        if found != context:
            msg = (
                "wait_for has an event of another context than the queue; "
                "wait for it on the host: event.wait()"
            )
            raise MemdescError(msg)
    return events


def events_of(queue: cl.CommandQueue, memory: Any) -> list[cl.Event]:
    """Return what must be complete before memory is used: the events that an Array carries.

    Its own queue is flushed, since another queue would wait forever for what is not submitted.
    """
    if not isinstance(memory, cl.array.Array) or not memory.events:
        return []
    if memory.queue is not None and memory.queue != queue:
        memory.queue.flush()
    return checked_events(queue, memory.events)


def record_event(memory: Any, event: cl.Event) -> None:
    """Let an Array carry the event of its last write, which waited for all before it."""
    if isinstance(memory, cl.array.Array):
        # `add_event` alone would wait here for the first events once there are twelve
        memory.events.clear()
        memory.add_event(event)
