"""TVM's layouts: strings such as `NCHW16c`, and index maps.

An upper-case letter is a dim, which counts its blocks; `16c` is a block of it, and `[2i4o]` are
blocks as one physical dim. A dim has at most one block; layouts with more are written as the lambda
of an index map. Physical arrays are row-major, and sizes are rounded up to whole blocks.
Source: TVM 0.27, `s_tir/data_layout.cc`, `tirx/ir/index_map.cc`.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from memdesc.create import memory_desc
from memdesc.errors import UnsupportedFormatError, short_repr
from memdesc.exchange.expressions import outputs_of, parse, tag_of_outputs
from memdesc.exchange.system import System, not_understood
from memdesc.layout_names import dense_tag
from memdesc.names import onednn
from memdesc.tags import LETTERS, Digit, FormatTag

if TYPE_CHECKING:
    from memdesc.desc import MemoryDesc
    from memdesc.exchange.system import Given

_NAME = "TVM"
_BLOCK = "[0-9]{1,18}[a-z]"
_STRING = rf"(?:[A-Z]|{_BLOCK}|\[(?:{_BLOCK})+\])+"


def _write(desc: MemoryDesc, letters: str) -> tuple[str, ...]:
    outputs = outputs_of(_NAME, desc, letters)
    index_map = f"lambda {', '.join(letters)}: [{', '.join(outputs)}]"
    tag = dense_tag(desc.layout)
    blocks = [digit.axis for digit in tag.digits if digit.extent]
    if len(tag.axes) < desc.ndims or len(set(blocks)) < len(blocks):
        return (index_map,)
    string = "".join(
        f"{extent}{letters[axis]}" if extent else letters[axis].upper()
        for axis, _, extent in tag.digits
    )
    return string, index_map


def _read(given: Given) -> MemoryDesc:
    text = given.text.strip()
    if "lambda" in text:
        return _read_map(given)
    if not re.fullmatch(_STRING, text):
        reason = "it is NCHW16c, or OIHW[2i4o], or a lambda such as lambda a, b: [a, b // 4, b % 4]"
        raise not_understood(_NAME, text, reason)
    found = [
        (int(block[:-1]), block[-1]) if block else (0, outer.lower())
        for outer, block in re.findall(rf"([A-Z])|({_BLOCK})", text)
    ]
    letters = _logical(given, text, [letter for extent, letter in found if not extent])
    steps = dict.fromkeys(letters, 1)
    for extent, letter in found:
        if steps.get(letter, 0) != 1 and extent:
            reason = f"{extent}{letter} is not the first block of one of its dims"
            hint = "a string of TVM has at most one block for each dim; an index map can have more"
            raise not_understood(_NAME, text, f"{reason}; {hint}")
        if extent:
            steps[letter] = extent
    digits = tuple(
        Digit(letters.index(letter), 1 if extent else steps[letter], extent)
        for extent, letter in found
        if extent != 1
    )
    axes = tuple((dim,) for dim in range(len(letters)))
    tag = FormatTag(axes, digits, (1,) * len(axes))
    return memory_desc(given.sizes(), given.type(), tag)


def _logical(given: Given, text: str, outer: list[str]) -> str:
    """Return the letters of the logical dims in order: given, alphabetical, or of a family."""
    alphabet = LETTERS[: len(outer)]
    letters = (
        given.letters
        or (alphabet if set(outer) == set(alphabet) else "")
        or onednn.letters("".join(outer))
    )
    if sorted(letters) != sorted(outer):
        reason = (
            f"it has the dims {', '.join(outer).upper()}; give letters, which are these "
            "in their logical order, each once"
        )
        raise not_understood(_NAME, text, reason)
    return letters


def _read_map(given: Given) -> MemoryDesc:
    """Read a lambda, alone or inside the call that makes or prints a map."""
    text = given.text
    node = parse(_NAME, text)
    if isinstance(node, ast.Call) and len(node.args) == 1:
        node = node.args[0]
    if not isinstance(node, ast.Lambda) or not isinstance(node.body, ast.List | ast.Tuple):
        reason = "an index map is lambda a, b: [a, b // 4, b % 4]"
        raise not_understood(_NAME, text, reason)
    outputs = node.body.elts
    if any("axis_separator" in ast.unparse(output).lower() for output in outputs):
        msg = f"{short_repr(text)} cannot be described: an axis separator makes the buffer 2-D"
        raise UnsupportedFormatError(msg)
    names = [argument.arg for argument in node.args.args]
    dims = given.sizes()
    return memory_desc(dims, given.type(), tag_of_outputs(_NAME, text, outputs, names, dims))


SYSTEM = System("tvm", "TVM's layout strings and index maps", _write, _read)
