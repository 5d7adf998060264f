"""The logical half of a picture: rows, columns and panels.

The last two dims with several indices (long dims) are rows and columns; the others are panels.
"""

from __future__ import annotations

from itertools import product
from math import prod

from memdesc.picture.cells import Cell, Cells, visible_indices
from memdesc.picture.picture import Half
from memdesc.picture.svg import CELL_HEIGHT, cell_width, edge, label, plain
from memdesc.picture.table import Table, bracketed, gapped
from memdesc.tuples import NamedTuple


class Limits(NamedTuple):
    """How much a picture shows at most; panels have half as many rows and columns.

    `rows`, `columns`, `panels` and `cells` limit the grid, `lines` the memory. Both ends of each
    dim, and what is highlighted, are shown in addition.
    """

    rows: int
    columns: int
    panels: int
    cells: int
    lines: int


FULL = Limits(rows=12, columns=16, panels=16, cells=240, lines=20)
# for values at the end of a notebook cell, which show a picture that nobody asked for
COMPACT = Limits(rows=8, columns=8, panels=6, cells=120, lines=10)

_MIN_PANELS = 4
# the most long dims of a grid without panels
_MATRIX = 2
# the most pixels, and characters, of a line of panels
_MAX_WIDTH, _MAX_TEXT = 620, 100
# Pixels: between panels; for panels that are left out.
_BETWEEN, _SKIP = 12, 20


