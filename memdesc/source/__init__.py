"""Source code for layouts in five languages: offsets, their inverse, constants and loop nests.

The functions of a layout, and the parts that they are made of, are built here; plans use the same
parts (`reorder.plan.source`). `languages` spells them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import prod

from memdesc.dtypes import DataType, data_type
from memdesc.errors import MemdescError, short_repr
from memdesc.layout import Axis, Block, Layout, memory_order
from memdesc.source.languages import LANGUAGES, Function, Language, Line, Parameter, language_of
from memdesc.swizzle import is_own_inverse, xor_expression

__all__ = ["LANGUAGES", "Language", "image_source", "language_of", "layout_source"]


def let(name: str, value: str) -> Line:
    """Return the definition of a 64-bit constant; it is left out if nothing uses it."""
    return Line(f"{name} = {value}")


def loops(extents: Iterable[tuple[str, int]], body: tuple[Line, ...]) -> tuple[Line, ...]:
    """Return nested loops over names from 0 to below their extents, outermost first."""
    for name, extent in reversed([*extents]):
        body = (Line(f"for {name} in range({extent}):", body),)
    return body


def when(condition: str, body: tuple[Line, ...], other: tuple[Line, ...] = ()) -> tuple[Line, ...]:
    """Return a branch; without a condition, only its body."""
    if not condition:
        return body
    return (Line(f"if {condition}:", body), *((Line("else:", other),) if other else ()))


def store(dtype: DataType, at: str, value: str) -> tuple[Line, ...]:
    """Return the lines that store an element of dst."""
    if not dtype.is_packed:
        return (Line(f"dst[{at}] = {value}"),)
    kept = "dst[at_dst // 2] & (240 >> (at_dst % 2 * 4))"
    bits = kept if value == "0" else f"({kept}) | {value} << (at_dst % 2 * 4)"
    return let("at_dst", at), Line(f"dst[at_dst // 2] = {bits}  # packed")


def store_data(
    dtype: DataType, at: str, value: str, is_data: str, lets: tuple[Line, ...] = ()
) -> tuple[Line, ...]:
    """Return the lines that store a value, which needs some constants, or zero for padding."""
    if not lets and not dtype.is_packed:
        return store(dtype, at, f"{value} if {is_data} else 0" if is_data else value)
    return when(is_data, (*lets, *store(dtype, at, value)), store(dtype, at, "0"))


def element(array: str, dtype: DataType, at: str) -> str:
    """Return the expression of an element; `at` must be a name if two elements share a byte."""
    if dtype.is_packed:
        return f"(({array}[{at} // 2] >> ({at} % 2 * 4)) & 15)"
    return f"{array}[{at}]"


def share_loops(body: tuple[Line, ...], dtype: DataType) -> tuple[Line, ...]:
    """Return a loop nest whose outermost loop the work items of a device share.

    If there is no loop, or two elements share a byte, one work item runs all of it.
    """
    first, *others = body
    if others or not first.text.startswith("for ") or dtype.is_packed:
        return (Line("once:", body),)
    return (first._replace(text=f"{first.text}  # shared"),)


def about_elements(dtype: DataType) -> str:
    """Return the sentence of a comment that describes the elements of an array."""
    if dtype.is_packed:
        return f"Elements are {dtype}, two per byte, the even one in its low half."
    return f"Elements are {dtype}, or its bits."


def sum_of(constant: int, terms: Iterable[tuple[str, int]]) -> str:
    """Return the sum of a constant and of products of a factor and a stride.

    Partial sums from the left stay within int64 if the whole sum does, because the sum over the
    first digits of an index is the offset of another index.
    """
    text = str(constant) if constant else ""
    for factor, stride in terms:
        if stride:
            product = factor if abs(stride) == 1 else f"{factor} * {abs(stride)}"
            sign = "-" if stride < 0 else "+"
            text = f"{text or '0'} {sign} {product}" if text or stride < 0 else product
    return text or "0"


def digit_terms(index: str, blocks: tuple[Block, ...]) -> list[tuple[str, int]]:
    """Return the digits of one axis and their strides; `index` is a name.

    Blocks of extent 1 add nothing, and the outermost other block needs no remainder.
    """
    terms: list[tuple[str, int]] = []
    for _, step, extent, stride in blocks:
        if extent > 1:
            digit = f"{index} // {step}" if step > 1 else index
            terms.append((f"{digit} % {extent}" if terms else digit, stride))
    return terms


def joined_index(names: tuple[str, ...], sizes: tuple[int, ...]) -> str:
    """Return the row-major index of several dims."""
    joined = names[0]
    for k in range(1, len(names)):
        joined = f"{f'({joined})' if k > 1 else joined} * {sizes[k]} + {names[k]}"
    return joined


# C guarantees 31 significant characters in an external name; compilers in use support more
_NAME = "[A-Za-z][A-Za-z0-9_]{0,99}"


def layout_source(
    layout: Layout,
    dtype: DataType,
    lang: str,
    names: tuple[str, str],
    about: tuple[str, dict[str, int]],
) -> str:
    """Return the source code of a layout with elements of a type, in a language.

    `names` are the prefix of functions and constants and the letters of the dims; `about` is the
    descriptor as text, and additional constants.
    """
    language = language_of(lang)
    name, letters = check_name(names[0]), names[1]
    head, numbers = about
    constants: dict[str, int | tuple[int, ...]] = {
        "NDIMS": layout.ndims,
        "DIMS": layout.dims,
        "PADDED_DIMS": layout.padded_dims(),
        "NELEMS": layout.nelems,
        "PADDED_NELEMS": layout.padded_nelems,
        "OFFSET0": layout.offset0,
        **numbers,
    }
    parts = [
        [*language.comment([head, "Sizes and offsets are in elements, except NBYTES."])],
        list(language.head),
        language.constants({f"{name}_{key}": value for key, value in constants.items()}),
    ]
    offset = _sum(layout, letters, f"{name}_offset", "The offset of an index.")
    parts.append(language.function(offset))
    parts += [
        language.function(made) if isinstance(made, Function) else language.comment([made])
        for made in (_inverse(layout, name, letters), _fill(layout, dtype, name, letters))
    ]
    return language.joined(parts)


def check_name(name: object) -> str:
    """Refuse a prefix that function names cannot have."""
    if isinstance(name, str) and re.fullmatch(_NAME, name):
        return name
    raise MemdescError(
        f"name {short_repr(name)} cannot start function names; it must be a letter, then up "
        "to 99 letters, digits and underscores"
    )


def axis_name(axis: Axis, letters: str) -> str:
    """Return the name of an axis's index: the letter of its dim, or those of its fused dims."""
    joined = "".join(letters[dim] for dim in axis.dims)
    return joined if len(axis.dims) == 1 else f"fused_{joined}"


