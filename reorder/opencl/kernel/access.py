"""How kernels access elements: as bits or words in a buffer, as lanes of the pixels of an image.

Also the functions that load vectors that start at any byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memdesc.dtypes import BYTE_BITS
from memdesc.tuples import NamedTuple
from reorder.opencl.kernel.formula import PIXEL, WORD_BITS, integer_value
from reorder.values.formats import FORMATS, IntegerFormat

# bytes of a word, the unit of local memory, and of the widest load and store
WORD, VECTOR = 4, 16
# lanes of a pixel in registers
PIXEL_LANES = 4


# OpenCL C's type of a lane of an image, and the suffix of the functions that access it
_CHANNELS = {
    "f32": ("float", "f"),
    "f16": ("float", "f"),
    "s32": ("int", "i"),
    "s8": ("int", "i"),
    "u8": ("uint", "ui"),
    "unorm8": ("float", "f"),
}
# the type of an element of some bits; a byte holds two elements of 4 bits
_TYPES = {4: "uchar", 8: "uchar", 16: "ushort", 32: "uint", 64: "ulong", 128: "uint4"}


class Mode:
    """How a kernel accesses an operand; not an enum, because plans compare it often."""

    NONE = "none"  # zeros are written, nothing is read
    ELEMENTS = "elements"  # a buffer, element by element
    VECTOR = "vector"  # a buffer whose lanes are contiguous and aligned
    IMAGE = "image"


class Access(NamedTuple):
    """How an operand is read or written: its `Mode`, and the bits of an element.

    An image has a `channel`: the data type of its lanes, or ``unorm8`` for bytes that stand for
    numbers from 0 to 1. With slices, it has `slice_rows` rows in each.
    """

    mode: str
    bits: int
    channel: str = ""
    slice_rows: int = 0
    is_array: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of an element; 0 if two are in a byte."""
        return self.bits // BYTE_BITS

    @property
    def element(self) -> str:
        """OpenCL C's type of an element in a buffer."""
        return _TYPES[self.bits]

    @property
    def image_type(self) -> str:
        """OpenCL C's type of an image."""
        if not self.slice_rows:
            return "image2d_t"
        return "image2d_array_t" if self.is_array else "image3d_t"

    @property
    def pixel_type(self) -> str:
        """OpenCL C's type of a pixel in registers."""
        return f"{_CHANNELS[self.channel][0]}4"

    @property
    def coords(self) -> tuple[str, ...]:
        """The suffixes of the names of its offset, or of its column and row."""
        return {Mode.NONE: (), Mode.IMAGE: ("_x", "_y")}.get(self.mode, ("",))

    def _place(self, column: str, row: str) -> str:
        place = f"(int2)({column}, {row})"
        return f"in_slice({place}, {self.slice_rows})" if self.slice_rows else place

    def read(self, image: str, column: str, row: str) -> str:
        """Return the expression of a pixel."""
        return f"read_image{_CHANNELS[self.channel][1]}({image}, {self._place(column, row)})"

    def code_of_lane(self, lane: str) -> str:
        """Return the bits of a lane, which is f32 if it is a float."""
        if self.channel == "unorm8":
            return f"(uint)convert_uchar_sat_rte({lane} * 255.0f)"
        if _CHANNELS[self.channel][0] == "float":
            return f"as_uint({lane})"
        return f"((uint){lane} & {(1 << self.bits) - 1:#x}u)"

    def pixel_of_codes(self, codes: Sequence[str], dtype: str) -> str:
        """Return the expression of a pixel, from the bits of its lanes."""
        lanes = [self._lane_of_code(code, dtype) for code in codes]
        lanes += ["0"] * (PIXEL_LANES - len(lanes))
        return f"({self.pixel_type})({', '.join(lanes)})"

    def write(self, image: str, column: str, row: str, pixel: str) -> str:
        """Return the statement that writes a pixel."""
        suffix = _CHANNELS[self.channel][1]
        return f"write_image{suffix}({image}, {self._place(column, row)}, {pixel});"

    def _lane_of_code(self, code: str, dtype: str) -> str:
        if self.channel == "unorm8":
            return f"convert_float((uchar)({code})) / 255.0f"
        form = FORMATS[dtype]
        if isinstance(form, IntegerFormat):
            return f"({_CHANNELS[self.channel][0]}){integer_value(f'({code})', form)}"
        return f"as_float({code})" if dtype == "f32" else f"{PIXEL}({code})"


# a scale or a zero point that differs along the dims; its role says its type
PARAMETER = Access(Mode.ELEMENTS, 0)