class Grid(NamedTuple):
    """The dims of rows, columns and panels with their visible indices; other dims have index 0."""

    cells: Cells
    row: int | None
    column: int
    panel_dims: tuple[int, ...]
    rows: list[int]
    columns: list[int]
    panels: list[tuple[int, ...]]

    def table(self, panel: tuple[int, ...]) -> Table:
        """Return the cells of a panel."""
        heads = ["" if self.row is None else str(row) for row in self.rows]
        return Table(
            self.rows,
            self.columns,
            [[self._cell(panel, row, column) for column in self.columns] for row in self.rows],
            [(head, head) for head in heads],
            list(map(str, self.columns)),
            " ".join(
                f"{self.cells.letters[dim]}={i}"
                for dim, i in zip(self.panel_dims, panel, strict=True)
            ),
        )

    def _cell(self, panel: tuple[int, ...], row: int, column: int) -> Cell | None:
        """Return the cell in a row and a column of a panel; None if the tensor does not have it."""
        index = [0] * self.cells.layout.ndims
        for dim, i in zip(self.panel_dims, panel, strict=True):
            index[dim] = i
        if self.row is not None:
            index[self.row] = row
        index[self.column] = column
        cell = self.cells.at(tuple(index))
        return None if cell is None else cell._replace(note="")

    def _block(self, panel: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the blocks of the panel dims that contain a panel; None without blocks."""
        layout = self.cells.layout.base()
        steps = {
            axis.dims[0]: layout.outer(k).step
            for k, axis in enumerate(layout.axes)
            if len(axis.dims) == 1
        }
        if all(steps.get(dim, 1) == 1 for dim in self.panel_dims):
            return None
        return tuple(i // steps.get(dim, 1) for dim, i in zip(self.panel_dims, panel, strict=True))

    def _skips(self, k: int) -> bool:
        """Whether panels are left out before panel k."""
        return k > 0 and self._count(self.panels[k]) != self._count(self.panels[k - 1]) + 1

    def _count(self, panel: tuple[int, ...]) -> int:
        """Return the row-major number of a panel among the panels of all padded indices."""
        sizes = [self.cells.extents[dim] for dim in self.panel_dims]
        return sum(i * prod(sizes[k + 1 :]) for k, i in enumerate(panel))

    def _lines(self, most: int, *, has_gaps: bool = False) -> list[list[int]]:
        """Return the panels of each line, `most` at most.

        A line has one outer index, panels of one block, and unless it `has_gaps` all of them.
        """
        lines: list[list[int]] = []
        for k, panel in enumerate(self.panels):
            before = self.panels[k - 1]
            if (
                not lines
                or len(lines[-1]) >= most
                or (self._skips(k) and not has_gaps)
                or panel[:-1] != before[:-1]
                or self._block(panel) != self._block(before)
            ):
                lines.append([])
            lines[-1].append(k)
        return lines

    @property
    def summary(self) -> str:
        """The dims of rows, columns and panels: `rows c, columns d, a panel for each a,b`."""
        letters = self.cells.letters
        parts = [f"rows {letters[self.row]}"] if self.row is not None else []
        parts.append(f"columns {letters[self.column]}")
        if self.panel_dims:
            parts.append(f"a panel for each {','.join(letters[dim] for dim in self.panel_dims)}")
        return ", ".join(parts)

    def half(self, caption: str) -> Half:
        """Draw all panels, a frame around those of a block, and dots where some are left out."""
        tables = [self.table(panel) for panel in self.panels]
        size = cell_width(self.cells.widest), CELL_HEIGHT
        sizes = [table.size(size) for table in tables]
        width, height = (max(side) for side in zip(*sizes, strict=True))
        step = width + _BETWEEN
        parts: list[str] = []
        top, right = 0, 0
        for line in self._lines(max((_MAX_WIDTH + _BETWEEN) // step, 1), has_gaps=True):
            if self._skips(line[0]):
                parts.append(label(tables[0].gutter, top + _SKIP // 2, "⋮", size=14, style="faint"))
                top += _SKIP
            end = len(line) * step - _BETWEEN
            if self._block(self.panels[line[0]]) is not None:
                frame = {"x": 2, "y": top - 2, "width": end + 3, "height": height + 7}
                parts.append(edge("rect", rx=5, **frame))
            for j, k in enumerate(line):
                if j and self._skips(k):
                    parts.append(label(j * step - 6, top + height // 2, "⋯", style="faint"))
                parts += tables[k].paint(j * step, top, size)
            top += height + _BETWEEN
            right = max(right, end)
        return Half(caption, right, top - _BETWEEN, parts)

    def text(self) -> list[str]:
        """Write as many panels side by side as fit; `[padding]`, `<highlighted>`."""
        width = max(len(self.cells.widest) + 2, 4)
        panels = [self._panel_text(panel, width) for panel in self.panels]
        wide = max(len(plain(panel[0])) for panel in panels)
        lines: list[str] = []
        for line in self._lines(max(_MAX_TEXT // (wide + 2), 1)):
            lines += ["…"] if self._skips(line[0]) else []
            beside = zip(*(panels[k] for k in line), strict=True)
            lines += ["  ".join(rows).rstrip() for rows in beside]
        return lines

    def _panel_text(self, panel: tuple[int, ...], width: int) -> list[str]:
        """Return the lines of a panel, all of the same length."""
        table = self.table(panel)
        heads = (f"{head:>{width - 1}} " for head in gapped(table.columns, table.tops))
        lines = [table.caption] if table.caption else []
        lines.append(" " * 4 + "".join(heads))
        lines += table.text(lambda cell: bracketed(cell, cell.number, " "), width, 3)
        lengths = [len(plain(line)) for line in lines]
        wide = max(lengths)
        return [line + " " * (wide - length) for line, length in zip(lines, lengths, strict=True)]


def arrange(cells: Cells, limits: Limits = FULL) -> Grid:
    """Choose the dims of rows, columns and panels, and their visible indices."""
    long = cells.long_dims or (cells.layout.ndims - 1,)
    column, row = long[-1], long[-2] if len(long) > 1 else None
    panel_dims = long[:-2]
    share = 1 if len(long) <= _MATRIX else 2

    def visible(dim: int, limit: int) -> list[int]:
        wanted = (index[dim] for index in cells.wanted)
        return visible_indices(cells.layout.dims[dim], cells.extents[dim], limit, wanted)

    columns = visible(column, limits.columns // share)
    rows = [0] if row is None else visible(row, limits.rows // share)
    n_panels = min(limits.panels, max(limits.cells // (len(rows) * len(columns)), _MIN_PANELS))
    most = min(limits.panels, 2 * n_panels)
    chosen: list[list[int]] = []
    for k, dim in reversed(list(enumerate(panel_dims))):
        # each of the k dims further out shows at least two indices
        indices = visible_indices(cells.layout.dims[dim], cells.extents[dim], max(n_panels >> k, 2))
        chosen.insert(0, indices)
        n_panels //= len(indices)
    panels = list(product(*chosen))
    if len(panels) > most:  # there are many dims
        panels = [*panels[: most - 1], panels[-1]]
    wanted = {tuple(index[dim] for dim in panel_dims) for index in cells.wanted}
    panels = sorted(wanted.union(panels))
    return Grid(cells, row, column, panel_dims, rows, columns, panels)
