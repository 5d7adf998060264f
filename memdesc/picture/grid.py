"""The logical side of a picture: the last two long dims as rows and columns, the others as panels."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from memdesc.picture.cells import visible

if TYPE_CHECKING:
    from memdesc.picture.cells import Cell, Cells

__all__ = ["Grid", "arrange", "spread"]

_MOST_ROWS, _MOST_COLUMNS, _MOST_PANELS, _MOST_CELLS = 12, 16, 24, 480
_FLAT = 2


class Grid(NamedTuple):
    """Which indices are shown, and where; a dim of no place has index 0."""

    cells: Cells
    row: int | None
    column: int
    panel_dims: tuple[int, ...]
    rows: list[int]
    columns: list[int]
    panels: list[tuple[int, ...]]

    def cell(self, panel: tuple[int, ...], row: int, column: int) -> Cell | None:
        """Return the cell of a place, None where the tensor has none."""
        at = [0] * self.cells.layout.ndims
        for dim, i in zip(self.panel_dims, panel, strict=True):
            at[dim] = i
        if self.row is not None:
            at[self.row] = row
        at[self.column] = column
        return self.cells.at(tuple(at))

    def caption(self, panel: tuple[int, ...]) -> str:
        """Return what stands above a panel: `a=0 b=3`."""
        return " ".join(
            f"{self.cells.letters[dim]}={i}" for dim, i in zip(self.panel_dims, panel, strict=True)
        )

    def block(self, panel: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return which blocks of the panel dims a panel lies in; None where these have no blocks."""
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
    def words(self) -> str:
        """What the grid shows, in words."""
        letters = self.cells.letters
        words = [f"rows {letters[self.row]}"] if self.row is not None else []
        words.append(f"columns {letters[self.column]}")
        if self.panel_dims:
            words.append(f"a panel for each {','.join(letters[dim] for dim in self.panel_dims)}")
        return ", ".join(words)


def arrange(cells: Cells) -> Grid:
    """Choose rows, columns and panels, and which of their indices are shown."""
    sizes, extents = cells.layout.dims, cells.extents
    long = cells.long_dims or (len(sizes) - 1,)
    column, row = long[-1], long[-2] if len(long) > 1 else None
    shrink = 1 if len(long) <= _FLAT else 2
    columns = visible(sizes[column], extents[column], _MOST_COLUMNS // shrink)
    rows = [0] if row is None else visible(sizes[row], extents[row], _MOST_ROWS // shrink)
    room = min(_MOST_PANELS, max(_MOST_CELLS // (len(rows) * len(columns)), 4))
    shown: list[list[int]] = []
    for k, dim in reversed(list(enumerate(long[:-2]))):
        # two are left for each dim further out
        shown.insert(0, visible(sizes[dim], extents[dim], max(room >> k, 2)))
        room //= len(shown[0])
    return Grid(cells, row, column, long[:-2], rows, columns, list(product(*shown)))


def spread(indices: list[int], size: int, gap: int) -> tuple[list[int], list[int], int]:
    """Place indices in a row; returns their places, the places of gaps, and the whole width."""
    places, gaps, at = [], [], 0
    for k, i in enumerate(indices):
        if k and i != indices[k - 1] + 1:
            gaps.append(at)
            at += gap
        places.append(at)
        at += size
    return places, gaps, at
