"""Boxes of a plan as loop nests over pixels: linear offsets become column, row and lane.

A plan treats an image as its dense linear buffer. On a device each loop runs in one direction:
along the lanes of a pixel, the columns, or the rows. Loops that `simplify` fused across the end of
a pixel or a row are split there.
"""

from __future__ import annotations

from itertools import product
from math import gcd, prod
from typing import TYPE_CHECKING

from memdesc.tuples import NamedTuple
from reorder.plan.passes import split_node

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from memdesc import ImageDesc
    from reorder.plan.nodes import Box, IndirectLoop


class ImageShape(NamedTuple):
    """The pixels of an image as a linear buffer: rows of `width` pixels of `channels` lanes.

    Rows are counted through all slices. A slice has `slice_rows`, which is 0 in a 2-D image; the
    slices are those of a 3-D image, or of an array of images if `is_array`.
    """

    width: int
    channels: int
    slice_rows: int = 0
    is_array: bool = False

    @classmethod
    def of(cls, image: ImageDesc) -> ImageShape:
        """Return the shape of an image."""
        slice_rows = 0 if image.kind == "2d" else image.height
        return cls(image.width, image.channels, slice_rows, image.kind == "array")

    def coords(self, offset: int) -> Coords:
        """Return column, row and lane of a linear offset, or of a stride."""
        pixel, lane = divmod(offset, self.channels)
        row, column = divmod(pixel, self.width)
        return column, row, lane

    def max_extent(self, stride: int) -> int | None:
        """Return how many steps stay in a pixel or a row; 0 means any number, None means none."""
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
    """A loop of `extent` steps; the first `valid` hold data.

    `strides` are those of src and dst, then of the scales and zero points that differ along the
    dims, then of the indices of a nest that has sizes.
    """

    extent: int
    valid: int
    strides: tuple[Coords, ...]

    def stride(self, operand: int) -> int:
        """Return the stride in a buffer, or along the columns of an image."""
        return self.strides[operand][0]

    def uniform(self, varying: tuple[str, ...]) -> tuple[str, ...]:
        """Return the roles, of those that differ along the dims, that are the same in all steps."""
        pairs = zip(varying, self.strides[2:], strict=False)
        return tuple(role for role, stride in pairs if stride == (0,))


class Lane(NamedTuple):
    """One of the elements that move together: its lane, or its distance from the first."""

    offsets: tuple[int, ...]
    is_valid: bool


class Nest(NamedTuple):
    """A box on a device: its start in each operand, the lanes of a work item, its loops.

    The outermost loop comes first, until a family of kernels orders them. Its last operands are
    indices, one for each of the `sizes`: an element holds data if each is below its size. With
    `is_limited`, dst has no others, and src may end before them; otherwise they are zeros in dst.
    """

    starts: tuple[Coords, ...]
    lanes: tuple[Lane, ...]
    loops: tuple[Loop, ...]
    indirect: tuple[IndirectLoop, ...] = ()
    sizes: tuple[int, ...] = ()
    is_limited: bool = False

    def bounds(self, operand: int) -> range:
        """Return the indices that bound an access; what varies is read only where there is data."""
        end, count = len(self.starts), len(self.sizes)
        is_bound = self.is_limited if operand else end > 2 + count or not self.is_limited
        return range(end - count if is_bound else end, end)

    @property
    def is_zero(self) -> bool:
        """Whether only zeros are written."""
        has_data = any(lane.is_valid for lane in self.lanes)
        return not has_data or any(loop.valid == 0 for loop in self.loops)

    @property
    def is_plain(self) -> bool:
        """Whether data is moved, by loops that all have strides."""
        return not self.indirect and not self.is_zero

    @property
    def steps(self) -> int:
        """Steps of all loops together."""
        return prod(loop.extent for loop in self.loops)

    @property
    def moving(self) -> list[Loop]:
        """The loops of several steps, or without data."""
        return [loop for loop in self.loops if loop.extent > 1 or not loop.valid]

    def along(self, operand: int) -> Loop | None:
        """Return the moving loop that is contiguous in a buffer."""
        return next((loop for loop in self.moving if loop.strides[operand] == (1,)), None)

    def strides(self, operand: int, along: Collection[Loop] = ()) -> list[int]:
        """Return the strides in a buffer of other loops, of indirect blocks, and of swizzles."""
        axes = [axis for loop in self.indirect for axis in (loop.src, loop.dst)[operand]]
        blocks = [block.stride for _, blocks in axes for block in blocks]
        for start, terms in (loop.xor[operand] for loop in self.indirect if loop.xor):
            blocks += [start, *(mask for _, mask in terms)]
        return [loop.stride(operand) for loop in without(self.loops, along)] + blocks

    def alignment(self, operand: int, along: Collection[Loop] = ()) -> int:
        """Return the greatest divisor of the offsets where runs start; 0 if all are 0."""
        return gcd(*self.starts[operand], *self.strides(operand, along))

    def filled(self, loops: Iterable[Loop], count: int = 3) -> tuple[Loop, ...]:
        """Pad loops to a number, so that there are fewer patterns; those over tables come last."""
        loops = tuple(loops)
        still = tuple((0,) * len(start) for start in self.starts)
        extents = [1] * (count - len(loops)) + [loop.extent for loop in self.indirect]
        return loops + tuple(Loop(extent, extent, still) for extent in extents)


def without(loops: Iterable[Loop], taken: Collection[Loop | None]) -> list[Loop]:
    """Return loops without some of them, compared by identity."""
    return [loop for loop in loops if all(loop is not one for one in taken)]


