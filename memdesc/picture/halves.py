"""The halves of a picture: the logical grid in panels, and the memory line by line.

Both are tables, of cells in rows and columns, which are drawn as SVG and as text.

The last two dims with several indices (long dims) are rows and columns of the grid; the others are
panels.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from itertools import pairwise, product
from math import prod

from memdesc.dtypes import BYTE_BITS
from memdesc.picture import Half
from memdesc.picture.cells import CACHE_LINE, LANES, LINES, Cell, Cells, Pixels, visible_indices
from memdesc.picture.svg import (
    ACCENT,
    CELL_HEIGHT,
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


class Table(NamedTuple):
    """What is drawn: indices of rows and columns, with a gap where some are left out.

    A row may have fewer cells than there are columns; a cell may be None. `heads` are those of
    rows, in pictures and in text; `tops` those of columns, and `groups` those of `span` columns
    from the given one. `marks` has the row and column of cells that start a cache line, or is None
    where these do not matter.
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

    @property
    def shown(self) -> list[Cell]:
        """All cells."""
        return [cell for row in self.cells for cell in row if cell]

    @property
    def above(self) -> int:
        """Pixels above the cells."""
        return _ABOVE if self.caption or self.groups else _ABOVE // 2

    @property
    def gutter(self) -> int:
        """Pixels left of the cells."""
        return max(text_width(head) for head, _ in self.heads) + _BESIDE

    def size(self, cell: tuple[int, int]) -> tuple[int, int]:
        """Return the width and height in pixels, with headings, given those of a cell."""
        width, height = (
            _starts(indices, length)[1]
            for indices, length in zip((self.columns, self.rows), cell, strict=True)
        )
        return self.gutter + max(width, text_width(self.caption)), self.above + height

    def paint(self, left: int, top: int, size: tuple[int, int]) -> list[str]:
        """Return the SVG elements of headings, cells, outlines of blocks, marks and gaps."""
        width, height = size
        (xs, _), (ys, _) = _starts(self.columns, width), _starts(self.rows, height)
        xs = [left + self.gutter + x for x in xs]
        ys = [top + self.above + y for y in ys]
        base = (height + 8) // 2  # the baseline of text centred in a row
        parts = [label(xs[0], ys[0] - 18, self.caption, style="bold")] if self.caption else []
        tops = zip(xs, self.tops, strict=True)
        parts += [_faint(x + width / 2, ys[0] - 4, text) for x, text in tops]
        groups = (
            (xs[column] + self.span * width / 2, text) for column, text in self.groups.items()
        )
        parts += [_faint(x, ys[0] - 18, text) for x, text in groups]
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

    def text(self, write: Callable[[Cell], str], width: int = 0, head: int = 0) -> list[str]:
        """Return lines of text, with the colours of a terminal.

        `write` returns the text of a cell. Cells are as wide as the widest, or have the given
        width, and headings likewise.
        """
        texts = [["" if cell is None else write(cell) for cell in row] for row in self.cells]
        width = width or max(len(text) for row in texts for text in row)
        head = head or max(6, *(len(head) for _, head in self.heads))
        lines = []
        for r, (row, cells) in enumerate(zip(texts, self.cells, strict=True)):
            marks = (
                "" if self.marks is None else " |"[(r, c) in self.marks] for c in range(len(row))
            )
            parts = [
                mark + terminal(cell, f"{text:>{width}}")
                for mark, text, cell in zip(marks, row, cells, strict=True)
            ]
            gap = "…" if self.marks is not None else f"{'…':>{width}}"
            line = "".join(gapped(self.columns[: len(parts)], parts, gap))
            lines.append(f"{self.heads[r][1]:>{head}} {line}")
        return gapped(self.rows, lines)


def bracketed(cell: Cell, text: str, after: str = "") -> str:
    """Return the text of a cell in brackets if it is highlighted or padding."""
    if cell.is_highlighted:
        return f"<{text}>"
    return f"[{text}]" if cell.is_padding else f"{text}{after}"


def gapped(indices: list[int], texts: list[str], gap: str = "…") -> list[str]:
    """Return the strings of some indices, with an ellipsis where indices are left out."""
    gaps = {*_gaps(indices)}
    return [part for k, text in enumerate(texts) for part in ([gap, text] if k in gaps else [text])]


def _gaps(indices: list[int]) -> list[int]:
    """Return the numbers of the indices before which others are left out."""
    return [k for k, (before, i) in enumerate(pairwise(indices), 1) if i != before + 1]


def _starts(indices: list[int], size: int) -> tuple[list[int], int]:
    """Return where each index starts, and where the last one ends; in pixels."""
    gaps = _gaps(indices)
    starts = [k * size + _GAP * sum(gap <= k for gap in gaps) for k in range(len(indices))]
    return starts, starts[-1] + size


def _faint(x: float, y: float, text: str) -> str:
    return label(x, y, text, anchor="middle", style="faint")


