"""The logical side of a picture: the last two long dims are rows and columns, others panels."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from memdesc.picture.cells import visible_indices

if TYPE_CHECKING:
    from memdesc.picture.cells import Cell, Cells

__all__ = ["COMPACT", "FULL", "Grid", "Limits", "Track", "arrange", "place"]


class Limits(NamedTuple):
    """What a picture shows at most; with panels, half as many rows and columns each.

    `rows`, `columns`, `panels` and `cells` are those of the grid, `lines` those of the memory.
    Both ends of each dim, and what is highlighted, are shown beyond these.
    """

    rows: int
    columns: int
    panels: int
    cells: int
    lines: int


FULL = Limits(rows=12, columns=16, panels=16, cells=240, lines=20)
# of pictures that nobody asked for: those of values in a notebook
COMPACT = Limits(rows=8, columns=8, panels=6, cells=120, lines=10)

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

    def skips(self, k: int) -> bool:
        """Whether panels are left out in front of panel k."""
        return k > 0 and self._count(self.panels[k]) != self._count(self.panels[k - 1]) + 1

    def _count(self, panel: tuple[int, ...]) -> int:
        """Return the row-major number of a panel among those of all padded indices."""
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
        # the k dims further out show two indices each at least
        indices = visible_indices(cells.layout.dims[dim], cells.extents[dim], max(n_panels >> k, 2))
        chosen.insert(0, indices)
        n_panels //= len(indices)
    panels = list(product(*chosen))
    if len(panels) > most:  # many dims
        panels = [*panels[: most - 1], panels[-1]]
    wanted = {tuple(index[dim] for dim in panel_dims) for index in cells.wanted}
    panels = sorted(wanted.union(panels))
    return Grid(cells, row, column, panel_dims, rows, columns, panels)


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
