"""How far the weights that a conversion writes are from those of its source."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from memdesc import RecordDesc
from reorder.memory.memory import Memory
from reorder.records.decode import largest_difference
from reorder.storage.pieces.changes import ONLY, record_of

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from reorder.storage.pieces.changes import Bytes, Change

__all__ = ["Largest", "Rounding", "rounding_of"]


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

    def add(self, found: Rounding | None) -> None:
        """Keep a rounding if it is larger than all before; None if nothing was rounded."""
        if found is None:
            return
        with self._lock:
            # ties go to the first by name, so that the order of threads changes nothing
            key = (-found.error, found.name, found.weight)
            old = self.found
            if old is None or key < (-old.error, old.name, old.weight):
                self.found = found


def rounding_of(name: str, change: Change, read: Bytes, written: Bytes) -> Rounding:
    """Return the largest rounding of a change between a record and floats."""
    src, dst = change.src, change.dst
    if isinstance(src, RecordDesc):
        assert not isinstance(dst, RecordDesc)  # noqa: S101 - what moves codes does not round
        found = largest_difference(record_of(src, read), _memory(dst, written), 1)
        return Rounding(found.error, found.number, name)
    assert isinstance(dst, RecordDesc)  # noqa: S101 - likewise
    found = largest_difference(record_of(dst, written), _memory(src, read), 1)
    return Rounding(found.error, found.other, name)


def _memory(desc: MemoryDesc, data: Bytes) -> Memory:
    return Memory(desc, data[ONLY][: desc.nbytes], zero_pad=False)
