"""How kernels access elements: as values, as pixels of an image, or as words of a buffer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from memdesc.dtypes import BYTE_BITS
from reorder.opencl.kernel.formula import PIXEL, WORD_BITS, integer_value
from reorder.values.formats import FORMATS, IntegerFormat

# bytes of a word, the unit of local memory, and of the widest load and store
WORD, VECTOR = 4, 16


class ElementType(NamedTuple):
    """The type of an element in a buffer, the type of its value, the suffix of image functions.

    A fraction is a byte that stands for a number from 0 to 1.
    """

    memory: str
    value: str
    image_suffix: str = ""
    is_fraction: bool = False

    @property
    def is_raw(self) -> bool:
        """Whether elements are moved as bits, without conversion; images have no such type."""
        return not self.image_suffix

    @property
    def is_half(self) -> bool:
        """Whether elements are halves, which need special load and store functions."""
        return self.memory == "half"

    def to_value(self, expression: str, width: str) -> str:
        """Return the expression that converts a loaded element, or `width` of them, to a value."""
        if self.is_fraction:
            return f"convert_float{width}({expression}) / 255.0f"
        if self.memory == self.value or self.is_half:
            return expression
        return f"convert_{self.value}{width}({expression})"

    def from_value(self, expression: str, width: str) -> str:
        """Return the expression that converts a value, or `width` of them, for a store."""
        if self.is_fraction:
            return f"convert_uchar{width}_sat_rte({expression} * 255.0f)"
        if self.memory == self.value:
            return expression
        return f"convert_{self.memory}{width}({expression})"

    def load(self, memory: str, at: str) -> str:
        """Return the value of the element at an offset in memory."""
        if self.is_half:
            return f"vload_half({at}, {memory})"
        return self.to_value(_place(memory, at), "")

    def store(self, memory: str, at: str, value: str) -> str:
        """Return the statement that stores a value at an offset in memory."""
        if self.is_half:
            return f"vstore_half_rte({value}, {at}, {memory});"
        return f"{_place(memory, at)} = {self.from_value(value, '')};"


def _place(memory: str, at: str) -> str:
    return f"*{memory}" if at == "0" else f"{memory}[{at}]"


# elements of images, and of buffers in the same kernel
_CHANNELS = {
    "f32": ElementType("float", "float", "f"),
    "f16": ElementType("half", "float", "f"),
    "s32": ElementType("int", "int", "i"),
    "s8": ElementType("char", "int", "i"),
    "u8": ElementType("uchar", "uint", "ui"),
    "unorm8": ElementType("uchar", "float", "f", is_fraction=True),
}
# bits of an element that moves as it is; a byte holds two elements of 4 bits
_RAW = {
    4: ElementType("uchar", "uchar"),
    8: ElementType("uchar", "uchar"),
    16: ElementType("ushort", "ushort"),
    32: ElementType("uint", "uint"),
    64: ElementType("ulong", "ulong"),
    128: ElementType("uint4", "uint4"),
}


class AccessKind:
    """How a kernel accesses an operand.

    Constants, not an enum, since they are compared often while a reorder is planned.
    """

    NONE = "none"  # zeros are written, nothing is read
    BUFFER = "buffer"
    VECTOR = "vector"  # a buffer whose lanes are contiguous and aligned
    IMAGE = "image"


class Access(NamedTuple):
    """How an operand is read or written.

    `kind` is one of `AccessKind`, `bits` is the width of an element. If kernels read its value,
    `channel` names its type, such as ``f16`` or ``unorm8``; otherwise its bits move. An image with
    slices has `slice_rows` rows in each.
    """

    kind: str
    bits: int
    channel: str = ""
    slice_rows: int = 0
    is_array: bool = False

    @property
    def image_type(self) -> str:
        """OpenCL C's type of an image."""
        if not self.slice_rows:
            return "image2d_t"
        return "image2d_array_t" if self.is_array else "image3d_t"

    def pixel(self, coords: str) -> str:
        """Return the coordinates that OpenCL's functions take, given an int2 of column and row."""
        if not self.slice_rows:
            return coords
        return f"in_slice({coords}, {self.slice_rows})"

    @property
    def nbytes(self) -> int:
        """Bytes of an element; 0 if two are in a byte."""
        return self.bits // BYTE_BITS

    @property
    def element(self) -> ElementType:
        """Type of an element."""
        return _CHANNELS[self.channel] if self.channel else _RAW[self.bits]


