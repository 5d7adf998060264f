"""The logical half of a picture: rows, columns and panels.

The last two dims with several indices (long dims) are rows and columns; the others are panels.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import NamedTuple

from memdesc.picture.cells import Cell, Cells, visible_indices
from memdesc.picture.svg import CELL_HEIGHT, edge, label, outline, paint_cell, text_width


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


class Grid(NamedTuple):
    """The dims of rows, columns and panels with their visible indices; other dims have index 0."""

    cells: Cells
    row: int | None
    column: int
    panel_dims: tuple[int, ...]
    rows: list[int]
    columns: list[int]
    panels: list[tuple[int, ...]]

    def cell(self, panel: tuple[int, ...], row: int, column: int) -> Cell | None:
        """Return the cell in a row and a column of a panel; None if the tensor does not have it."""
        index = [0] * self.cells.layout.ndims
        for dim, i in zip(self.panel_dims, panel, strict=True):
            index[dim] = i
        if self.row is not None:
            index[self.row] = row
        index[self.column] = column
        return self.cells.at(tuple(index))

    def caption(self, panel: tuple[int, ...]) -> str:
        """Return the heading of a panel: `a=0 b=3`."""
        return " ".join(
            f"{self.cells.letters[dim]}={i}" for dim, i in zip(self.panel_dims, panel, strict=True)
        )

    def block(self, panel: tuple[int, ...]) -> tuple[int, ...] | None:
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

    def skips(self, k: int) -> bool:
        """Whether panels are left out before panel k."""
        return k > 0 and self._count(self.panels[k]) != self._count(self.panels[k - 1]) + 1

    def _count(self, panel: tuple[int, ...]) -> int:
        """Return the row-major number of a panel among the panels of all padded indices."""
        sizes = [self.cells.extents[dim] for dim in self.panel_dims]
        return sum(i * prod(sizes[k + 1 :]) for k, i in enumerate(panel))

    @property
    def summary(self) -> str:
        """The dims of rows, columns and panels: `rows c, columns d, a panel for each a,b`."""
        letters = self.cells.letters
        parts = [f"rows {letters[self.row]}"] if self.row is not None else []
        parts.append(f"columns {letters[self.column]}")
        if self.panel_dims:
            parts.append(f"a panel for each {','.join(letters[dim] for dim in self.panel_dims)}")
        return ", ".join(parts)


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


class Track(NamedTuple):
    """Where the indices along a dim and the gaps between them start, and the length; in pixels."""

    starts: list[int]
    gaps: list[int]
    length: int


def place(indices: list[int], size: int, gap: int) -> Track:
    """Place indices next to each other, with a gap where some are left out; sizes are in pixels."""
    starts, gaps, at = [], [], 0
    for k, i in enumerate(indices):
        if k and i != indices[k - 1] + 1:
            gaps.append(at)
            at += gap
        starts.append(at)
        at += size
    return Track(starts, gaps, at)


# Pixels: width of a line of panels; space left of a panel at least, above it, between panels, for
# omitted indices, and for omitted panels.
_MAX_WIDTH = 620
_GUTTER, _ABOVE, _BETWEEN, _GAP, _SKIP = 22, 32, 12, 16, 20


class Panels:
    """A grid drawn with cells of one width, from (`left`, `top`) to (`right`, `bottom`)."""

    def __init__(self, grid: Grid, left: int, top: int, cell_width: int) -> None:
        self.grid = grid
        self.left, self.top = left, top
        self.cell_width = cell_width
        heads = [] if grid.row is None else [text_width(str(row)) + 12 for row in grid.rows]
        self.gutter = max([_GUTTER, *heads])
        self.xs, self.x_gaps, width = place(grid.columns, cell_width, _GAP)
        self.width = max(width, *(text_width(grid.caption(panel)) for panel in grid.panels))
        self.ys, self.y_gaps, self.height = place(grid.rows, CELL_HEIGHT, _GAP)
        self.blocks = [grid.block(panel) for panel in grid.panels]
        self.corners: list[tuple[int, int]] = []
        self.dots: list[tuple[int, int, str]] = []
        self._flow()
        self.right = max(x for x, _ in self.corners) + self.gutter + self.width
        self.bottom = self.corners[-1][1] + _ABOVE + self.height

    def paint(self) -> list[str]:
        """Return the SVG elements of all panels, their frames, and the dots between them."""
        parts = [label(x, y, dots, size=14, style="faint") for x, y, dots in self.dots]
        for k in range(len(self.corners)):
            if self.blocks[k] is not None and not self._continues(k):
                parts.append(self._frame(k))
            parts += self._panel(k)
        return parts

    def _flow(self) -> None:
        """Place panels in lines: a new line for each outer index, blocks together if they fit."""
        panels = self.grid.panels
        step_x, step_y = self.gutter + self.width + _BETWEEN, _ABOVE + self.height + _BETWEEN
        x, y = self.left, self.top
        for k, panel in enumerate(panels):
            before = panels[k - 1] if k else panel
            is_first = not k or self.blocks[k] != self.blocks[k - 1]
            together = (
                self.blocks.count(self.blocks[k]) if is_first and self.blocks[k] is not None else 1
            )
            is_new_row = panel[:-1] != before[:-1]
            if x > self.left and (
                is_new_row or x + together * step_x - _BETWEEN > self.left + _MAX_WIDTH
            ):
                x, y = self.left, y + step_y
            if self.grid.skips(k):
                if x == self.left:
                    self.dots.append((x + self.gutter, y + _SKIP // 2, "⋮"))
                    y += _SKIP
                else:
                    self.dots.append((x + 2, y + (_ABOVE + self.height) // 2 + 4, "⋯"))
                    x += _SKIP
            self.corners.append((x, y))
            x += step_x

    def _continues(self, k: int) -> bool:
        """Whether a panel is in the same frame as the one before it."""
        return (
            k > 0
            and self.blocks[k] == self.blocks[k - 1]
            and self.corners[k][1] == self.corners[k - 1][1]
        )

    def _frame(self, first: int) -> str:
        last = first
        while last + 1 < len(self.corners) and self._continues(last + 1):
            last += 1
        x, y = self.corners[first]
        return edge(
            "rect",
            x=x + 2,
            y=y - 2,
            width=self.corners[last][0] + self.gutter + self.width + 3 - x,
            height=_ABOVE + self.height + 7,
            rx=5,
        )

    def _panel(self, k: int) -> list[str]:
        grid, panel = self.grid, self.grid.panels[k]
        x, y = self.corners[k][0] + self.gutter, self.corners[k][1] + _ABOVE
        xs, ys = [x + at for at in self.xs], [y + at for at in self.ys]
        parts = [label(x, y - 18, grid.caption(panel), style="bold")] if panel else []
        middle = self.cell_width / 2
        parts += [
            label(at + middle, y - 4, str(i), anchor="middle", style="faint")
            for at, i in zip(xs, grid.columns, strict=True)
        ]
        if grid.row is not None:
            parts += [
                label(x - 4, at + 15, str(i), anchor="end", style="faint")
                for at, i in zip(ys, grid.rows, strict=True)
            ]
        found: dict[tuple[int, int], Cell] = {}
        for r, row in enumerate(grid.rows):
            for c, column in enumerate(grid.columns):
                if cell := grid.cell(panel, row, column):
                    found[c, r] = cell
                    parts.append(
                        paint_cell(
                            cell._replace(note=""), xs[c], ys[r], (self.cell_width, CELL_HEIGHT)
                        )
                    )
        tiles = [cell.tile for cell in found.values()]
        # if blocks have one cell in each panel, the frames of panels show them
        if len(set(tiles)) < len(tiles):
            parts.append(outline(found, xs, ys, (self.cell_width, CELL_HEIGHT)))
        parts += [
            label(x + gap + _GAP / 2, y + 15, "⋯", anchor="middle", style="faint")
            for gap in self.x_gaps
        ]
        parts += [
            label(x + 8, y + gap + 13, "⋮", anchor="middle", style="faint") for gap in self.y_gaps
        ]
        return parts
