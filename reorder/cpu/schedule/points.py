"""Points: the offsets of a box in each operand, for each step of its lookups."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reorder.cpu.record import fields_of
from reorder.cpu.target import BYTE_BITS
from reorder.plan.nodes import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from reorder.plan.nodes import Lookup

__all__ = ["Point", "each_points", "points_in_bytes"]

# Most points of one table, so that it stays in the cache while a walker reads it.
_MAX_POINTS = 1 << 13


class Point(NamedTuple):
    """The offsets of a box in src and dst; a walker of boxes reads a table of these."""

    # in bytes, those of 4-bit elements in elements; `NOWHERE` in src: zeros are written
    src: int
    dst: int


_POINT = fields_of(Point)


def each_points(lookups: tuple[Lookup, ...]) -> Iterator[NDArray[np.int64]]:
    """Yield the points of all steps of lookups, in tables of bounded size.

    A row has the offset in each operand, in elements: src, dst, then those of the parameters.
    """
    space = _MAX_POINTS
    steps = []
    for lookup in reversed(lookups):
        steps.append(max(1, min(lookup.extent, space)))
        space //= steps[-1]
    ranges = [
        range(0, lookup.extent, step) for lookup, step in zip(lookups, reversed(steps), strict=True)
    ]
    for starts in product(*ranges):
        points = np.zeros((1, len(_POINT) + len(lookups[0].others)), np.int64)
        for lookup, start, steps_of_lookup in zip(lookups, starts, ranges, strict=True):
            stop = min(start + steps_of_lookup.step, lookup.extent)
            offsets = np.stack(lookup.tables(start, stop), axis=1)
            src = points[:, None, _POINT.src]
            is_padding = (src == NOWHERE) | (offsets[:, _POINT.src] == NOWHERE)
            points = points[:, None] + offsets
            points[..., _POINT.src][is_padding] = NOWHERE
            points = points.reshape(-1, offsets.shape[1])
        yield points


def points_in_bytes(points: NDArray[np.int64], bits: int) -> NDArray[np.int64]:
    """Return the offsets in src and dst of points of elements of some bits, as `Point` has them."""
    offsets = points[:, : len(_POINT)]
    is_padding = offsets[:, _POINT.src] == NOWHERE
    scaled = np.where(offsets == NOWHERE, 0, offsets) * max(1, bits // BYTE_BITS)
    scaled[is_padding, _POINT.src] = NOWHERE
    return np.ascontiguousarray(scaled)
