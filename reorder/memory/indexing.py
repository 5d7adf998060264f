"""Elements by logical index: `memory[1, 9]` and `memory[:, 3]`, as in numpy."""

from __future__ import annotations

from operator import index as to_int
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import DataType, ImageDesc, MemdescError, MemoryDesc
from memdesc.errors import OutOfRangeError, short_repr
from memdesc.layout import dim_name
from memdesc.tuples import NamedTuple
from reorder.memory.arrays import bits_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


class Indexed:
    """The part of an array's interface that host and device memory take from the descriptor."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def desc(self) -> MemoryDesc | ImageDesc:
            """The descriptor."""

        def __getitem__(self, key: Any) -> Any: ...

    @property
    def dims(self) -> tuple[int, ...]:
        """Logical sizes, as `desc.dims`."""
        return self.desc.dims

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical sizes, under numpy's name."""
        return self.desc.dims

    @property
    def dtype(self) -> DataType:
        """Type of the elements, as `desc.dtype`; numpy takes it as a dtype."""
        return self.desc.dtype

    @property
    def ndims(self) -> int:
        """Number of dims, as `desc.ndims`."""
        return len(self.desc.dims)

    @property
    def ndim(self) -> int:
        """Number of dims, under numpy's name."""
        return len(self.desc.dims)

    def __len__(self) -> int:
        return self.desc.dims[0]

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.desc!r})"

    def _repr_html_(self) -> str:
        return self.desc._repr_html_()


class Selection(NamedTuple):
    """The offsets of the elements that a key selects; `shape` is () for one element."""

    offsets: NDArray[np.int64]
    shape: tuple[int, ...]

    def span(self, desc: MemoryDesc) -> tuple[int, int]:
        """Return the first byte that holds the elements, and one past the last."""
        if not self.offsets.size:
            return 0, 0
        bits = desc.dtype.bits
        first, last = int(self.offsets.min()), int(self.offsets.max())
        return first * bits // 8, desc.dtype.nbytes(last + 1)


def select_elements(desc: MemoryDesc, key: Any) -> Selection:
    """Return which logical elements a key of integers, slices and `...` selects."""
    along = _per_dim(key, desc)
    shape = tuple(len(at) for at in along if isinstance(at, np.ndarray))
    index: list[Any] = []
    axis = 0
    for at in along:
        if isinstance(at, np.ndarray):
            axis += 1
            index.append(at.reshape([-1 if k == axis else 1 for k in range(1, len(shape) + 1)]))
        else:
            index.append(np.asarray(at))
    return Selection(np.broadcast_to(desc.layout.offset(tuple(index)), shape), shape)


def elements_at(data: NDArray[np.uint8], desc: MemoryDesc, selection: Selection, start: int) -> Any:
    """Return selected elements as a read-only array, or as a numpy scalar.

    `data` has the bytes of the buffer from byte `start` on: a multiple of the element size, or any
    byte for 4-bit elements.
    """
    dtype = desc.dtype
    offsets = selection.offsets - start * 8 // dtype.bits
    if dtype.is_packed:
        bits = data[offsets >> 1] >> ((offsets & 1) << 2).astype(np.uint8) & 15
    else:
        bits = bits_of(data, desc)[offsets]
    elements = np.asarray(bits).view(dtype.numpy)
    elements.flags.writeable = False
    return elements if selection.shape else elements[()]


def _per_dim(key: Any, desc: MemoryDesc) -> list[int | NDArray[np.int64]]:
    items = list(key) if isinstance(key, tuple) else [key]
    ellipses = [k for k, entry in enumerate(items) if entry is Ellipsis]
    missing = desc.ndims - len(items) + len(ellipses)
    if missing < 0 or len(ellipses) > 1:
        what = "more than one ..." if len(ellipses) > 1 else f"{len(items) - len(ellipses)} entries"
        raise OutOfRangeError(
            f"index {short_repr(key)} has {what}, but {desc!r} has {desc.ndims} dims"
        )
    at = ellipses[0] if ellipses else len(items)
    items[at : at + 1] = [slice(None)] * missing
    sizes = zip(items, desc.dims, strict=True)
    return [
        _entry(entry, size, dim_name(dim, desc.letters)) for dim, (entry, size) in enumerate(sizes)
    ]


def _entry(entry: Any, size: int, name: str) -> int | NDArray[np.int64]:
    """Return the index, or the indices of a slice, that one entry of a key selects along a dim."""
    if isinstance(entry, slice):
        try:
            return np.arange(*entry.indices(size))
        except (TypeError, ValueError) as error:
            raise MemdescError(f"{short_repr(entry)} of {name}: {error}") from None
    try:
        i = to_int(entry)
    except TypeError:
        i = None
    if i is None or isinstance(entry, bool):
        raise MemdescError(
            f"index {short_repr(entry)} of {name} is neither an integer nor a slice; to "
            "index by arrays or masks, use .numpy()"
        )
    if not -size <= i < size:
        raise OutOfRangeError(
            f"index {short_repr(i)} of {name} is not in {-size} to {size - 1}"
            if size
            else f"{name} has no index: its size is 0"
        )
    return i % size