# a scale or a zero point that differs along the dims; its role says its type
PARAMETER = Access(AccessKind.BUFFER, 0)


def code_of_lane(access: Access, lane: str) -> str:
    """Return the bits of a lane of an image, which is f32 if it is a float."""
    element = access.element
    if element.is_fraction:
        return f"(uint){element.from_value(lane, '')}"
    if element.value == "float":
        return f"as_uint({lane})"
    return f"((uint){lane} & {(1 << access.bits) - 1:#x}u)"


def lane_of_code(access: Access, dtype: str, code: str) -> str:
    """Return the value to write to an image, from the bits of an element."""
    element = access.element
    if element.is_fraction:
        return element.to_value(f"(uchar)({code})", "")
    form = FORMATS[dtype]
    if isinstance(form, IntegerFormat):
        return f"({element.value}){integer_value(f'({code})', form)}"
    return f"as_float({code})" if dtype == "f32" else f"{PIXEL}({code})"


def integer_type(nbytes: int) -> str:
    """Return the type of an element of some bytes."""
    return _RAW[nbytes * BYTE_BITS].memory


def vector_type(nbytes: int) -> str:
    """Return the type of a run of some bytes: an integer of at most a word, or words."""
    words = nbytes * BYTE_BITS // WORD_BITS
    return f"uint{words}" if words > 1 else integer_type(nbytes)


def _at(operand: str, offset: str, bits: int) -> str:
    return f"{operand} + (({offset}) >> 1)" if bits < BYTE_BITS else f"{operand} + ({offset})"


def load_words(operand: str, offset: str, bits: int, names: list[str]) -> Iterator[str]:
    """Return the statements that load aligned, contiguous elements into names, two or more."""
    total = bits * len(names)
    kind = vector_type(total // BYTE_BITS)
    address = f"(__global const {kind} *)({_at(operand, offset, bits)})"
    yield f"const {kind} {operand}_words = *{address};"
    for k, name in enumerate(names):
        word = f"{operand}_words" + (f".s{k * bits // WORD_BITS:x}" if total > WORD_BITS else "")
        if bits > WORD_BITS:
            pair = f"{operand}_words.s{2 * k + 1:x}, {operand}_words.s{2 * k:x}"
            yield f"{name} = upsample({pair});"
        elif bits == WORD_BITS:
            yield f"{name} = {word};"
        else:
            shift = k * bits % WORD_BITS
            yield f"{name} = ({word} >> {shift}) & {(1 << bits) - 1:#x};"


def store_words(operand: str, offset: str, bits: int, names: list[str]) -> Iterator[str]:
    """Return the statement that stores contiguous elements at an aligned offset."""
    total = bits * len(names)
    if bits > WORD_BITS:
        words = [
            part for name in names for part in (f"(uint){name}", f"(uint)({name} >> {WORD_BITS})")
        ]
    else:
        each = max(WORD_BITS // bits, 1)
        words = [
            " | ".join(f"{name} << {j * bits}" for j, name in enumerate(names[k : k + each]))
            for k in range(0, len(names), each)
        ]
    kind = vector_type(total // BYTE_BITS)
    yield f"*(__global {kind} *)({_at(operand, offset, bits)}) = ({kind})({', '.join(words)});"


def one_element(operand: str, offset: str, bits: int) -> str:
    """Return the expression of the bits of one element."""
    if bits < BYTE_BITS:
        return f"(({operand}[({offset}) >> 1] >> ((({offset}) & 1) << 2)) & 15)"
    return f"{operand}[{offset}]"


def store_element(operand: str, offset: str, bits: int, name: str) -> str:
    """Return the statement that stores one element, which is half of a byte if it has 4 bits."""
    if bits < BYTE_BITS:
        byte = f"{operand}[({offset}) >> 1]"
        shift = f"((({offset}) & 1) << 2)"
        return f"{byte} = (uchar)(({byte} & (240 >> {shift})) | {name} << {shift});"
    return f"{operand}[{offset}] = {name};"
