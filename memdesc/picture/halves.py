"""The halves of a picture: the logical grid in panels, and the memory line by line.

Both are made of tables, with cells in rows and columns, which are drawn as SVG and as text.

The last two dims with several indices (long dims) are rows and columns of the grid; the others are
panels.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from itertools import pairwise, product
from math import prod

from memdesc.dtypes import BYTE_BITS
from memdesc.picture.cells import CACHE_LINE, LANES, LINES, Cell, Cells, Pixels, visible_indices
from memdesc.picture.svg import (
    ACCENT,
    CELL_HEIGHT,
    Drawing,
    cell_width,
    edge,
    element,
    label,
    outline,
    paint_cell,
    plain,
    terminal,
    text_width,
)
from memdesc.swizzle import swizzled
from memdesc.tuples import NamedTuple

# Pixels: above the cells, for headings; where indices are left out; right of the headings of rows.
_ABOVE, _GAP, _BESIDE = 32, 16, 15
# Pixels: height of a cell in memory; around a note in it.
_HEIGHT, _AROUND_NOTE = 30, 6


class Table(NamedTuple):
    """A panel of the grid, or the lines of a memory.

    It has indices of rows and columns, with a gap where some are left out. A row may have fewer
    cells than there are columns; a cell may be None. `heads` are those of rows, in pictures and in
    text; `tops` those of columns, and `groups` those of `span` columns from the given one. `marks`
    has the row and column of cells that start a cache line, or is None in a panel.

    A panel has the longest number of the grid, the index of the panel dims, and the blocks that
    contain it if there are any. It is `after_gap` if panels are left out before it.
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

    @property
    def gutter(self) -> int:
        """Pixels left of the cells."""
        return max(text_width(head) for head, _ in self.heads) + _BESIDE

    @property
    def _above(self) -> int:
        return _ABOVE if self.caption or self.groups else _ABOVE // 2

    @property
    def _cell(self) -> tuple[int, int]:
        """The width and height of a cell in pixels."""
        if self.marks is None:
            return cell_width(self.widest), CELL_HEIGHT
        widths = [cell_width(cell.number) for cell in self.shown]
        widths += [text_width(cell.note) + _AROUND_NOTE for cell in self.shown]
        return max(cell_width(""), *widths), _HEIGHT

    @property
    def size(self) -> tuple[int, int]:
        """The width and height in pixels, with headings."""
        width, height = self._cell
        right, bottom = _starts(self.columns, width)[-1], _starts(self.rows, height)[-1]
        return self.gutter + max(right, text_width(self.caption)), self._above + bottom

    def paint(self, left: int, top: int) -> list[str]:
        """Return the SVG elements of headings, cells, outlines of blocks, marks and gaps."""
        width, height = size = self._cell
        *xs, _ = (left + self.gutter + x for x in _starts(self.columns, width))
        *ys, _ = (top + self._above + y for y in _starts(self.rows, height))
        base = (height + 8) // 2  # the baseline of text centred in a row
        parts = [label(xs[0], ys[0] - 18, self.caption, style="bold")] if self.caption else []
        tops = zip(xs, self.tops, strict=True)
        parts += [_faint(x + width / 2, ys[0] - 4, text) for x, text in tops]
        half = self.span * width / 2
        parts += [_faint(xs[k] + half, ys[0] - 18, text) for k, text in self.groups.items()]
        parts += [
            label(xs[0] - 6, y + base, head, anchor="end", style="faint")
            for y, (head, _) in zip(ys, self.heads, strict=True)
            if head
        ]
        placed = {
            (c, r): cell
            for r, row in enumerate(self.cells)
            for c, cell in enumerate(row)
            if cell is not None
        }
        parts += [paint_cell(cell, xs[c], ys[r], size) for (c, r), cell in placed.items()]
        tiles = [cell.tile for cell in placed.values()]
        # if blocks have one cell in each panel, the frames of panels show them
        if self.marks is not None or len(set(tiles)) < len(tiles):
            parts.append(outline(placed, xs, ys, size))
        if self.marks:
            path = "".join(f"M{xs[c]} {ys[r] - 1}v{height + 2}" for r, c in sorted(self.marks))
            parts.append(element("path", d=path, stroke=ACCENT, stroke_width=3.5, fill="none"))
        parts += [_faint(xs[k] - _GAP / 2, ys[0] + base, "⋯") for k in _gaps(self.columns)]
        return parts + [_faint(xs[0] + 12, ys[k] - 4, "⋮") for k in _gaps(self.rows)]

    def text(self, *, of_number: bool = False) -> list[str]:
        """Return lines of text, with the colours of a terminal: `[padding]`, `<highlighted>`.

        In a panel, cells have room for the longest number, and lines the same length. In a memory
        they have notes, or numbers if asked for, and a bar marks the start of a cache line.
        """
        marks = self.marks
        written = "number" if of_number or marks is None else "note"
        texts = [
            [_written(cell, written, in_panel=marks is None) for cell in row] for row in self.cells
        ]
        if marks is None:
            head, width = 3, max(len(self.widest) + 2, 4)
            gap = f"{'…':>{width}}"
        else:
            head = max(6, *(len(head) for _, head in self.heads))
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
        lines = [*filter(None, [self.caption]), f"    {tops}", *lines]
        most = max(len(plain(line)) for line in lines)
        return [line + " " * (most - len(plain(line))) for line in lines]


