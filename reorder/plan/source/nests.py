"""The boxes of a plan as one function: a nest for each, tails as conditions, then compensation."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memdesc import MemdescError
from memdesc.extra import FACTORS, compensation_layout
from memdesc.source import language_of
from memdesc.source.layouts import about_elements, axis_name, check_name, dims_of_axis, share_loops
from memdesc.source.statements import (
    AddInt32,
    ClearBytes,
    Function,
    If,
    Let,
    Loop,
    Parameter,
    Store,
    digit_terms,
    element,
    joined_index,
    sum_of,
)
from memdesc.tags import LETTERS
from reorder.plan.source.arithmetic import HEAD, INCLUDES, converter_of

if TYPE_CHECKING:
    from memdesc import DataType, MemoryDesc
    from memdesc.source.statements import Statement
    from reorder.plan.nodes import Box, IndirectLoop
    from reorder.plan.source.arithmetic import Converter
    from reorder.values.binding import BoundAttr

__all__ = ["plan_source"]

# languages whose arithmetic is that of the reorder, bit for bit
_EXACT = ("c", "c++")
_INT32_BYTES = 4


def plan_source(
    descs: tuple[MemoryDesc, MemoryDesc],
    boxes: tuple[Box, ...],
    bound: BoundAttr,
    about: str,
    names: tuple[str, str],
) -> str:
    """Return the source code of a reorder.

    Parameters
    ----------
    descs : (MemoryDesc, MemoryDesc)
        Those of src and dst.
    boxes : tuple of Box
        The loop nests.
    bound : BoundAttr
        Scales, zero points, accumulation.
    about : str
        The attributes as text; empty if there are none.
    names : (str, str)
        The language, and what names of functions start with.

    Raises
    ------
    MemdescError
        If there is no such language, the name is not an identifier, or the language cannot compute
        what the reorder computes, the compensation of dst included.
    """
    src, dst = descs
    lang, name = names
    language = language_of(lang)
    check_name(name)
    if dst.compensation_spans and lang not in _EXACT:
        msg = (
            f"source in {lang} does not write the compensation that {dst!r} has; use "
            f"{' or '.join(map(repr, _EXACT))}, or with_extra(None)"
        )
        raise MemdescError(msg)
    made = None
    if src.dtype != dst.dtype or bound.is_arithmetic:
        if lang not in _EXACT:
            msg = (
                f"source in {lang} moves elements only, and this reorder computes {dst.dtype} from "
                f"{src.dtype}: arithmetic there may round in other ways; use "
                f"{' or '.join(map(repr, _EXACT))}"
            )
            raise MemdescError(msg)
        made = converter_of(src.dtype, dst.dtype, bound, language, name)
    computes = made is not None and bool(boxes)
    head = [f"Reorder src {src!r}", f"to dst {dst!r}", *([about] if about else [])]
    head += [
        f"{operand.role}: {' x '.join(map(str, operand.sizes))} numbers, row-major"
        for operand in bound.varying
    ]
    types = src.dtype, dst.dtype
    includes = list(language.head)
    if computes or dst.compensation_spans:
        includes = list(dict.fromkeys([*includes, *INCLUDES]))
    parts = [
        language.comment(head),
        includes,
        *([[HEAD], *made.functions] if made and computes else []),
        language.function(_function(boxes, types, name, made, _compensation(dst))),
    ]
    blank = "\n\n\n" if lang == "python" else "\n\n"
    return blank.join("\n".join(part) for part in parts if part) + "\n"


def _function(
    boxes: tuple[Box, ...],
    types: tuple[DataType, DataType],
    name: str,
    made: Converter | None,
    sums: tuple[Statement, ...],
) -> Function:
    src, dst = types
    body: list[Statement] = []
    for box in boxes:
        body += share_loops(_nest(box, types, made), dst)
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
            *(made.arrays if made else ()),
        ),
        tuple(body),
    )


def _nest(
    box: Box, types: tuple[DataType, DataType], made: Converter | None
) -> tuple[Statement, ...]:
    """Return the loops of a box."""
    count = len(box.offsets)
    terms: list[list[tuple[str, int]]] = [[] for _ in range(count)]
    lets: list[Let] = []
    valid = []
    loops = []
    for indirect in box.indirect:
        found, sizes = _indirect_terms(indirect, terms, lets)
        loops += found
        valid += sizes
    for k, node in enumerate(box.nodes):
        if node.extent > 1:
            loops.append((f"i{k}", node.extent))
            for operand, stride in enumerate(node.strides):
                terms[operand].append((f"i{k}", stride))
            if node.valid < node.extent:
                valid.append(f"i{k} < {node.valid}")
    offsets = [sum_of(box.offsets[k], terms[k]) for k in range(count)]
    if box.is_zero:
        body: tuple[Statement, ...] = (Store("dst", types[1], offsets[1], "0"),)
    else:
        body = _element(types, made, offsets, " and ".join(valid))
    body = (*lets, *body)
    for loop, extent in reversed(loops):
        body = (Loop(loop, extent, body),)
    return body


def _indirect_terms(
    loop: IndirectLoop, terms: list[list[tuple[str, int]]], lets: list[Let]
) -> tuple[list[tuple[str, int]], list[str]]:
    """Add the digits of an indirect loop to the terms of all operands.

    Returns its loops, over the axes of dst, and the conditions under which an index is not padding.
    """
    sizes = dict(loop.sizes)
    dims = [sizes.get(dim, 1) for dim in range(max(sizes) + 1)]
    loops, valid = [], []
    known = set()
    for axis, blocks in loop.dst:
        index = axis_name(axis, LETTERS)
        known.add(index)
        if axis.padded == 1:
            lets.append(Let(index, "0"))
        else:
            loops.append((index, axis.padded))
        lets += dims_of_axis(axis, index, dims, LETTERS)[0]
        size = 1
        for dim in axis.dims:
            size *= sizes[dim]
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
                lets.append(Let(index, joined))
            terms[operand] += digit_terms(index, blocks)
    return loops, valid


def _element(
    types: tuple[DataType, DataType], made: Converter | None, offsets: list[str], valid: str
) -> tuple[Statement, ...]:
    """Return the statements that write one element, or zero where it is padding."""
    src, dst = types
    at_src, at_dst, *params = offsets
    lets = (Let("at_src", at_src),) if src.is_packed else ()
    value = element("src", src, "at_src" if src.is_packed else at_src)
    if made is not None:
        arguments = [value]
        arguments += [f"{p.name}[{at}]" for p, at in zip(made.arrays, params, strict=True)]
        if made.takes_old:
            arguments.append(element("dst", dst, "at_dst" if dst.is_packed else at_dst))
        value = f"{made.name}({', '.join(arguments)})"
    if not (src.is_packed or dst.is_packed):
        return (Store("dst", dst, at_dst, value, valid),)
    moved = (*lets, Store("dst", dst, at_dst, value))
    return (If(valid, moved, (Store("dst", dst, at_dst, "0"),)),) if valid else moved


def _compensation(dst: MemoryDesc) -> tuple[Statement, ...]:
    """Return the statements that write the compensation after int8 weights; () without any."""
    layout = dst.layout
    found: list[Statement] = []
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
        body: tuple[Statement, ...] = (
            AddInt32("dst", sum_of(start, to), f"{FACTORS[name]} * dst[{sum_of(dst.offset0, at)}]"),
        )
        for dim in reversed(range(dst.ndims)):
            body = (Loop(names[dim], dst.dims[dim], body),)
        found += [ClearBytes("dst", start, _INT32_BYTES * prod(shape)), *body]
    return tuple(found)
