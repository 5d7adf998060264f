"""OpenCL C types of elements, and conversions between memory and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reorder.opencl.codegen.pattern import AccessKind

if TYPE_CHECKING:
    from reorder.opencl.codegen.pattern import Access, Pattern

__all__ = ["ELEMENTS", "Element", "from_value", "memory_type", "to_value", "value_type"]


class Element(NamedTuple):
    """The type of an element in a buffer, that of its value, the suffix of image functions."""

    memory: str
    value: str
    image_suffix: str

    @property
    def is_raw(self) -> bool:
        """Whether only bits are moved, which images do not hold."""
        return not self.image_suffix


ELEMENTS = {
    "f32": Element("float", "float", "f"),
    "f16": Element("half", "float", "f"),
    "s32": Element("int", "int", "i"),
    "s8": Element("char", "int", "i"),
    "u8": Element("uchar", "uint", "ui"),
    "unorm8": Element("uchar", "float", "f"),
    "b8": Element("uchar", "uchar", ""),
    "b16": Element("ushort", "ushort", ""),
    "b32": Element("uint", "uint", ""),
    "b64": Element("ulong", "ulong", ""),
    "b128": Element("uint4", "uint4", ""),
}


def memory_type(access: Access) -> str:
    """Return the type of an element in a buffer."""
    return ELEMENTS[access.element].memory


def value_type(pattern: Pattern) -> str:
    """Return the type of a value that a work item moves, without the number of its lanes."""
    access = pattern.dst if pattern.src.kind == AccessKind.NONE else pattern.src
    return ELEMENTS[access.element].value


def to_value(name: str, expression: str, width: str) -> str:
    """Return a loaded element, or a vector of `width` of them, as a value."""
    if name == "unorm8":
        return f"convert_float{width}({expression}) / 255.0f"
    element = ELEMENTS[name]
    if element.memory in (element.value, "half"):
        return expression
    return f"convert_{element.value}{width}({expression})"


def from_value(name: str, expression: str, width: str) -> str:
    """Return a value, or a vector of `width` values, as it is stored."""
    if name == "unorm8":
        return f"convert_uchar{width}_sat_rte({expression} * 255.0f)"
    element = ELEMENTS[name]
    if element.memory == element.value:
        return expression
    return f"convert_{element.memory}{width}({expression})"
