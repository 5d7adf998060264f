"""From a layout back to names: its tag, and its name in every vocabulary."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING

from memdesc.errors import MemdescError, UnsupportedFormatError
from memdesc.layout import layout_by_tag, memory_order
from memdesc.names import Name, known_names, onednn, resolve
from memdesc.names.onednn import CANONICAL
from memdesc.tags import Digit, FormatTag

if TYPE_CHECKING:
    from memdesc.layout import Layout

# The vocabulary of canonical tags that oneDNN cannot read, and the characters that only these have:
# for steps, fused dims and alignments.
_MEMDESC = "memdesc"
_ADDITIONS = "[/(_]"


def is_laid_out_by(layout: Layout, tag: FormatTag) -> bool:
    """Whether a tag, with the dims of a layout, gives exactly this layout."""
    if len(tag.digits) != len(layout.blocks) or tag.ndims != layout.ndims:
        return False
    try:
        return layout_by_tag(tag, layout.dims).key() == layout.key()
    except MemdescError:  # the tag may pad these dims beyond int64
        return False


def dense_tag(layout: Layout) -> FormatTag:
    """Return the tag of the dense layout with the same order."""
    axes = layout.axes
    tile = prod(block.extent for block in layout.inner())
    # a unit dim may have any stride, even one inside the tile; in a tag it is outside
    order = sorted(
        layout.blocks,
        key=lambda block: memory_order(
            block._replace(stride=max(block.stride, tile))
            if block.extent == axes[block.axis].padded == 1
            else block
        ),
    )
    outer = {layout.outer(k) for k in range(len(axes))}
    digits = [
        Digit(block.axis, block.step, 0 if block in outer else block.extent) for block in order
    ]
    whole = [layout.outer(k).step for k in range(len(axes))]
    align = tuple(
        1 if axis.padded == -(-layout.axis_size(k) // whole[k]) * whole[k] else axis.padded or 1
        for k, axis in enumerate(axes)
    )
    return FormatTag(tuple(axis.dims for axis in axes), tuple(digits), align)


def names_of(layout: Layout, bits: int) -> tuple[Name, ...]:
    """Return every known name, in all vocabularies, of a layout with elements of `bits` bits.

    A canonical tag that oneDNN does not enumerate comes first.
    """
    found = tuple(name for name in known_names() if _has_name(layout, name.text, bits))
    tag = dense_tag(layout)
    if not any(name.domain == CANONICAL for name in found) and is_laid_out_by(layout, tag):
        text = str(tag)
        vocabulary = _MEMDESC if re.search(_ADDITIONS, text) else onednn.VOCABULARY.name
        found = (Name(vocabulary, text, CANONICAL), *found)
    return found


def _has_name(layout: Layout, name: str, bits: int) -> bool:
    try:
        return is_laid_out_by(layout, resolve(name, layout.dims, bits))
    except UnsupportedFormatError:
        return False
