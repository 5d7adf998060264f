"""The conversion of one element as a function in C: the formula of `reorder.Attr`.

The text is C11 and C++17. Results are those of the reorder, bit for bit: products are volatile,
since compilers may contract a product and a sum (gcc by default, where a machine has the
instruction), and options that give up IEEE 754 stop the compilation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import DATA_TYPES
from memdesc.source.statements import Parameter
from reorder.plan.source.codecs import WORKING, Codecs
from reorder.values.convert import wide_dtype
from reorder.values.formats import difference_type, largest_number, working_type

if TYPE_CHECKING:
    from memdesc import DataType
    from memdesc.source import Language
    from reorder.values.binding import BoundAttr

__all__ = ["HEAD", "INCLUDES", "Conversion", "conversion_of"]

# a method of 16 is that of 0, where there are halves
INCLUDES = tuple(f"#include <{name}.h>" for name in ("float", "math", "stdint", "string"))
HEAD = """\
#if __FINITE_MATH_ONLY__ + 0 || (FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16)
#error "results differ from those of the reorder: floats must be evaluated as IEEE 754 says"
#endif"""


class Conversion(NamedTuple):
    """The functions of a conversion, and what a call takes beside the element of src.

    Attributes
    ----------
    functions : list of list of str
        The lines of each function; the last one is called.
    name : str
        Its name.
    arrays : tuple of Parameter
        The parameters that differ along the dims: arrays of the whole function.
    takes_old : bool
        Whether the last argument is the element of dst.
    """

    functions: list[list[str]]
    name: str
    arrays: tuple[Parameter, ...]
    takes_old: bool


def conversion_of(
    src: DataType, dst: DataType, bound: BoundAttr, language: Language, name: str
) -> Conversion:
    """Write the conversion of one element."""
    codecs = Codecs(language, name)
    work = working_type(src.name, dst.name, arithmetic=bound.is_arithmetic)
    kind = WORKING[work]
    steps: list[str] = []
    arrays = {
        operand.role: Parameter(
            operand.role, DATA_TYPES["s32" if operand.role.endswith("point") else work]
        )
        for operand in bound.varying
    }
    scalars: dict[str, Any] = {
        operand.role: values[0]
        for operand, values in zip(bound.operands, bound.values, strict=True)
        if operand.role not in arrays
    }

    def value_of(role: str, wide: str) -> str:
        if role in scalars:
            return literal(scalars[role], wide)
        return f"({WORKING[wide]}){role}" if role.endswith("point") else role

    roles = [operand.role for operand in bound.operands]
    if "src_zero_point" in roles:
        points = bound.arrays(wide_dtype(work))["src_zero_point"]
        exact = difference_type(src.name, work, points)
        x = f"{codecs.decoded('src', src, exact)} - {value_of('src_zero_point', exact)}"
        x = f"({kind})({x})" if exact != work else x
    else:
        x = codecs.decoded("src", src, work)
    steps.append(f"{kind} x = {x};")
    if "src_scale" in roles:
        steps += [
            f"const volatile {kind} scaled = {value_of('src_scale', work)} * x;",
            "x = scaled;",
        ]
    if bound.beta:
        old = codecs.decoded("old", dst, work)
        steps += [
            f"const volatile {kind} added = {literal(bound.beta, work)} * {old};",
            "x = x + added;",
        ]
    if "dst_scale" in roles:
        steps.append(f"x = x / {value_of('dst_scale', work)};")
    if "dst_zero_point" in roles:
        steps.append(f"x = x + {value_of('dst_zero_point', work)};")
    if bound.is_arithmetic:
        steps.append(f"x = x != x ? ({kind})NAN : x;")
    limit = largest_number(dst.name) if bound.saturates else None
    if limit is not None:
        high = literal(limit, work)
        steps += [f"x = x > {high} ? {high} : x;", f"x = x < -{high} ? -{high} : x;"]
    if bound.through_f16:
        half = DATA_TYPES["f16"]
        steps.append(f"x = {codecs.decoded(codecs.encoded('x', half, work), half, work)};")
    steps.append(f"return {codecs.encoded('x', dst, work)};")
    taken = [f"{language.type_of(src)} src"]
    taken += [f"{language.type_of(_typed(p))} {p.name}" for p in arrays.values()]
    taken += [f"{language.type_of(dst)} old"] if bound.beta else []
    head = f"static {language.type_of(dst)} {name}_convert({', '.join(taken)})"
    return Conversion(
        [*codecs.functions.values(), [head, "{", *(f"    {step}" for step in steps), "}"]],
        f"{name}_convert",
        tuple(arrays.values()),
        bool(bound.beta),
    )


def _typed(parameter: Parameter) -> DataType:
    assert parameter.dtype is not None  # noqa: S101 - for the type checker: it is an array
    return parameter.dtype


def literal(value: float, work: str) -> str:
    """Return a number in a working type as C writes it: the shortest that reads back.

    >>> literal(0.1, "f32"), literal(-3, "f64")
    ('0.1f', '-3.0')
    """
    text = str(wide_dtype(work).type(value)) if work == "f32" else repr(float(value))
    return f"{text}f" if work == "f32" else text
