"""How layouts are stored in containers: what an entry holds, and what an output says of a tensor.

Whole elements are stored by their physical shape, an axis for each block in memory order. Elements
of less than a byte, or in wider words, have as many axes as dims: the outermost blocks, and behind
them the rest as words, which is how the packings of 4-bit weights are stored: (in / 8, out) for
GPTQ, (in, out / 8) for AWQ, (in / 16, 2 * out) for Marlin, of int32 (AutoGPTQ, AutoAWQ, vLLM).
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING

from memdesc import (
    MemdescError,
    MemoryDesc,
    RecordDesc,
    UnsupportedFormatError,
    data_type,
    memory_desc,
)
from memdesc.layout import memory_order
from memdesc.names import expand_meta_tag, resolve
from reorder.storage.containers.plan import Tensor
from reorder.values.formats import INTEGERS

if TYPE_CHECKING:
    from memdesc import FormatTag
    from reorder.storage.containers.entry import Entry
    from reorder.storage.convert.rules import Rule

__all__ = ["held_layout", "is_order_hidden", "stored_layout", "stored_record"]

_BYTE_BITS = 8
# elements of a packing whose words are stored in the shape of the tensor, the last dim in words:
# torch 2.13, TensorRT-LLM, ROCm aiter
_IN_SHAPE = ("torch_int4_cpu", "trtllm_mixed_gemm", "aiter_16x16")


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
    if name.removesuffix("_experts").startswith(_IN_SHAPE):
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


def stored_layout(name: str, desc: MemoryDesc, words: str | None = None) -> Tensor:
    """Return how an output stores a layout.

    Parameters
    ----------
    name : str
        Of the tensor.
    desc : MemoryDesc
        What it holds.
    words : str, optional
        The data type of words for narrower elements, as the source had them; else bytes.
    """
    dtype = desc.dtype
    for word in (words, "u8"):
        if word is None or data_type(word).bits <= dtype.bits:
            continue
        shape = _shape_of_words(desc, data_type(word).bits // dtype.bits)
        if shape is not None:
            return Tensor(name, word, shape, desc.nbytes, desc)
    if dtype.is_packed or desc.extra is not None:
        return Tensor(name, "u8", (desc.nbytes,), desc.nbytes, desc)
    shape = _extents(desc)
    if shape is None:
        return Tensor(name, "u8", (desc.nbytes,), desc.nbytes, desc)
    return Tensor(name, dtype.name, shape, desc.nbytes, desc)


def is_order_hidden(tensor: Tensor) -> bool:
    """Whether a permuted tensor is stored with the dtype and the shape of a row-major one."""
    desc = tensor.desc
    if not isinstance(desc, MemoryDesc) or not desc.nelems:
        return False
    order = [block.axis for block in sorted(desc.blocks, key=memory_order) if block.extent > 1]
    if order == sorted(order) or len(set(order)) < len(order):
        return False
    plain = stored_layout(tensor.name, memory_desc(desc.dims, desc.dtype), tensor.dtype)
    return (plain.dtype, plain.shape) == (tensor.dtype, tensor.shape)


def _extents(desc: MemoryDesc) -> tuple[int, ...] | None:
    """Return the extents of the blocks in memory order; None if they do not fill the memory."""
    found = tuple(block.extent for block in sorted(desc.blocks, key=memory_order))
    is_full = prod(found) == desc.padded_nelems == desc.layout.span and not desc.offset0
    return found if is_full or not desc.nelems else None


def _shape_of_words(desc: MemoryDesc, count: int) -> tuple[int, ...] | None:
    """Return the shape of words of `count` elements; None if they do not fill the rest."""
    extents = _extents(desc)
    if extents is None or desc.nelems == 0:
        return None
    names = {name.text.removesuffix("_experts") for name in desc.tags()}
    if any(name.startswith(_IN_SHAPE) for name in names):
        extents = desc.padded_dims
    axes = max(desc.ndims - 1, 0)
    rest = prod(extents[axes:])
    return None if rest % count else (*extents[:axes], rest // count)


def stored_record(name: str, desc: RecordDesc, format_name: str) -> Tensor:
    """Return how an output stores a record of one tensor: in GGUF by its type, else as bytes."""
    if format_name == "gguf":
        return Tensor(name, desc.name, desc.dims, desc.nbytes, desc)
    rows = prod(desc.dims[:-1])
    shape = (*desc.dims[:-1], desc.nbytes // rows) if rows else (desc.nbytes,)
    return Tensor(name, "u8", shape, desc.nbytes, desc)
