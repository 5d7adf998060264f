"""Read strings of other systems that are Python expressions, without running them.

An index map, `(a, b) -> (a, b // 16, b % 16)`, maps logical indices to those of a row-major
physical array. So each physical index is a digit: a logical index (or the row-major sum of fused
ones), divided by a step and taken modulo an extent.
"""

from __future__ import annotations

import ast
from math import prod
from typing import TYPE_CHECKING

from memdesc.errors import MemdescError, UnsupportedFormatError
from memdesc.exchange.system import cannot, indescribable, not_understood, tag_of
from memdesc.int64 import INT64_MAX, checked_ints
from memdesc.layout import dim_name
from memdesc.tags import Digit, FormatTag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memdesc.desc import MemoryDesc


def parse(system: str, text: str, source: str | None = None) -> ast.expr:
    """Return the tree of an expression: the text itself, or a source that was made from it."""
    try:
        tree = ast.parse((text if source is None else source).strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise not_understood(system, text, "it is not a Python expression") from None
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, int) and value > INT64_MAX:
            reason = f"it has an integer of {value.bit_length()} bits, and 63 is the most"
            raise not_understood(system, text, reason)
    return tree


def arguments(system: str, text: str, known: tuple[str, ...], reason: str) -> dict[str, ast.expr]:
    """Return the keyword arguments that a string lists; refuse other strings with a reason."""
    call = parse(system, text, f"f({text})")
    found = keywords(system, text, call, known)
    if (
        not isinstance(call, ast.Call)
        or not isinstance(call.func, ast.Name)
        or call.args
        or not found
    ):
        raise not_understood(system, text, reason)
    return found


def keywords(system: str, text: str, call: ast.expr, known: tuple[str, ...]) -> dict[str, ast.expr]:
    """Return the keyword arguments of a call; refuse unknown ones."""
    found: dict[str, ast.expr] = {}
    for keyword in call.keywords if isinstance(call, ast.Call) else []:
        if keyword.arg not in known or keyword.arg in found:
            reason = f"it has {', '.join(known)}, each at most once, and not {keyword.arg}"
            raise not_understood(system, text, reason)
        found[keyword.arg] = keyword.value
    return found


def integers(system: str, text: str, node: ast.expr) -> tuple[int, ...]:
    """Return a tuple or list of integers."""
    try:
        value = ast.literal_eval(node)
        return checked_ints("integers", value)
    except (ValueError, TypeError, MemdescError):
        raise not_understood(
            system, text, f"{ast.unparse(node)!r} is not a list of integers"
        ) from None


def integer(system: str, text: str, node: ast.expr) -> int:
    """Return one integer."""
    return integers(system, text, ast.Tuple([node]))[0]


def linear(text: str, node: ast.expr, names: Sequence[str]) -> tuple[tuple[int, ...], int]:
    """Return the factor of each index in a sum such as `d0 * 4 + d1 + 3`, and its constant."""
    factors = dict.fromkeys(names, 0)
    constant = 0
    for term in _terms(node):
        number = _integer(term)
        index, factor = _product(term)
        if number is not None:
            constant += number
        elif isinstance(index, ast.Name) and index.id in factors and factor is not None:
            factors[index.id] += factor
        else:
            reason = f"{ast.unparse(term)} is not an index times a stride, or an offset"
            raise indescribable(text, reason)
    return tuple(factors[name] for name in names), constant


def _terms(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_terms(node.left), *_terms(node.right)]
    return [node]


def _product(node: ast.expr) -> tuple[ast.expr, int | None]:
    """Return the parts of an index times a number, in any order."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
        return node, 1
    if _integer(node.left) is not None:
        return node.right, _integer(node.left)
    return node.left, _integer(node.right)


def _integer(node: ast.expr) -> int | None:
    """Return a constant, which may be negative, or printed as T.int64(16)."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        positive = _integer(node.operand)
        return None if positive is None else -positive
    if isinstance(node, ast.Call) and len(node.args) == 1:
        node = node.args[0]
    value = node.value if isinstance(node, ast.Constant) else None
    return value if type(value) is int else None


