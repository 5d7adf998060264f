"""Patterns: the structure of a loop nest without its numbers, which decides the kernel source."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from reorder.opencl.codegen.conversion import Conversion
    from reorder.opencl.codegen.pixels import PixelTile
    from reorder.opencl.codegen.row_shapes import Rows, Skewed

__all__ = [
    "OTHER",
    "Access",
    "AccessKind",
    "GatherShape",
    "LoopShape",
    "Pattern",
    "RangeShape",
    "Run",
    "RunTile",
    "Side",
    "SumShape",
    "Tile",
]


class AccessKind:
    """How a kernel accesses an operand.

    Constants, not an enum: patterns are made in every call.
    """

    NONE = "none"  # zeros are written, nothing is read
    BUFFER = "buffer"
    VECTOR = "vector"  # a buffer whose lanes are contiguous and aligned
    IMAGE = "image"


class Access(NamedTuple):
    """How an operand is read or written.

    `kind` is one of `AccessKind`, `element` names the type of an element: ``f16``,
    ``unorm8``, or raw bits such as ``b32``.
    """

    kind: str
    element: str


# the access of a scale or a zero point that differs along the dims
OTHER = Access(AccessKind.BUFFER, "")


class LoopShape(NamedTuple):
    """How a loop is divided among work items.

    Each work item runs `steps` iterations, as far apart as there are work items along the loop.
    `grid_dim` is the dimension of the NDRange that counts the work-groups along it.
    """

    steps: int
    grid_dim: int


class GatherShape(NamedTuple):
    """The structure of a `Lookup`: its dims; for each axis its dims and its number of blocks.

    `others` has the axes of the scales and zero points that differ along the dims.
    """

    dims: tuple[int, ...]
    src: tuple[tuple[tuple[int, ...], int], ...]
    dst: tuple[tuple[tuple[int, ...], int], ...]
    others: tuple[tuple[tuple[tuple[int, ...], int], ...], ...] = ()


class Run(NamedTuple):
    """How a work item of a conversion between buffers moves elements: steps of loop 0 in a row.

    It converts `length` of them. With `is_whole` all are inside and hold data. With `is_nibble`
    it writes one half of a byte: only those whose offset is odd, or even, as a parameter says.
    `uniform` are the roles whose values, though they vary, are the same for a run.
    """

    length: int
    is_whole: bool = False
    is_nibble: bool = False
    uniform: tuple[str, ...] = ()


class RunTile(NamedTuple):
    """A tile of a conversion in local memory: steps of loops 0 and 1, elements of a store.

    In local memory steps of loop 0 are `pitch` elements apart, runs of them `gap` elements more.
    """

    width: int
    height: int
    length: int
    pitch: int
    gap: int = 0


class SumShape(NamedTuple):
    """The structure of a compensation: the blocks of each dim, and of the dims of its mask."""

    blocks: tuple[int, ...]
    sums: tuple[tuple[int, int], ...]


class RangeShape(NamedTuple):
    """The structure of a search for ranges: the type, the working type, axes and their blocks."""

    dtype: str
    work: str
    axes: tuple[tuple[tuple[int, ...], int], ...]


class Side(NamedTuple):
    """How a tile is read or written: vectors of `lanes` elements, `nbytes` bytes, along its run.

    The loops of `run`, innermost first, are contiguous; `rest` are the other loops of the tile.
    With `is_shifted` a run starts at any element, not at a multiple of a word: words of src are
    then taken from two aligned ones; those of dst are aligned, the first and the last one partial.
    """

    run: tuple[int, ...]
    rest: tuple[int, ...]
    nbytes: int
    lanes: int
    is_shifted: bool = False

    @property
    def vector(self) -> str:
        """Type of a vector of words."""
        return _VECTORS[self.nbytes]


_VECTORS = {4: "uint", 8: "uint2", 16: "uint4", 32: "uint8"}


class Tile(NamedTuple):
    """A part of a loop nest that goes through local memory.

    `extents` has the steps of each loop of the pattern in a tile, 1 outside of it. An element has
    `nbytes` bytes of the type `memory`. `unit` rows along the innermost loop of dst are
    transposed in registers. Local memory holds the tile in the order of dst; with `is_gathered` in
    that of src. `swizzle` has (shift, mask) of what moves words between banks, `gap` the bytes
    between rows that do the same. With `is_paired` an element is a square of 2 x 2 of 4 bits: a
    byte in each of two rows of src, and of two rows of dst.
    """

    extents: tuple[int, ...]
    nbytes: int
    memory: str
    unit: int
    src: Side
    dst: Side
    swizzle: tuple[tuple[int, int], ...] = ()
    is_gathered: bool = False
    gap: int = 0
    is_paired: bool = False

    @property
    def row_memory(self) -> str:
        """Type of what an element has in a row of src or dst."""
        return "uchar" if self.is_paired else self.memory

    @property
    def stored(self) -> Side:
        """The side whose order local memory has."""
        return self.src if self.is_gathered else self.dst

    @property
    def local_strides(self) -> dict[int, int]:
        """Bytes between steps of each loop in local memory; rows have whole vectors."""
        strides, stride = {}, self.nbytes
        for k in self.stored.run:
            strides[k] = stride
            stride *= self.extents[k]
        stride = -(-stride // 16) * 16 + self.gap
        for k in self.stored.rest:
            strides[k] = stride
            stride *= self.extents[k]
        return strides

    @property
    def local_words(self) -> int:
        """Words of local memory."""
        run = prod(self.extents[k] for k in self.stored.run) * self.nbytes
        rows = prod(self.extents[k] for k in self.stored.rest)
        # whole rows of banks, which swizzling permutes, and a vector to read beyond the end
        beyond = max(self.dst.nbytes, 16)
        return -(-((-(-run // 16) * 16 + self.gap) * rows + beyond) // 128) * 32

    @property
    def src_chunks(self) -> int:
        """Vectors of a run of src."""
        run = prod(self.extents[k] for k in self.src.run)
        return -(-run // self.src.lanes)

    @property
    def src_vectors(self) -> int:
        """What work items load: vectors of src, or units of them."""
        return self.src_chunks * prod(self.extents[k] for k in self.src.rest) // self.unit

    @property
    def dst_chunks(self) -> int:
        """Vectors of a run of dst; one more where it starts at any element."""
        run = prod(self.extents[k] for k in self.dst.run)
        return -(-run // self.dst.lanes) + self.dst.is_shifted

    @property
    def dst_vectors(self) -> int:
        """What work items store."""
        return self.dst_chunks * prod(self.extents[k] for k in self.dst.rest)


class Pattern(NamedTuple):
    """What the source of a kernel depends on.

    `lanes` has an entry for each element that a work item moves: its lane in an image src, its
    index among the lanes for a buffer, or -1 if zero is written. A work-group has `work_items`
    work items. With `is_wide` offsets have 64 bits. With a `tile` or a `pixel_tile` it goes
    through local memory, with `skewed` in tiles whose rows end where vectors do. With `rows`
    vectors are copied. With a `conversion` elements are computed, between buffers in runs, with a
    `run_tile` through local memory.
    With `sums` the kernel writes a compensation, with `ranges` the range for each scale.
    """

    src: Access
    dst: Access
    lanes: tuple[int, ...]
    loops: tuple[LoopShape, ...]
    work_items: int
    gathers: tuple[GatherShape, ...] = ()
    is_wide: bool = False
    tile: Tile | None = None
    conversion: Conversion | None = None
    run: Run | None = None
    run_tile: RunTile | None = None
    sums: SumShape | None = None
    ranges: RangeShape | None = None
    rows: Rows | None = None
    pixel_tile: PixelTile | None = None
    skewed: Skewed | None = None

    @property
    def others(self) -> tuple[str, ...]:
        """The operands beside src and dst: scales and zero points that differ along the dims."""
        return () if self.conversion is None else self.conversion.varying
