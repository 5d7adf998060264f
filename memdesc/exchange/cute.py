"""CuTe's layouts, `(2,(16,2),5,4):(640,(1,320),64,16)`.

Each dim is a mode: its digits from the innermost to the outermost, each with its stride in
elements. A coordinate of a mode is the mixed-radix number of its digits, the leftmost fastest.
Extents are padded sizes; CuTe keeps the bounds of a tensor (predication) elsewhere. Sources:
CUTLASS 4.2, `media/docs/cpp/cute/01_layout.md`, and pycute.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from memdesc.desc import MemoryDesc, desc_of
from memdesc.dtypes import BYTE_BITS, DATA_TYPES, DataType
from memdesc.errors import UnsupportedFormatError, counted, excerpt, short_repr
from memdesc.exchange.system import (
    Given,
    System,
    cannot,
    indescribable,
    not_understood,
    type_named,
)
from memdesc.int64 import INT64_MAX
from memdesc.layout import Block, Layout, single_axes
from memdesc.layout_names import cute_swizzle, cute_text
from memdesc.swizzle import Terms, exact_terms

_NAME = "CuTe"
_MAX_DEPTH = 64
# an integer, which CuTe prints as _16 if it is static
_TOKEN = r"\s*(?:_?(?P<number>-?[0-9]{1,19})|(?P<mark>[(),]))\s*"  # noqa: S105 - not a password

# Sw<3,3,3> of C++, S<3,3,3> of the DSL, SW_3_3_3 of pycute, (Swizzle(3, 3, 3)) of tensor-layouts
_SWIZZLE = (
    r"\(?(?:S[wW]?|Swizzle)\s*[<(_]\s*(?P<B>-?\d{1,3})\s*[,_]\s*(?P<M>-?\d{1,3})\s*[,_]"
    r"\s*(?P<S>-?\d{1,3})\s*[>)]?\)?"
)
# gmem_ptr[32b](0x7f0000), smem_ptr[16b](unset), smem_ptr
_POINTER = (
    r"\w*ptr\b(?:\[(?:(?P<bits>\d{1,3})b|(?P<type>\w+))\])?(?:\((?:0x(?P<address>\w+)|[^)]*)\))?"
)
_COMPOSITION = (
    rf"(?:{_SWIZZLE}(?:_(?=\w*ptr)|\s+o\s+)(?:\{{?_?(?P<offset>-?\d{{1,19}})\}}?\s+o\s+)?)?"
    rf"(?:{_POINTER}\s+o\s+)?(?P<layout>.*)"
)
# the DSL's tensor<ptr<f16, smem, align<1024>, S<3,4,3>> o (8,64):(64,1)>
_TENSOR = (
    r"tensor<\s*ptr<\s*(?P<type>\w+)(?:,(?!\s*S<)(?:[^,<>]|<[^<>]*>)*)*(?:,\s*(?P<swizzle>S<[^<>]*>))?"
    r"\s*>\s*o\s+(?P<layout>.*)>"
)
# ComposedLayout(Swizzle(3,3,3),0,Layout(..)) of pycute; tensor-layouts has offset=0 at the end
_REPR = (
    r"ComposedLayout\((?P<swizzle>Swizzle\([^()]*\)),\s*(?:(?P<first>-?\d+),\s*)?"
    r"(?P<layout>Layout\(.*\))(?:,\s*offset=(?P<last>-?\d+))?\)"
)
# the DSL's names of types
_TYPES = DATA_TYPES | {
    **{f"i{bits}": DATA_TYPES[f"s{bits}"] for bits in (4, 8, 16, 32, 64)},
    "f8E4M3FN": DATA_TYPES["f8_e4m3"],
    "f8E5M2": DATA_TYPES["f8_e5m2"],
}

# a shape, a stride: an integer, or a tuple of them
_Tree = int | list["_Tree"]


def _write(desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
    layout = desc.layout
    try:
        text = cute_text(layout, desc.letters)
    except UnsupportedFormatError as error:
        raise cannot(_NAME, desc, str(error)) from None
    if not layout.xor:
        return (text,)
    bits, low, shift = cute_swizzle(layout)
    base = text.rpartition(" o ")[2]
    texts = [text, f"SW_{bits}_{low}_{shift} o {layout.offset0} o {base}"]
    # a pointer swizzles byte addresses
    in_bytes = low + _log2_nbytes(desc.dtype)
    if not layout.offset0 and in_bytes >= 0:
        pointer = f"smem_ptr[{desc.dtype.bits}b](unset)"
        texts.append(f"Sw<{bits},{in_bytes},{shift}> o {pointer} o {base}")
    return tuple(texts)


class _Composed(NamedTuple):
    """A layout's text without what is around it: B, M and S, the offset, and the pointer's bits."""

    text: str
    swizzle: tuple[int, int, int]
    offset0: int
    bits: int | None
    dtype: DataType | None
    address: int


def _composed(given: Given) -> _Composed:
    """Take a swizzle, an offset and a pointer off the text of a layout."""
    text = given.text.strip()
    if tensor := re.fullmatch(_TENSOR, text, re.DOTALL):
        swizzle = f"{tensor['swizzle']} o " if tensor["swizzle"] else ""
        text = f"{swizzle}ptr[{tensor['type']}] o {tensor['layout']}"
    elif composed := re.fullmatch(_REPR, text, re.DOTALL):
        offset = composed["first"] or composed["last"] or 0
        text = f"{composed['swizzle']} o {offset} o {composed['layout']}"
    match = re.fullmatch(_COMPOSITION, text, re.DOTALL)
    assert match is not None  # noqa: S101 - all parts but the last may be missing
    found = match["layout"].strip()
    if called := re.fullmatch(r"Layout(\(.*\))", found, re.DOTALL):
        found = _as_pair(given.text, called[1])
    shape = found.partition(":")[0]
    if shape != found and shape.count("(") == shape.count(")") + 1 and found[-1] == ")":
        found = found[1:-1]  # tensor-layouts writes parentheses around a layout
    dtype = type_named(match["type"], _TYPES, given.text) if match["type"] else None
    bits, low, shift = (int(match[part] or 0) for part in "BMS")
    return _Composed(
        found,
        (bits, low, shift),
        int(match["offset"] or 0),
        int(match["bits"]) if match["bits"] else None,
        dtype,
        int(match["address"] or "0", 16),
    )


def _as_pair(text: str, arguments: str) -> str:
    """Return `(shape, stride)` as `shape:stride`."""
    tree = _parse(text, arguments)
    if isinstance(tree, int) or len(tree) != 2:  # noqa: PLR2004 - a pair
        raise not_understood(_NAME, text, "a Layout has a shape and a stride")
    return ":".join(str(part).replace("[", "(").replace("]", ")") for part in tree)


def _terms(given: Given, composed: _Composed, dtype: DataType) -> Terms:
    """Return the XOR term of a swizzle in elements; refuse what CuTe does not compile."""
    bits, low, shift = composed.swizzle
    if min(bits, low) < 0 or abs(shift) < bits:
        reason = f"Swizzle<{bits},{low},{shift}> needs B and M of 0 or more, and |S| of at least B"
        raise not_understood(_NAME, given.text, reason)
    pointed = composed.dtype.bits if composed.dtype else composed.bits
    if pointed is not None:
        unit = 1 << bits + low + abs(shift)
        if pointed != dtype.bits and (bits or given.dtype):
            reason = f"its pointer has elements of {pointed} bits, not {dtype}; give dtype"
            raise not_understood(_NAME, given.text, reason)
        if bits and composed.address % unit:
            reason = (
                f"a pointer swizzles its address, and {composed.address:#x} is not a multiple of "
                f"{unit} bytes, so the pattern starts inside its period"
            )
            raise indescribable(given.text, reason)
        # from bytes to elements: what swaps bits inside an element is dropped
        low -= _log2_nbytes(dtype)
        bits, low = bits + min(low, 0), max(low, 0)
    mask = (1 << max(bits, 0)) - 1 << low
    return exact_terms(((shift, mask if shift > 0 else mask << -shift),) if mask else ())


def _read(given: Given) -> MemoryDesc:
    composed = _composed(given)
    dtype = given.type(composed.dtype)
    terms = _terms(given, composed, dtype)
    text = composed.text
    if re.search(r"S[wW]?\s*<|[Ss]wizzle|SW_", text):
        reason = "a swizzle is Sw<B,M,S> o 0 o shape:stride, or before a pointer"
        raise not_understood(_NAME, given.text, reason)
    if "@" in text or "o" in text.split():
        what = "strides E<k> or 1@0 give coordinates" if "@" in text else "a composition is given"
        raise indescribable(text, f"{what}, not one layout of offsets")
    shape, colon, stride = text.partition(":")
    if not colon:
        raise not_understood(_NAME, text, "it is shape:stride, such as (2,(16,2)):(32,(1,16))")
    stride, colon, rest = stride.partition(":")
    if colon:
        reason = f"shape:stride ends with the stride, but {excerpt(rest)} follows"
        raise not_understood(_NAME, text, reason)
    extents, strides = _parse(text, shape), _parse(text, stride)
    modes = [list(_digits(text, e, s)) for e, s in _pairs(text, extents, strides)]
    padded = tuple(prod(extent for extent, _ in mode) for mode in modes)
    dims = given.dims or padded
    if len(dims) == 1 < len(modes) and dims[0] == prod(padded):
        # one coordinate counts through all modes, the leftmost fastest
        modes, padded = [[digit for mode in modes for digit in mode]], dims
    if len(dims) != len(modes):
        sizes, found = counted(len(dims), "size"), counted(len(modes), "mode")
        msg = f"dims {dims} have {sizes}, but {short_repr(text)} has {found}"
        raise not_understood(_NAME, text, msg)
    blocks = [block for k, mode in enumerate(modes) for block in _blocks(k, mode)]
    layout = Layout(dims, single_axes(padded), tuple(blocks), composed.offset0, terms)
    return desc_of(dtype, layout)


def _log2_nbytes(dtype: DataType) -> int:
    return dtype.bits.bit_length() - BYTE_BITS.bit_length()


def _blocks(axis: int, digits: list[tuple[int, int]]) -> list[Block]:
    """Return the blocks of a mode, largest step first, without inner ones of extent 1."""
    *inner, (count, outer) = digits
    blocks: list[Block] = []
    step = 1
    for extent, stride in inner:
        if extent > 1:
            blocks.insert(0, Block(axis, step, extent, stride))
            step *= extent
    return [Block(axis, step, count, outer), *blocks]


def _pairs(text: str, shape: _Tree, stride: _Tree) -> list[tuple[_Tree, _Tree]]:
    """Return the shape and stride of each mode of a layout."""
    if isinstance(shape, int) and isinstance(stride, int):
        return [(shape, stride)]
    if isinstance(shape, int) or isinstance(stride, int) or len(shape) != len(stride):
        raise not_understood(_NAME, text, "shape and stride are nested differently")
    return list(zip(shape, stride, strict=True))


def _digits(text: str, shape: _Tree, stride: _Tree) -> Iterator[tuple[int, int]]:
    """Yield extent and stride of each digit of a mode, innermost first."""
    if isinstance(shape, int) and isinstance(stride, int):
        if not 1 <= shape <= INT64_MAX or abs(stride) > INT64_MAX:
            raise not_understood(
                _NAME, text, f"extent {shape} with stride {stride} is out of range"
            )
        yield shape, stride
        return
    for extent, step in _pairs(text, shape, stride):
        yield from _digits(text, extent, step)


def _parse(text: str, part: str) -> _Tree:
    """Read integers in nested tuples; as in Python, a comma may follow the last one."""
    open_tuples: list[list[_Tree]] = [[]]
    at, comma = 0, True
    while at < len(part):
        match = re.compile(_TOKEN).match(part, at)
        if match is None:
            reason = f"expected a number or a tuple, found {excerpt(part[at:])}"
            raise not_understood(_NAME, text, reason)
        at, mark = match.end(), match["mark"]
        if mark == ",":
            if comma:
                raise not_understood(_NAME, text, "a comma must follow a number or a tuple")
            comma = True
        elif mark == ")":
            if len(open_tuples) == 1 or not open_tuples[-1]:
                raise not_understood(_NAME, text, "a parenthesis does not close a tuple of numbers")
            done = open_tuples.pop()
            open_tuples[-1].append(done)
            comma = False
        else:
            if not comma or len(open_tuples) > _MAX_DEPTH:
                reason = "a comma is missing" if not comma else "its tuples are nested too deeply"
                raise not_understood(_NAME, text, reason)
            if mark == "(":
                open_tuples.append([])
            else:
                open_tuples[-1].append(int(match["number"]))
                comma = False
    if len(open_tuples) > 1 or len(open_tuples[0]) != 1:
        raise not_understood(_NAME, text, "shape and stride are each one number or one tuple")
    return open_tuples[0][0]


_SPELLING = (
    r"\s*(?:S[wW]?(?:izzle)?\s*[<(_].*|\w*ptr\b.*:.*|tensor<\s*ptr<.*|ComposedLayout\(.*|Layout\(.*"
    r"|\(.*:.*|_?[0-9]+\s*:\s*[_(]?-?[0-9]+.*)"
)

SYSTEM = System(
    "cute", "CuTe's shape:stride, swizzled or not", _write, _read, _SPELLING, writes_xor=True
)
