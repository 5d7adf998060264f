"""Expressions of `reorder.values` in vectors: the one description of a codec, emitted as LLVM."""

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType

from reorder.cpu.llvm.emit import Value, where
from reorder.cpu.llvm.vectors import Vectors
from reorder.values.expressions import Expr
from reorder.values.formats import FLOATS

# Codes have fewer bits than the numbers they are computed in, so signed comparisons will do.
_OPERATORS: Mapping[str, Callable[..., Value]] = MappingProxyType(
    {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "&": operator.and_,
        "|": operator.or_,
        "<<": operator.lshift,
        ">>": lambda number, count: number.lshr(count),
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        "==": operator.eq,
        "?": where,
        "let": lambda value: value,
    }
)


def emit_expression(vectors: Vectors, root: Expr, code: Value) -> Value:
    """Return an expression of f32 and u32, in which a name stands for `code`."""
    emitted: dict[int, Value] = {}

    def emit(node: Expr) -> Value:
        if id(node) not in emitted:
            emitted[id(node)] = emit_new(node)
        return emitted[id(node)]

    def emit_new(node: Expr) -> Value:
        kind = vectors.values("f32") if node.kind in FLOATS else vectors.integers(32)
        match node.op:
            case "number":
                return vectors.splat(kind, node.value)
            case "name":
                return code
            case "as":
                return emit(node.args[0]).bitcast(kind)
            case "cast":
                return emit(node.args[0]).sitofp(kind)
        return _OPERATORS[node.op](*map(emit, node.args))

    return emit(root)
