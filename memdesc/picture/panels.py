"""The panels of a grid in the picture: side by side, framed where they make a block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc.picture.grid import place
from memdesc.picture.paint import CELL_HEIGHT, outline, paint_cell
from memdesc.picture.svg import edge, label, text_width

if TYPE_CHECKING:
    from memdesc.picture.cells import Cell
    from memdesc.picture.grid import Grid

__all__ = ["Panels"]

# Pixels: a line of panels; left of a panel, above it, between two, between indices left out,
# between panels left out.
_MAX_WIDTH = 620
_GUTTER, _ABOVE, _BETWEEN, _GAP, _SKIP = 22, 26, 12, 16, 20


class Panels:
    """A grid as cells of one width, from the corner (`left`, `top`) to `right`, `bottom`."""

    def __init__(self, grid: Grid, left: int, top: int, cell_width: int) -> None:
        self.grid = grid
        self.left, self.top = left, top
        self.cell_width = cell_width
        self.xs, self.x_gaps, width = place(grid.columns, cell_width, _GAP)
        self.width = max(width, *(text_width(grid.caption(panel)) for panel in grid.panels))
        self.ys, self.y_gaps, self.height = place(grid.rows, CELL_HEIGHT, _GAP)
        self.blocks = [grid.block(panel) for panel in grid.panels]
        self.corners: list[tuple[int, int]] = []
        self.dots: list[tuple[int, int, str]] = []
        self._flow()
        self.right = max(x for x, _ in self.corners) + _GUTTER + self.width
        self.bottom = self.corners[-1][1] + _ABOVE + self.height

    def paint(self) -> list[str]:
        """Return the elements of all panels, of their frames, and of the dots between them."""
        parts = [label(x, y, dots, size=14, style="faint") for x, y, dots in self.dots]
        for k in range(len(self.corners)):
            if self.blocks[k] is not None and not self._continues(k):
                parts.append(self._frame(k))
            parts += self._panel(k)
        return parts

    def _flow(self) -> None:
        """Place panels in lines: a new one for each outer index, blocks together where they fit."""
        panels = self.grid.panels
        step_x, step_y = _GUTTER + self.width + _BETWEEN, _ABOVE + self.height + _BETWEEN
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
                    self.dots.append((x + _GUTTER, y + _SKIP // 2, "⋮"))
                    y += _SKIP
                else:
                    self.dots.append((x + 2, y + (_ABOVE + self.height) // 2 + 4, "⋯"))
                    x += _SKIP
            self.corners.append((x, y))
            x += step_x

    def _continues(self, k: int) -> bool:
        """Whether a panel is in the frame of the one before."""
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
            width=self.corners[last][0] + _GUTTER + self.width + 3 - x,
            height=_ABOVE + self.height + 7,
            rx=5,
        )

    def _panel(self, k: int) -> list[str]:
        grid, panel = self.grid, self.grid.panels[k]
        x, y = self.corners[k][0] + _GUTTER, self.corners[k][1] + _ABOVE
        xs, ys = [x + at for at in self.xs], [y + at for at in self.ys]
        parts = [label(x, y - 12, grid.caption(panel), size=10, style="bold")] if panel else []
        middle = self.cell_width / 2
        parts += [
            label(at + middle, y - 3, str(i), size=8, anchor="middle", style="faint")
            for at, i in zip(xs, grid.columns, strict=True)
        ]
        if grid.row is not None:
            parts += [
                label(x - 4, at + 14, str(i), size=8, anchor="end", style="faint")
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
        # a block that is one cell of each panel is framed as panels
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
