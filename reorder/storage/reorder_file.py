"""A reorder from a file into a .npy in pieces: memory is bounded, whatever the tensors take."""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, NamedTuple

from reorder.plan.plan import plan_reorder
from reorder.storage.containers import npy
from reorder.storage.containers.plan import Tensor
from reorder.storage.containers.writer import Writer
from reorder.storage.convert.engine import run_tasks
from reorder.storage.convert.tasks import MoveTask
from reorder.storage.pieces.files import Place
from reorder.storage.pieces.pieces import cut
from reorder.storage.pieces.regions import PIECE_NBYTES, Bound

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memdesc import MemoryDesc
    from reorder.storage.containers.entry import Entry
    from reorder.values.attr import Attr

__all__ = ["FileReorder", "reorder_file"]

_NAME = "tensor"


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
    """

    entry: Entry
    src: MemoryDesc
    dst: MemoryDesc
    attr: Attr | None = None

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
    """Reorder a tensor of a file into a .npy, which gets its name when it is complete.

    *Law*: the file is the one that `save` writes of the reordered tensor.

    Parameters
    ----------
    given : FileReorder
        What is read and written.
    target : Path
        The .npy; one that is there is replaced, also by a reorder of itself.
    max_bytes : int
        What pieces may hold in memory, all together.
    threads : int
        How many pieces run at a time.
    step : callable, optional
        Called with the bytes that have been written since.

    Raises
    ------
    MemdescError
        If there is no such reorder, no piece fits, or a file cannot be read or written; nothing
        is there then that was not before.
    """
    share = max(min(PIECE_NBYTES, max_bytes // threads), 1)
    pieces = cut(plan_reorder(given.src, given.dst, given.attr), Bound(share, max_bytes))
    tensor = Tensor(_NAME, "u8", (given.dst.nbytes,), given.dst.nbytes, given.dst)
    with Writer(target, npy.plan(target.name, [tensor], {}), overwrite=True) as writer:
        path, span = writer.where(_NAME)
        src = Place(given.entry.file, given.entry.offset, given.entry.nbytes)
        dst = Place(path, span.offset, span.nbytes)
        tasks = enumerate(MoveTask(_NAME, piece, src, dst) for piece in pieces)
        try:
            run_tasks(
                tasks,
                threads,
                max_bytes,
                lambda _, task: step(task.written) if step is not None else None,
                methodcaller("run"),
            )
            given.entry.check_unchanged()
            writer.finish()
        except BaseException:
            writer.discard()
            raise