def outputs_of(system: str, desc: MemoryDesc, names: Sequence[str]) -> list[str]:
    """Return the expression of each physical index, outermost first."""
    tag = tag_of(system, desc)
    for axis, align in enumerate(tag.align):
        if align > 1:
            name = dim_name(tag.axes[axis][0], desc.letters)
            reason = f"{name} is aligned to {align}, and a map has no sizes"
            raise cannot(system, desc, reason)
    outputs = []
    for axis, step, extent in tag.digits:
        text = _index(tag.axes[axis], desc.dims, names)
        text += f" // {step}" if step > 1 else ""
        outputs.append(text + (f" % {extent}" if extent else ""))
    return outputs


def _index(axis: tuple[int, ...], dims: tuple[int, ...], names: Sequence[str]) -> str:
    """Return the index of an axis: a name, or the row-major sum of several names."""
    if len(axis) == 1:
        return names[axis[0]]
    factors = [prod(dims[dim] for dim in axis[k + 1 :]) for k in range(len(axis))]
    terms = [f"{names[dim]} * {factor}" for dim, factor in zip(axis, factors, strict=True)]
    return f"({' + '.join([*terms[:-1], names[axis[-1]]])})"


def tag_of_outputs(
    system: str, text: str, outputs: list[ast.expr], names: Sequence[str], dims: tuple[int, ...]
) -> FormatTag:
    """Return the tag of a map from named indices over these dims."""
    if len(names) != len(dims) or len(set(names)) != len(names):
        reason = f"it maps {len(names)} indices, and dims {dims} have {len(dims)}"
        raise not_understood(system, text, reason)
    reader = _Reader(system, text, names, dims)
    found = [reader.digit(output) for output in outputs]
    axes = tuple(sorted({axis for axis, _, _ in found}))
    digits = tuple(
        Digit(axes.index(axis), step, extent) for axis, step, extent in found if extent != 1
    )
    try:
        return FormatTag(axes, digits, (1,) * len(axes))
    except MemdescError:
        reason = (
            "its indices must divide each dim into digits that occur once, the outermost without a "
            "modulo"
        )
        raise indescribable(text, reason) from None


# the dims of an axis, a step, and an extent (0 if unbounded)
_Summand = tuple[tuple[int, ...], int, int]


class _Reader:
    """Reads the expression of one physical index."""

    def __init__(self, system: str, text: str, names: Sequence[str], dims: tuple[int, ...]) -> None:
        self.system = system
        self.text = text
        self.dims = dims
        self.names = {name: dim for dim, name in enumerate(names)}

    def digit(self, node: ast.expr) -> _Summand:
        """Return the digit `x // n % m`, where x is an index or a sum of several."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod):
            axis, step, extent = self.digit(node.left)
            number = _integer(node.right)
            if number is None or number < 1 or (extent and extent % number):
                raise self.refused(node)
            if isinstance(node.op, ast.Mod):
                return axis, step, number
            return axis, step * number, extent // number
        terms = self.terms(node)
        axis = tuple(dim for dim, _ in terms)
        for k, (_, factor) in enumerate(terms):
            if factor != prod(self.dims[dim] for dim in axis[k + 1 :]):
                raise self.refused(node)
        if len(set(axis)) < len(axis):
            raise self.refused(node)
        return axis, 1, 0

    def terms(self, node: ast.expr) -> list[tuple[int, int]]:
        """Return the dims in a sum, each with its factor."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return [*self.terms(node.left), *self.terms(node.right)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            factor = _integer(node.right)
            left = self.terms(node.left)
            if factor is None or len(left) != 1:
                raise self.refused(node)
            return [(left[0][0], left[0][1] * factor)]
        if isinstance(node, ast.Name) and node.id in self.names:
            return [(self.names[node.id], 1)]
        raise self.refused(node)

    def refused(self, node: ast.expr) -> UnsupportedFormatError:
        reason = f"is not a digit of an index over dims {self.dims}, such as x // 16 or x // 2 % 8"
        return indescribable(self.text, f"{ast.unparse(node)} {reason}")
