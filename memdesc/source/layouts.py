"""The source code of a layout: its offset function, the inverse, constants, and filling loops."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from memdesc.dtypes import DataType, data_type
from memdesc.errors import MemdescError, short_repr
from memdesc.layout import Axis, Block, Layout, memory_order
from memdesc.source.languages import language_of
from memdesc.source.statements import (
    Found,
    Function,
    If,
    Let,
    Loop,
    Missing,
    Once,
    Parameter,
    Return,
    Statement,
    Store,
    digit_terms,
    element,
    joined_index,
    sum_of,
)
from memdesc.swizzle import is_own_inverse, xor_expression

# C guarantees 31 significant characters in an external name; compilers in use support more
_NAME = "[A-Za-z][A-Za-z0-9_]{0,99}"


def layout_source(
    layout: Layout,
    dtype: DataType,
    lang: str,
    names: tuple[str, str],
    about: tuple[str, dict[str, int]],
) -> str:
    """Return the source code of a layout.

    Parameters
    ----------
    layout : Layout
        The offsets.
    dtype : DataType
        Type of the elements.
    lang : str
        A key of `LANGUAGES`.
    names : (str, str)
        The prefix of functions and constants, and the letters of the dims.
    about : (str, dict of str to int)
        The descriptor as text, and additional constants.
    """
    language = language_of(lang)
    name, letters = check_name(names[0]), _checked_letters(names[1], layout.ndims)
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
        language.function(_offset(layout, name, letters)),
    ]
    parts += [
        language.function(made) if isinstance(made, Function) else language.comment([made])
        for made in (_inverse(layout, name, letters), _fill(layout, dtype, name, letters))
    ]
    blank = "\n\n\n" if lang == "python" else "\n\n"
    return blank.join("\n".join(part) for part in parts if part) + "\n"


def check_name(name: object) -> str:
    """Refuse a prefix that function names cannot have."""
    if isinstance(name, str) and re.fullmatch(_NAME, name):
        return name
    raise MemdescError(
        f"name {short_repr(name)} cannot start function names; it must be a letter, then up "
        "to 99 letters, digits and underscores"
    )


def _checked_letters(letters: object, ndims: int) -> str:
    is_legal = isinstance(letters, str) and len(letters) >= ndims
    if is_legal:
        assert isinstance(letters, str)  # noqa: S101 - for the type checker
        own = letters[:ndims]
        if re.fullmatch("[A-Za-z]+", own) and len(set(own)) == ndims:
            return own
    raise MemdescError(
        f"letters {short_repr(letters)} must be {ndims} different letters, one for each dim"
    )


def axis_name(axis: Axis, letters: str) -> str:
    """Return the name of an axis's index: the letter of its dim, or those of its fused dims."""
    joined = "".join(letters[dim] for dim in axis.dims)
    return joined if len(axis.dims) == 1 else f"fused_{joined}"


def dims_of_axis(
    axis: Axis, name: str, dims: Sequence[int], letters: str
) -> tuple[list[Let], list[str]]:
    """Return definitions of the dims' indices from their axis's, and their names in its order."""
    names = [letters[dim] for dim in axis.dims]
    if len(names) == 1:
        return [], names
    found = []
    inside = 1
    for k in reversed(range(len(names))):
        value = name if inside == 1 else f"{name} // {inside}"
        if k:
            value += f" % {max(dims[axis.dims[k]], 1)}"
        found.append(Let(names[k], value))
        inside *= max(dims[axis.dims[k]], 1)
    return found, names


def _offset(layout: Layout, name: str, letters: str) -> Function:
    return _sum(layout, letters, f"{name}_offset", "The offset of an index.", _stride_of)


def _stride_of(block: Block) -> int:
    return block.stride


def _sum(
    layout: Layout, letters: str, name: str, comment: str, stride_of: Callable[[Block], int]
) -> Function:
    """Return the function that sums the digits of an index times their strides, and swizzles."""
    lets, terms = [], []
    for k, axis in enumerate(layout.axes):
        index = axis_name(axis, letters)
        if len(axis.dims) > 1:
            own = tuple(letters[dim] for dim in axis.dims)
            lets.append(Let(index, joined_index(own, tuple(layout.dims[d] for d in axis.dims))))
        blocks = layout.base().axis_blocks(k)
        terms += digit_terms(
            index, tuple(block._replace(stride=stride_of(block)) for block in blocks)
        )
    total = sum_of(layout.offset0, terms)
    if layout.xor:
        lets.append(Let("base", total))
        total = xor_expression("base", layout.xor)
    return Function(
        name,
        (comment,),
        "integer",
        tuple(map(Parameter, letters)),
        (*lets, Return(total)),
    )


