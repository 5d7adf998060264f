"""From a layout back to names: its tag, its CuTe notation, its name in every vocabulary."""

from __future__ import annotations

from functools import cache, partial
from math import prod

from memdesc.errors import MemdescError, UnsupportedFormatError
from memdesc.layout import Layout, dim_names, layout_by_tag, memory_order
from memdesc.names import Name, dim_letters
from memdesc.names.onednn import CANONICAL
from memdesc.names.registry import ParsedName, names_for
from memdesc.tags import Digit, FormatTag

# The vocabulary of canonical tags that oneDNN's enum does not have.
_MEMDESC = "memdesc"


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


def names_of(layout: Layout, bits: int, letters: str | None = None) -> tuple[Name, ...]:
    """Return every known name, in all vocabularies, of a layout with elements of `bits` bits.

    Names that call the dims `letters` come first, or tags if that is None; then those of data. A
    canonical tag that oneDNN does not enumerate is a name of memdesc.
    """
    if layout.xor:
        return ()
    has_tag = cache(partial(is_laid_out_by, layout))
    names = tuple(
        name
        for name, parsed in names_for(layout.ndims, bits)
        if has_tag(parsed.tag) and _exists(name, parsed, layout.dims)
    )
    tag = dense_tag(layout)
    if not any(name.domain == CANONICAL for name in names) and is_laid_out_by(layout, tag):
        names = (Name(_MEMDESC, str(tag), CANONICAL), *names)
    ranks = {"data": 0, CANONICAL: 1}

    def rank(name: Name) -> tuple[bool, int]:
        return dim_letters(name.text) != letters, ranks.get(name.domain, len(ranks))

    return tuple(sorted(names, key=rank))


def _exists(name: Name, parsed: ParsedName, dims: tuple[int, ...]) -> bool:
    try:
        parsed.vocabulary.check_dims(name.text, dims, parsed.tag)
    except UnsupportedFormatError:
        return False
    return True


def cute_text(layout: Layout, letters: str | None = None) -> str:
    """Write a layout as CuTe prints it, swizzled or not; raise with the reason if CuTe cannot.

    >>> cute_text(memdesc.memory_desc((2, 17), "f32", "aB8b").layout)
    '(2,(8,3)):(24,(1,8))'
    """
    modes = [
        [block for block in reversed(layout.blocks) if block.axis == k]
        for k in range(len(layout.axes))
    ]
    if axis := layout.fused():
        reason = f"dims {dim_names(axis.dims, letters)} are fused into one index, and modes add up"
    elif not layout.padded_nelems:
        reason = "extents are at least 1"
    elif layout.has_partial_blocks:
        reason = "a dim ends inside a block, and modes count whole blocks"
    elif layout.offset0 and not layout.xor:
        reason = f"a layout starts at offset 0, not {layout.offset0}; add the offset to the pointer"
    else:
        swizzle = f"Sw<{','.join(map(str, cute_swizzle(layout)))}> o {layout.offset0} o "
        parts = [
            [",".join(str(getattr(block, part)) for block in mode) for mode in modes]
            for part in ("extent", "stride")
        ]
        parts = [[f"({mode})" if "," in mode else mode for mode in part] for part in parts]
        is_number = len(modes) == len(modes[0]) == 1
        shape, stride = (part[0] if is_number else f"({','.join(part)})" for part in parts)
        return f"{swizzle if layout.xor else ''}{shape}:{stride}"
    raise UnsupportedFormatError(reason)


def cute_swizzle(layout: Layout) -> tuple[int, int, int]:
    """Return B, M and S of CuTe's `Swizzle<B,M,S>`, whose unit is an element."""
    if not layout.xor:
        return 0, 0, 0
    (shift, mask), *others = layout.xor
    low = (mask & -mask).bit_length() - 1
    bits = mask.bit_length() - low
    if others or mask != (1 << bits) - 1 << low or abs(shift) < bits:
        reason = f"a swizzle moves a run of bits by at least its length, not {layout.xor}"
        raise UnsupportedFormatError(reason)
    return bits, low + min(shift, 0), shift
