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

from memdesc.desc import MemoryDesc, desc_of
from memdesc.errors import counted, excerpt, short_repr
from memdesc.exchange.system import Given, System, cannot, indescribable, not_understood
from memdesc.int64 import INT64_MAX
from memdesc.layout import Block, Layout, dim_names, single_axes

_NAME = "CuTe"
_MAX_DEPTH = 64
# an integer, which CuTe prints as _16 if it is static
_TOKEN = r"\s*(?:_?(?P<number>-?[0-9]{1,19})|(?P<mark>[(),]))\s*"  # noqa: S105 - not a password

# gmem_ptr[32b](0x7f0000) o, or smem_ptr o; a swizzle may stand before it
_POINTER = r"\b\w*ptr\b(?:\[[^\]]*\])?(?:\([^)]*\))?\s+o\s+"

# a shape, a stride: an integer, or a tuple of them
_Tree = int | list["_Tree"]


def _write(desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
    layout = desc.layout
    if layout.offset0:
        reason = f"a layout starts at offset 0, not {layout.offset0}; add the offset to the pointer"
        raise cannot(_NAME, desc, reason)
    if axis := layout.fused():
        names = dim_names(axis.dims, desc.letters)
        raise cannot(_NAME, desc, f"dims {names} are fused into one index, and modes add up")
    if not layout.padded_nelems:
        raise cannot(_NAME, desc, "extents are at least 1")
    if layout.has_partial_blocks:
        raise cannot(_NAME, desc, "a dim ends inside a block, and modes count whole blocks")
    modes = [layout.axis_blocks(k)[::-1] for k in range(layout.ndims)]
    if len(modes) == len(modes[0]) == 1:
        return (f"{modes[0][0].extent}:{modes[0][0].stride}",)
    shape, stride = (
        _tuple([_mode([getattr(block, part) for block in mode]) for mode in modes])
        for part in ("extent", "stride")
    )
    return (f"{shape}:{stride}",)


def _mode(values: list[int]) -> str:
    return str(values[0]) if len(values) == 1 else _tuple(map(str, values))


def _tuple(parts: Iterator[str] | list[str]) -> str:
    return f"({','.join(parts)})"


def _read(given: Given) -> MemoryDesc:
    # a tensor is printed as its pointer, then its layout
    text = re.sub(_POINTER, "", given.text)
    if re.search(r"S[wW]?\s*<|[Ss]wizzle", text):
        reason = (
            "an XOR swizzle mixes the digits of several dims, and a layout adds up those of each"
        )
        raise indescribable(text, reason)
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
    return desc_of(given.type(), Layout(dims, single_axes(padded), tuple(blocks)))


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


_SPELLING = r"\s*(?:Sw?(?:izzle)?\s*<.*|\w*ptr\b.*:.*|\(.*:.*|_?[0-9]+\s*:\s*[_(]?-?[0-9]+.*)"

SYSTEM = System("cute", "CuTe's shape:stride", _write, _read, _SPELLING)
