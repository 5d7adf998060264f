"""Pictures of layouts: the logical grid beside the memory, as SVG and as text."""

from memdesc.picture.draw import draw_image, draw_layout
from memdesc.picture.picture import Picture

__all__ = ["Picture", "draw_image", "draw_layout"]