# A grid has at most this many rows and columns, a panel half as many; then the most panels, and the
# most cells of all panels. Both ends of each dim and what is highlighted are shown in addition.
_ROWS, _COLUMNS, _PANELS, _CELLS = 12, 16, 16, 240
_MIN_PANELS = 4
# the most long dims of a grid without panels
_MATRIX = 2
# the most pixels, and characters, of a line of panels
_MAX_WIDTH, _MAX_TEXT = 620, 100
# Pixels: between panels; for panels that are left out.
_BETWEEN, _SKIP = 12, 20


class Panel(NamedTuple):
    """The cells at an index of the panel dims, and the blocks that contain it if there are any.

    It is `after_gap` if panels are left out before it.
    """

    at: tuple[int, ...]
    block: tuple[int, ...] | None
    after_gap: bool
    table: Table


class Grid(NamedTuple):
    """The logical half: its panels, and the longest number of a cell."""

    caption: str
    panels: list[Panel]
    widest: str

    def _lines(self, most: int, *, has_gaps: bool = False) -> list[list[Panel]]:
        """Return the panels of each line, `most` at most.

        A line has one outer index, panels of one block, and unless it `has_gaps` all of them.
        """
        lines: list[list[Panel]] = []
        for panel in self.panels:
            last = lines[-1][-1] if lines else None
            if (
                last is None
                or len(lines[-1]) >= most
                or (panel.after_gap and not has_gaps)
                or (panel.at[:-1], panel.block) != (last.at[:-1], last.block)
            ):
                lines.append([])
            lines[-1].append(panel)
        return lines

    def half(self) -> Half:
        """Draw all panels, a frame around those of a block, and dots where some are left out."""
        size = cell_width(self.widest), CELL_HEIGHT
        sizes = (panel.table.size(size) for panel in self.panels)
        width, height = map(max, zip(*sizes, strict=True))
        step = width + _BETWEEN
        parts: list[str] = []
        top, right = 0, 0
        for line in self._lines(max((_MAX_WIDTH + _BETWEEN) // step, 1), has_gaps=True):
            if line[0].after_gap:
                dots = line[0].table.gutter, top + _SKIP // 2
                parts.append(label(*dots, "⋮", size=14, style="faint"))
                top += _SKIP
            end = len(line) * step - _BETWEEN
            if line[0].block is not None:
                frame = {"x": 2, "y": top - 2, "width": end + 3, "height": height + 7}
                parts.append(edge("rect", rx=5, **frame))
            for k, panel in enumerate(line):
                if k and panel.after_gap:
                    parts.append(label(k * step - 6, top + height // 2, "⋯", style="faint"))
                parts += panel.table.paint(k * step, top, size)
            top += height + _BETWEEN
            right = max(right, end)
        return Half(self.caption, right, top - _BETWEEN, parts)

    def text(self) -> list[str]:
        """Write as many panels side by side as fit; `[padding]`, `<highlighted>`."""
        width = max(len(self.widest) + 2, 4)
        wide = max(len(plain(_panel_text(panel.table, width)[0])) for panel in self.panels)
        lines: list[str] = []
        for line in self._lines(max(_MAX_TEXT // (wide + 2), 1)):
            lines += ["…"] if line[0].after_gap else []
            beside = zip(*(_panel_text(panel.table, width) for panel in line), strict=True)
            lines += ["  ".join(rows).rstrip() for rows in beside]
        return lines


def _panel_text(table: Table, width: int) -> list[str]:
    """Return the lines of a panel, all of the same length."""
    heads = (f"{head:>{width - 1}} " for head in gapped(table.columns, table.tops))
    lines = [table.caption] if table.caption else []
    lines.append(" " * 4 + "".join(heads))
    lines += table.text(lambda cell: bracketed(cell, cell.number, " "), width, 3)
    lengths = [len(plain(line)) for line in lines]
    wide = max(lengths)
    return [line + " " * (wide - length) for line, length in zip(lines, lengths, strict=True)]


def grid_of(cells: Cells) -> Grid:
    """Choose the dims of rows, columns and panels, and their visible indices; others have 0."""
    long = cells.long_dims or (cells.layout.ndims - 1,)
    column, row = long[-1], long[-2] if len(long) > 1 else None
    panel_dims = long[:-2]
    share = 1 if len(long) <= _MATRIX else 2

    def visible(dim: int, limit: int) -> list[int]:
        wanted = (index[dim] for index in cells.wanted)
        return visible_indices(cells.layout.dims[dim], cells.extents[dim], limit, wanted)

    columns = visible(column, _COLUMNS // share)
    rows = [0] if row is None else visible(row, _ROWS // share)

    def cell(panel: dict[int, int], i: int, j: int) -> Cell | None:
        at = panel | {column: j} | ({} if row is None else {row: i})
        cell = cells.at(tuple(at.get(dim, 0) for dim in range(cells.layout.ndims)))
        return cell and cell._replace(note="")

    def table(panel: dict[int, int]) -> Table:
        table = [[cell(panel, i, j) for j in columns] for i in rows]
        heads = [("" if row is None else str(i),) * 2 for i in rows]
        caption = " ".join(f"{cells.letters[dim]}={i}" for dim, i in panel.items())
        return Table(rows, columns, table, heads, list(map(str, columns)), caption)

    parts = cells.layout.parts
    steps = {axis.dims[0]: blocks[0].step for axis, blocks in parts if len(axis.dims) == 1}
    inner = [steps.get(dim, 1) for dim in panel_dims]
    sizes = [cells.extents[dim] for dim in panel_dims]
    panels, before = [], -1
    for chosen in _visible_panels(cells, panel_dims, len(rows) * len(columns)):
        number = sum(i * prod(sizes[k + 1 :]) for k, i in enumerate(chosen))
        block = tuple(i // step for i, step in zip(chosen, inner, strict=True))
        framed = block if max(inner, default=1) > 1 else None
        made = table(dict(zip(panel_dims, chosen, strict=True)))
        panels.append(Panel(chosen, framed, number != before + 1, made))
        before = number
    named = [f"rows {cells.letters[row]}"] if row is not None else []
    named.append(f"columns {cells.letters[column]}")
    if panel_dims:
        named.append(f"a panel for each {','.join(cells.letters[dim] for dim in panel_dims)}")
    numbers = "offsets" if cells.values is None else "values"
    caption = f"logical: {', '.join(named)}; numbers are {numbers}"
    return Grid(caption, panels, cells.widest)


def _visible_panels(cells: Cells, dims: tuple[int, ...], size: int) -> list[tuple[int, ...]]:
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
# Pixels: height of a cell; around a note in it.
_HEIGHT, _AROUND_NOTE = 30, 6
# How many lines each loop is followed for, to find lines with elements.
_FOLLOWED = 16


class Lines(NamedTuple):
    """The offsets that are shown, all below `stop`.

    Line k starts at offset `k * length`; `rows` are the visible lines, `columns` the visible
    offsets in a line. In an image a line is a row of its `pixels`.
    """

    stop: int
    length: int
    rows: list[int]
    columns: list[int]
    pixels: Pixels | None = None

    def table(self, at_offset: Callable[[int], Cell], bits: int) -> Table:
        """Return the cells that a function returns for the offsets of elements of some bits."""
        lanes = self.pixels.channels if self.pixels else 0
        starts = [row * self.length for row in self.rows]
        offsets = [[at + k for k in self.columns if at + k < self.stop] for at in starts]
        if self.pixels:
            heads = [(self.pixels.row_name(row),) * 2 for row in self.rows]
        else:
            heads = [(f"byte {start * bits // 8}", str(start)) for start in starts]
        line = BYTE_BITS * CACHE_LINE
        starts_pixel = {
            k: x // lanes for k, x in enumerate(self.columns) if lanes and not x % lanes
        }
        placed = ((r, c, offset) for r, row in enumerate(offsets) for c, offset in enumerate(row))
        return Table(
            self.rows,
            self.columns,
            [[at_offset(offset) for offset in row] for row in offsets],
            heads,
            [LANES[column % lanes] if lanes else f"+{column}" for column in self.columns],
            groups={k: f"x {pixel}" for k, pixel in starts_pixel.items()},
            span=lanes,
            marks={(r, c) for r, c, offset in placed if not offset * bits % line},
        )


def memory_table(cells: Cells, at_offset: Callable[[int], Cell] | None = None) -> Table:
    """Return the lines of a buffer or an image, with other cells if a function returns some."""
    lines = (_lines_of if cells.pixels is None else _pixel_lines)(cells)
    return lines.table(at_offset or cells.at_offset, cells.dtype.bits)


def memory_half(table: Table, caption: str) -> Half:
    """Draw the lines of a memory."""
    widths = [cell_width(cell.number) for cell in table.shown]
    widths += [text_width(cell.note) + _AROUND_NOTE for cell in table.shown]
    size = max(cell_width(""), *widths), _HEIGHT
    return Half(caption, *table.size(size), table.paint(0, 0, size))


def memory_text(table: Table, *, of_number: bool = False) -> list[str]:
    """Write the notes of cells, or their numbers; a bar marks the start of a cache line."""

    def write(cell: Cell) -> str:
        if cell.run is None:
            return "-"
        return bracketed(cell, cell.number if of_number or cell.is_padding else cell.note)

    return table.text(write)


def _lines_of(cells: Cells) -> Lines:
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
    return Lines(layout.last + 1, length, rows, list(range(length)))


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


def _pixel_lines(cells: Cells) -> Lines:
    """Choose the lines of an image: some rows of pixels, and some pixels of each."""
    assert cells.pixels is not None  # noqa: S101 - for the type checker: the caller asked
    width, channels, _ = cells.pixels
    stop = cells.layout.last + 1
    height = stop // (width * channels)
    wanted = [divmod(cells.layout.offset(index) // channels, width) for index in cells.wanted]
    most = _MAX_PIXELS if channels > 1 else _MAX_LENGTH
    shown = visible_indices(width, width, most, (x for _, x in wanted))
    rows = visible_indices(height, height, LINES, (y for y, _ in wanted))
    columns = [pixel * channels + lane for pixel in shown for lane in range(channels)]
    return Lines(stop, width * channels, rows, columns, cells.pixels)
