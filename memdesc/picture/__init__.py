"""Pictures of layouts: the logical grid beside the memory, as SVG and as text."""

from memdesc.picture.cells import Cell, Cells, cells_of
from memdesc.picture.draw import (
    Look,
    Side,
    coloured_as,
    draw_beside,
    draw_image,
    draw_layout,
    draw_sides,
    looked_at,
)
from memdesc.picture.fields import Part, draw_fields
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
    "Limits",
    "Look",
    "Part",
    "Picture",
    "Sheet",
    "Side",
    "cells_of",
    "cells_text",
    "coloured_as",
    "draw_beside",
    "draw_fields",
    "draw_image",
    "draw_layout",
    "draw_sides",
    "lines_of",
    "looked_at",
]
