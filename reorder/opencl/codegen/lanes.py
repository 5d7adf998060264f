"""Statements that convert the lanes of a pixel: between images, or an image and a buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc import DATA_TYPES
from reorder.opencl.codegen.conversion import BETA
from reorder.opencl.codegen.convert import PIXEL, converted, operand_value
from reorder.opencl.codegen.element_types import ELEMENT_TYPES, from_value, to_value
from reorder.opencl.codegen.integer_codec import integer_value
from reorder.opencl.codegen.pattern import AccessKind
from reorder.opencl.codegen.words import load_words, one_element, store_element, store_words
from reorder.values.formats import FORMATS, IntegerFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reorder.opencl.codegen.conversion import Conversion
    from reorder.opencl.codegen.pattern import Pattern

__all__ = ["code_of_lane", "lane_of_code", "load_lanes", "store_lanes"]


def load_lanes(
    pattern: Pattern, conversion: Conversion, value: str, start: Callable[[str], str]
) -> Iterator[str]:
    """Return the statements that load and convert the lanes of a pixel into a value.

    `start` returns the offset of the first lane in an operand, or its column and row.
    """
    reads_image = pattern.src.kind == AccessKind.IMAGE
    if reads_image:
        element = ELEMENT_TYPES[pattern.src.element]
        pixel = f"read_image{element.image_suffix}(src, {start('src')})"
        yield f"const {element.value}4 pixel = {pixel};"
    bits = DATA_TYPES[conversion.src].bits
    if pattern.src.kind == AccessKind.VECTOR:
        yield "uint x0, x1, x2, x3;"
        yield from load_words("src", start("src"), bits, [f"x{k}" for k in range(4)])
    for k, lane in enumerate(pattern.lanes):
        if lane < 0:
            continue
        if reads_image:
            code = code_of_lane(pattern.src.element, f"pixel.s{lane}")
        elif pattern.src.kind == AccessKind.VECTOR:
            code = f"x{k}"
        else:
            code = one_element("src", _lane("src", start("src"), k), bits)

        def operand(role: str, k: int = k) -> str:
            at = _lane(role, start(role), k) if role in conversion.varying else ""
            return operand_value(conversion, role, at)

        old = ""
        if BETA in conversion.roles:
            first = start("dst")
            is_vector = pattern.dst.kind == AccessKind.VECTOR
            at = f"{first} + {k}" if is_vector else _lane("dst", first, k)
            old = one_element("dst", at, DATA_TYPES[conversion.dst].bits)
        result = converted(conversion, code, operand, old)
        if pattern.dst.kind == AccessKind.IMAGE:
            result = lane_of_code(pattern.dst.element, conversion.dst, result)
        yield f"{value}.s{k} = {result};"


def store_lanes(pattern: Pattern, conversion: Conversion, value: str, start: str) -> Iterator[str]:
    """Return the statements that store the bits of the lanes of a value in a buffer."""
    bits = DATA_TYPES[conversion.dst].bits
    lanes = [f"{value}.s{k}" for k in range(len(pattern.lanes))]
    if pattern.dst.kind == AccessKind.VECTOR:
        yield from store_words("dst", start, bits, lanes)
        return
    for k, lane in enumerate(lanes):
        yield store_element("dst", _lane("dst", start, k), bits, lane)


def _lane(operand: str, start: str, k: int) -> str:
    return f"{start} + p.{operand}_lane{k}" if k else start


def code_of_lane(element: str, lane: str) -> str:
    """Return the bits of a lane of an image; floats are read as f32."""
    if element == "unorm8":
        return f"(uint){from_value(element, lane, '')}"
    if ELEMENT_TYPES[element].value == "float":
        return f"as_uint({lane})"
    return f"((uint){lane} & {(1 << DATA_TYPES[element].bits) - 1:#x}u)"


def lane_of_code(element: str, dtype: str, code: str) -> str:
    """Return what an image is written with, from the bits of an element."""
    if element == "unorm8":
        return to_value(element, f"(uchar)({code})", "")
    form = FORMATS[dtype]
    if isinstance(form, IntegerFormat):
        return f"({ELEMENT_TYPES[element].value}){integer_value(f'({code})', form)}"
    return f"as_float({code})" if dtype == "f32" else f"{PIXEL}({code})"
