"""OpenCL C types of elements, and conversions between memory and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reorder.opencl.codegen.pattern import AccessKind

if TYPE_CHECKING:
    from reorder.opencl.codegen.pattern import Access, Pattern

__all__ = ["ELEMENT_TYPES", "ElementType", "from_value", "memory_type", "to_value", "value_type"]


class ElementType(NamedTuple):
    """The type of an element in a buffer, the type of its value, the suffix of image functions."""

    memory: str
    value: str
    image_suffix: str

    @property
    def is_raw(self) -> bool:
        """Whether elements are moved as bits, without conversion; images have no such type."""
        return not self.image_suffix


ELEMENT_TYPES = {
    "f32": ElementType("float", "float", "f"),
    "f16": ElementType("half", "float", "f"),
    "s32": ElementType("int", "int", "i"),
    "s8": ElementType("char", "int", "i"),
    "u8": ElementType("uchar", "uint", "ui"),
    "unorm8": ElementType("uchar", "float", "f"),
    "b4": ElementType("uchar", "uchar", ""),  # two in a byte
    "b8": ElementType("uchar", "uchar", ""),
    "b16": ElementType("ushort", "ushort", ""),
    "b32": ElementType("uint", "uint", ""),
    "b64": ElementType("ulong", "ulong", ""),
    "b128": ElementType("uint4", "uint4", ""),
}


def memory_type(access: Access) -> str:
    """Return the type of an element in a buffer."""
    return ELEMENT_TYPES[access.element].memory


def value_type(pattern: Pattern) -> str:
    """Return the type of the values that a work item moves, without the number of lanes."""
    access = pattern.dst if pattern.src.kind == AccessKind.NONE else pattern.src
    return ELEMENT_TYPES[access.element].value


def to_value(name: str, expression: str, width: str) -> str:
    """Return the expression that converts a loaded element, or `width` of them, to a value."""
    if name == "unorm8":
        return f"convert_float{width}({expression}) / 255.0f"
    element = ELEMENT_TYPES[name]
    if element.memory in (element.value, "half"):
        return expression
    return f"convert_{element.value}{width}({expression})"


def from_value(name: str, expression: str, width: str) -> str:
    """Return the expression that converts a value, or `width` of them, for a store."""
    if name == "unorm8":
        return f"convert_uchar{width}_sat_rte({expression} * 255.0f)"
    element = ELEMENT_TYPES[name]
    if element.memory == element.value:
        return expression
    return f"convert_{element.memory}{width}({expression})"
