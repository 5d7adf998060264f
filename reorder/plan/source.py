"""A plan as source code: its boxes as one function, and the conversion of an element as another.

Each box is a loop nest, with tails as conditions; compensation follows the boxes. Conversions are
written in C11 and C++17. Results equal the reorder's, bit for bit: named products are volatile,
since compilers may contract a product and a sum (gcc does by default, if the machine has the
instruction), and compiler options that give up IEEE 754 stop the compilation.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from memdesc import DataType, MemdescError, MemoryDesc
from memdesc.dtypes import DATA_TYPES
from memdesc.source import (
    Language,
    about_elements,
    axis_name,
    check_name,
    digit_terms,
    dims_of_axis,
    element,
    joined_index,
    language_of,
    let,
    loops,
    share_loops,
    store,
    store_data,
    sum_of,
)
from memdesc.source.languages import Function, Line, Parameter
from memdesc.swizzle import xor_expression
from memdesc.tags import LETTERS
from memdesc.tuples import NamedTuple
from reorder.values.codecs import Formula
from reorder.values.compensation import FACTORS, compensation_layout
from reorder.values.expressions import Dialect, Expr, number, select
from reorder.values.expressions import Function as ValueFunction
from reorder.values.expressions import let as named
from reorder.values.expressions import name as variable
from reorder.values.formats import FLOATS, INTEGERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.plan.nodes import Box, IndirectLoop
    from reorder.values.binding import BoundAttr

# languages whose arithmetic equals the reorder's, bit for bit
_EXACT = ("c", "c++")
_INT32_BYTES = 4


def plan_source(
    descs: tuple[MemoryDesc, MemoryDesc],
    boxes: tuple[Box, ...],
    bound: BoundAttr,
    about: str,
    names: tuple[str, str],
) -> str:
    """Return the source code of a reorder between descriptors, with attributes `about` as text.

    `names` are the language and the prefix of function names. Fails if the language cannot compute
    exactly what the reorder computes.
    """
    src, dst = descs
    lang, name = names
    language = language_of(lang)
    check_name(name)
    if dst.compensation_spans and lang not in _EXACT:
        raise MemdescError(
            f"source in {lang} does not write the compensation that {dst!r} has; use "
            f"{' or '.join(map(repr, _EXACT))}, or with_extra(None)"
        )
    converter = None
    if src.dtype != dst.dtype or bound.is_arithmetic:
        if lang not in _EXACT:
            raise MemdescError(
                f"source in {lang} only moves elements, and this reorder computes {dst.dtype} from "
                f"{src.dtype}: arithmetic there may round differently; use "
                f"{' or '.join(map(repr, _EXACT))}"
            )
        converter = _converter_of(src.dtype, dst.dtype, bound, language, name)
    computes = converter is not None and bool(boxes)
    head = [f"Reorder src {src!r}", f"to dst {dst!r}", *([about] if about else [])]
    head += [
        f"{operand.role}: {' x '.join(map(str, operand.sizes))} numbers, row-major"
        for operand in bound.varying
    ]
    types = src.dtype, dst.dtype
    includes = list(language.head)
    if computes or dst.compensation_spans:
        includes = list(dict.fromkeys([*includes, *_INCLUDES]))
    parts = [
        language.comment(head),
        includes,
        *([[_HEAD], *converter.functions] if converter and computes else []),
        language.function(_function(boxes, types, name, converter, _compensation(dst))),
    ]
    return language.joined(parts)


def _function(
    boxes: tuple[Box, ...],
    types: tuple[DataType, DataType],
    name: str,
    converter: _Converter | None,
    sums: tuple[Line, ...],
) -> Function:
    src, dst = types
    body: list[Line] = []
    for box in boxes:
        body += share_loops(_nest(box, types, converter), dst)
    body += sums
    return Function(
        f"{name}_reorder",
        (
            "Padding of dst becomes 0; padding of src is not read.",
            f"src: {about_elements(src)}",
            f"dst: {about_elements(dst)}",
        ),
        "",
        (
            Parameter("src", src),
            Parameter("dst", dst, is_written=True),
            *(converter.arrays if converter else ()),
        ),
        tuple(body),
    )


def _nest(
    box: Box, types: tuple[DataType, DataType], converter: _Converter | None
) -> tuple[Line, ...]:
    """Return the loops of a box."""
    count = len(box.offsets)
    terms: list[list[tuple[str, int]]] = [[] for _ in range(count)]
    lets: list[Line] = []
    valid = []
    nest = []
    for indirect in box.indirect:
        axes, sizes = _indirect_terms(indirect, terms, lets)
        nest += axes
        valid += sizes
    for k, node in enumerate(box.nodes):
        if node.extent > 1:
            nest.append((f"i{k}", node.extent))
            for operand, stride in enumerate(node.strides):
                terms[operand].append((f"i{k}", stride))
            if node.valid < node.extent:
                valid.append(f"i{k} < {node.valid}")
    offsets = [sum_of(box.offsets[k], terms[k]) for k in range(count)]
    if box.is_zero:
        body = store(types[1], offsets[1], "0")
    else:
        body = _element(types, converter, offsets, " and ".join(valid))
    return loops(nest, (*lets, *body))


def _indirect_terms(
    loop: IndirectLoop, terms: list[list[tuple[str, int]]], lets: list[Line]
) -> tuple[list[tuple[str, int]], list[str]]:
    """Add the digits of an indirect loop to all terms; return its loops and conditions."""
    if loop.xor:
        bases: list[list[tuple[str, int]]] = [[] for _ in terms]
        loops_and_sizes = _indirect_terms(loop._replace(xor=()), bases, lets)
        for k, (start, xor) in enumerate(loop.xor):
            lets.append(let(f"base{k}", sum_of(start, bases[k])))
            lets.append(let(f"start{k}", xor_expression(f"base{k}", xor)))
            terms[k].append((f"start{k}", 1))
        for k in range(len(loop.xor), len(terms)):
            terms[k] += bases[k]
        return loops_and_sizes
    sizes = dict(loop.sizes)
    dims = [sizes.get(dim, 1) for dim in range(max(sizes) + 1)]
    nest, valid = [], []
    known = set()
    for axis, blocks in loop.dst:
        index = axis_name(axis, LETTERS)
        known.add(index)
        if axis.padded == 1:
            lets.append(let(index, "0"))
        else:
            nest.append((index, axis.padded))
        lets += dims_of_axis(axis, index, dims, LETTERS)
        size = prod(sizes[dim] for dim in axis.dims)
        if axis.padded > size:
            valid.append(f"{index} < {size}")
        terms[1] += digit_terms(index, blocks)
    for operand, layout in zip((0, *range(2, len(terms))), (loop.src, *loop.params), strict=True):
        for axis, blocks in layout:
            index = axis_name(axis, LETTERS)
            if len(axis.dims) > 1 and index not in known:
                known.add(index)
                own = tuple(LETTERS[dim] for dim in axis.dims)
                joined = joined_index(own, tuple(sizes[dim] for dim in axis.dims))
                lets.append(let(index, joined))
            terms[operand] += digit_terms(index, blocks)
    return nest, valid


def _element(
    types: tuple[DataType, DataType], converter: _Converter | None, offsets: list[str], valid: str
) -> tuple[Line, ...]:
    """Return the lines that write one element, or zero where it is padding."""
    src, dst = types
    at_src, at_dst, *params = offsets
    lets = (let("at_src", at_src),) if src.is_packed else ()
    value = element("src", src, "at_src" if src.is_packed else at_src)
    if converter is not None:
        arguments = [value]
        arguments += [f"{p.name}[{at}]" for p, at in zip(converter.arrays, params, strict=True)]
        if converter.takes_old:
            arguments.append(element("dst", dst, "at_dst" if dst.is_packed else at_dst))
        value = f"{converter.name}({', '.join(arguments)})"
    return store_data(dst, at_dst, value, valid, lets)


def _compensation(dst: MemoryDesc) -> tuple[Line, ...]:
    """Return the lines that write the compensation after int8 weights, if dst has any."""
    layout = dst.layout
    lines: list[Line] = []
    for name, (start, shape) in dst.compensation_spans.items():
        assert dst.extra is not None  # noqa: S101 - for the type checker: there are spans
        mask = dst.extra.masks[name]
        sums = compensation_layout(layout, mask)
        kept = [dim for dim in range(dst.ndims) if mask >> dim & 1]
        names = [axis_name(axis, LETTERS) for axis in layout.axes]
        at = [
            term
            for k, index in enumerate(names)
            for term in digit_terms(index, layout.axis_blocks(k))
        ]
        to = [
            (digit, _INT32_BYTES * stride)
            for k, dim in enumerate(kept)
            for digit, stride in digit_terms(names[dim], sums.axis_blocks(k))
        ]
        place = f"dst + {sum_of(start, to)}"
        added = f"{FACTORS[name]} * dst[{sum_of(dst.offset0, at)}]"
        body = (
            Line("uint32_t sum = 0;"),
            Line(f"memcpy(&sum, {place}, sizeof sum);"),
            Line(f"sum += (uint32_t)({added});"),
            Line(f"memcpy({place}, &sum, sizeof sum);"),
        )
        clear = Line(f"memset(dst + {start}, 0, {_INT32_BYTES * prod(shape)});")
        lines += [clear, *loops(zip(names, dst.dims, strict=True), body)]
    return tuple(lines)


# FLT_EVAL_METHOD is 16 instead of 0 where compilers have halves
_INCLUDES = tuple(f"#include <{header}.h>" for header in ("float", "stdint", "string"))
_HEAD = """\
#if __FINITE_MATH_ONLY__ + 0 || (FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16)
#error "results differ from those of the reorder: floats must be evaluated as IEEE 754 says"
#endif"""