def are_apart(loops: Iterable[Loop], length: int) -> bool:
    """Whether a gap in dst follows each run of a length, one for each step of some loops."""
    for loop in sorted(loops, key=lambda loop: loop.stride(1)):
        if loop.extent > 1 and loop.stride(1) <= length:
            return False
        length += loop.stride(1) * (loop.extent - 1)
    return True


class Chain(NamedTuple):
    """The loops that form a contiguous run in an operand, and the steps of each in a tile."""

    run: tuple[int, ...]
    extents: tuple[int, ...]


def chain_of(
    loops: Sequence[Loop], operand: int, limit: int, indices: Iterable[int] = ()
) -> Chain | None:
    """Return the loops that form a run of `limit` elements, along which indices grow evenly."""
    run: list[int] = []
    extents: list[int] = []
    length = 1
    while length < limit:
        steps = (k for k, loop in enumerate(loops) if loop.stride(operand) == length)
        k = next((k for k in steps if k not in run and loops[k].extent > 1), None)
        if k is None:
            break
        along = [loops[j] for j in (*run, k)]
        if not all(_grows_evenly(along, index) for index in indices):
            break
        loop, needed = loops[k], -(-limit // length)
        run.append(k)
        # from a longer loop, take the least power of two that is enough
        extents.append(loop.extent if loop.extent <= needed else 1 << (needed - 1).bit_length())
        length *= extents[-1]
        # a run continues only after whole loops of data
        if operand == 0 and loop.valid != loop.extent:
            break
    return Chain(tuple(run), tuple(extents)) if run else None


def _grows_evenly(run: list[Loop], index: int) -> bool:
    """Whether an index grows along the last loop of a run as it does along the earlier loops."""
    span, steps = span_of(run, index), prod(loop.extent for loop in run[:-1])
    return run[-1].stride(index) == (steps // span if span else 0)


def span_of(run: Iterable[Loop], operand: int) -> int:
    """Return the steps of a run after which an index of it grows; 0 if it does not."""
    span = 1
    for loop in run:
        if loop.strides[operand] != (0,):
            return span
        span *= loop.extent
    return 0


def place_box(box: Box, shapes: ImageShapes) -> tuple[Nest, ...] | None:
    """Turn a box into loop nests over whole pixels of images; None if it cannot be one."""
    if box.indirect and shapes != (None, None):
        return None
    boxes = [box]
    for operand, shape in enumerate(shapes):
        if shape is not None:
            boxes = [piece for box in boxes for piece in _split_box(box, operand, shape)]
    nests = [_place_split_box(box, shapes) for box in boxes]
    placed = tuple(nest for nest in nests if nest is not None)
    return placed if len(placed) == len(nests) else None


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
    strides: list[list[Coords]] = [[(stride,) for stride in node.strides] for node in box.nodes]
    for operand, shape in enumerate(shapes):
        # a box of zeros reads nothing
        if shape is None or (operand == 0 and box.is_zero):
            continue
        if any(shape.max_extent(node.strides[operand]) is None for node in box.nodes):
            return None
        last = starts[operand] = shape.coords(box.offsets[operand])
        for node, of in zip(box.nodes, strides, strict=True):
            of[operand] = shape.coords(node.strides[operand])
            steps = node.extent - 1
            last = tuple(at + steps * step for at, step in zip(last, of[operand], strict=True))
        # no step may carry from lanes into columns, or from columns into rows
        if last[0] >= shape.width or last[2] >= shape.channels:
            return None
    loops = [
        Loop(node.extent, node.valid, tuple(of))
        for node, of in zip(box.nodes, strides, strict=True)
    ]
    return _take_lanes(Nest(tuple(starts), (), tuple(loops), box.indirect), shapes[1])


def _take_lanes(nest: Nest, dst: ImageShape | None) -> Nest | None:
    """Return a nest whose loops within a pixel became its lanes, in the order of dst."""
    are_images = [_is_image(start) for start in nest.starts]
    inner = [loop for loop in nest.loops if any(_is_image(of) and of[2] for of in loop.strides)]
    outer = without(nest.loops, inner)
    # if one operand moves along lanes, the other must be a buffer, or move along lanes too
    if any(_is_image(coords) and any(coords[:2]) for loop in inner for coords in loop.strides):
        return None
    has_data = all(loop.valid for loop in outer)
    lanes = []
    for index in product(*(range(loop.extent) for loop in inner)):
        steps = list(zip(index, inner, strict=True))
        # the last coordinate is the lane of an image, or the offset in a buffer
        offsets = tuple(
            start[-1] + sum(i * loop.strides[operand][-1] for i, loop in steps)
            for operand, start in enumerate(nest.starts)
        )
        lanes.append(Lane(offsets, has_data and all(i < loop.valid for i, loop in steps)))
    lanes.sort(key=lambda lane: lane.offsets[1])
    if dst is not None and [lane.offsets[1] for lane in lanes] != list(range(dst.channels)):
        return None
    if all(are_images[:2]) and any(
        lane.is_valid and lane.offsets[0] != lane.offsets[1] for lane in lanes
    ):
        return None
    first = [
        0 if is_image else at for is_image, at in zip(are_images, lanes[0].offsets, strict=True)
    ]
    starts = zip(nest.starts, first, strict=True)
    return nest._replace(
        starts=tuple(start[:2] if _is_image(start) else (at,) for start, at in starts),
        lanes=tuple(
            Lane(tuple(at - of for at, of in zip(lane.offsets, first, strict=True)), lane.is_valid)
            for lane in lanes
        ),
        loops=tuple(
            loop._replace(strides=tuple(coords[:2] for coords in loop.strides)) for loop in outer
        ),
    )


def _is_image(coords: Coords) -> bool:
    return len(coords) > 1
