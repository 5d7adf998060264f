"""Expressions over the bits and the value of one element, and their text in languages like C.

Codecs and formulas (`reorder.values.codecs`) are expressions; a `Dialect` prints them in OpenCL C
or C. The dtype of an expression is its type, named like a data type, such as ``u32``, ``s64`` or
``f32``; the dtype of a comparison is ``flag``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import frexp
from typing import Any

from memdesc.dtypes import DATA_TYPES
from memdesc.tuples import NamedTuple
from reorder.values.formats import INTEGERS

_COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">=", "&&"))
_SHIFTS = frozenset(("<<", ">>"))
_CHAINS = frozenset("+|&")
# operators whose text needs parentheses inside another expression
_COMPOUND = frozenset((*_COMPARISONS, *_SHIFTS, *"+-*/&|^?", "min", "max"))
# The text of an operator: {0}, {1} and {2} are its operands; {a} and {b} are the first and the last
# operand, in parentheses if needed.
_INFIX = "{a} {op} {b}"
_TEXTS = {"?": "{0} ? {1} : {2}", "cast": "({type}){a}"}
# unsigned numbers of at least this size, and powers of two outside this range, are hexadecimal
_FIRST_HEX, _LEAST, _LARGE = 127, 2.0**-10, 2.0**24
_POWER = 0.5  # what `frexp` returns for powers of two


def _infix(op: str) -> Callable[[Expr, Expr | float], Expr]:
    def combine(left: Expr, right: Expr | float) -> Expr:
        if not isinstance(right, Expr):
            right = number(right, "s32" if op in _SHIFTS else left.dtype)
        return Expr(op, "flag" if op in _COMPARISONS else left.dtype, (left, right))

    return combine


def _unary(op: str, letter: str) -> Callable[[Expr], Expr]:
    return lambda operand: Expr(op, f"{letter}{operand.dtype[1:]}", (operand,))


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """An operator, the dtype of its result, and its operands.

    `value` is the constant of a number, the text of a name or a let, or the called function.
    """

    op: str
    dtype: str
    args: tuple[Expr, ...] = ()
    value: Any = None

    __add__ = _infix("+")
    __sub__ = _infix("-")
    __mul__ = _infix("*")
    __truediv__ = _infix("/")
    __and__ = _infix("&")
    __or__ = _infix("|")
    __xor__ = _infix("^")
    __lshift__ = _infix("<<")
    __rshift__ = _infix(">>")
    __lt__ = _infix("<")
    __le__ = _infix("<=")
    __gt__ = _infix(">")
    __ge__ = _infix(">=")
    equals = _infix("==")
    differs = _infix("!=")
    also = _infix("&&")
    at_least = _infix("max")
    at_most = _infix("min")
    # the nearest integer, ties to even, as a float
    rint = _unary("rint", "f")
    # the bits of a float, and the float of bits
    bits = _unary("as", "u")
    value_of_bits = _unary("as", "f")

    def cast(self, dtype: str) -> Expr:
        """Return the number in another dtype; conversion to an integer drops the fraction."""
        if self.op == "number":
            return number(self.value, dtype)
        return self if dtype == self.dtype else Expr("cast", dtype, (self,))

    def nearest(self, dtype: str) -> Expr:
        """Return the nearest number of a float dtype, ties to even."""
        return self.cast(dtype) if self.op == "number" else Expr("nearest", dtype, (self,))


class Function(NamedTuple):
    """A function of named parameters; `body` is its result, or lines of one language."""

    name: str
    params: tuple[Expr, ...]
    dtype: str
    body: Expr | tuple[str, ...]

    def __call__(self, *args: Expr) -> Expr:
        """Return the expression of a call."""
        return Expr("call", self.dtype, args, self)


def name(text: str, dtype: str) -> Expr:
    """Return a parameter, or any text that is an operand without parentheses."""
    return Expr("name", dtype, (), text)


def number(value: float, dtype: str) -> Expr:
    """Return a constant."""
    return Expr("number", dtype, (), value)


def let(text: str, value: Expr) -> Expr:
    """Name an expression, so that the function computes it once, as a constant."""
    return Expr("let", value.dtype, (value,), text)


def select(condition: Expr, yes: Expr | int, no: Expr | int) -> Expr:
    """Return one of two expressions; at most one of them is a Python number."""
    dtype = next(branch.dtype for branch in (yes, no) if isinstance(branch, Expr))
    args = (branch if isinstance(branch, Expr) else number(branch, dtype) for branch in (yes, no))
    return Expr("?", dtype, (condition, *args))


class Dialect(NamedTuple):
    """How a language writes expressions."""

    # the type of each dtype, and the suffix of its constants, if they have one
    types: Mapping[str, str]
    suffixes: Mapping[str, str]
    # the text of operators that languages write in different ways
    texts: Mapping[str, str]
    # the prefix of function names
    prefix: str = ""
    # qualifiers of a named product of floats
    product: str = "const"
    # functions that `texts` call
    helpers: tuple[Function, ...] = ()

    def text(self, node: Expr) -> str:
        """Return the text of an expression."""
        if node.op == "number":
            return self._number(node.value, node.dtype)
        if node.op in {"name", "let"}:
            return str(node.value)
        texts = [self.text(arg) for arg in node.args]
        if node.op == "call":
            return f"{self.prefix}{node.value.name}({', '.join(texts)})"
        inside = [
            f"({text})" if arg.op in _COMPOUND else text
            for arg, text in zip(node.args, texts, strict=True)
        ]
        if node.op in _CHAINS and node.args[0].op == node.op:
            inside[0] = texts[0]
        dtype, form = node.dtype, self.texts.get(node.op) or _TEXTS.get(node.op, _INFIX)
        names = {"a": inside[0], "b": inside[-1], "op": node.op, "prefix": self.prefix}
        return form.format(*texts, **names, dtype=dtype, type=self.types.get(dtype))

    def functions(self, last: Function) -> list[list[str]]:
        """Return the lines of a function, after those of the functions that it calls."""
        written: dict[str, list[str]] = {}

        def add(function: Function) -> None:
            for node in _nodes(function.body) if isinstance(function.body, Expr) else ():
                if node.op == "call" and node.value.name not in written:
                    add(node.value)
            written[function.name] = self._lines(function)

        add(last)
        text = "\n".join(line for lines in written.values() for line in lines)
        used = [helper for helper in self.helpers if f"{self.prefix}{helper.name}(" in text]
        return [*map(self._lines, used), *written.values()]

    def _lines(self, function: Function) -> list[str]:
        types, body = self.types, function.body
        params = ", ".join(f"{types[param.dtype]} {param.value}" for param in function.params)
        head = f"static {types[function.dtype]} {self.prefix}{function.name}({params})"
        if isinstance(body, Expr):
            lets = [(node, node.args[0]) for node in _nodes(body) if node.op == "let"]
            lines = [
                f"{self.product if value.op == '*' else 'const'} {types[node.dtype]} {node.value}"
                f" = {self.text(value)};"
                for node, value in lets
            ]
            body = (*lines, f"return {self.text(body)};")
        return [head, "{", *(f"    {line}" for line in body), "}"]

    def _number(self, value: Any, dtype: str) -> str:
        suffix = self.suffixes.get(dtype, "")
        if dtype[0] == "u":
            return f"{value:#x}{suffix}" if value >= _FIRST_HEX else f"{value}{suffix}"
        if dtype[0] == "s":
            # C has no literal for the least integer: without its sign it exceeds the type
            is_least = value == INTEGERS[dtype].low
            return f"({value + 1}{suffix} - 1)" if is_least else f"{int(value)}{suffix}"
        if frexp(value)[0] == _POWER and not _LEAST <= value < _LARGE:
            return f"0x1p{frexp(value)[1] - 1}{suffix}"
        # the shortest text that reads back as this number
        is_whole = value == int(value) and abs(value) < _LARGE
        return f"{float(value) if is_whole else DATA_TYPES[dtype].numpy.type(value)!s}{suffix}"


def _nodes(root: Expr) -> Iterable[Expr]:
    """Return each node once, after its operands."""
    nodes: dict[int, Expr] = {}

    def visit(node: Expr) -> None:
        if id(node) not in nodes:
            for arg in node.args:
                visit(arg)
            nodes[id(node)] = node

    visit(root)
    return nodes.values()
