"""The block types of GGUF as rows of a table: the fields of a block, and the rule.

Source: `ggml-common.h` (the structs) and `gguf/quants.py` (order of operations) of
llama.cpp, as in the package gguf 0.19.

`gguf_codebooks.bin` has the numbers of `iq2xxs_grid`, `iq2xs_grid`, `iq2s_grid`, `iq3xxs_grid`,
`iq3s_grid` and `iq1s_grid` of the same `ggml-common.h` (MIT licence, copyright 2023-2026 The ggml
authors), one after the other. A number is stored as its index among the few distinct numbers of its
codebook, in 2 or 3 bits, lowest bit first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from types import MappingProxyType

import numpy as np

from memdesc.dtypes import DATA_TYPES
from memdesc.errors import MemdescError
from memdesc.layout import dim_name, layout_by_digits
from memdesc.record.field import Field, bits_of
from memdesc.record.rule import Codebook, Number, Rule
from memdesc.tuples import NamedTuple

TENSOR = "data"


class _BlockField(NamedTuple):
    """A field of a block; offsets and strides are in its elements, counted from the lowest bit."""

    name: str
    element: str
    # elements along the last dim that share one of this field
    group: int
    # offset of the first element in the block
    first: int
    # extents and strides of the loops over its elements in a block, slowest first
    digits: list[tuple[int, int]]
    # which of the field's elements for a group each element of the group uses: `Field.index`
    places: tuple[int, ...]


class GgufType(NamedTuple):
    """A GGUF type: the name of its record or data type, and the elements and bytes of a block.

    Block types have fields and a rule.
    """

    name: str
    block: int
    nbytes: int
    fields: tuple[_BlockField, ...] = ()
    rule: Rule | None = None

    def __str__(self) -> str:
        return self.name.removeprefix("gguf_").upper()


def _codebooks(**rows: tuple[int, int, tuple[int, ...]]) -> dict[str, Codebook]:
    """Read codebooks; each row gives the number of vectors, their size and the distinct numbers."""
    data = np.frombuffer(Path(__file__).with_name("gguf_codebooks.bin").read_bytes(), np.uint8)
    planes, made = np.unpackbits(data, bitorder="little"), {}
    for name, (count, size, numbers) in rows.items():
        bits = (len(numbers) - 1).bit_length()
        here, planes = np.split(planes, [count * size * bits])
        places = here.reshape(-1, bits) @ (1 << np.arange(bits))
        values = np.array(numbers, np.int8)[places].tobytes()
        made[name] = Codebook(size, values, tuple(range(size)))
    return made


# (sc + 1/2) / 4 = (2 sc + 1) / 8: exact, as are its products with d
_QUARTERS = tuple((2 * code + 1) / 8 for code in range(16))
# Five ternary digits in a byte: those of codes j, j + 32, ... in 32 bytes and of j, j + 16, ... in
# 16 bytes; four, of j, j + 4, ..., in the last 4 bytes.
_TERNARY = [
    (start + k % width, k // width)
    for start, width, count in ((0, 32, 160), (32, 16, 80), (48, 4, 16))
    for k in range(count)
]
# digit k is that after the point of code / 256 in base 3; from -1 to 1
_DIGITS = np.arange(256)[:, None] * 3 ** np.arange(5) % 256 * 3 // 256 - 1
# half of an f8_e4m3 without its sign bit; 0x7f, which is NaN there, is 0
_EXPONENT, _MANTISSA = np.arange(256) >> 3 & 15, np.arange(256) & 7
_HALF_E4M3 = (_MANTISSA + 8.0 * (_EXPONENT > 0)) * 2.0 ** (np.maximum(_EXPONENT, 1) - 11)
_HALF_E4M3[0x7F] = 0
# the signs of 8 elements, from 7 bits; the number of minus signs is even
_MINUS = np.arange(128)[:, None] >> np.arange(7) & 1
_SIGNS = 1 - 2 * np.hstack([_MINUS, _MINUS.sum(1, keepdims=True) & 1]).astype(np.int8)
# what codes stand for, by the name in formulas
_TABLES: Mapping[str, tuple[float, ...]] = {
    "quarters": _QUARTERS,
    "quarters_8": _QUARTERS[:8],
    "half_odd": tuple((2 * code + 1) / 4 for code in range(16)),
    "odd": tuple(2.0 * code + 1 for code in range(16)),
    "sign": (1, -1),
    # 1/8 is added or subtracted; here both are multiplied by 8
    "delta": (-1, 1),
    "iq4": (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113),
    # f4_e2m1 doubled, without -0.0; the scales are halved
    "e2m1": (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12),
    "half_e8m0": tuple(2.0 ** (code - 128) for code in range(256)),
    "half_e4m3": tuple(_HALF_E4M3.tolist()),
}
_BOOKS: Mapping[str, Codebook] = {
    **_codebooks(
        iq2_xxs=(256, 8, (8, 25, 43)),
        iq2_xs=(512, 8, (8, 25, 43)),
        iq2_s=(1024, 8, (8, 25, 43)),
        iq3_xxs=(256, 4, (4, 12, 20, 28, 36, 44, 52, 62)),
        iq3_s=(512, 4, (1, 3, 5, 7, 9, 11, 13, 15)),
        # multiplied by 8, because 1/8 is added to them or subtracted
        iq1=(2048, 8, (-8, 0, 8)),
    ),
    "seven_signs": Codebook(8, _SIGNS.tobytes(), tuple(range(8))),
    "ternary": Codebook(5, _DIGITS.astype(np.int8).tobytes(), tuple(k for _, k in _TERNARY)),
}
# A block type is a line of its name, its number in GGUF, the bytes and the elements of a block, and
# the formula; then follow its fields: type / group, @ first element, extent x stride of each loop.
# `qh_0..2` are three fields, each of which starts `+1` elements after the one before it.
_TABLE = """
q4_0 2 18/32: d * qs-8
  d f16/32 @0; qs u4 @4 2x1 16x2
