"""What an entry holds: what its descriptor says, or what a rule says of its words."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING

from memdesc import MemdescError, MemoryDesc, UnsupportedFormatError, data_type, memory_desc
from memdesc.names import expand_meta_tag, resolve
from reorder.storage.stored import IN_SHAPE
from reorder.values.formats import INTEGERS

if TYPE_CHECKING:
    from memdesc import FormatTag
    from reorder.storage.containers.entry import Entry
    from reorder.storage.convert.rules import Rule

__all__ = ["held_layout"]


def held_layout(entry: Entry, rule: Rule) -> MemoryDesc:
    """Return what an entry holds, by its descriptor, or by what a rule says of it.

    Raises
    ------
    MemdescError
        If they do not fit, or none says it.
    """
    if rule.src is None and rule.holds is None and rule.dims is None:
        if isinstance(entry.desc, MemoryDesc):
            return entry.desc
        rule.fail(f"{entry.name}: {entry.reason or f'it holds {entry.desc!r}'}")
    name = "plain" if rule.src is None else str(rule.src)
    try:
        found = _by_rule(entry, rule, name)
    except MemdescError as error:
        rule.fail(f"{entry.name} of {entry.dtype} and shape {entry.shape}: {error}")
    if found.nbytes != entry.nbytes:
        rule.fail(
            f"{entry.name} has {entry.nbytes} bytes, but {found!r} takes {found.nbytes}; its dims "
            "are given as dims="
        )
    if entry.is_described and found != entry.desc:
        rule.fail(
            f"{entry.name} holds {entry.desc!r}, as its descriptor says, not {name}; leave "
            f"'{name} ->' out"
        )
    return found


def _by_rule(entry: Entry, rule: Rule, name: str) -> MemoryDesc:
    """Return the layout of a name, with dims from the shape."""
    words = data_type(entry.dtype)
    dtype = words if rule.holds is None else data_type(rule.holds)
    if rule.dims is not None:
        return memory_desc(rule.dims, _element(name, dtype.name, dtype.bits), name)
    if entry.is_described and isinstance(entry.desc, MemoryDesc):
        return memory_desc(entry.desc.dims, entry.desc.dtype, name)
    kind = _element(name, dtype.name, dtype.bits)
    bits = data_type(kind).bits
    ndims = len(entry.shape) if bits < words.bits else _ndims(name, entry.shape)
    tag = resolve(expand_meta_tag(name, ndims), (), bits)
    if bits < words.bits:
        if words.name not in INTEGERS:
            msg = f"{name} lies in words of integers, not of {words}"
            raise MemdescError(msg)
        dims = _dims_of_words(entry.shape, tag, words.bits // bits, name)
    else:
        dims = _dims_of_blocks(entry.shape, tag)
    return memory_desc(dims, kind, name)


def _ndims(name: str, shape: tuple[int, ...]) -> int:
    """Return how many dims a name for any number of them has: each block adds an axis."""
    return len(shape) - len(re.findall("[0-9]+[a-z]", name))


def _element(name: str, dtype: str, bits: int) -> str:
    """Return the type of the elements of a name: packings exist for few widths only."""
    try:
        resolve(name, (), bits)
    except UnsupportedFormatError:
        for narrow in (4, 8):
            try:
                resolve(name, (), narrow)
            except MemdescError:
                continue
            return f"u{narrow}"
        raise
    except MemdescError:  # a name for any number of dims, or none: the caller finds out
        return dtype
    return dtype


def _dims_of_words(
    shape: tuple[int, ...], tag: FormatTag, count: int, name: str
) -> tuple[int, ...]:
    """Return logical sizes from a shape of words of `count` elements.

    Raises
    ------
    MemdescError
        If the shape does not say them.
    """
    if len(shape) != tag.ndims:
        msg = f"{name} has {tag.ndims} dims, and so has the shape of its words; else give dims="
        raise MemdescError(msg)
    if name.removesuffix("_experts").startswith(IN_SHAPE):
        return (*shape[:-1], shape[-1] * count)
    sizes = [0] * tag.ndims
    for digit, size in zip(tag.digits[: tag.ndims - 1], shape, strict=False):
        if digit.extent or len(tag.axes[digit.axis]) > 1 or sizes[tag.axes[digit.axis][0]]:
            msg = f"the shape does not say the sizes of {name}; give dims="
            raise MemdescError(msg)
        sizes[tag.axes[digit.axis][0]] = size * digit.step
    last = sizes.index(0) if 0 in sizes else 0
    others = prod(size for dim, size in enumerate(sizes) if dim != last)
    sizes[last] = prod(shape) * count // others if others else 0
    return tuple(sizes)


def _dims_of_blocks(shape: tuple[int, ...], tag: FormatTag) -> tuple[int, ...]:
    """Return logical sizes from an axis for each block in memory order, or for each dim."""
    if len(shape) == tag.ndims != len(tag.digits):
        return shape
    if len(shape) != len(tag.digits) or any(len(axis) > 1 for axis in tag.axes):
        msg = f"{tag} has {len(tag.digits)} axes in memory; give its logical sizes as dims="
        raise MemdescError(msg)
    sizes = [1] * tag.ndims
    for digit, size in zip(tag.digits, shape, strict=True):
        if digit.extent and digit.extent != size:
            msg = f"{tag} has a block of {digit.extent}, but the axis of the shape has {size}"
            raise MemdescError(msg)
        sizes[tag.axes[digit.axis][0]] *= size
    return tuple(sizes)
