"""Reorder from one file into another in pieces, with bounded memory whatever the tensors' size."""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, NamedTuple

from reorder.storage.containers.entry import PlannedFile, Span
from reorder.storage.containers.table import plan_file
from reorder.storage.containers.writer import Writer
from reorder.storage.files import DEFAULT_NAME
from reorder.storage.pieces.changes import ONLY, Reorder
from reorder.storage.pieces.pieces import PIECE_NBYTES, Bound, cut
from reorder.storage.pieces.tasks import Task, run_tasks
from reorder.storage.stored import stored_layout

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memdesc import MemoryDesc
    from reorder.storage.containers.entry import Entry
    from reorder.values.attr import Attr

__all__ = ["FileReorder", "reorder_file"]


class FileReorder(NamedTuple):
    """A reorder between files.

    Attributes
    ----------
    entry : Entry
        The bytes that are read.
    src, dst : MemoryDesc
        What they hold, and what is written.
    attr : Attr, optional
        Scales and zero points.
    stored : MemoryDesc, optional
        What the file says of the bytes of dst, such as dst itself; None writes them without a
        header, as `save_raw` does.
    """

    entry: Entry
    src: MemoryDesc
    dst: MemoryDesc
    attr: Attr | None = None
    stored: MemoryDesc | None = None

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

    Parameters
    ----------
    given : FileReorder
        What is read and written.
    target : Path
        The file to write; an existing one is replaced, even if it is the source.
    max_bytes : int
        What pieces may hold in memory, all together.
    threads : int
        How many pieces run at a time.
    step : callable, optional
        Called with the bytes that have been written since.

    Raises
    ------
    MemdescError
        If there is no such reorder, no piece fits, or a file cannot be read or written; nothing is
        left behind then.
    """
    share = max(min(PIECE_NBYTES, max_bytes // threads), 1)
    change = Reorder(given.src, given.dst, given.attr)
    pieces = cut(change, Bound(share, max_bytes))
    if given.stored is None:
        spans = {DEFAULT_NAME: Span(0, given.dst.nbytes)}
        files: tuple[PlannedFile, ...] = (PlannedFile(target.name, given.dst.nbytes, (), spans),)
    else:
        files = plan_file(target, [stored_layout(DEFAULT_NAME, given.stored)], {})
    with Writer(target, files, overwrite=True) as writer:
        src, dst = ((ONLY, each) for each in (given.entry.place, writer.where(DEFAULT_NAME)))
        tasks = enumerate(Task(DEFAULT_NAME, piece, (src,), (dst,)) for piece in pieces)
        try:
            run_tasks(
                tasks,
                threads,
                max_bytes,
                lambda _, task, __: step(task.written) if step is not None else None,
                methodcaller("run"),
            )
            given.entry.check_unchanged()
            writer.finish()
        except BaseException:
            writer.discard()
            raise
