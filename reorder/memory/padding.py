"""Clear and check the padding of flat bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemoryDesc, PaddingError
from memdesc.swizzle import swizzled
from memdesc.tuples import NamedTuple
from reorder.memory.arrays import bits_of, write_back
from reorder.plan.boxes import padding_boxes
from reorder.plan.nodes import DST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


def clear_padding(data: NDArray[np.uint8], desc: MemoryDesc) -> None:
    """Write zeros into all padding, and nothing else."""
    values = bits_of(data, desc)
    if desc.layout.xor:
        values[_offsets(desc)] = 0
    else:
        for part in _parts(values, desc):
            part[...] = 0
    write_back(values, data, desc)


class NonZero(NamedTuple):
    """A padding element that is not zero: its index in the padded dims, its byte, its bits."""

    at: tuple[int, ...]
    byte: int
    bits: int


def find_nonzero(
    data: NDArray[np.uint8], desc: MemoryDesc, limit: int
) -> tuple[int, list[NonZero]]:
    """Count the padding elements that are not zero, and list the first ones, up to a limit."""
    values = bits_of(data, desc)
    if not desc.layout.xor and not any(part.any() for part in _parts(values, desc)):
        return 0, []
    offsets = _offsets(desc)
    nonzero = np.sort(offsets[values[offsets] != 0])
    places = [
        NonZero(tuple(desc.index(int(at))), int(at) * desc.dtype.bits // 8, int(values[at]))
        for at in nonzero[:limit]
    ]
    return len(nonzero), places


def check_padding(data: NDArray[np.uint8], desc: MemoryDesc) -> None:
    """Refuse padding that holds anything but zeros."""
    _, places = find_nonzero(data, desc, 1)
    for at, byte, bits in places:
        raise PaddingError(
            f"padding of {desc!r} is not zero at {at}, byte {byte}: found bits {bits:#x} "
            f"beyond the dims {desc.dims}; Memory(desc, buffer) clears it"
        )


def _offsets(desc: MemoryDesc) -> NDArray[np.int64]:
    """Return the offset of each padding element once."""
    is_padding = np.zeros(desc.layout.base().last + 1, np.bool_)
    for part in _parts(is_padding, desc):
        part[...] = True
    return np.asarray(swizzled(desc.layout.xor, np.flatnonzero(is_padding)))


def _parts(values: NDArray[Any], desc: MemoryDesc) -> Iterator[NDArray[Any]]:
    """Return views of all padding before XOR terms; what a stride of 0 repeats appears once."""
    for box in padding_boxes(desc):
        nodes = [node for node in box.nodes if node.strides[DST]]
        shape = [node.extent for node in nodes]
        strides = [node.strides[DST] * values.itemsize for node in nodes]
        start = box.offsets[DST] * values.itemsize
        part: NDArray[Any] = np.ndarray(shape, values.dtype, values, start, strides)
        yield part