def _written(cell: Cell | None, what: str, *, in_panel: bool) -> str:
    """Return the number or the note of a cell, in brackets if it is highlighted or padding."""
    if cell is None or (cell.run is None and not in_panel):
        return "" if cell is None else "-"
    text = cell.number if cell.is_padding else getattr(cell, what)
    if cell.is_highlighted:
        return f"<{text}>"
    return f"[{text}]" if cell.is_padding else text + " " * in_panel


def gapped(indices: list[int], texts: list[str], gap: str = "…") -> list[str]:
    """Return the strings of some indices, with an ellipsis where indices are left out."""
    gaps = {*_gaps(indices)}
    return [part for k, text in enumerate(texts) for part in ([gap, text] if k in gaps else [text])]


def _gaps(indices: list[int]) -> list[int]:
    """Return the numbers of the indices before which others are left out."""
    return [k for k, (before, i) in enumerate(pairwise(indices), 1) if i != before + 1]


def _starts(indices: list[int], size: int) -> list[int]:
    """Return where each index starts, then where the last one ends; in pixels."""
    gaps = _gaps(indices)
    starts = [k * size + _GAP * sum(gap <= k for gap in gaps) for k in range(len(indices))]
    return [*starts, starts[-1] + size]


def _faint(x: float, y: float, text: str) -> str:
    return label(x, y, text, anchor="middle", style="faint")


# the most pixels, and characters, of a line of panels
_MAX_WIDTH, _MAX_TEXT = 620, 100
# Pixels: between panels; for panels that are left out.
_BETWEEN, _SKIP = 12, 20


class Half(NamedTuple):
    """The panels of the grid, or the one table of a memory."""

    caption: str
    tables: list[Table]

    def _lines(self, most: int, *, has_gaps: bool = False) -> list[list[Table]]:
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

    def drawing(self) -> Drawing:
        """Draw all tables, a frame around those of a block, and dots where some are left out."""
        width, height = map(max, zip(*(table.size for table in self.tables), strict=True))
        step = width + _BETWEEN
        parts: list[str] = []
        top, right = 0, 0
        for line in self._lines(max((_MAX_WIDTH + _BETWEEN) // step, 1), has_gaps=True):
            if line[0].after_gap:
                parts.append(label(line[0].gutter, top + _SKIP // 2, "⋮", size=14, style="faint"))
                top += _SKIP
            end = len(line) * step - _BETWEEN
            if line[0].block is not None:
                frame = {"x": 2, "y": top - 2, "width": end + 3, "height": height + 7}
                parts.append(edge("rect", rx=5, **frame))
            for k, table in enumerate(line):
                if k and table.after_gap:
                    parts.append(label(k * step - 6, top + height // 2, "⋯", style="faint"))
                parts += table.paint(k * step, top)
            top += height + _BETWEEN
            right = max(right, end)
        return Drawing(self.caption, right, top - _BETWEEN, parts)

    def text(self) -> list[str]:
        """Write the caption, and as many tables side by side as fit."""
        texts = {table.at: table.text() for table in self.tables}
        wide = max(len(plain(text[0])) for text in texts.values())
        lines = ["", self.caption]
        for line in self._lines(max(_MAX_TEXT // (wide + 2), 1)):
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
    layout, letters, widest = cells.layout, cells.letters, cells.widest
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
            widest=widest,
            at=chosen,
            block=block if max(inner, default=1) > 1 else None,
            after_gap=number != before + 1,
        )
        tables.append(table)
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
