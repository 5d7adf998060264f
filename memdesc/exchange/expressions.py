"""Read strings of other systems that are Python expressions, without running them.

An index map, `(a, b) -> (a, b // 16, b % 16)`, maps logical indices to those of a row-major
physical array. So each physical index is a digit: a logical index (or the row-major sum of fused
ones), divided by a step and taken modulo an extent.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from math import prod
from typing import Any

from memdesc.errors import MemdescError, excerpt
from memdesc.exchange.system import Impossible, Unclear, impossible, unclear
from memdesc.int64 import INT64_MAX
from memdesc.tags import FormatTag, tag_of_digits

# an integer, or a tuple of them
Tree = int | tuple["Tree", ...]


def parse(source: str) -> ast.expr:
    """Return the tree of an expression."""
    try:
        tree = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        unclear("it is not a Python expression")
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, int) and value > INT64_MAX:
            unclear(f"it has an integer of {value.bit_length()} bits, and 63 is the most")
    return tree


def tree_of(part: str) -> Tree:
    """Return integers in nested tuples; CuTe prints static ones as _16, and a tuple of one as (2).

    >>> tree_of("((4,_2))"), tree_of("8")
    (((4, 2),), 8)
    """
    text = re.sub(r"\b_(?=[0-9])", "", part)
    if wrong := re.search(r"[^-0-9(),\s]", text):
        unclear(f"expected a number or a tuple, found {excerpt(text[wrong.start() :])}")
    try:
        tree: Tree = ast.literal_eval(parse(re.sub(r"(?<=[^,(\s])\s*\)", ",)", text)))
    except (Unclear, ValueError):
        unclear(f"{excerpt(part)} is neither a number nor a tuple of numbers, with commas between")
    return tree


def values_of_call(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the values of the arguments that a string lists: positional and named ones."""
    call = parse(f"f({text})")
    try:
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise TypeError  # noqa: TRY301 - refused below, such as "1), (2"
        values = [ast.literal_eval(value) for value in call.args]
        named = {str(own.arg): ast.literal_eval(own.value) for own in call.keywords}
    except (TypeError, ValueError):
        unclear("its parameters are numbers and lists of these")
    if len(named) < len(call.keywords):
        unclear(f"it has each of {', '.join(named)} at most once")
    return values, named


def integer(node: ast.expr) -> int:
    """Return one integer."""
    number = _integer(node)
    return unclear(f"{ast.unparse(node)!r} is not an integer") if number is None else number


def linear(node: ast.expr, names: Sequence[str]) -> tuple[tuple[int, ...], int]:
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
            impossible(f"{ast.unparse(term)} is not an index times a stride, or an offset")
    return tuple(factors[name] for name in names), constant


def _terms(node: ast.expr) -> list[ast.expr]:
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add | ast.Sub):
        return [node]
    right = _terms(node.right)
    if isinstance(node.op, ast.Sub):
        right = [ast.UnaryOp(ast.USub(), term) for term in right]
    return [*_terms(node.left), *right]


def _product(node: ast.expr) -> tuple[ast.expr, int | None]:
    """Return the parts of an index times a number, in any order; it may be negated."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        index, factor = _product(node.operand)
        return index, None if factor is None else -factor
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


def outputs_of(tag: FormatTag, dims: tuple[int, ...], names: Sequence[str]) -> list[str]:
    """Return the expression of each physical index, outermost first."""
    outputs = []
    for k, step, extent in tag.digits:
        axis = tag.axes[k]
        *terms, _ = (
            f"{names[dim]} * {factor} + "
            for dim, factor in zip(axis, _factors(axis, dims), strict=True)
        )
        text = f"({''.join(terms)}{names[axis[-1]]})" if terms else names[axis[0]]
        text += f" // {step}" if step > 1 else ""
        outputs.append(text + (f" % {extent}" if extent else ""))
    return outputs


def _factors(axis: tuple[int, ...], dims: tuple[int, ...]) -> list[int]:
    """Return what the indices of dims are multiplied by in their row-major sum."""
    return [prod(dims[dim] for dim in axis[k + 1 :]) for k in range(len(axis))]


def tag_of_outputs(
    outputs: Sequence[ast.expr], names: Sequence[str], dims: tuple[int, ...]
) -> FormatTag:
    """Return the tag of a map from named indices over these dims."""
    if len(names) != len(dims) or len(set(names)) != len(names):
        unclear(f"it maps {len(names)} indices, and dims {dims} have {len(dims)}")
    dim_of = {name: dim for dim, name in enumerate(names)}
    read = [_digit(output, dim_of, dims) for output in outputs]
    try:
        return tag_of_digits(read)
    except MemdescError:
        impossible(
            "its indices must divide each dim into digits that occur once, the outermost without a "
            "modulo"
        )


def _digit(
    node: ast.expr, dim_of: dict[str, int], dims: tuple[int, ...]
) -> tuple[tuple[int, ...], int, int]:
    """Return the digit `x // n % m`, where x is an index or the row-major sum of several.

    It has the dims of an axis, a step, and an extent, 0 if unbounded.
    """
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod):
        axis, step, extent = _digit(node.left, dim_of, dims)
        number = _integer(node.right)
        if number is not None and number > 0 and not (extent and extent % number):
            if isinstance(node.op, ast.Mod):
                return axis, step, number
            return axis, step * number, extent // number
    else:
        terms = [_product(term) for term in _terms(node)]
        axis = tuple(dim_of.get(getattr(index, "id", ""), -1) for index, _ in terms)
        is_known = min(axis) >= 0 and len(set(axis)) == len(axis)
        if is_known and [factor for _, factor in terms] == _factors(axis, dims):
            return axis, 1, 0
    reason = f"{ast.unparse(node)} is not a digit of an index over dims {dims}, such as x // 2 % 8"
    raise Impossible(reason)