def image_source(
    layout: Layout, shape: tuple[int, ...], lang: str, names: tuple[str, str], head: str
) -> str:
    """Return functions for the place of an element in an image: its x, y, z and lane.

    Parameters
    ----------
    layout : Layout
        The pixels as a dense buffer.
    shape : tuple of int
        ([depth,] height, width, channels).
    lang : str
        A key of `LANGUAGES`; OpenCL C also gets a function that returns the coordinates as a
        vector.
    names : (str, str)
        The prefix of functions and constants, and the letters of the dims.
    head : str
        The image as text.
    """
    language = language_of(lang)
    name, letters = check_name(names[0]), _checked_letters(names[1], layout.ndims)
    sides = dict(zip(("lane", "x", "y", "z"), shape[::-1], strict=False))
    parts = [[*language.comment([head])], list(language.head)]
    constants: dict[str, int | tuple[int, ...]] = {f"{name}_DIMS": layout.dims}
    for key, size in zip(("LANES", "WIDTH", "HEIGHT", "DEPTH"), shape[::-1], strict=False):
        constants[f"{name}_{key}"] = size
    parts.append(language.constants(constants))
    unit = 1
    for side, size in sides.items():

        def stride_of(block: Block, unit: int = unit, size: int = size) -> int:
            return block.stride // unit if unit <= block.stride < unit * size else 0

        what = "lane" if side == "lane" else f"{side} of the pixel"
        made = _sum(layout, letters, f"{name}_{side}", f"The {what} of an index.", stride_of)
        parts.append(language.function(made))
        unit *= size
    if lang == "opencl":
        parts.append(_vector(name, letters, [side for side in sides if side != "lane"]))
    blank = "\n\n\n" if lang == "python" else "\n\n"
    return blank.join("\n".join(part) for part in parts if part) + "\n"


def _vector(name: str, letters: str, sides: list[str]) -> list[str]:
    """Return the function of OpenCL C that returns coordinates for read_image and write_image."""
    vector = "int2" if len(sides) == 2 else "int4"  # noqa: PLR2004 - images have 2 or 3 sides
    given = ", ".join(f"long {letter}" for letter in letters)
    passed = ", ".join(letters)
    values = [f"(int){name}_{side}({passed})" for side in sides] + ["0"] * (vector == "int4")
    return [
        "/* The coordinates of the pixel of an index. */",
        f"{vector} {name}_pixel({given})",
        "{",
        f"    return ({vector})({', '.join(values)});",
        "}",
    ]


def _inverse(layout: Layout, name: str, letters: str) -> Function | str:
    """Return the function that maps an offset to its index, or the reason why there is none."""
    loops = sorted(
        (block for block in layout.blocks if block.extent > 1), key=lambda b: -abs(b.stride)
    )
    if not is_own_inverse(layout.xor):
        return f"No {name}_index: XOR by {layout.xor} twice is not the base again."
    reach = 0
    for block in reversed(loops):
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
    body: tuple[Statement, ...] = (Missing(),)
    if layout.nelems:
        body = _find(layout.base(), loops, reach, letters)
        if layout.xor:
            base = Let("base", xor_expression("offset", layout.xor))
            body = (base, *_find(layout.base(), loops, reach, letters, "base"))
    return Function(f"{name}_index", comment, "status", parameters, body)


def _find(
    layout: Layout, loops: list[Block], reach: int, letters: str, rest: str = "offset"
) -> tuple[Statement, ...]:
    """Return the statements that divide an offset by the strides, largest first."""
    first = layout.offset0 + sum(
        (block.extent - 1) * block.stride for block in loops if block.stride < 0
    )
    modulus = 0
    statements: list[Statement] = [
        If(f"{rest} < {first} or {rest} > {first + reach}", (Missing(),))
    ]
    if first:
        statements.append(Let("from_first", f"{rest} - {first}"))
        rest = "from_first"
    digits: dict[Block, str] = {}
    gaps = []
    room = reach + 1
    for k, block in enumerate(loops):
        size = abs(block.stride)
        if modulus % size:
            statements.append(Let(f"rest{k}", f"{rest} % {modulus}"))
            rest, modulus = f"rest{k}", 0
        digit = f"{rest} // {size}" if size > 1 else rest
        digit += f" % {modulus // size}" if modulus else ""
        if block.extent * size < room:
            gaps.append(f"{digit} >= {block.extent}")
        digits[block] = digit if block.stride > 0 else f"({block.extent - 1} - {digit})"
        modulus = room = size
    if room > 1 and loops:
        gaps.append(f"{rest} % {room} > 0")
    names, inside = _dims_of_digits(layout, digits, letters)
    sizes = [
        f"{axis_name(axis, letters)} >= {axis.padded}"
        for k, axis in enumerate(layout.axes)
        if axis.padded % layout.outer(k).step
    ]
    statements += [If(" or ".join(gaps), (Missing(),))] if gaps else []
    statements += names
    statements += [If(" or ".join(sizes), (Missing(),))] if sizes else []
    return (*statements, Found(tuple(letters), inside))


