"""Boxes of a plan as loops over pixels: linear offsets become column, row and lane.

A plan knows an image as its dense linear buffer. A loop over one of its strides
moves in one direction only: along the lanes, the columns or the rows. Loops that
`simplify` fused across the end of a pixel or a row are split there again.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from reorder.plan.passes import split_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memdesc import ImageDesc
    from reorder.plan.nodes import Box, Lookup

__all__ = ["Lane", "Loop", "Place", "Raster", "Task", "place_box"]


class Raster(NamedTuple):
    """The pixels of an image, as one side of a plan: `width` columns of `channels` lanes."""

    width: int
    channels: int

    @classmethod
    def of(cls, image: ImageDesc | None) -> Raster | None:
        """Return the raster of an image; None stays None, a buffer."""
        return None if image is None else cls(image.width, image.channels)


# Where something lies: (offset,) in a buffer, (column, row) in an image.
Place = tuple[int, ...]


class Loop(NamedTuple):
    """`extent` steps, of which the first `valid` hold data, and how far each moves in src and in dst."""

    extent: int
    valid: int
    src: Place
    dst: Place


class Lane(NamedTuple):
    """One element of those that a work item moves together.

    In an image `src` and `dst` are the number of the lane, in a buffer they are
    offsets. Where it is not valid, zero is written.
    """

    src: int
    dst: int
    is_valid: bool


class Task(NamedTuple):
    """A box for the device: where it starts, what a work item moves, over what it loops, outermost first."""

    src: Place
    dst: Place
    lanes: tuple[Lane, ...]
    loops: tuple[Loop, ...]
    lookups: tuple[Lookup, ...] = ()

    @property
    def is_zero(self) -> bool:
        """Whether only zeros are written."""
        return not any(lane.is_valid for lane in self.lanes) or any(
            loop.valid == 0 for loop in self.loops
        )


class _Mixed(NamedTuple):
    """A loop on its way: each side is a linear stride, or column, row and lane."""

    extent: int
    valid: int
    sides: tuple[tuple[int, ...], tuple[int, ...]]


def place_box(box: Box, rasters: tuple[Raster | None, Raster | None]) -> tuple[Task, ...] | None:
    """Turn a box into loops over pixels.

    Parameters
    ----------
    box : Box
        Of a plan between two linear buffers.
    rasters : pair of Raster or None
        For src and dst: the pixels of an image, or None for a buffer.

    Returns
    -------
    tuple of Task, or None
        None where no loops over whole pixels of dst say it: blocks that are looked up,
        or that cut a pixel in two.
    """
    if rasters == (None, None):
        loops = tuple(
            Loop(node.extent, node.valid, node.strides[:1], node.strides[1:]) for node in box.nodes
        )
        return (
            Task(
                box.offsets[:1], box.offsets[1:], (Lane(0, 0, not box.is_zero),), loops, box.lookups
            ),
        )
    if box.lookups:
        return None
    boxes = [box]
    for side, raster in enumerate(rasters):
        if raster is not None:
            boxes = [piece for own in boxes for piece in _cut(own, side, raster)]
    tasks = [_place(own, rasters) for own in boxes]
    placed = tuple(task for task in tasks if task is not None)
    return placed if len(placed) == len(tasks) else None


def _cut(box: Box, side: int, raster: Raster) -> Iterator[Box]:
    """Split loops at the ends of pixels and rows, so that each moves along lanes, columns or rows."""
    for node in box.nodes:
        room = _room(node.strides[side], raster)
        if room and node.extent > room:
            for piece in split_node(box, node, room):
                yield from _cut(piece, side, raster)
            return
    yield box


def _place(box: Box, rasters: tuple[Raster | None, Raster | None]) -> Task | None:
    """Return the task of a box whose loops are cut, or None if they are askew."""
    mixed: list[_Mixed] = [
        _Mixed(node.extent, node.valid, ((node.strides[0],), (node.strides[1],)))
        for node in box.nodes
    ]
    starts: list[tuple[int, ...]] = [(offset,) for offset in box.offsets]
    for side, raster in enumerate(rasters):
        # a box of zeros reads nothing
        if raster is None or (side == 0 and box.is_zero):
            continue
        if any(_room(node.strides[side], raster) is None for node in box.nodes):
            return None
        starts[side] = _split(box.offsets[side], raster)
        mixed = [
            loop._replace(sides=_replaced(loop.sides, side, _split(loop.sides[side][0], raster)))
            for loop in mixed
        ]
        last = [
            at + sum(loop.sides[side][k] * (loop.extent - 1) for loop in mixed)
            for k, at in enumerate(starts[side])
        ]
        # no step may carry from lanes into columns, or from columns into rows
        if last[0] >= raster.width or last[2] >= raster.channels:
            return None
    return _with_lanes(starts, mixed, rasters[1])


def _split(offset: int, raster: Raster) -> tuple[int, int, int]:
    """Return column, row and lane of a linear offset, or of a stride."""
    pixel, lane = divmod(offset, raster.channels)
    row, column = divmod(pixel, raster.width)
    return column, row, lane


def _replaced(
    sides: tuple[tuple[int, ...], tuple[int, ...]], side: int, own: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (own, sides[1]) if side == 0 else (sides[0], own)


def _room(stride: int, raster: Raster) -> int | None:
    """Return the steps of a linear stride that stay in one pixel or row: 0 without end, None if it is askew."""
    if stride < 0:
        return None
    if stride == 0:
        return 0
    if stride < raster.channels:
        return None if raster.channels % stride else raster.channels // stride
    pixels, lanes = divmod(stride, raster.channels)
    if lanes:
        return None
    if pixels < raster.width:
        return None if raster.width % pixels else raster.width // pixels
    return None if pixels % raster.width else 0


def _with_lanes(
    starts: list[tuple[int, ...]], loops: list[_Mixed], dst: Raster | None
) -> Task | None:
    """Take the loops that stay in a pixel as lanes."""
    inside = [loop for loop in loops if any(len(steps) > 1 and steps[2] for steps in loop.sides)]
    around = [loop for loop in loops if loop not in inside]
    # beside the lanes of one side lie offsets of a buffer, or the same lanes
    if any(len(steps) > 1 and any(steps[:2]) for loop in inside for steps in loop.sides):
        return None
    lanes = []
    for index in product(*(range(loop.extent) for loop in inside)):
        src, dst_at = (
            (starts[side][2] if len(starts[side]) > 1 else 0)
            + sum(i * loop.sides[side][-1] for i, loop in zip(index, inside, strict=True))
            for side in (0, 1)
        )
        is_valid = all(i < loop.valid for i, loop in zip(index, inside, strict=True))
        lanes.append(Lane(src, dst_at, is_valid and all(loop.valid for loop in around)))
    lanes.sort(key=lambda lane: lane.dst)
    if dst is not None and [lane.dst for lane in lanes] != list(range(dst.channels)):
        return None
    if (
        len(starts[0]) > 1
        and len(starts[1]) > 1
        and any(lane.is_valid and lane.src != lane.dst for lane in lanes)
    ):
        return None
    src_start, dst_start = (start[:2] if len(start) > 1 else start for start in starts)
    out = tuple(
        Loop(
            loop.extent,
            loop.valid,
            *(steps[:2] if len(steps) > 1 else steps for steps in loop.sides),
        )
        for loop in around
    )
    return Task(src_start, dst_start, tuple(lanes), out)