# the data types that C has; elements of other types are declared as their bits
_TYPES = ("f32", "f64", *(dtype for dtype in INTEGERS if not DATA_TYPES[dtype].is_packed))
_SUFFIXES = {"f32": "f", "u32": "u", "s64": "LL", "u64": "ULL"}
_TEXTS = {
    "as": "{prefix}as_{dtype}({0})",
    "nearest": "({type}){a}",
    "rint": "{prefix}rint_{dtype}({0})",
    "min": "{a} < {b} ? {a} : {b}",
    "max": "{a} > {b} ? {a} : {b}",
}


class _Converter(NamedTuple):
    """The function that converts an element, with the lines of all functions it needs.

    It takes an element of src, one of each of the `arrays` and, if `takes_old`, that of dst.
    """

    name: str
    functions: list[list[str]]
    arrays: tuple[Parameter, ...]
    takes_old: bool


@dataclass(frozen=True)
class _Formula(Formula):
    """A formula in C, which converts between its own types by casts."""

    def code_dtype(self, dtype: str) -> str:
        """Return the type of an element."""
        return dtype if dtype in _TYPES else f"u{max(DATA_TYPES[dtype].bits, 8)}"

    def decode(self, code: Expr, dtype: str, work: str) -> Expr:
        """Return the value of an element."""
        return code.cast(work) if code.dtype in FLOATS else super().decode(code, dtype, work)

    def encode(self, value: Expr, dtype: str) -> Expr:
        """Return the element nearest to a value."""
        code_dtype = self.code_dtype(dtype)
        return value.cast(code_dtype) if code_dtype in FLOATS else super().encode(value, dtype)