def _dims_of_digits(
    layout: Layout, digits: dict[Block, str], letters: str
) -> tuple[list[Let], str]:
    """Return definitions of the dims' indices from the axes' digits, and the test for data."""
    lets: list[Let] = []
    for k, axis in enumerate(layout.axes):
        index = axis_name(axis, letters)
        own = [(digits[block], block.step) for block in layout.axis_blocks(k) if block in digits]
        lets.append(Let(index, sum_of(0, own)))
        lets += dims_of_axis(axis, index, layout.dims, letters)[0]
    return lets, _is_data(layout, letters)


def _is_data(layout: Layout, letters: str) -> str:
    return " and ".join(
        f"{axis_name(axis, letters)} < {layout.axis_size(k)}"
        for k, axis in enumerate(layout.axes)
        if axis.padded > layout.axis_size(k)
    )


def _fill(layout: Layout, dtype: DataType, name: str, letters: str) -> Function | str:
    """Return loops over memory that fill it from a row-major array, or why there are none."""
    if any(block.stride == 0 and block.extent > 1 for block in layout.blocks):
        return f"No {name}_fill: a stride is 0, so several indices would write one element."
    loops = [block for block in sorted(layout.blocks, key=memory_order) if block.extent != 1]
    digits: dict[Block, str] = {}
    lets: list[Let] = []
    for k, axis in enumerate(layout.axes):
        index = axis_name(axis, letters)
        own = [block for block in layout.base().axis_blocks(k) if block in loops]
        for j, block in enumerate(own):
            digits[block] = index if len(own) == block.step == 1 else f"{index}{j}"
        if [digits[block] for block in own] != [index]:
            lets.append(Let(index, sum_of(0, [(digits[block], block.step) for block in own])))
        lets += dims_of_axis(axis, index, layout.dims, letters)[0]
    strides, stride = {}, 1
    for dim in reversed(range(layout.ndims)):
        strides[dim] = stride if layout.dims[dim] > 1 else 0
        stride *= layout.dims[dim]
    at_src = sum_of(0, [(letters[dim], strides[dim]) for dim in range(layout.ndims)])
    at_dst = sum_of(layout.offset0, [(digits[block], block.stride) for block in loops])
    if layout.xor:
        lets += [Let("base", at_dst), Let("to", xor_expression("base", layout.xor))]
        at_dst = "to"
    body = copy_element(dtype, (at_src, at_dst), _is_data(layout, letters))
    partial = " and ".join(
        f"{axis_name(axis, letters)} < {axis.padded}"
        for k, axis in enumerate(layout.axes)
        if axis.padded % layout.base().outer(k).step
    )
    if partial:
        body = (If(partial, body),)
    body = (*lets, *body)
    for block in reversed(loops):
        body = (Loop(digits[block], block.extent, body),)
    return Function(
        f"{name}_fill",
        (
            "Fill dst from a row-major array of the dims, and its padding with 0.",
            about_elements(dtype),
        ),
        "",
        (Parameter("src", dtype), Parameter("dst", dtype, is_written=True)),
        share_loops(body, dtype),
    )


def copy_element(dtype: DataType, offsets: tuple[str, str], is_data: str) -> tuple[Statement, ...]:
    """Return statements that move one element from src to dst, or write zero for padding."""
    at_src, at_dst = offsets
    if not dtype.is_packed:
        return (Store("dst", dtype, at_dst, element("src", dtype, at_src), is_data),)
    moved = (Let("at_src", at_src), Store("dst", dtype, at_dst, element("src", dtype, "at_src")))
    return (If(is_data, moved, (Store("dst", dtype, at_dst, "0"),)),) if is_data else moved


def about_elements(dtype: DataType) -> str:
    """Return the sentence of a comment that describes the elements of an array."""
    if dtype.is_packed:
        return f"Elements are {dtype}, two per byte, the even one in its low half."
    return f"Elements are {dtype}, or its bits."


def share_loops(body: tuple[Statement, ...], dtype: DataType) -> tuple[Statement, ...]:
    """Return a loop nest whose outermost loop the work items of a device share.

    If there is no loop, or two elements share a byte, one work item runs all of it.
    """
    first = body[0]
    if len(body) == 1 and isinstance(first, Loop) and not dtype.is_packed:
        return (first._replace(is_shared=True),)
    return (Once(body),)
