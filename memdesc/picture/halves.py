"""The halves of a picture: the logical grid in panels, and the memory line by line.

Both are made of tables, with cells in rows and columns, which are written as text here.

The last two dims with several indices (long dims) are rows and columns of the grid; the others are
panels.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from itertools import pairwise, product
from math import prod

from memdesc.dtypes import BYTE_BITS
from memdesc.picture.cells import CACHE_LINE, LANES, LINES, Cell, Cells, Pixels, visible_indices
from memdesc.swizzle import swizzled
from memdesc.tuples import NamedTuple

# the colours of cells, in the order of those in an SVG, among the 256 that terminals have
_TERMINAL = (153, 222, 115, 182, 229, 110, 216)
_ESCAPE = "\x1b\\[[0-9;]*m"


class Table(NamedTuple):
    """A panel of the grid, or the lines of a memory.

    It has indices of rows and columns, with a gap where some are left out. A row may have fewer
    cells than there are columns; a cell may be None. `heads` are those of rows, in pictures and in
    text; `tops` those of columns, and `groups` those of `span` columns from the given one. `marks`
    has the row and column of cells that start a cache line, or is None in a panel.

    A panel has the longest number or column in the grid, the index of the panel dims, and the
    blocks that contain it if there are any. It is `after_gap` if panels are left out before it.
    """

    rows: list[int]
    columns: list[int]
    cells: list[list[Cell | None]]
    heads: list[tuple[str, str]]
    tops: list[str]
    caption: str = ""
    groups: dict[int, str] = {}  # noqa: RUF012 - nothing changes it
    span: int = 1
    marks: AbstractSet[tuple[int, int]] | None = None
    widest: str = ""
    at: tuple[int, ...] = ()
    block: tuple[int, ...] | None = None
    after_gap: bool = False

    @property
    def shown(self) -> list[Cell]:
        """All cells."""
        return [cell for row in self.cells for cell in row if cell]

    def text(self, *, of_number: bool = False) -> list[str]:
        """Return lines of text, with the colours of a terminal: `[padding]`, `<highlighted>`.

        In a panel, cells have room for `widest`, and lines the same length. In a memory they have
        notes if there are any, or numbers if asked for, and a bar marks the start of a cache line.
        """
        marks = self.marks
        in_panel = marks is None
        texts = [
            [_written(cell, of_number=of_number, in_panel=in_panel) for cell in row]
            for row in self.cells
        ]
        head = max(3 if in_panel else 6, *(len(head) for _, head in self.heads))
        if in_panel:
            width = max(len(self.widest) + 2, 4)
            gap = f"{'…':>{width}}"
        else:
            width = max(len(text) for row in texts for text in row)
            gap = "…"
        lines = []
        for r, row in enumerate(self.cells):
            parts = [terminal(cell, f"{texts[r][c]:>{width}}") for c, cell in enumerate(row)]
            if marks is not None:
                parts = [" |"[(r, c) in marks] + part for c, part in enumerate(parts)]
            line = "".join(gapped(self.columns[: len(parts)], parts, gap))
            lines.append(f"{self.heads[r][1]:>{head}} {line}")
        lines = gapped(self.rows, lines)
        if marks is not None:
            return lines
        tops = "".join(f"{top:>{width - 1}} " for top in gapped(self.columns, self.tops))
        lines = [*filter(None, [self.caption]), f"{'':{head}} {tops}", *lines]
        most = max(len(plain(line)) for line in lines)
        return [line + " " * (most - len(plain(line))) for line in lines]


def _written(cell: Cell | None, *, of_number: bool, in_panel: bool) -> str:
    """Return the note or the number of a cell, in brackets if it is highlighted or padding."""
    if cell is None or (cell.run is None and not in_panel):
        return "" if cell is None else "-"
    text = cell.number if cell.is_padding or of_number else cell.note or cell.number
    if cell.is_highlighted:
        return f"<{text}>"
    return f"[{text}]" if cell.is_padding else text + " " * in_panel


def terminal(cell: Cell | None, text: str) -> str:
    """Return the text of a cell in the colour that it has in the picture."""
    if cell is None or cell.run is None:
        return text
    colour = "2" if cell.is_padding else f"38;5;16;48;5;{_TERMINAL[cell.colour]}"
    return f"\x1b[{colour}m{text}\x1b[0m"


def plain(text: str) -> str:
    """Return text without the colours of a terminal."""
    return re.sub(_ESCAPE, "", text)


def gapped(indices: list[int], texts: list[str], gap: str = "…") -> list[str]:
    """Return the strings of some indices, with an ellipsis where indices are left out."""
    gaps = {*gaps_in(indices)}
    return [part for k, text in enumerate(texts) for part in ([gap, text] if k in gaps else [text])]


def gaps_in(indices: list[int]) -> list[int]:
    """Return the numbers of the indices before which others are left out."""
    return [k for k, (before, i) in enumerate(pairwise(indices), 1) if i != before + 1]


# the most characters of a line of panels
_MAX_TEXT = 100


class Half(NamedTuple):
    """The panels of the grid, or the one table of a memory."""

    caption: str
    tables: list[Table]

    def lines(self, most: int, *, has_gaps: bool = False) -> list[list[Table]]:
        """Return the tables of each line, `most` at most.

        A line has one outer index, panels of one block, and unless it `has_gaps` all of them.
        """
        lines: list[list[Table]] = []
        for table in self.tables:
            last = lines[-1][-1] if lines else None
            if (
                last is None
                or len(lines[-1]) >= most
                or (table.after_gap and not has_gaps)
                or (table.at[:-1], table.block) != (last.at[:-1], last.block)
            ):
                lines.append([])
            lines[-1].append(table)
        return lines

    def text(self) -> list[str]:
        """Write the caption, and as many tables side by side as fit."""
        texts = {table.at: table.text() for table in self.tables}
        wide = max(len(plain(text[0])) for text in texts.values())
        lines = ["", self.caption]
        for line in self.lines(max(_MAX_TEXT // (wide + 2), 1)):
            lines += ["…"] if line[0].after_gap else []
            beside = zip(*(texts[table.at] for table in line), strict=True)
            lines += ["  ".join(rows).rstrip() for rows in beside]
        return lines


# A grid has at most this many rows and columns, a panel half as many; then the most panels, and the
# most cells of all panels. Both ends of each dim and what is highlighted are shown in addition.
_ROWS, _COLUMNS, _PANELS, _CELLS = 12, 16, 16, 240
_MIN_PANELS = 4


def grid_of(cells: Cells) -> Half:
    """Choose the dims of rows, columns and panels, and their visible indices; others have 0."""
    layout, letters = cells.layout, cells.letters
    *panel_dims, column = cells.long_dims or (layout.ndims - 1,)
    row = panel_dims.pop() if panel_dims else -1  # no dim
    share = 2 if panel_dims else 1

    def visible(dim: int, limit: int) -> list[int]:
        wanted = (index[dim] for index in cells.wanted)
        return visible_indices(layout.dims[dim], cells.extents[dim], limit, wanted)

    columns = visible(column, _COLUMNS // share)
    rows = [0] if row < 0 else visible(row, _ROWS // share)

    def cell(index: dict[int, int]) -> Cell | None:
        cell = cells.at(tuple(index.get(dim, 0) for dim in range(layout.ndims)))
        return cell and cell._replace(note="")

    steps = {axis.dims: blocks[0].step for axis, blocks in layout.parts}
    inner = [steps.get((dim,), 1) for dim in panel_dims]
    sizes = [cells.extents[dim] for dim in panel_dims]
    tables, number = [], -1
    for chosen in _visible_panels(cells, panel_dims, len(rows) * len(columns)):
        before, number = number, sum(i * prod(sizes[k + 1 :]) for k, i in enumerate(chosen))
        panel = dict(zip(panel_dims, chosen, strict=True))
        block = tuple(i // step for i, step in zip(chosen, inner, strict=True))
        table = Table(
            rows,
            columns,
            [[cell({**panel, row: i, column: j}) for j in columns] for i in rows],
            [("" if row < 0 else str(i),) * 2 for i in rows],
            list(map(str, columns)),
            " ".join(f"{letters[dim]}={i}" for dim, i in panel.items()),
            at=chosen,
            block=block if max(inner, default=1) > 1 else None,
            after_gap=number != before + 1,
        )
        tables.append(table)
    shown = (cell.number for table in tables for cell in table.shown)
    widest = max(*map(str, columns), *shown, key=len)
    tables = [table._replace(widest=widest) for table in tables]
    named = [f"rows {letters[row]}"] if row >= 0 else []
    named.append(f"columns {letters[column]}")
    if panel_dims:
        named.append(f"a panel for each {','.join(letters[dim] for dim in panel_dims)}")
    numbers = "offsets" if cells.values is None else "values"
    return Half(f"logical: {', '.join(named)}; numbers are {numbers}", tables)


def _visible_panels(cells: Cells, dims: list[int], size: int) -> list[tuple[int, ...]]:
    """Choose the indices of panels of `size` cells, of the padding too."""
    n_panels = min(_PANELS, max(_CELLS // size, _MIN_PANELS))
    most = min(_PANELS, 2 * n_panels)
    chosen: list[list[int]] = []
    for k, dim in reversed(list(enumerate(dims))):
        # each of the k dims further out shows at least two indices
        indices = visible_indices(cells.layout.dims[dim], cells.extents[dim], max(n_panels >> k, 2))
        chosen.insert(0, indices)
        n_panels //= len(indices)
    panels = list(product(*chosen))
    if len(panels) > most:  # there are many dims
        panels = [*panels[: most - 1], panels[-1]]
    return sorted({tuple(index[dim] for dim in dims) for index in cells.wanted}.union(panels))


# What fits on a page: four-lane pixels per line, and elements per line, at most and usually.
_MAX_PIXELS, _MAX_LENGTH, _LENGTH = 6, 16, 8
# A buffer with at most this many lines of the usual length gets such lines.
_FEW_LINES = 10
# How many lines each loop is followed for, to find lines with elements.
_FOLLOWED = 16


def memory_table(cells: Cells, at_offset: Callable[[int], Cell] | None = None) -> Table:
    """Return the lines of a buffer or an image, with other cells if a function returns some."""
    image = cells.pixels
    rows, columns = _lines_of(cells) if image is None else _pixel_lines(cells, image)
    stop, bits = cells.layout.last + 1, cells.dtype.bits
    return lines_table(at_offset or cells.at_offset, bits, stop, rows, columns, image)


def lines_table(
    at_offset: Callable[[int], Cell],
    bits: int,
    stop: int,
    rows: list[int],
    columns: list[int],
    image: Pixels | None = None,
) -> Table:
    """Return the cells at some offsets below `stop`, those of elements of some bits.

    `rows` are the visible lines, `columns` the visible offsets in a line, which are all in a
    buffer. In an image a line is a row of pixels.
    """
    lanes = image.channels if image else 0
    length = image.width * lanes if image else len(columns)
    starts = [row * length for row in rows]
    offsets = [[at + k for k in columns if at + k < stop] for at in starts]
    if image:
        heads = [(image.row_name(row),) * 2 for row in rows]
    else:
        heads = [(f"byte {start * bits // 8}", str(start)) for start in starts]
    line = BYTE_BITS * CACHE_LINE
    placed = ((r, c, offset) for r, row in enumerate(offsets) for c, offset in enumerate(row))
    return Table(
        rows,
        columns,
        [[at_offset(offset) for offset in row] for row in offsets],
        heads,
        [LANES[column % lanes] if lanes else f"+{column}" for column in columns],
        groups={k: f"x {x // lanes}" for k, x in enumerate(columns) if lanes and not x % lanes},
        span=lanes,
        marks={(r, c) for r, c, offset in placed if not offset * bits % line},
    )


def _lines_of(cells: Cells) -> tuple[list[int], list[int]]:
    """Choose the lines of a buffer: whole blocks, with 8 to 16 elements if possible."""
    layout = cells.layout
    tile = prod(block.extent for block in layout.base().inner())
    below = sum(min((block.extent - 1) * block.stride, 0) for block in layout.blocks)
    low = 0 if layout.xor else max(layout.offset0 + below, 0)
    is_short = layout.last - low < _LENGTH * _FEW_LINES
    length = _LENGTH if tile < _MAX_LENGTH and is_short else _MAX_LENGTH
    if tile < _MAX_LENGTH and length % tile:
        length = _MAX_LENGTH // tile * tile
    first = low // length
    count = layout.last // length + 1 - first
    wanted = [layout.offset(index) // length for index in cells.wanted]
    shown = visible_indices(count, count, LINES, (row - first for row in wanted))
    rows = [first + row for row in shown]
    if count > LINES and layout.last - low >= 2 * layout.padded_nelems:
        rows = _lines_with_elements(cells, length, wanted)
    return rows, list(range(length))


def _lines_with_elements(cells: Cells, length: int, wanted: list[int]) -> list[int]:
    """Choose the lines of a buffer with many gaps: the first that have elements, and the last."""
    layout = cells.layout
    rows = {layout.last // length, *wanted}
    # a few steps of a long loop fill the page
    for index in product(*(range(min(block.extent, _FOLLOWED * length)) for block in cells.order)):
        base = layout.offset0
        base += sum(i * block.stride for i, block in zip(index, cells.order, strict=True))
        rows.add(swizzled(layout.xor, base) // length)
        if len(rows) >= LINES:
            break
    return sorted(rows)


def _pixel_lines(cells: Cells, image: Pixels) -> tuple[list[int], list[int]]:
    """Choose the lines of an image: some rows of pixels, and some pixels of each."""
    width, channels, _ = image
    height = (cells.layout.last + 1) // (width * channels)
    wanted = [divmod(cells.layout.offset(index) // channels, width) for index in cells.wanted]
    most = _MAX_PIXELS if channels > 1 else _MAX_LENGTH
    shown = visible_indices(width, width, most, (x for _, x in wanted))
    rows = visible_indices(height, height, LINES, (y for y, _ in wanted))
    return rows, [pixel * channels + lane for pixel in shown for lane in range(channels)]