q4_1 3 20/32: d * qs + m
  d f16/32 @0; m f16/32 @1; qs u4 @8 2x1 16x2
q5_0 6 22/32: d * qs|qh-16
  d f16/32 @0; qh u1 @16 32x1; qs u4 @12 2x1 16x2
q5_1 7 24/32: d * qs|qh + m
  d f16/32 @0; m f16/32 @1; qh u1 @32 32x1; qs u4 @16 2x1 16x2
q8_0 8 34/32: d * qs
  d f16/32 @0; qs s8 @2 32x1
q2_k 10 84/256: d * sc * qs - dmin * m
  sc u4/16 @0 16x2; m u4/16 @1 16x2; qs u2 @64 2x128 4x1 32x4; d f16/256 @40; dmin f16/256 @41
q3_k 11 110/256: d * sc_*-32 * qs|hmask-4
  hmask u1 @0 8x1 32x8; qs u2 @128 2x128 4x1 32x4; sc_low u4/16 @192 2x1 8x2;
  sc_high u2/16 @416 4x1 4x4; d f16/256 @54
q4_k 12 144/256: d * sc_* * qs - dmin * m_*
  d f16/256 @0; dmin f16/256 @1; sc_low u4/32 @8 2x16 4x2; sc_high u2/32 @18 2x1 4x4;
  m_low u4/32 @16 2x9 4x2; m_high u2/32 @34 2x1 4x4; qs u4 @32 4x64 2x1 32x2
q5_k 13 176/256: d * sc_* * qs|qh - dmin * m_*
  d f16/256 @0; dmin f16/256 @1; sc_low u4/32 @8 2x16 4x2; sc_high u2/32 @18 2x1 4x4;
  m_low u4/32 @16 2x9 4x2; m_high u2/32 @34 2x1 4x4; qh u1 @128 8x1 32x8; qs u4 @96 4x64 2x1 32x2