def _converter_of(
    src: DataType, dst: DataType, bound: BoundAttr, language: Language, prefix: str
) -> _Converter:
    """Write the conversion of an element."""
    formula = _Formula.of(src.name, dst.name, bound)
    constants = {role: bound.by_role[role][0] for role in formula.scalars}
    function = formula.function("convert", ("src", "old"), constants)
    types = {dtype: language.type_of(DATA_TYPES[dtype]) for dtype in _TYPES}
    helpers = tuple(_helpers(types))
    dialect = Dialect(types, _SUFFIXES, _TEXTS, f"{prefix}_", "const volatile", helpers)
    arrays = tuple(
        Parameter(role, DATA_TYPES[formula.operand_dtype(role)]) for role in formula.varying
    )
    return _Converter(f"{prefix}_convert", dialect.functions(function), arrays, bool(bound.beta))


def _helpers(types: dict[str, str]) -> Iterator[ValueFunction]:
    """Yield functions for operations that C has no operator for."""
    for dtype, given in (("u32", "f32"), ("f32", "u32"), ("u64", "f64"), ("f64", "u64")):
        x, declared = variable("x", given), f"{types[dtype]} same = 0;"
        copied = (declared, "memcpy(&same, &x, sizeof same);", "return same;")
        yield ValueFunction(f"as_{dtype}", (x,), dtype, copied)
        if given in FLOATS:
            yield ValueFunction(f"rint_{given}", (x,), given, _rint(x))


def _rint(x: Expr) -> Expr:
    """Return the nearest integer: adding a number this large rounds the fraction away."""
    large = 2.0 ** FLOATS[x.dtype].mantissa
    size = named("size", select(x < 0, number(0, x.dtype) - x, x))
    whole = named("whole", select(size < large, (size + large) - large, size))
    return select(x < 0, number(0, x.dtype) - whole, whole)
