"""How far the weights of a conversion are from those of its source, where it rounds them."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memdesc import MemoryDesc, RecordDesc, memory_desc
from reorder.api import reorder
from reorder.memory.memory import Memory
from reorder.records.decode import dequantize_record
from reorder.records.record import Record
from reorder.storage.convert.tasks import cut_job
from reorder.storage.pieces.files import Place, open_to_read, read_runs
from reorder.storage.pieces.move_record import read_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from reorder.storage.convert.jobs import Job
    from reorder.storage.pieces.pieces import RecordPiece
    from reorder.storage.pieces.regions import Bound

__all__ = ["Largest", "MeasureTask", "Rounding", "measure_tasks"]


class Rounding(NamedTuple):
    """The weight that rounding changed most.

    Attributes
    ----------
    error : float
        How far what was written is from it; inf if the type overflows.
    weight : float
        Its value in f32.
    name : str
        The record that it is in.
    """

    error: float
    weight: float
    name: str

    def __str__(self) -> str:
        return f"at most {self.error:.6g}, at a weight of {self.weight:.6g} in {self.name}"


class MeasureTask(NamedTuple):
    """A piece of a record that was decoded, and its places in both checkpoints."""

    name: str
    piece: RecordPiece
    src: tuple[tuple[str, Place], ...]
    dst: Place

    @property
    def nbytes(self) -> int:
        """Bytes that it needs in memory: two arrays of f32 beside the piece."""
        return self.piece.nbytes + 2 * memory_desc(self.piece.src.dims, "f32").nbytes

    @property
    def written(self) -> int:
        """Bytes that are compared."""
        return sum(runs.nbytes for _, runs in self.piece.writes)

    def run(self) -> Rounding:
        """Return the weight of the piece that was changed most."""
        record = Record(self.piece.src, read_tensors(self.piece, dict(self.src)))
        wanted = dequantize_record(record, "f32", None, 1).numpy()
        error = self._found()
        with np.errstate(invalid="ignore", over="ignore"):
            np.abs(np.subtract(wanted, error, out=error), out=error)
        if np.isnan(error.max(initial=0)):
            # two NaNs and two equal infinities are as they should be
            found = self._found()
            same = (wanted == found) | (np.isnan(wanted) & np.isnan(found))
            error = np.where(np.isnan(error), np.where(same, 0, np.inf), error)
        at = int(error.argmax())
        return Rounding(float(error.flat[at]), float(wanted.flat[at]), self.name)

    def _found(self) -> NDArray[np.float32]:
        """Return what was written, in f32."""
        (_, runs), desc = self.piece.writes[0], self.piece.dst
        assert isinstance(desc, MemoryDesc)  # noqa: S101 - as `measure_tasks` chose it
        data = np.zeros(max(runs.nbytes, desc.nbytes), np.uint8)
        with open_to_read(self.dst.path) as file:
            read_runs(file, runs, self.dst, data)
        held = Memory(desc, data[: desc.nbytes], zero_pad=False)
        found: NDArray[np.float32] = reorder(held, memory_desc(desc.dims, "f32"), threads=1).numpy()
        return found


def measure_tasks(
    jobs: Iterable[Job], places: Mapping[str, Place], bound: Bound
) -> Iterator[MeasureTask]:
    """Return tasks that compare the records that were decoded with what was written."""
    for job in jobs:
        if isinstance(job.src, RecordDesc) and isinstance(job.dst, MemoryDesc):
            src = tuple((k, Place(e.file, e.offset, e.nbytes)) for k, e in job.sources.items())
            dst = places[job.targets[""].name]
            for piece in cut_job(job, bound):
                yield MeasureTask(job.name, piece, src, dst)


class Largest:
    """The largest of the roundings that threads find."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.found: Rounding | None = None

    def measure(self, task: MeasureTask) -> None:
        """Measure a piece."""
        found = task.run()
        with self._lock:
            # of equal ones the first by name, so that threads change nothing
            key = (-found.error, found.name, found.weight)
            old = self.found
            if old is None or key < (-old.error, old.name, old.weight):
                self.found = found