q6_k 14 210/256: d * sc * ql|qh-32
  ql u4 @0 2x128 2x1 64x2; qh u2 @512 2x128 4x1 32x4; sc s8/16 @192 16x1; d f16/256 @104
tq1_0 34 54/256: d * qs[ternary]
  qs u8/256 @0 52x1; d f16/256 @26
tq2_0 35 66/256: d * qs-1
  qs u2 @0 2x128 4x1 32x4; d f16/256 @32
iq1_s 19 50/256: d * sc_*[quarters_8] * (qs|qh_*[iq1] - delta[delta])
  d f16/256 @0; qs u8/8 @2 32x1; qh_0..2 u1/8 @272+1 8x16 4x3; sc_low u2/32 @142 8x8;
  sc_high u1/32 @286 8x16; delta u1/32 @287 8x16
iq1_m 29 56/256: d_*[f16] * sc_*[quarters_8] * (qs|qh_*[iq1] - delta[delta])
  qs u8/8 @0 32x1; qh_low u2/8 @128 32x2; qh_high u1/8 @258 32x4; delta u1/8 @259 32x4;
  sc_0..2 u1/16 @384+1 4x16 4x3; d_0..3 u4/256 @99+4
iq2_xxs 16 66/256: d * sc[quarters] * signs_*[seven_signs] * qs[iq2_xxs]
  d f16/256 @0; qs u8/8 @2 8x8 4x1; signs_0..6 u1/8 @48+1 8x64 4x7; sc u4/32 @19 8x16
iq2_xs 17 74/256: d * sc[quarters] * signs_*[seven_signs] * qs_*[iq2_xs]
  d f16/256 @0; qs_low u8/8 @2 32x2; qs_high u1/8 @24 32x16; signs_low u1/8 @25 32x16;
  signs_mid u2/8 @13 32x8; signs_high u4/8 @7 32x4; sc u4/16 @132 16x1
iq2_s 22 82/256: d * sc[quarters] * signs[sign] * qs|qh[iq2_s]
  d f16/256 @0; qs u8/8 @2 32x1; signs u1 @272 256x1; qh u2/8 @264 32x1; sc u4/16 @148 16x1
iq3_xxs 18 98/256: d * sc[half_odd] * signs_*[seven_signs] * qs[iq3_xxs]
  d f16/256 @0; qs u8/4 @2 64x1; signs_0..6 u1/8 @528+1 8x32 4x7; sc u4/32 @139 8x8
iq3_s 21 110/256: d * sc[odd] * signs[sign] * qs|qh[iq3_s]
  d f16/256 @0; qs u8/4 @2 64x1; qh u1/4 @528 64x1; signs u1 @592 256x1; sc u4/32 @212 8x1
iq4_nl 20 18/32: d * qs[iq4]
  d f16/32 @0; qs u4 @4 2x1 16x2
iq4_xs 23 136/256: d * sc_low|sc_high-32 * qs[iq4]
  d f16/256 @0; sc_high u2/32 @8 8x1; sc_low u4/32 @8 8x1; qs u4 @16 8x32 2x1 16x2
gguf_mxfp4 39 17/32: e[half_e8m0] * qs[e2m1]
  e u8/32 @0; qs u4 @2 2x1 16x2
gguf_nvfp4 40 36/64: d[half_e4m3] * qs[e2m1]
  d u8/16 @0 4x1; qs u4 @8 4x16 2x1 8x2