def integer_type(nbytes: int) -> str:
    """Return the type of an element of some bytes."""
    return _TYPES[nbytes * BYTE_BITS]


def vector_type(nbytes: int) -> str:
    """Return the type of a run of some bytes: an integer of at most a word, or words."""
    words = nbytes * BYTE_BITS // WORD_BITS
    return f"uint{words}" if words > 1 else integer_type(nbytes)


def address_of(operand: str, offset: str, bits: int) -> str:
    """Return the address of an element, or of the byte that has it."""
    return f"{operand} + (({offset}) >> 1)" if bits < BYTE_BITS else f"{operand} + ({offset})"


def load_words(operand: str, offset: str, bits: int, names: list[str]) -> Iterator[str]:
    """Return the statements that load aligned, contiguous elements into names, two or more."""
    nbytes = bits * len(names) // BYTE_BITS
    ctype = vector_type(nbytes)
    address = f"(__global const {ctype} *)({address_of(operand, offset, bits)})"
    yield f"const {ctype} {operand}_words = *{address};"
    for k, name in enumerate(names):
        yield f"{name} = {element_of(f'{operand}_words', k, bits, nbytes)};"


def element_of(vector: str, k: int, bits: int, nbytes: int) -> str:
    """Return the bits of an element of a vector of words, or of an integer."""
    words, at = nbytes // WORD, k * bits
    if bits > WORD_BITS:
        return f"upsample({vector}.s{2 * k + 1:x}, {vector}.s{2 * k:x})"
    word = word_of(vector, at // WORD_BITS, words)
    return word if bits == WORD_BITS else f"({word} >> {at % WORD_BITS} & {(1 << bits) - 1:#x})"


def word_of(vector: str, index: int, words: int) -> str:
    """Return a word of a vector of words, or all of an integer."""
    return f"{vector}.s{index}" if words > 1 else vector


def words_of(names: Sequence[str], bits: int) -> list[str]:
    """Return the words of the bits of contiguous elements."""
    if bits > WORD_BITS:
        return [part for of in names for part in (f"(uint){of}", f"(uint)({of} >> {WORD_BITS})")]
    count = WORD_BITS // bits
    return [
        " | ".join(f"{of} << {j * bits}" if j else of for j, of in enumerate(names[k : k + count]))
        for k in range(0, len(names), count)
    ]


def store_words(operand: str, offset: str, bits: int, names: list[str]) -> Iterator[str]:
    """Return the statement that stores contiguous elements at an aligned offset."""
    ctype = vector_type(bits * len(names) // BYTE_BITS)
    to = address_of(operand, offset, bits)
    yield f"*(__global {ctype} *)({to}) = ({ctype})({', '.join(words_of(names, bits))});"


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


# Three aligned pairs of words hold any 16 bytes that start in the first; two vectors are slower.
PAIRS_NBYTES = 24

SHIFTS = (
    "uint funnel(uint low, uint high, uint shift)",
    "{ return (uint)(((ulong)high << 32 | low) >> shift); }",
    # offsets and counts are in bits
    "uint4 shifted(uint2 a, uint2 b, uint2 c, uint at) {",
    "    const int is_odd = at & 32;",
    "    const uint shift = at & 31;",
    "    const uint y0 = is_odd ? a.y : a.x, y1 = is_odd ? b.x : a.y, y2 = is_odd ? b.y : b.x;",
    "    const uint y3 = is_odd ? c.x : b.y, y4 = is_odd ? c.y : c.x;",
    "    return (uint4)(funnel(y0, y1, shift), funnel(y1, y2, shift),",
    "                   funnel(y2, y3, shift), funnel(y3, y4, shift));",
    "}",
    "uint bits(int count)",
    "{ return count >= 32 ? 0xffffffffu : count <= 0 ? 0u : (1u << count) - 1; }",
    # the first `count` bits of a vector, and zeros
    "uint4 first_bits(uint4 v, int count) {",
    "    return v & (uint4)(bits(count), bits(count - 32), bits(count - 64), bits(count - 96));",
    "}",
    # a vector of local memory
    "uint4 words(__local const uint *tile, int from) {",
    "    __local const uint *at = tile + (from >> 5);",
    "    const uint shift = from & 31;",
    "    return (uint4)(funnel(at[0], at[1], shift), funnel(at[1], at[2], shift),",
    "                   funnel(at[2], at[3], shift), funnel(at[3], at[4], shift));",
    "}",
    "__global const uint2 *aligned(__global const void *from)",
    "{ return (__global const uint2 *)((uintptr_t)from & ~(uintptr_t)7); }",
)
