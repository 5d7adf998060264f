"""TVM's layouts: strings such as `NCHW16c`, and index maps.

An upper-case letter is a dim, which counts its blocks; `16c` is a block of it, and `[2i4o]` are
blocks as one physical dim. A dim has at most one block; layouts with more are written as the lambda
of an index map. Physical arrays are row-major, and sizes are rounded up to whole blocks. A
`TileLayout` has shape and strides, `S[(8, 4):(1, 8)]`; the rightmost extent counts fastest.
Source: TVM 0.27, `s_tir/data_layout.cc`, `tirx/ir/index_map.cc`, `tirx/layout.py`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from math import prod

from memdesc.desc import MemoryDesc, desc_of, memory_desc
from memdesc.errors import UnknownFormatError, excerpt
from memdesc.exchange.expressions import integer, outputs_of, parse, tag_of_outputs
from memdesc.exchange.system import Given, System, impossible, tag_of, unclear
from memdesc.layout import layout_by_digits
from memdesc.names.tvm import TVM_STRING, tag_of_string

_TILES = r"TileLayout|ComposeLayout|\bS\s*\[|^\(?[0-9]+\b[^:]*:"
# the axis of memory; others are threads, or memory with coordinates of its own
_MEMORY = ("m", "Axis.m", "T.Axis.m")


def _write(desc: MemoryDesc, letters: str) -> tuple[str, ...]:
    tag = tag_of(desc, "a map has no sizes")
    outputs = outputs_of(tag, desc.dims, letters)
    index_map = f"lambda {', '.join(letters)}: [{', '.join(outputs)}]"
    blocks = [digit.axis for digit in tag.digits if digit.extent]
    if len(tag.axes) < desc.ndims or len(set(blocks)) < len(blocks):
        return (index_map,)
    string = "".join(
        f"{extent}{letters[axis]}" if extent else letters[axis].upper()
        for axis, _, extent in tag.digits
    )
    return string, index_map


def _read(given: Given) -> MemoryDesc:
    text = given.text
    if "lambda" in text:
        return _read_map(given)
    if re.search(_TILES, text):
        return _read_tiles(given, text)
    try:
        tag, letters = tag_of_string(text, given.letters)
    except UnknownFormatError as error:
        unclear(error)
    return memory_desc(given.sizes(), given.type(), tag).with_letters(letters)


def _read_map(given: Given) -> MemoryDesc:
    """Read a lambda, alone or inside the call that makes or prints a map."""
    node = _argument(parse(given.text))
    if not isinstance(node, ast.Lambda) or not isinstance(node.body, ast.List | ast.Tuple):
        unclear("an index map is lambda a, b: [a, b // 4, b % 4]")
    outputs = node.body.elts
    if any("axis_separator" in ast.unparse(output).lower() for output in outputs):
        impossible("an axis separator makes the buffer 2-D")
    names = [argument.arg for argument in node.args.args]
    dims = given.sizes()
    return memory_desc(dims, given.type(), tag_of_outputs(outputs, names, dims))


def _argument(node: ast.expr) -> ast.expr:
    return node.args[0] if isinstance(node, ast.Call) and len(node.args) == 1 else node


def _read_tiles(given: Given, text: str) -> MemoryDesc:
    """Read a TileLayout as it is printed, its S[..] + offset, or shape and strides alone."""
    has_tiles = re.search(r"[A-Z]", text) is not None
    if not has_tiles and text.count(":") > 1:
        unclear(f"{excerpt(text.split(':', 2)[2])} follows the shape and the strides")
    node = _argument(parse(text if has_tiles else f"S[{text}]"))
    offset0 = 0
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        if re.match(r"(T\.)?R\[", ast.unparse(node.right)):
            impossible(f"{ast.unparse(node.right)} are copies of each element")
        offset0 += integer(node.right)
        node = node.left
    if not isinstance(node, ast.Subscript) or ast.unparse(node.value) not in {"S", "T.S"}:
        if "Compose" in text:
            impossible("a swizzle mixes the digits of several dims by XOR")
        unclear("a tile layout is T.TileLayout(T.S[(8, 4):(1, 8)])")
    tiles, steps = node.slice, None
    if isinstance(node.slice, ast.Slice):
        if node.slice.step is not None:
            unclear(f"{ast.unparse(node.slice.step)!r} follows the shape and the strides")
        tiles, steps = node.slice.lower or ast.Tuple([]), node.slice.upper
    extents = [integer(item) for item in _items(tiles)]
    if not extents or min(extents) < 1:
        unclear(f"extents {extents} must be 1 or more")
    dense = [prod(extents[k + 1 :]) for k in range(len(extents))]
    strides = dense if steps is None else [_stride(item) for item in _items(steps)]
    if len(strides) != len(extents):
        unclear(f"it has {len(extents)} extents, but {len(strides)} strides")
    dims = given.dims or tuple(extents)
    digits = _tile_digits(dims, extents, strides)
    return desc_of(given.type(), layout_by_digits(dims, digits, offset0))


def _tile_digits(
    dims: tuple[int, ...], extents: list[int], strides: list[int]
) -> Iterator[list[tuple[int, int]]]:
    """Yield the digits of each dim: those of the extents, in order, that multiply to its size."""
    at = 0
    for dim, size in enumerate(dims):
        end = at + 1
        while end < len(extents) and prod(extents[at:end]) < size:
            end += 1
        if dim == len(dims) - 1:
            end = len(extents)
        if prod(extents[at:end]) != size or at >= len(extents):
            unclear(f"extents {tuple(extents)} do not multiply to the sizes {dims}")
        yield list(zip(extents[at:end], strides[at:end], strict=True))
        at = end


def _items(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple | ast.List) else [node]


def _stride(node: ast.expr) -> int:
    """Return a stride in memory, `8` or `8 @ Axis.m`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        if ast.unparse(node.right) not in _MEMORY:
            impossible(f"{ast.unparse(node)} is not a stride in memory")
        node = node.left
    return integer(node)


_SPELLING = (
    rf"{TVM_STRING}|.*\blambda\b.*|\s*(?:\w+\.)*(?:Tile|Compose)Layout.*"
    r"|\s*(?:T\.)?S\s*\[.*|\(.*:.*"
)

SYSTEM = System("tvm", "TVM", _write, _read, _SPELLING)