"""
_NUMBER = re.compile(r"(?P<fields>[\w*|]+)(?:-(?P<minus>\d+))?(?:\[(?P<name>\w+)\])?")
_RULE = re.compile(
    r"(?P<scale>\S+(?: \* \S+)*?) \* (?P<code>\(.*\)|[^\s(]+)(?: (?P<sign>[+-]) (?P<offset>.*))?"
)


def _number(fields: Sequence[_BlockField], text: str) -> Number:
    """Read fields, lowest bits first, what is subtracted, and a table; a star ends a prefix."""
    match = re.fullmatch(_NUMBER, text)
    assert match is not None, text  # noqa: S101 - the rows above are right
    parts, shift = [], 0
    for name in match["fields"].split("|"):
        for field in fields:
            if field.name == name or (name[-1] == "*" and field.name.startswith(name[:-1])):
                parts.append((field.name, shift))
                shift += bits_of(field.element)
    name = match["name"] or ""
    return Number(
        tuple(parts),
        int(match["minus"] or 0),
        _TABLES.get(name, ()),
        codebook=_BOOKS.get(name),
        kind="f16" if name == "f16" else "",
    )


def _rule(fields: Sequence[_BlockField], text: str) -> Rule:
    match = re.fullmatch(_RULE, text)
    assert match is not None, text  # noqa: S101 - the rows above are right
    read = partial(_number, fields)
    code, _, zero = match["code"].strip("()").partition(" - ")
    scale, offset = (
        tuple(map(read, filter(None, (match[part] or "").split(" * "))))
        for part in ("scale", "offset")
    )
    sign = -1 if match["sign"] == "-" else 1
    return Rule(read(code), scale, read(zero) if zero else None, offset, sign)


def _block_types() -> Iterator[tuple[int, GgufType]]:
    for text in re.split(r"\n(?=\w)", _TABLE.strip()):
        head, _, rest = text.partition("\n")
        name, number, sizes, formula = head.split(" ", 3)
        nbytes, block = map(int, sizes.strip(":").split("/"))
        fields = []
        for field in rest.split(";"):
            names, element, first, *loops = field.split()
            element, _, group = element.partition("/")
            digits = [(int(extent), int(step)) for extent, step in (x.split("x") for x in loops)]
            # ternary digits are not in the order of their bytes
            is_ternary = (name, names) == ("tq1_0", "qs")
            places = tuple(byte for byte, _ in _TERNARY) if is_ternary else ()
            start, _, step = first[1:].partition("+")
            stem, _, last = names.partition("0..")
            for k in range(int(last or 0) + 1):
                own = (f"{stem}{k}" if last else stem, element, int(group or 1))
                fields.append(_BlockField(*own, int(start) + k * int(step or 0), digits, places))
        yield int(number), GgufType(name, block, nbytes, tuple(fields), _rule(fields, formula))


_BLOCKS = dict(_block_types())
GGUF_TYPES: Mapping[str, GgufType] = MappingProxyType({row.name: row for row in _BLOCKS.values()})
_PLAIN = {0: "f32", 1: "f16", 24: "s8", 25: "s16", 26: "s32", 27: "s64", 28: "f64", 30: "bf16"}
# every type by its number, data types first
GGUF_NUMBERS: Mapping[int, GgufType] = MappingProxyType(
    {k: GgufType(name, 1, DATA_TYPES[name].nbytes(1)) for k, name in _PLAIN.items()} | _BLOCKS
)


def gguf_record(name: str, dims: tuple[int, ...]) -> tuple[tuple[Field, ...], Rule]:
    """Return the fields and the rule of a block type for some dims, with blocks along the last."""
    row, (*outer, size) = GGUF_TYPES[name], dims
    assert row.rule is not None  # noqa: S101 - for the type checker: it is a block type
    if size % row.block:
        raise MemdescError(
            f"{name} has blocks of {row.block} elements, which do not divide "
            f"{dim_name(len(outer))} of size {size}"
        )
    count, fields = size // row.block, []
    for own, element, group, first, digits, places in row.fields:
        stride = row.nbytes * 8 // bits_of(element)
        rows = [[(n, stride * count * prod(outer[k + 1 :]))] for k, n in enumerate(outer)]
        sizes = *outer, size // group * (max(places, default=0) + 1)
        layout = layout_by_digits(sizes, [*rows, [(count, stride), *digits]], first)
        groups = (*[1] * len(outer), group)
        fields.append(Field(own, element, layout, groups, TENSOR, places))
    return tuple(fields), row.rule
