"""Cells of a picture: the number, the index and the colour of each element.

The number is the offset. The colour stands for the contiguous run of memory that contains the
element: the innermost loops that together have at least four elements. An element has the same
number and colour in the grid and in the memory, so that a reader can relate the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from memdesc.banks import BANKS, WORD
from memdesc.dtypes import DataType
from memdesc.layout import Block, Layout, axis_index, indices_at, memory_order, moving_blocks
from memdesc.lazy import cached_property
from memdesc.tags import LETTERS, Digit, axis_name
from memdesc.tuples import NamedTuple

LANES = "RGBA"
_COLOURS = 7
# bytes, on nearly all processors
CACHE_LINE = 64
# the least elements of a run; with fewer, each element of a small block would get its own colour
_MIN_RUN = 4
# The most lines of memory. Both ends, and what is highlighted, are shown in addition.
LINES = 20
# highlighted elements that are always shown
_MAX_WANTED = 8


class Cell(NamedTuple):
    """One cell of a picture.

    `number` and `note` are written in it, `hover` is shown under the pointer. `run` is the number
    of its run, which gives the colour, or None without an element; `tile` is the number of its
    block, or None if nothing is blocked. `at` is the index of the element.
    """

    number: str
    note: str
    hover: str
    run: int | None
    tile: int | None
    is_padding: bool
    is_highlighted: bool = False
    at: tuple[int, ...] = ()

    @property
    def colour(self) -> int:
        """The number of its colour, which the run gives."""
        # shifted by one in each round, so that rows of 7, 14, 28 or 56 runs do not form columns
        run = self.run or 0
        return (run + run // _COLOURS) % _COLOURS


class Pixels(NamedTuple):
    """The width and the lanes of an image, and the rows of a slice, or 0 if it is 2-D."""

    width: int
    channels: int
    slice_rows: int = 0

    def row_name(self, row: int) -> str:
        """Return what a row is called: its y, after its z if there are slices."""
        if not self.slice_rows:
            return f"y {row}"
        z, y = divmod(row, self.slice_rows)
        return f"z {z}, y {y}"


@dataclass(frozen=True)
class Cells:
    """The cells of a layout, found by index or by offset.

    `pixels` is that of an image, or None for a buffer; in an image, each pixel is a run. `letters`
    name the dims. `highlighted` has padded indices; the first of them are always shown.
    """

    layout: Layout
    dtype: DataType
    letters: str = LETTERS
    pixels: Pixels | None = None
    highlighted: tuple[tuple[int, ...], ...] = ()
    values: Any = None

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """The padded sizes of the dims."""
        return self.layout.extents()

    @cached_property
    def order(self) -> list[Block]:
        """The loops that move in memory, outermost first."""
        return moving_blocks(self.layout)

    @cached_property
    def runs(self) -> list[Block]:
        """The loops that count runs."""
        loops, size = [*self.order], 1
        while loops and size < _MIN_RUN:
            size *= loops.pop().extent
        return loops

    @cached_property
    def tiles(self) -> list[Block]:
        """The loops that count blocks; none if nothing is blocked."""
        inner = self.layout.base().inner()
        return [block for block in self.order if block not in inner] if inner else []

    @property
    def wanted(self) -> tuple[tuple[int, ...], ...]:
        """The highlighted indices that are shown however large the tensor is."""
        return self.highlighted[:_MAX_WANTED]

    @property
    def long_dims(self) -> tuple[int, ...]:
        """The dims with more than one index, which cells show."""
        return tuple(dim for dim, extent in enumerate(self.extents) if extent > 1)

    def at(self, index: tuple[int, ...]) -> Cell | None:
        """Return the cell of a padded index; None beyond the padded end of fused dims."""
        layout = self.layout
        for axis in layout.axes:
            if len(axis.dims) > 1 and axis_index(axis, layout.dims, index) >= axis.padded:
                return None
        offset = layout.offset(index)
        is_padding = any(i >= size for i, size in zip(index, layout.dims, strict=True))
        number, note = str(offset), ",".join(str(index[dim]) for dim in self.long_dims) or "0"
        if self.values is not None:
            number, note = "0" if is_padding else _value(self.values[index]), ""
        what = "padding at" if is_padding else "index"
        hover = "\n".join([f"{what} ({', '.join(map(str, index))})", *self._addresses(offset)])
        tile = self._count(index, self.tiles) if self.tiles else None
        run = self._count(index, self.runs)
        if layout.xor:  # four of the 32 banks of 4 bytes have a colour
            run = offset * self.dtype.bits // 8 // (4 * WORD) % (BANKS // 4)
        note = "pad" if is_padding else note
        return Cell(number, note, hover, run, tile, is_padding, index in self.highlighted, index)

    def at_offset(self, offset: int) -> Cell:
        """Return the cell of an offset; its run is None if no element has this offset."""
        indices, exists = indices_at(self.layout, np.array([offset]))
        cell = self.at(tuple(int(i[0]) for i in indices)) if exists[0] else None
        hover = "\n".join(["no element", *self._addresses(offset)])
        return cell or Cell(str(offset), "", hover, None, None, is_padding=False)

    def _addresses(self, offset: int) -> list[str]:
        """Return lines that give the place of an offset: pixel, offset, byte."""
        at, rest = divmod(offset * self.dtype.bits, 8)
        half = f", {'high' if rest else 'low'} half" if self.dtype.is_packed else ""
        lines = [f"offset {offset}", f"byte {at}{half}"]
        if self.pixels is not None:
            pixel, lane = divmod(offset, self.pixels.channels)
            row, x = divmod(pixel, self.pixels.width)
            place = self.pixels.row_name(row)
            lines.insert(0, f"pixel x {x}, {place}, lane {lane} ({LANES[lane]})")
        return lines

    def _count(self, index: tuple[int, ...], blocks: list[Block]) -> int:
        """Return the row-major number of an index, counted by some blocks."""
        count = 0
        for block in blocks:
            i = axis_index(self.layout.axes[block.axis], self.layout.dims, index)
            count = count * block.extent + i // block.step % block.extent
        return count


def _value(value: Any) -> str:
    """Write a value of an array in a few characters."""
    is_float = isinstance(value, float) or value.dtype.kind not in "iub"
    return f"{float(value):.4g}" if is_float else str(int(value))


def digits(layout: Layout, letters: str) -> str:
    """Write the digits of a layout, outermost in memory first: `a(2) b/8(3) c(5) b%8(8)`."""
    parts = []
    outer = [blocks[0] for _, blocks in layout.parts]
    for block in sorted(layout.blocks, key=memory_order):
        digit = Digit(block.axis, block.step, 0 if block in outer else block.extent)
        name = axis_name(layout.axes[block.axis].dims, letters)
        parts.append(f"{digit.text(name)}({block.extent})")
    return " ".join(parts)


def visible_indices(size: int, padded: int, limit: int, wanted: Iterable[int] = ()) -> list[int]:
    """Choose about `limit` indices below `padded`, including those that are wanted.

    The first index, the last of the data and the last of the padding are always chosen, then the
    first of the padding, then indices starting at 0. An ellipsis for a single index would
    save nothing, so that index is chosen too.
    """
    chosen = {0, size - 1, padded - 1, *wanted}
    if len(chosen) < limit:
        chosen.add(min(size, padded - 1))
    others = (i for i in range(padded) if i not in chosen)
    chosen.update(islice(others, max(limit - len(chosen), 0)))
    chosen.update([i + 1 for i in chosen if i + 2 in chosen])
    return sorted(chosen)
