"""How far the weights of a conversion are from those of its source, where it rounds them."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memdesc import RecordDesc, memory_desc
from reorder.api import reorder
from reorder.memory.memory import Memory
from reorder.records.decode import dequantize_record
from reorder.records.record import Record
from reorder.storage.pieces.changes import ONLY
from reorder.storage.pieces.files import read_runs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import MemoryDesc
    from reorder.storage.pieces.changes import Bytes
    from reorder.storage.pieces.tasks import Task

__all__ = ["Largest", "Rounding"]


class Rounding(NamedTuple):
    """The weight that rounding changed most.

    Attributes
    ----------
    error : float
        How far what was written is from it.
    weight : float
        Its value in f32.
    name : str
        The record or tensor that it is in.
    """

    error: float
    weight: float
    name: str

    def __str__(self) -> str:
        if not self.error:
            return "no weight has changed"
        return f"at most {self.error:.6g}, at a weight of {self.weight:.6g} in {self.name}"


class Largest:
    """The largest of the roundings that threads find."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.found: Rounding | None = None

    def measure(self, task: Task) -> None:
        """Compare the numbers of a piece with those that were written."""
        found = _largest_of(task)
        with self._lock:
            # ties go to the first by name, so that the order of threads changes nothing
            key = (-found.error, found.name, found.weight)
            old = self.found
            if old is None or key < (-old.error, old.name, old.weight):
                self.found = found


def _largest_of(task: Task) -> Rounding:
    wanted = _numbers(task.piece.change.src, task.read())
    error = _written(task)
    with np.errstate(invalid="ignore", over="ignore"):
        np.abs(np.subtract(wanted, error, out=error), out=error)
    if np.isnan(error.max(initial=0)):
        # two NaNs, or two equal infinities, are not an error
        found = _written(task)
        same = (wanted == found) | (np.isnan(wanted) & np.isnan(found))
        error = np.where(np.isnan(error), np.where(same, 0, np.inf), error)
    if not error.size:
        return Rounding(0.0, 0.0, task.name)
    at = int(error.argmax())
    return Rounding(float(error.flat[at]), float(wanted.flat[at]), task.name)


def _written(task: Task) -> NDArray[np.float32]:
    """Return what a task wrote, in f32."""
    change, places, data = task.piece.change, dict(task.dst), {}
    for role, runs in task.piece.writes:
        data[role] = np.zeros(max(runs.nbytes, change.write_sizes[role]), np.uint8)
        read_runs(runs, places[role], data[role])
    return _numbers(change.dst, data)


def _numbers(desc: MemoryDesc | RecordDesc, data: Bytes) -> NDArray[np.float32]:
    """Return numbers in f32."""
    if isinstance(desc, RecordDesc):
        record = Record(desc, {name: data[name][:n] for name, n in desc.tensors.items()})
        return dequantize_record(record, "f32", None, 1).numpy()
    held = Memory(desc, data[ONLY][: desc.nbytes], zero_pad=False)
    found: NDArray[np.float32] = reorder(held, memory_desc(desc.dims, "f32"), threads=1).numpy()
    return found
