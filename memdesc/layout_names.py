"""From names to layouts and back: the tag, the CuTe text, the call and all names of a layout."""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial
from math import prod

from memdesc.errors import MemdescError, UnknownFormatError, UnsupportedFormatError, short_repr
from memdesc.int64 import checked_ints
from memdesc.layout import Layout, dim_names, layout_by_tag, memory_order
from memdesc.names import Name, dim_letters, expand_meta_tag, names_for, resolve
from memdesc.names.onednn import CANONICAL
from memdesc.names.tvm import tag_of_string
from memdesc.tags import MAX_NDIMS, Digit, FormatTag

# The vocabulary of canonical tags that oneDNN's enum does not have.
_MEMDESC = "memdesc"


# packages whose layout objects are read as they are printed
_READ_BY_REPR = {"pycute", "tensor_layouts", "triton"}


def tag_of(layout: object, ndims: int, bits: int) -> FormatTag:
    """Return the tag that a name or a TVM string alone gives, for `ndims` dims of any size.

    Other notations, which describe a tensor of certain sizes, are refused.
    """
    if isinstance(layout, FormatTag):
        return layout
    name = expand_meta_tag(name_of(layout).removeprefix("torch."), ndims)
    try:
        return resolve(name, (), bits)
    except UnknownFormatError as unknown:
        try:
            return tag_of_string(name)[0]
        except UnknownFormatError:
            raise unknown from None


def name_of(given: object) -> str:
    """Return the name that a caller gives as a string or as a memory format of torch."""
    if isinstance(given, str):
        return given.strip()
    given_type = type(given)
    if (given_type.__module__, given_type.__name__) == ("torch", "memory_format"):
        return str(given)
    if given_type.__module__.partition(".")[0] in _READ_BY_REPR:
        return repr(given)
    msg = f"a layout is a name, a FormatTag or a torch.memory_format, not {short_repr(given)}"
    with suppress(MemdescError):
        strides = checked_ints("strides", given)  # type: ignore[arg-type] # it checks
        msg += f"; strides are passed as strides={strides}" if 0 < len(strides) <= MAX_NDIMS else ""
    raise MemdescError(msg)


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
    outer = [blocks[0] for _, blocks in layout.parts]
    digits = [
        Digit(block.axis, block.step, 0 if block in outer else block.extent) for block in order
    ]
    align = tuple(
        1 if axis.padded == -(-layout.axis_size(k) // step) * step else axis.padded or 1
        for k, (axis, ((_, step, *_), *_)) in enumerate(layout.parts)
    )
    return FormatTag(tuple(axis.dims for axis in axes), tuple(digits), align)


def names_of(layout: Layout, bits: int, letters: str | None = None) -> tuple[Name, ...]:
    """Return every known name, in all vocabularies, of a layout with elements of `bits` bits.

    Names that call the dims `letters` come first, or tags if that is None; then those of data. A
    canonical tag that oneDNN does not enumerate is a name of memdesc.
    """
    has_tag = cache(partial(is_laid_out_by, layout))
    names = []
    for name, parsed in names_for(layout.ndims, bits):
        with suppress(UnsupportedFormatError):
            if has_tag(parsed.tag):
                parsed.vocabulary.check_dims(name.text, layout.dims, parsed.tag)
                names.append(name)
    tag = dense_tag(layout)
    if not any(name.domain == CANONICAL for name in names) and is_laid_out_by(layout, tag):
        names.insert(0, Name(_MEMDESC, str(tag), CANONICAL))
    ranks = {"data": 0, CANONICAL: 1}
    names.sort(key=lambda name: (dim_letters(name.text) != letters, ranks.get(name.domain, 2)))
    return tuple(names)


def cute_text(layout: Layout, letters: str | None = None) -> str:
    """Write a layout as CuTe prints it, swizzled or not; raise with the reason if CuTe cannot."""
    modes = [blocks[::-1] for _, blocks in layout.parts]
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


def expression(layout: Layout, dtype: str) -> str:
    """Return the shortest call that makes a descriptor: with a tag, strides or a Layout."""
    start = f"memory_desc({layout.dims}, '{dtype}', "
    try:
        if layout.xor:
            return f"{start}'{cute_text(layout)}')"
        if is_laid_out_by(layout, tag := dense_tag(layout)):
            return f"{start}'{tag}')"
        inner = layout.tile()
    except MemdescError:
        return f"{start}{layout!r})"
    arguments = [f"strides={layout.strides()}"]
    if inner:
        arguments.append(f"inner_blks={tuple(block.extent for block in inner)}")
        arguments.append(f"inner_idxs={tuple(block.axis for block in inner)}")
    # by default each dim is padded to whole blocks and no further
    steps = (blocks[0].step for _, blocks in layout.parts)
    whole = (-(-size // step) * step for size, step in zip(layout.dims, steps, strict=True))
    if layout.padded_dims() != tuple(whole):
        arguments.append(f"padded_dims={layout.padded_dims()}")
    if layout.offset0:
        arguments.append(f"offset0={layout.offset0}")
    return f"{start}{', '.join(arguments)})"