def dims_of_axis(axis: Axis, name: str, dims: Sequence[int], letters: str) -> list[Line]:
    """Return definitions of the dims' indices from that of their axis; none for one dim."""
    lines = []
    inside = 1
    for k in reversed(range(len(axis.dims))):
        size = max(dims[axis.dims[k]], 1)
        value = name if inside == 1 else f"{name} // {inside}"
        lines.append(let(letters[axis.dims[k]], f"{value} % {size}" if k else value))
        inside *= size
    return lines if len(axis.dims) > 1 else []


def _sum(
    layout: Layout, letters: str, name: str, comment: str, span: range | None = None
) -> Function:
    """Return the function that sums the digits of an index times their strides, and swizzles.

    With a span, only strides in it count, in units of its start.
    """
    lets, terms = [], []
    for axis, blocks in layout.parts:
        index = axis_name(axis, letters)
        if len(axis.dims) > 1:
            own = tuple(letters[dim] for dim in axis.dims)
            lets.append(let(index, joined_index(own, tuple(layout.dims[d] for d in axis.dims))))
        terms += digit_terms(index, blocks)
    if span is not None:
        terms = [(digit, stride // span.start) for digit, stride in terms if stride in span]
    total = sum_of(layout.offset0, terms)
    if layout.xor:
        lets.append(let("base", total))
        total = xor_expression("base", layout.xor)
    return Function(
        name,
        (comment,),
        "integer",
        tuple(map(Parameter, letters)),
        (*lets, Line(f"return {total}")),
    )


def image_source(
    layout: Layout, shape: tuple[int, ...], lang: str, names: tuple[str, str], head: str
) -> str:
    """Return functions for the place of an element in an image: its x, y, z and lane.

    The layout has the pixels as a dense buffer, and `shape` is ([depth,] height, width, channels).
    """
    language = language_of(lang)
    name, letters = check_name(names[0]), names[1]
    parts = [[*language.comment([head])], list(language.head)]
    constants: dict[str, int | tuple[int, ...]] = {f"{name}_DIMS": layout.dims}
    for key, size in zip(("LANES", "WIDTH", "HEIGHT", "DEPTH"), shape[::-1], strict=False):
        constants[f"{name}_{key}"] = size
    parts.append(language.constants(constants))
    unit = 1
    for side, size in zip(("lane", "x", "y", "z"), shape[::-1], strict=False):
        what = "lane" if side == "lane" else f"{side} of the pixel"
        span = range(unit, unit * size)
        made = _sum(layout, letters, f"{name}_{side}", f"The {what} of an index.", span)
        parts.append(language.function(made))
        unit *= size
    return language.joined(parts)


def _inverse(layout: Layout, name: str, letters: str) -> Function | str:
    """Return the function that maps an offset to its index, or the reason why there is none."""
    nest = sorted(
        (block for block in layout.blocks if block.extent > 1), key=lambda b: -abs(b.stride)
    )
    if not is_own_inverse(layout.xor):
        return f"No {name}_index: XOR by {layout.xor} twice is not the base again."
    reach = 0
    for block in reversed(nest):
        if abs(block.stride) <= reach:
            return f"No {name}_index: " + (
                f"strides do not nest: {abs(block.stride)} is at most {reach}, where others end."
                if block.stride
                else "a stride is 0, so one offset has several indices."
            )
        reach += (block.extent - 1) * abs(block.stride)
    comment = (
        "The index at an offset: 1 for an element, 0 for padding, -1 for neither.",
        "The index of padding lies outside the dims.",
    )
    parameters = (Parameter("offset"), Parameter("index", data_type("s64"), is_written=True))
    body = _find(layout, nest, reach, letters) if layout.nelems else _NONE
    return Function(f"{name}_index", comment, "status", parameters, body)


# what an inverse returns for an offset that no index has
_NONE: tuple[Line, ...] = (Line("return None"),)


def _find(layout: Layout, nest: list[Block], reach: int, letters: str) -> tuple[Line, ...]:
    """Return the lines that divide an offset by the strides, largest first."""
    rest = "base" if layout.xor else "offset"
    lines = [let(rest, xor_expression("offset", layout.xor))] if layout.xor else []
    first = layout.offset0 + sum(
        (block.extent - 1) * block.stride for block in nest if block.stride < 0
    )
    modulus = 0
    lines += when(f"{rest} < {first} or {rest} > {first + reach}", _NONE)
    if first:
        lines.append(let("from_first", f"{rest} - {first}"))
        rest = "from_first"
    digits: dict[Block, str] = {}
    gaps = []
    room = reach + 1
    for k, block in enumerate(nest):
        size = abs(block.stride)
        if modulus % size:
            lines.append(let(f"rest{k}", f"{rest} % {modulus}"))
            rest, modulus = f"rest{k}", 0
        digit = f"{rest} // {size}" if size > 1 else rest
        digit += f" % {modulus // size}" if modulus else ""
        if block.extent * size < room:
            gaps.append(f"{digit} >= {block.extent}")
        digits[block] = digit if block.stride > 0 else f"({block.extent - 1} - {digit})"
        modulus = room = size
    if room > 1 and nest:
        gaps.append(f"{rest} % {room} > 0")
    beyond = []
    lines += when(" or ".join(gaps), _NONE) if gaps else ()
    for axis, blocks in layout.parts:
        index = axis_name(axis, letters)
        own = [(digits[block], block.step) for block in blocks if block in digits]
        lines += [let(index, sum_of(0, own)), *dims_of_axis(axis, index, layout.dims, letters)]
        if axis.padded % blocks[0].step:
            beyond.append(f"{index} >= {axis.padded}")
    lines += when(" or ".join(beyond), _NONE) if beyond else ()
    comma = "," if len(letters) == 1 else ""
    end = f"return {', '.join(letters)}{comma}  # {_is_data(layout, letters) or 1}"
    return (*lines, Line(end))


def _is_data(layout: Layout, letters: str) -> str:
    return " and ".join(
        f"{axis_name(axis, letters)} < {layout.axis_size(k)}"
        for k, axis in enumerate(layout.axes)
        if axis.padded > layout.axis_size(k)
    )


def _fill(layout: Layout, dtype: DataType, name: str, letters: str) -> Function | str:
    """Return loops over memory that fill it from a row-major array, or why there are none."""
    if layout.has_broadcast:
        return f"No {name}_fill: a stride is 0, so several indices would write one element."
    base = layout.base()
    nest = [block for block in sorted(base.blocks, key=memory_order) if block.extent != 1]
    digits: dict[Block, str] = {}
    lets: list[Line] = []
    partial = []
    for axis, blocks in base.parts:
        index = axis_name(axis, letters)
        own = [block for block in blocks if block in nest]
        for j, block in enumerate(own):
            digits[block] = index if len(own) == block.step == 1 else f"{index}{j}"
        if [digits[block] for block in own] != [index]:
            lets.append(let(index, sum_of(0, [(digits[block], block.step) for block in own])))
        lets += dims_of_axis(axis, index, base.dims, letters)
        if axis.padded % blocks[0].step:
            partial.append(f"{index} < {axis.padded}")
    strides = [prod(base.dims[dim + 1 :]) if size > 1 else 0 for dim, size in enumerate(base.dims)]
    at_src = sum_of(0, zip(letters, strides, strict=True))
    at_dst = sum_of(base.offset0, [(digits[block], block.stride) for block in nest])
    if layout.xor:
        lets += [let("base", at_dst), let("to", xor_expression("base", layout.xor))]
        at_dst = "to"
    named = (let("at_src", at_src),) if dtype.is_packed else ()
    value = element("src", dtype, "at_src" if named else at_src)
    body = store_data(dtype, at_dst, value, _is_data(layout, letters), named)
    body = (*lets, *when(" and ".join(partial), body))
    about = "Fill dst from a row-major array of the dims, and its padding with 0."
    return Function(
        f"{name}_fill",
        (about, about_elements(dtype)),
        "",
        (Parameter("src", dtype), Parameter("dst", dtype, is_written=True)),
        share_loops(loops([(digits[block], block.extent) for block in nest], body), dtype),
    )
