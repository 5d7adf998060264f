"""Boxes of a plan as loop nests over pixels: linear offsets become column, row and lane.

A plan treats an image as its dense linear buffer. On a device each loop runs in one direction:
along the lanes of a pixel, the columns, or the rows. Loops that `simplify` fused across the end of
a pixel or a row are split there.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from reorder.plan.passes import split_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memdesc import ImageDesc
    from reorder.plan.nodes import Box, IndirectLoop

__all__ = [
    "Coords",
    "ImageShape",
    "Lane",
    "Loop",
    "MovingLoops",
    "Nest",
    "place_box",
]


class ImageShape(NamedTuple):
    """The pixels of an image as a linear buffer: rows of `width` pixels of `channels` lanes."""

    width: int
    channels: int

    @classmethod
    def of(cls, image: ImageDesc) -> ImageShape:
        """Return the shape of an image."""
        return cls(image.width, image.channels)

    def coords(self, offset: int) -> Coords:
        """Return column, row and lane of a linear offset, or of a stride."""
        pixel, lane = divmod(offset, self.channels)
        row, column = divmod(pixel, self.width)
        return column, row, lane

    def max_extent(self, stride: int) -> int | None:
        """Return how many steps of a linear stride stay within a pixel or a row.

        0 means any number of steps; None, that the stride does not run in one direction.
        """
        if stride < 0:
            return None
        if stride == 0:
            return 0
        if stride < self.channels:
            return None if self.channels % stride else self.channels // stride
        pixels, lanes = divmod(stride, self.channels)
        if lanes:
            return None
        if pixels < self.width:
            return None if self.width % pixels else self.width // pixels
        return None if pixels % self.width else 0


# A position or a stride: (offset,) in a buffer, (column, row) in an image. In this file it is
# (column, row, lane) in an image until `_take_lanes` removes the lane.
Coords = tuple[int, ...]
# The images of src and dst; None is a buffer.
ImageShapes = tuple[ImageShape | None, ImageShape | None]


class Loop(NamedTuple):
    """A loop of `extent` steps, of which the first `valid` hold data; strides in src and dst.

    `varying` are the strides in the scales and zero points that differ along the dims; it is empty
    if there is one step.
    """

    extent: int
    valid: int
    src: Coords
    dst: Coords
    varying: tuple[int, ...] = ()


class MovingLoops(NamedTuple):
    """The loops of a nest that take more than one step, and those without data.

    `along_src` and `along_dst` step by one element in a buffer.
    """

    loops: tuple[Loop, ...]
    along_src: Loop | None
    along_dst: Loop | None

    @property
    def outer(self) -> list[Loop]:
        """The loops along neither src nor dst."""
        along = self.along_src, self.along_dst
        return [loop for loop in self.loops if all(loop is not one for one in along)]


class Lane(NamedTuple):
    """One of the elements that a work item moves together.

    `src` and `dst` are lane numbers in an image, offsets in a buffer; `varying` are offsets. If it
    is not valid, zero is written.
    """

    src: int
    dst: int
    is_valid: bool
    varying: tuple[int, ...] = ()


class Nest(NamedTuple):
    """A box on a device: its start, the lanes of a work item, its loops, outermost first."""

    src: Coords
    dst: Coords
    lanes: tuple[Lane, ...]
    loops: tuple[Loop, ...]
    gathers: tuple[IndirectLoop, ...] = ()
    varying: tuple[int, ...] = ()

    @property
    def is_zero(self) -> bool:
        """Whether only zeros are written."""
        has_data = any(lane.is_valid for lane in self.lanes)
        return not has_data or any(loop.valid == 0 for loop in self.loops)

    def filled(self, loops: Iterable[Loop], count: int = 3) -> tuple[Loop, ...]:
        """Return loops, and loops of one step up to a number, so that there are fewer patterns."""
        loops = tuple(loops)
        sides = ((0,) * len(coords) for coords in (self.src, self.dst, self.varying))
        return loops + (Loop(1, 1, *sides),) * (count - len(loops))

    @property
    def moving(self) -> MovingLoops:
        """The loops without those of one step."""
        loops = tuple(loop for loop in self.loops if loop.extent > 1 or not loop.valid)
        along_src = next((loop for loop in loops if loop.src == (1,)), None)
        along_dst = next((loop for loop in loops if loop.dst == (1,)), None)
        return MovingLoops(loops, along_src, along_dst)


def place_box(box: Box, shapes: ImageShapes) -> tuple[Nest, ...] | None:
    """Turn a box into loop nests over pixels.

    Parameters
    ----------
    box : Box
        Of a plan between two linear buffers.
    shapes : pair of ImageShape or None
        For src and dst: the pixels of an image, or None for a buffer.

    Returns
    -------
    tuple of Nest, or None
        None if loops over whole pixels of dst cannot express it: it has indirect loops, or blocks
        that divide a pixel.
    """
    if shapes == (None, None):
        loops = tuple(
            Loop(node.extent, node.valid, node.strides[:1], node.strides[1:2], node.strides[2:])
            for node in box.nodes
        )
        src, dst, *varying = box.offsets
        lane = Lane(0, 0, not box.is_zero, (0,) * len(varying))
        return (Nest((src,), (dst,), (lane,), loops, box.indirect, tuple(varying)),)
    if box.indirect:
        return None
    boxes = [box]
    for operand, shape in enumerate(shapes):
        if shape is not None:
            boxes = [piece for part in boxes for piece in _split_box(part, operand, shape)]
    nests: list[Nest] = []
    for part in boxes:
        nest = _place_split_box(part, shapes)
        if nest is None:
            return None
        nests.append(nest)
    return tuple(nests)


def _split_box(box: Box, operand: int, shape: ImageShape) -> Iterator[Box]:
    """Split loops at the ends of pixels and rows, so that each loop runs in one direction."""
    for node in box.nodes:
        extent = shape.max_extent(node.strides[operand])
        if extent and node.extent > extent:
            for piece in split_node(box, node, extent):
                yield from _split_box(piece, operand, shape)
            return
    yield box


def _place_split_box(box: Box, shapes: ImageShapes) -> Nest | None:
    """Return the nest of a box whose loops are split; None if a loop runs in two directions."""
    starts: list[Coords] = [(offset,) for offset in box.offsets]
    strides: list[list[Coords]] = [[(node.strides[k],) for node in box.nodes] for k in (0, 1)]
    for operand, shape in enumerate(shapes):
        # a box of zeros reads nothing
        if shape is None or (operand == 0 and box.is_zero):
            continue
        if any(shape.max_extent(node.strides[operand]) is None for node in box.nodes):
            return None
        starts[operand] = shape.coords(box.offsets[operand])
        strides[operand] = [shape.coords(node.strides[operand]) for node in box.nodes]
        last = [
            start
            + sum(s[c] * (n.extent - 1) for s, n in zip(strides[operand], box.nodes, strict=True))
            for c, start in enumerate(starts[operand])
        ]
        # no step may carry from lanes into columns, or from columns into rows
        if last[0] >= shape.width or last[2] >= shape.channels:
            return None
    loops = [
        Loop(node.extent, node.valid, src, dst, node.strides[2:])
        for node, src, dst in zip(box.nodes, *strides, strict=True)
    ]
    nest = Nest(starts[0], starts[1], (), tuple(loops), varying=box.offsets[2:])
    return _take_lanes(nest, shapes[1])


def _take_lanes(nest: Nest, dst: ImageShape | None) -> Nest | None:
    """Turn the loops within a pixel into lanes."""
    inner = [loop for loop in nest.loops if _lane(loop.src) or _lane(loop.dst)]
    outer = [loop for loop in nest.loops if loop not in inner]
    # if one operand moves along lanes, the other must be a buffer, or move along lanes too
    if any(_is_image(c) and any(c[:2]) for loop in inner for c in (loop.src, loop.dst)):
        return None
    has_data = all(loop.valid for loop in outer)
    lanes = []
    for index in product(*(range(loop.extent) for loop in inner)):
        steps = list(zip(index, inner, strict=True))
        src = _lane(nest.src) + sum(i * loop.src[-1] for i, loop in steps)
        dst_lane = _lane(nest.dst) + sum(i * loop.dst[-1] for i, loop in steps)
        is_valid = has_data and all(i < loop.valid for i, loop in steps)
        varying = tuple(
            sum(i * loop.varying[k] for i, loop in steps) for k in range(len(nest.varying))
        )
        lanes.append(Lane(src, dst_lane, is_valid, varying))
    lanes.sort(key=lambda lane: lane.dst)
    if dst is not None and [lane.dst for lane in lanes] != list(range(dst.channels)):
        return None
    if (
        _is_image(nest.src)
        and _is_image(nest.dst)
        and any(lane.is_valid and lane.src != lane.dst for lane in lanes)
    ):
        return None
    loops = tuple(loop._replace(src=loop.src[:2], dst=loop.dst[:2]) for loop in outer)
    return nest._replace(src=nest.src[:2], dst=nest.dst[:2], lanes=tuple(lanes), loops=loops)


def _is_image(coords: Coords) -> bool:
    return len(coords) > 1


def _lane(coords: Coords) -> int:
    return coords[2] if _is_image(coords) else 0
