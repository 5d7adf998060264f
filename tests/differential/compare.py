"""Where two descriptors, or two buffers, differ."""

import random
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from memdesc import MemoryDesc
from memdesc.errors import NotBlockedError
from reorder import execute
from reorder.plan import ReorderPlan

from .libdnnl import DATA_TYPES, FORMAT_KIND_BLOCKED, Desc, Fields, Library, Status

# oneDNN 3.13 may read and write so much beyond the buffers
_SLACK: Final = 4096

_NAMES: Final = (
    "ndims",
    "dims",
    "padded_dims",
    "padded_offsets",
    "offset0",
    "strides",
    "inner_blks",
    "inner_idxs",
)


def differing_fields(ours: MemoryDesc, theirs: Fields) -> dict[str, tuple[object, object]]:
    """Return each field in which memdesc differs: its value, and oneDNN's."""
    # oneDNN's size leaves out what offset0 skips
    mine: dict[str, object] = {
        **{name: _ask(ours, name) for name in _NAMES},
        "data_type": DATA_TYPES[ours.dtype.name],
        "format_kind": FORMAT_KIND_BLOCKED,
        "size": ours.dtype.nbytes(ours.layout.span),
    }
    found = {
        name: (value, getattr(theirs, name))
        for name, value in mine.items()
        if value != getattr(theirs, name)
    }
    whole = ours.nbytes - ours.offset0 * ours.dtype.bits // 8 if ours.nelems else 0
    if "size" not in found and ours.dtype.bits > 4 and whole != theirs.size:
        found["nbytes"] = (ours.nbytes, theirs.size)
    return found


def _ask(desc: MemoryDesc, name: str) -> object:
    try:
        return getattr(desc, name)
    except NotBlockedError as error:
        return str(error)


def offsets_of(fields: Fields, extents: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the offset of every position below `extents`: oneDNN's rule, from its own fields."""
    total = np.full((1,) * fields.ndims, fields.offset0, np.int64)
    for dim, (extent, stride) in enumerate(zip(extents, fields.strides, strict=True)):
        rest = np.arange(extent, dtype=np.int64)
        table = np.zeros_like(rest)
        inside = 1
        for size, blocked in zip(
            reversed(fields.inner_blks), reversed(fields.inner_idxs), strict=True
        ):
            if blocked == dim:
                table += rest % size * inside
                rest //= size
            inside *= size
        table += rest * stride
        total = total + table.reshape([-1 if axis == dim else 1 for axis in range(fields.ndims)])
    return total


def is_padding(fields: Fields) -> NDArray[np.bool_]:
    """Return, over the padded box, which positions lie beyond the dims."""
    outside = np.ones(fields.padded_dims, np.bool_)
    outside[tuple(slice(size) for size in fields.dims)] = False
    return outside


def where_bytes_differ(
    fields: Fields, ours: NDArray[np.uint8], theirs: NDArray[np.uint8], width: int
) -> dict[str, int]:
    """Count the elements of `width` bytes in which two buffers of dst differ, by their kind."""
    elements = np.unique(np.flatnonzero(ours != theirs) // width)
    padded = offsets_of(fields, fields.padded_dims)
    padding = is_padding(fields)
    parts = {"data": padded[~padding], "padding": padded[padding]}
    found = {name: int(np.isin(elements, offsets).sum()) for name, offsets in parts.items()}
    found["gaps"] = len(elements) - sum(found.values())
    return {name: count for name, count in found.items() if count}


def reordered_by_both(
    library: Library,
    plan: ReorderPlan,
    descs: Sequence[Desc],
    buffers: tuple[NDArray[np.uint8], NDArray[np.uint8]],
    rng: random.Random,
    *more: Any,
) -> tuple[Status, NDArray[np.uint8], NDArray[np.uint8]]:
    """Execute a plan and a reorder of oneDNN on copies of src and dst; return what dst becomes."""
    source, before = buffers
    ours = before.copy()
    execute(plan, source, ours, threads=rng.choice((1, 2, None)))
    given, theirs = (np.concatenate([each, np.zeros(_SLACK, np.uint8)]) for each in buffers)
    return library.reorder(descs, (given, theirs), *more), ours, theirs[: before.size]
