"""Pictures of layouts: the logical grid beside the memory, as SVG and as text."""

from memdesc.picture.cells import Cell, Cells, cells_of
from memdesc.picture.draw import (
    Look,
    Side,
    checked_cells,
    coloured_as,
    draw_beside,
    draw_image,
    draw_layout,
    draw_sides,
)
from memdesc.picture.fields import DrawnField, draw_fields
from memdesc.picture.grid import COMPACT, FULL, Limits
from memdesc.picture.memory import lines_of
from memdesc.picture.picture import Picture
from memdesc.picture.sheet import Sheet
from memdesc.picture.text import cells_text

__all__ = [
    "COMPACT",
    "FULL",
    "Cell",
    "Cells",
    "DrawnField",
    "Limits",
    "Look",
    "Picture",
    "Sheet",
    "Side",
    "cells_of",
    "cells_text",
    "checked_cells",
    "coloured_as",
    "draw_beside",
    "draw_fields",
    "draw_image",
    "draw_layout",
    "draw_sides",
    "lines_of",
]
