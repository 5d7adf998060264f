"""The conversion of one element as functions in C: the formula of `reorder.Attr`.

The text is C11 and C++17. Results are those of the reorder, bit for bit: named products are
volatile, since compilers may contract a product and a sum (gcc does by default, where a machine has
the instruction), and options that give up IEEE 754 stop the compilation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from memdesc import DATA_TYPES
from memdesc.source.statements import Parameter
from reorder.values.codecs import Formula
from reorder.values.expressions import Dialect, Function, let, name, number, select
from reorder.values.formats import FLOATS, INTEGERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memdesc import DataType
    from memdesc.source import Language
    from reorder.values.binding import BoundAttr
    from reorder.values.expressions import Expr

__all__ = ["HEAD", "INCLUDES", "Converter", "converter_of"]

# FLT_EVAL_METHOD is 16 instead of 0 where compilers have halves
INCLUDES = tuple(f"#include <{header}.h>" for header in ("float", "stdint", "string"))
HEAD = """\
#if __FINITE_MATH_ONLY__ + 0 || (FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16)
#error "results differ from those of the reorder: floats must be evaluated as IEEE 754 says"
#endif"""

# the data types that C has; elements of other types are declared as their bits
_TYPES = ("f32", "f64", *(kind for kind in INTEGERS if not DATA_TYPES[kind].is_packed))
_SUFFIXES = {"f32": "f", "u32": "u", "s64": "LL", "u64": "ULL"}
_TEXTS = {
    "as": "{prefix}as_{kind}({0})",
    "nearest": "({type}){a}",
    "rint": "{prefix}rint_{kind}({0})",
    "min": "{a} < {b} ? {a} : {b}",
    "max": "{a} > {b} ? {a} : {b}",
}


class Converter(NamedTuple):
    """The function that converts an element, and the lines of all functions it needs.

    It takes the element of src, one element of each of the `arrays` (parameters that differ along
    the dims), and with `takes_old` the element of dst.
    """

    name: str
    functions: list[list[str]]
    arrays: tuple[Parameter, ...]
    takes_old: bool


@dataclass(frozen=True)
class _Formula(Formula):
    """A formula in C, which converts between its own types by casts."""

    def kind_of(self, dtype: str) -> str:
        """Return the kind of an element."""
        return dtype if dtype in _TYPES else f"u{max(DATA_TYPES[dtype].bits, 8)}"

    def decode(self, code: Expr, dtype: str, work: str) -> Expr:
        """Return the value of an element."""
        return code.cast(work) if code.kind in FLOATS else super().decode(code, dtype, work)

    def encode(self, value: Expr, dtype: str) -> Expr:
        """Return the element nearest to a value."""
        kind = self.kind_of(dtype)
        return value.cast(kind) if kind in FLOATS else super().encode(value, dtype)


def converter_of(
    src: DataType, dst: DataType, bound: BoundAttr, language: Language, prefix: str
) -> Converter:
    """Write the conversion of an element."""
    formula = _Formula.of(src.name, dst.name, bound)
    constants = {role: bound.by_role[role][0] for role in formula.scalars}
    function = formula.function("convert", ("src", "old"), constants)
    types = {kind: language.type_of(DATA_TYPES[kind]) for kind in _TYPES}
    helpers = tuple(_helpers(types))
    dialect = Dialect(types, _SUFFIXES, _TEXTS, f"{prefix}_", "const volatile", helpers)
    arrays = tuple(
        Parameter(role, DATA_TYPES[formula.kind_of_role(role)]) for role in formula.varying
    )
    return Converter(f"{prefix}_convert", dialect.functions(function), arrays, bool(bound.beta))


def _helpers(types: dict[str, str]) -> Iterator[Function]:
    """Return functions for operations that C has no operator for."""
    for kind, given in (("u32", "f32"), ("f32", "u32"), ("u64", "f64"), ("f64", "u64")):
        x, declared = name("x", given), f"{types[kind]} same = 0;"
        copied = (declared, "memcpy(&same, &x, sizeof same);", "return same;")
        yield Function(f"as_{kind}", (x,), kind, copied)
        if given in FLOATS:
            yield Function(f"rint_{given}", (x,), given, _rint(x))


def _rint(x: Expr) -> Expr:
    """Return the nearest integer: a sum with so large a number has no fraction."""
    large = 2.0 ** FLOATS[x.kind].mantissa
    size = let("size", select(x < 0, number(0, x.kind) - x, x))
    whole = let("whole", select(size < large, (size + large) - large, size))
    return select(x < 0, number(0, x.kind) - whole, whole)
