"""CuTe's layouts, `(2,(16,2),5,4):(640,(1,320),64,16)`.

Each dim is a mode: its digits from the innermost to the outermost, each with its stride in
elements. A coordinate of a mode is the mixed-radix number of its digits, the leftmost fastest.
Extents are padded sizes; CuTe keeps the bounds of a tensor (predication) elsewhere. Sources:
CUTLASS 4.2, `media/docs/cpp/cute/01_layout.md`, and pycute.
"""

from __future__ import annotations

import re
from itertools import chain
from math import prod

from memdesc.desc import MemoryDesc, desc_of
from memdesc.dtypes import BYTE_BITS, DataType
from memdesc.errors import counted, excerpt
from memdesc.exchange.expressions import Tree, tree_of
from memdesc.exchange.system import Given, System, impossible, unclear
from memdesc.int64 import INT64_MAX
from memdesc.layout import layout_by_digits
from memdesc.layout_names import cute_swizzle, cute_text
from memdesc.swizzle import Terms, terms_of_bytes

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


def _write(desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
    layout = desc.layout
    text = cute_text(layout, desc.letters)
    if not layout.xor:
        return (text,)
    bits, low, shift = cute_swizzle(layout)
    base = text.rpartition(" o ")[2]
    texts = [text, f"SW_{bits}_{low}_{shift} o {layout.offset0} o {base}"]
    # a pointer swizzles byte addresses
    in_bytes = low + desc.dtype.bits.bit_length() - BYTE_BITS.bit_length()
    if not layout.offset0 and in_bytes >= 0:
        pointer = f"smem_ptr[{desc.dtype.bits}b](unset)"
        texts.append(f"Sw<{bits},{in_bytes},{shift}> o {pointer} o {base}")
    return tuple(texts)


def _composed(text: str) -> re.Match[str]:
    """Match the swizzle, the offset and the pointer before a layout, and the layout's text."""
    if tensor := re.fullmatch(_TENSOR, text, re.DOTALL):
        swizzle = f"{tensor['swizzle']} o " if tensor["swizzle"] else ""
        text = f"{swizzle}ptr[{tensor['type']}] o {tensor['layout']}"
    elif composed := re.fullmatch(_REPR, text, re.DOTALL):
        offset = composed["first"] or composed["last"] or 0
        text = f"{composed['swizzle']} o {offset} o {composed['layout']}"
    match = re.fullmatch(_COMPOSITION, text, re.DOTALL)
    assert match is not None  # noqa: S101 - all parts but the last may be missing
    return match


def _pair(text: str) -> str:
    """Return the shape:stride of a text, stripped of `Layout` and outer parentheses."""
    if called := re.fullmatch(r"Layout(\(.*\))", text, re.DOTALL):
        parts = tree_of(called[1])
        if isinstance(parts, int) or len(parts) != 2:  # noqa: PLR2004 - a pair
            unclear("a Layout has a shape and a stride")
        text = ":".join(map(str, parts))
    shape = text.partition(":")[0]
    if shape != text and shape.count("(") == shape.count(")") + 1 and text[-1] == ")":
        text = text[1:-1]  # tensor-layouts writes parentheses around a layout
    return text


def _terms(given: Given, match: re.Match[str], dtype: DataType) -> Terms:
    """Return the XOR term of a swizzle in elements; refuse what CuTe does not compile."""
    bits, low, shift = (int(match[part] or 0) for part in "BMS")
    if min(bits, low) < 0 or abs(shift) < bits:
        unclear(f"Swizzle<{bits},{low},{shift}> needs B and M of 0 or more, and |S| of at least B")
    if match["bits"] or match["type"]:
        pointed = int(match["bits"] or dtype.bits)
        if not re.fullmatch("[0-9a-fA-F]+", digits := match["address"] or "0"):
            unclear(f"0x{digits} is not an address")
        address = int(digits, 16)
        unit = 1 << bits + low + abs(shift)
        if pointed != dtype.bits and (bits or given.dtype):
            unclear(f"its pointer has elements of {pointed} bits, not {dtype}; give dtype")
        if bits and address % unit:
            impossible(
                f"a pointer swizzles its address, and {address:#x} is not a multiple of "
                f"{unit} bytes, so the pattern starts inside its period"
            )
        return terms_of_bytes(bits, low, shift, dtype.bits)
    return terms_of_bytes(bits, low, shift)


def _read(given: Given) -> MemoryDesc:
    match = _composed(given.text)
    text = _pair(match["layout"].strip())
    dtype = given.type(match["type"])
    terms = _terms(given, match, dtype)
    if re.search(r"S[wW]?\s*<|[Ss]wizzle|SW_", text):
        unclear("a swizzle is Sw<B,M,S> o 0 o shape:stride, or before a pointer")
    if "@" in text or "o" in text.split():
        what = "strides E<k> or 1@0 give coordinates" if "@" in text else "a composition is given"
        impossible(f"{what}, not one layout of offsets")
    shape, colon, stride = text.partition(":")
    if not colon:
        unclear("it is shape:stride, such as (2,(16,2)):(32,(1,16))")
    stride, colon, rest = stride.partition(":")
    if colon:
        unclear(f"shape:stride ends with the stride, but {excerpt(rest)} follows")
    modes = _modes(tree_of(shape), tree_of(stride))
    padded = tuple(prod(extent for extent, _ in mode) for mode in modes)
    dims = given.dims or padded
    if len(dims) == 1 < len(modes) and dims[0] == prod(padded):
        # one coordinate counts through all modes, the leftmost fastest
        modes = [[*chain(*modes)]]
    if len(dims) != len(modes):
        have, modes_of_it = counted(len(dims), "size"), counted(len(modes), "mode")
        unclear(f"dims {dims} have {have}, but it has {modes_of_it}")
    digits = [mode[::-1] for mode in modes]
    return desc_of(dtype, layout_by_digits(dims, digits, int(match["offset"] or 0), terms))


def _modes(shape: Tree, stride: Tree) -> list[list[tuple[int, int]]]:
    """Return extent and stride of each digit of the modes, innermost first."""
    if isinstance(shape, int) and isinstance(stride, int):
        if not 1 <= shape <= INT64_MAX or abs(stride) > INT64_MAX:
            unclear(f"extent {shape} with stride {stride} is out of range")
        return [[(shape, stride)]]
    if isinstance(shape, int) or isinstance(stride, int) or len(shape) != len(stride) or not shape:
        unclear("shape and stride are nested differently")
    return [[*chain(*_modes(*pair))] for pair in zip(shape, stride, strict=True)]


_SPELLING = (
    r"\s*(?:S[wW]?(?:izzle)?\s*[<(_].*|\w*ptr\b.*:.*|tensor<\s*ptr<.*|ComposedLayout\(.*|Layout\(.*"
    r"|\(.*:.*|_?[0-9]+\s*:\s*[_(]?-?[0-9]+.*)"
)

SYSTEM = System("cute", "CuTe", _write, _read, _SPELLING, writes_xor=True)
