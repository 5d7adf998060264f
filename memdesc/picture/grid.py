"""The logical side of a picture: the last two long dims are rows and columns, others panels."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from memdesc.picture.cells import visible_indices

if TYPE_CHECKING:
    from memdesc.picture.cells import Cell, Cells

__all__ = ["Grid", "Track", "arrange", "place"]

# What fits a page beside the memory; with panels, half as many rows and columns each.
_MAX_ROWS, _MAX_COLUMNS, _MAX_PANELS, _MAX_CELLS = 12, 16, 24, 480
_MIN_PANELS = 4
# long dims of a grid without panels
_MATRIX = 2


class Grid(NamedTuple):
    """The dims of rows, columns and panels, and their visible indices; other dims have index 0."""

    cells: Cells
    row: int | None
    column: int
    panel_dims: tuple[int, ...]
    rows: list[int]
    columns: list[int]
    panels: list[tuple[int, ...]]

    def cell(self, panel: tuple[int, ...], row: int, column: int) -> Cell | None:
        """Return the cell in a row and a column of a panel; None where the tensor has none."""
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
        """Return the blocks of the panel dims that a panel is in; None where they have none."""
        layout = self.cells.layout
        steps = {
            axis.dims[0]: layout.outer(k).step
            for k, axis in enumerate(layout.axes)
            if len(axis.dims) == 1
        }
        if all(steps.get(dim, 1) == 1 for dim in self.panel_dims):
            return None
        return tuple(i // steps.get(dim, 1) for dim, i in zip(self.panel_dims, panel, strict=True))

    @property
    def summary(self) -> str:
        """The dims of rows, columns and panels: `rows c, columns d, a panel for each a,b`."""
        letters = self.cells.letters
        parts = [f"rows {letters[self.row]}"] if self.row is not None else []
        parts.append(f"columns {letters[self.column]}")
        if self.panel_dims:
            parts.append(f"a panel for each {','.join(letters[dim] for dim in self.panel_dims)}")
        return ", ".join(parts)


def arrange(cells: Cells) -> Grid:
    """Choose the dims of rows, columns and panels, and their visible indices."""
    sizes, extents = cells.layout.dims, cells.extents
    long = cells.long_dims or (len(sizes) - 1,)
    column, row = long[-1], long[-2] if len(long) > 1 else None
    share = 1 if len(long) <= _MATRIX else 2
    columns = visible_indices(sizes[column], extents[column], _MAX_COLUMNS // share)
    rows = [0] if row is None else visible_indices(sizes[row], extents[row], _MAX_ROWS // share)
    n_panels = min(_MAX_PANELS, max(_MAX_CELLS // (len(rows) * len(columns)), _MIN_PANELS))
    panels: list[list[int]] = []
    for k, dim in reversed(list(enumerate(long[:-2]))):
        # the k dims further out show two indices each at least
        panels.insert(0, visible_indices(sizes[dim], extents[dim], max(n_panels >> k, 2)))
        n_panels //= len(panels[0])
    return Grid(cells, row, column, long[:-2], rows, columns, list(product(*panels)))


class Track(NamedTuple):
    """Where the indices of a row or a column start, where gaps between them do, and the length."""

    starts: list[int]
    gaps: list[int]
    length: int


def place(indices: list[int], size: int, gap: int) -> Track:
    """Place indices beside each other, with a gap where some are left out; in pixels."""
    starts, gaps, at = [], [], 0
    for k, i in enumerate(indices):
        if k and i != indices[k - 1] + 1:
            gaps.append(at)
            at += gap
        starts.append(at)
        at += size
    return Track(starts, gaps, at)
