"""Pictures of layouts: the logical grid beside the memory, as SVG and as text."""

from memdesc.picture.picture import Picture

__all__ = ["Picture"]
