"""Reorder from one file into another in pieces, with bounded memory for tensors of any size."""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc.errors import about
from reorder.storage.containers.entry import Entry, PlannedFile, Span
from reorder.storage.containers.table import plan_file
from reorder.storage.containers.writer import Writer
from reorder.storage.files import DEFAULT_NAME
from reorder.storage.pieces.changes import ONLY, Reorder
from reorder.storage.pieces.losses import Losses, Move, check_range
from reorder.storage.pieces.pieces import Bound, cut
from reorder.storage.pieces.tasks import Task, run_tasks
from reorder.storage.stored import stored_layout

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memdesc import MemoryDesc
    from reorder.memory.memory import Memory
    from reorder.values.attr import Attr


class FileReorder(NamedTuple):
    """A reorder between files."""

    # the bytes that are read, what they hold, and what is written
    entry: Entry
    src: MemoryDesc
    dst: MemoryDesc
    attr: Attr | None = None
    # the layout that the file gives for the bytes of dst, such as dst itself; None writes them
    # without a header, as `save_raw` does
    stored: MemoryDesc | None = None
    # what the tensor is called in the file
    name: str = DEFAULT_NAME

    @property
    def nbytes(self) -> int:
        """Bytes of both tensors."""
        return self.src.nbytes + self.dst.nbytes


def reorder_file(
    given: FileReorder,
    target: Path,
    *,
    max_bytes: int,
    threads: int,
    step: Callable[[int], None] | None = None,
) -> None:
    """Reorder a tensor of a file into another file, which gets its name when it is complete.

    *Law*: the file is the one that `save` or `save_raw` writes for the reordered tensor.

    An existing target is replaced, even if it is the source. All pieces together take `max_bytes`
    of memory; `threads` of them run at a time. `step` is called with the number of bytes written
    since its last call. Fails if there is no such reorder, no piece fits, or a file cannot be read
    or written; then no files are left.
    """
    change = Reorder(given.src, given.dst, given.attr)
    pieces = cut(change, Bound.shared(max_bytes, threads))
    if given.stored is None:
        spans = {given.name: Span(0, given.dst.nbytes)}
        files: tuple[PlannedFile, ...] = (PlannedFile(target.name, given.dst.nbytes, (), spans),)
    else:
        files = plan_file(target, [stored_layout(given.name, given.stored)], {})
    with Writer(target, files, overwrite=True) as writer:
        src, dst = ((ONLY, each) for each in (given.entry.place, writer.where(given.name)))
        tasks = (Task(given.name, piece, (src,), (dst,)) for piece in pieces)
        losses = Losses()

        def finish(task: Task, lost: Any) -> None:
            losses.add(task.name, lost)
            if step is not None:
                step(task.written)

        try:
            run_tasks(
                tasks,
                threads,
                max_bytes,
                finish,
                methodcaller("run"),
            )
            losses.check([given.name])
            given.entry.check_unchanged()
            writer.finish()
        except BaseException:
            writer.discard()
            raise


def check_reordered(src: Memory, dst: Memory, attr: Attr | None) -> None:
    """Refuse what `reorder_file` refuses, after a reorder in memory."""
    losses = Losses()
    with about(DEFAULT_NAME):
        move = Move(src.desc, dst.desc, attr)
        losses.add(DEFAULT_NAME, check_range(move, {ONLY: src.data}, dst.data, ()))
    losses.check([DEFAULT_NAME])
