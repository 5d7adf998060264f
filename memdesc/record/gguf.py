"""The block types of GGUF as rows of a table: the fields of a block, and the rule.

Source: `ggml-common.h` (the structs) and `gguf/quants.py` (order of operations) of
llama.cpp, as in the package gguf 0.19.

`gguf_codebooks.bin` has the numbers of `iq2xxs_grid`, `iq2xs_grid`, `iq2s_grid`, `iq3xxs_grid`,
`iq3s_grid` and `iq1s_grid` of the same `ggml-common.h` (MIT licence, copyright 2023-2026 The ggml
authors), one after the other. A number is stored as its index among the few distinct numbers of its
codebook, in 2 or 3 bits, lowest bit first.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from memdesc.dtypes import DATA_TYPES
from memdesc.errors import MemdescError
from memdesc.layout import Block, Layout, dim_name, single_axes
from memdesc.record.field import BIT_PLANES, Field
from memdesc.record.rule import Codebook, Digits, Number, Rule

TENSOR = "data"


class _BlockField(NamedTuple):
    """A field of a block; offsets and strides are in its elements, counted from the lowest bit."""

    name: str
    kind: str
    # elements along the last dim that share one of this field
    group: int
    # offset of the first element in the block
    first: int
    # extents and strides of the loops over its elements in a block, slowest first
    digits: tuple[tuple[int, int], ...] = ()
    # which of the field's elements for a group each element of the group uses: `Field.index`
    places: tuple[int, ...] = ()


class _BlockType(NamedTuple):
    """A block type: bytes and elements (along the last dim) of a block, its fields and the rule."""

    nbytes: int
    block: int
    fields: tuple[_BlockField, ...]
    rule: Rule


class GgufType(NamedTuple):
    """A GGUF type: the name of its record or data type, and the elements and bytes of a block."""

    name: str
    block: int
    nbytes: int

    def __str__(self) -> str:
        return self.name.removeprefix("gguf_").upper()


def _number(*names: str, minus: int = 0, table: tuple[float, ...] = ()) -> Number:
    """Return the number that fields make, lowest bits first; `name:bits` gives their widths."""
    return Number(_joined(*names), minus, table)


def _joined(*names: str) -> tuple[tuple[str, int], ...]:
    parts, shift = [], 0
    for name in names:
        field, _, bits = name.partition(":")
        parts.append((field, shift))
        shift += int(bits or 0)
    return tuple(parts)


_D, _M = _number("d"), _number("m")
_SCALE, _MIN = _number("sc_low:4", "sc_high"), _number("m_low:4", "m_high")

# bytes with the two codes j and j + 16
_HALVES = ((2, 1), (16, 2))
# 32 bytes with the codes j and j + 32, four times; or 2-bit codes j, j + 32, j + 64, j + 96, twice
_NIBBLES_32, _PAIRS_32 = ((4, 64), (2, 1), (32, 2)), ((2, 128), (4, 1), (32, 4))
# 32 bytes with the highest bits of the codes j, j + 32, ..., j + 224
_PLANES_32 = ((8, 1), (32, 8))

# Eight 6-bit scales and eight mins in 12 bytes. Bytes 0 to 7 hold the first four of each; of the
# others, bytes 8 to 11 hold the low bits, and the top bits of bytes 0 to 7 the high bits.
_SIX_BIT = (
    _BlockField("sc_low", "u4", 32, 8, ((2, 16), (4, 2))),
    _BlockField("sc_high", "u2", 32, 18, ((2, 1), (4, 4))),
    _BlockField("m_low", "u4", 32, 16, ((2, 9), (4, 2))),
    _BlockField("m_high", "u2", 32, 34, ((2, 1), (4, 4))),
)


def _scaled_twice(code: Number) -> Rule:
    """Return the rule for 6-bit scales and mins, each of which is scaled again."""
    return Rule(code, (_D, _SCALE), offset=(_number("dmin"), _MIN), sign=-1)


# f4_e2m1 doubled, without -0.0; the scales are halved
_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
_HALF_E8M0 = tuple(2.0 ** (code - 128) for code in range(256))
_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def _half_e4m3(code: int) -> float:
    """Return half of an f8_e4m3 without its sign bit; 0x7f is 0."""
    exponent, mantissa = code >> 3 & 15, code & 7
    if code == 0x7F:  # noqa: PLR2004 - the code of NaN
        return 0.0
    value = (8 + mantissa) * 2.0 ** (exponent - 10) if exponent else mantissa * 2.0**-9
    return value / 2


_HALF_E4M3 = tuple(map(_half_e4m3, range(256)))


def _codebooks(*rows: tuple[int, int, tuple[int, ...]]) -> list[Codebook]:
    """Read codebooks; each row gives the number of vectors, their size and the distinct numbers."""
    data = np.frombuffer(Path(__file__).with_name("gguf_codebooks.bin").read_bytes(), np.uint8)
    planes, made = np.unpackbits(data, bitorder="little"), []
    for count, size, numbers in rows:
        bits = (len(numbers) - 1).bit_length()
        here, planes = np.split(planes, [count * size * bits])
        places = here.reshape(-1, bits) @ (1 << np.arange(bits))
        made.append(
            Codebook(size, np.array(numbers, np.int8)[places].tobytes(), tuple(range(size)))
        )
    return made


# those of iq1 are multiplied by 8, because 1/8 is added to them or subtracted
_IQ2_XXS, _IQ2_XS, _IQ2_S, _IQ3_XXS, _IQ3_S, _IQ1 = _codebooks(
    (256, 8, (8, 25, 43)),
    (512, 8, (8, 25, 43)),
    (1024, 8, (8, 25, 43)),
    (256, 4, (4, 12, 20, 28, 36, 44, 52, 62)),
    (512, 4, (1, 3, 5, 7, 9, 11, 13, 15)),
    (2048, 8, (-8, 0, 8)),
)


def _seven_signs(*names: str) -> Number:
    """Return the signs of 8 elements, from 7 bits; the number of minus signs is even."""
    codes = np.arange(128)[:, None] >> np.arange(7) & 1
    minus = np.hstack([codes, codes.sum(1, keepdims=True) & 1])
    book = Codebook(8, (1 - 2 * minus).astype(np.int8).tobytes(), tuple(range(8)))
    return Number(_joined(*names), codebook=book)


def _looked_up(book: Codebook, *names: str) -> Number:
    """Return a number that is looked up in a codebook."""
    return Number(_joined(*names), codebook=book)


def _planes(
    name: str, count: int, group: int, first: int, digits: tuple[tuple[int, int], ...]
) -> tuple[_BlockField, ...]:
    """Return one field for each bit of codes that cross bytes."""
    return tuple(_BlockField(f"{name}_{k}", "u1", group, first + k, digits) for k in range(count))


_SEVEN = tuple(f"signs_{k}:1" for k in range(7))
_SIGN = _number("signs", table=(1, -1))
# 1/8 is added or subtracted; here both are multiplied by 8
_DELTA = _number("delta", table=(-1, 1))
# (sc + 1/2) / 4 = (2 sc + 1) / 8, (sc + 1/2) / 2 and 2 sc + 1: exact, as are their products with d
_QUARTERS = tuple((2 * code + 1) / 8 for code in range(16))
_HALF_ODD = tuple((2 * code + 1) / 4 for code in range(16))
_ODD = tuple(2.0 * code + 1 for code in range(16))
# Five ternary digits in a byte: those of codes j, j + 32, ... in 32 bytes and of j, j + 16, ... in
# 16 bytes; four, of j, j + 4, ..., in the last 4 bytes.
_TERNARY = [
    (start + k % width, k // width)
    for start, width, count in ((0, 32, 160), (32, 16, 80), (48, 4, 16))
    for k in range(count)
]

# fmt: off
GGUF_TYPES: Mapping[str, _BlockType] = MappingProxyType({
    "q4_0": _BlockType(
        18, 32, (_BlockField("d", "f16", 32, 0), _BlockField("qs", "u4", 1, 4, _HALVES)),
        Rule(_number("qs", minus=8), (_D,))),
    "q4_1": _BlockType(
        20, 32, (
            _BlockField("d", "f16", 32, 0), _BlockField("m", "f16", 32, 1),
            _BlockField("qs", "u4", 1, 8, _HALVES)),
        Rule(_number("qs"), (_D,), offset=(_M,))),
    "q5_0": _BlockType(
        22, 32, (
            _BlockField("d", "f16", 32, 0), _BlockField("qh", "u1", 1, 16, ((32, 1),)),
            _BlockField("qs", "u4", 1, 12, _HALVES)),
        Rule(_number("qs:4", "qh", minus=16), (_D,))),
    "q5_1": _BlockType(
        24, 32, (
            _BlockField("d", "f16", 32, 0), _BlockField("m", "f16", 32, 1),
            _BlockField("qh", "u1", 1, 32, ((32, 1),)), _BlockField("qs", "u4", 1, 16, _HALVES)),
        Rule(_number("qs:4", "qh"), (_D,), offset=(_M,))),
    "q8_0": _BlockType(
        34, 32, (_BlockField("d", "f16", 32, 0), _BlockField("qs", "s8", 1, 2, ((32, 1),))),
        Rule(_number("qs"), (_D,))),
    "q2_k": _BlockType(
        84, 256, (
            _BlockField("sc", "u4", 16, 0, ((16, 2),)), _BlockField("m", "u4", 16, 1, ((16, 2),)),
            _BlockField("qs", "u2", 1, 64, _PAIRS_32), _BlockField("d", "f16", 256, 40),
            _BlockField("dmin", "f16", 256, 41)),
        Rule(_number("qs"), (_D, _number("sc")), offset=(_number("dmin"), _M), sign=-1)),
    "q3_k": _BlockType(
        110, 256, (
            _BlockField("hmask", "u1", 1, 0, _PLANES_32),
            _BlockField("qs", "u2", 1, 128, _PAIRS_32),
            _BlockField("sc_low", "u4", 16, 192, ((2, 1), (8, 2))),
            _BlockField("sc_high", "u2", 16, 416, ((4, 1), (4, 4))),
            _BlockField("d", "f16", 256, 54)),
        Rule(_number("qs:2", "hmask", minus=4), (_D, _number("sc_low:4", "sc_high", minus=32)))),
    "q4_k": _BlockType(
        144, 256, (
            _BlockField("d", "f16", 256, 0), _BlockField("dmin", "f16", 256, 1), *_SIX_BIT,
            _BlockField("qs", "u4", 1, 32, _NIBBLES_32)),
        _scaled_twice(_number("qs"))),
    "q5_k": _BlockType(
        176, 256, (
            _BlockField("d", "f16", 256, 0), _BlockField("dmin", "f16", 256, 1), *_SIX_BIT,
            _BlockField("qh", "u1", 1, 128, _PLANES_32),
            _BlockField("qs", "u4", 1, 96, _NIBBLES_32)),
        _scaled_twice(_number("qs:4", "qh"))),
    "q6_k": _BlockType(
        210, 256, (
            _BlockField("ql", "u4", 1, 0, ((2, 128), (2, 1), (64, 2))),
            _BlockField("qh", "u2", 1, 512, _PAIRS_32),
            _BlockField("sc", "s8", 16, 192, ((16, 1),)), _BlockField("d", "f16", 256, 104)),
        Rule(_number("ql:4", "qh", minus=32), (_D, _number("sc")))),
    "tq1_0": _BlockType(
        54, 256, (
            _BlockField("qs", "u8", 256, 0, ((52, 1),), tuple(byte for byte, _ in _TERNARY)),
            _BlockField("d", "f16", 256, 26)),
        Rule(
            Number(_joined("qs"), 1, codebook=Digits(3, tuple(digit for _, digit in _TERNARY))),
            (_D,))),
    "tq2_0": _BlockType(
        66, 256, (_BlockField("qs", "u2", 1, 0, _PAIRS_32), _BlockField("d", "f16", 256, 32)),
        Rule(_number("qs", minus=1), (_D,))),
    "iq1_s": _BlockType(
        50, 256, (
            _BlockField("d", "f16", 256, 0), _BlockField("qs", "u8", 8, 2, ((32, 1),)),
            *_planes("qh", 3, 8, 272, ((8, 16), (4, 3))),
            _BlockField("sc_low", "u2", 32, 142, ((8, 8),)),
            _BlockField("sc_high", "u1", 32, 286, ((8, 16),)),
            _BlockField("delta", "u1", 32, 287, ((8, 16),))),
        Rule(
            _looked_up(_IQ1, "qs:8", "qh_0:1", "qh_1:1", "qh_2"),
            (_D, _number("sc_low:2", "sc_high", table=_QUARTERS[:8])), _DELTA)),
    "iq1_m": _BlockType(
        56, 256, (
            _BlockField("qs", "u8", 8, 0, ((32, 1),)),
            _BlockField("qh_low", "u2", 8, 128, ((32, 2),)),
            _BlockField("qh_high", "u1", 8, 258, ((32, 4),)),
            _BlockField("delta", "u1", 8, 259, ((32, 4),)),
            *_planes("sc", 3, 16, 384, ((4, 16), (4, 3))),
            *(_BlockField(f"d_{k}", "u4", 256, 99 + 4 * k) for k in range(4))),
        Rule(
            _looked_up(_IQ1, "qs:8", "qh_low:2", "qh_high"),
            (Number(_joined("d_0:4", "d_1:4", "d_2:4", "d_3"), kind="f16"),
             _number("sc_0:1", "sc_1:1", "sc_2", table=_QUARTERS[:8])),
            _DELTA)),
    "iq2_xxs": _BlockType(
        66, 256, (
            _BlockField("d", "f16", 256, 0), _BlockField("qs", "u8", 8, 2, ((8, 8), (4, 1))),
            *_planes("signs", 7, 8, 48, ((8, 64), (4, 7))),
            _BlockField("sc", "u4", 32, 19, ((8, 16),))),
        Rule(
            _looked_up(_IQ2_XXS, "qs"),
            (_D, _number("sc", table=_QUARTERS), _seven_signs(*_SEVEN)))),
    "iq2_xs": _BlockType(
        74, 256, (
            _BlockField("d", "f16", 256, 0), _BlockField("qs_low", "u8", 8, 2, ((32, 2),)),
            _BlockField("qs_high", "u1", 8, 24, ((32, 16),)),
            _BlockField("signs_low", "u1", 8, 25, ((32, 16),)),
            _BlockField("signs_mid", "u2", 8, 13, ((32, 8),)),
            _BlockField("signs_high", "u4", 8, 7, ((32, 4),)),
            _BlockField("sc", "u4", 16, 132, ((16, 1),))),
        Rule(
            _looked_up(_IQ2_XS, "qs_low:8", "qs_high"),
            (_D, _number("sc", table=_QUARTERS),
             _seven_signs("signs_low:1", "signs_mid:2", "signs_high")))),
    "iq2_s": _BlockType(
        82, 256, (
            _BlockField("d", "f16", 256, 0), _BlockField("qs", "u8", 8, 2, ((32, 1),)),
            _BlockField("signs", "u1", 1, 272, ((256, 1),)),
            _BlockField("qh", "u2", 8, 264, ((32, 1),)),
            _BlockField("sc", "u4", 16, 148, ((16, 1),))),
        Rule(_looked_up(_IQ2_S, "qs:8", "qh"), (_D, _number("sc", table=_QUARTERS), _SIGN))),
    "iq3_xxs": _BlockType(
        98, 256, (
            _BlockField("d", "f16", 256, 0), _BlockField("qs", "u8", 4, 2, ((64, 1),)),
            *_planes("signs", 7, 8, 528, ((8, 32), (4, 7))),
            _BlockField("sc", "u4", 32, 139, ((8, 8),))),
        Rule(
            _looked_up(_IQ3_XXS, "qs"),
            (_D, _number("sc", table=_HALF_ODD), _seven_signs(*_SEVEN)))),
    "iq3_s": _BlockType(
        110, 256, (
            _BlockField("d", "f16", 256, 0), _BlockField("qs", "u8", 4, 2, ((64, 1),)),
            _BlockField("qh", "u1", 4, 528, ((64, 1),)),
            _BlockField("signs", "u1", 1, 592, ((256, 1),)),
            _BlockField("sc", "u4", 32, 212, ((8, 1),))),
        Rule(_looked_up(_IQ3_S, "qs:8", "qh"), (_D, _number("sc", table=_ODD), _SIGN))),
    "iq4_nl": _BlockType(
        18, 32, (_BlockField("d", "f16", 32, 0), _BlockField("qs", "u4", 1, 4, _HALVES)),
        Rule(_number("qs", table=_IQ4), (_D,))),
    "iq4_xs": _BlockType(
        136, 256, (
            _BlockField("d", "f16", 256, 0), _BlockField("sc_high", "u2", 32, 8, ((8, 1),)),
            _BlockField("sc_low", "u4", 32, 8, ((8, 1),)),
            _BlockField("qs", "u4", 1, 16, ((8, 32), *_HALVES))),
        Rule(_number("qs", table=_IQ4), (_D, _number("sc_low:4", "sc_high", minus=32)))),
    "gguf_mxfp4": _BlockType(
        17, 32, (_BlockField("e", "u8", 32, 0), _BlockField("qs", "u4", 1, 2, _HALVES)),
        Rule(_number("qs", table=_E2M1), (_number("e", table=_HALF_E8M0),))),
    "gguf_nvfp4": _BlockType(
        36, 64, (
            _BlockField("d", "u8", 16, 0, ((4, 1),)),
            _BlockField("qs", "u4", 1, 8, ((4, 16), (2, 1), (8, 2)))),
        Rule(_number("qs", table=_E2M1), (_number("d", table=_HALF_E4M3),))),
})

# Numbers of GGUF's types, with the names of data types and records here.
GGUF_NUMBERS: Mapping[int, str] = MappingProxyType({
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 10: "q2_k",
    11: "q3_k", 12: "q4_k", 13: "q5_k", 14: "q6_k", 16: "iq2_xxs", 17: "iq2_xs", 18: "iq3_xxs",
    19: "iq1_s", 20: "iq4_nl", 21: "iq3_s", 22: "iq2_s", 23: "iq4_xs", 24: "s8", 25: "s16",
    26: "s32", 27: "s64", 28: "f64", 29: "iq1_m", 30: "bf16", 34: "tq1_0", 35: "tq2_0",
    39: "gguf_mxfp4", 40: "gguf_nvfp4",
})
# fmt: on


def gguf_type(name: str) -> GgufType:
    """Return the GGUF type of a record or a data type."""
    row = GGUF_TYPES.get(name)
    if row is None:
        return GgufType(name, 1, DATA_TYPES[name].nbytes(1))
    return GgufType(name, row.block, row.nbytes)


def gguf_record(name: str, dims: tuple[int, ...]) -> tuple[tuple[Field, ...], Rule]:
    """Return the fields and the rule of a block type for some dims, with blocks along the last."""
    row = GGUF_TYPES[name]
    if dims[-1] % row.block:
        raise MemdescError(
            f"{name} has blocks of {row.block} elements, which do not divide "
            f"{dim_name(len(dims) - 1)} of size {dims[-1]}"
        )
    return tuple(_field(part, row, dims) for part in row.fields), row.rule


def _field(part: _BlockField, row: _BlockType, dims: tuple[int, ...]) -> Field:
    bits = BIT_PLANES.get(part.kind) or DATA_TYPES[part.kind].bits
    last = len(dims) - 1
    count = max(part.places) + 1 if part.places else 1
    step = row.block // part.group * count
    stride = row.nbytes * 8 // bits
    blocks = [Block(last, step, dims[-1] // row.block, stride)]
    for extent, inner in part.digits:
        step //= extent
        blocks.append(Block(last, step, extent, inner))
    outer = [
        Block(dim, 1, size, stride * (dims[-1] // row.block) * prod(dims[dim + 1 : -1]))
        for dim, size in enumerate(dims[:-1])
    ]
    sizes = (*dims[:-1], dims[-1] // part.group * count)
    layout = Layout(sizes, single_axes(sizes), (*outer, *blocks), part.first)
    return Field(part.name, part.kind, layout, (*[1] * last, part.group), TENSOR, part.places)
