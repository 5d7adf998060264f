"""The block types of GGUF as rows of a table: the fields of a block, and the rule.

Source: `ggml-common.h` (the structs) and `gguf/quants.py` (order of operations) of
llama.cpp, as in the package gguf 0.19.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from memdesc.dtypes import DATA_TYPES
from memdesc.errors import MemdescError
from memdesc.layout import Axis, Block, Layout, dim_name
from memdesc.record.desc import BIT_PLANES, Field, Number, Rule

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


class _BlockType(NamedTuple):
    """A block type: bytes and elements (along the last dim) of a block, its fields and the rule."""

    nbytes: int
    block: int
    fields: tuple[_BlockField, ...]
    rule: Rule


def _number(*names: str, minus: int = 0, table: tuple[float, ...] = ()) -> Number:
    """Return the number made of some fields, lowest bits first; `name:bits` says how many bits."""
    parts, shift = [], 0
    for name in names:
        field, _, bits = name.partition(":")
        parts.append((field, shift))
        shift += int(bits or 0)
    return Number(tuple(parts), minus, table)


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

GGUF_TYPES: dict[str, _BlockType] = {
    "q4_0": _BlockType(
        18,
        32,
        (_BlockField("d", "f16", 32, 0), _BlockField("qs", "u4", 1, 4, _HALVES)),
        Rule(_number("qs", minus=8), (_D,)),
    ),
    "q4_1": _BlockType(
        20,
        32,
        (
            _BlockField("d", "f16", 32, 0),
            _BlockField("m", "f16", 32, 1),
            _BlockField("qs", "u4", 1, 8, _HALVES),
        ),
        Rule(_number("qs"), (_D,), offset=(_M,)),
    ),
    "q5_0": _BlockType(
        22,
        32,
        (
            _BlockField("d", "f16", 32, 0),
            _BlockField("qh", "u1", 1, 16, ((32, 1),)),
            _BlockField("qs", "u4", 1, 12, _HALVES),
        ),
        Rule(_number("qs:4", "qh", minus=16), (_D,)),
    ),
    "q5_1": _BlockType(
        24,
        32,
        (
            _BlockField("d", "f16", 32, 0),
            _BlockField("m", "f16", 32, 1),
            _BlockField("qh", "u1", 1, 32, ((32, 1),)),
            _BlockField("qs", "u4", 1, 16, _HALVES),
        ),
        Rule(_number("qs:4", "qh"), (_D,), offset=(_M,)),
    ),
    "q8_0": _BlockType(
        34,
        32,
        (_BlockField("d", "f16", 32, 0), _BlockField("qs", "s8", 1, 2, ((32, 1),))),
        Rule(_number("qs"), (_D,)),
    ),
    "q2_k": _BlockType(
        84,
        256,
        (
            _BlockField("sc", "u4", 16, 0, ((16, 2),)),
            _BlockField("m", "u4", 16, 1, ((16, 2),)),
            _BlockField("qs", "u2", 1, 64, _PAIRS_32),
            _BlockField("d", "f16", 256, 40),
            _BlockField("dmin", "f16", 256, 41),
        ),
        Rule(_number("qs"), (_D, _number("sc")), offset=(_number("dmin"), _M), sign=-1),
    ),
    "q3_k": _BlockType(
        110,
        256,
        (
            _BlockField("hmask", "u1", 1, 0, _PLANES_32),
            _BlockField("qs", "u2", 1, 128, _PAIRS_32),
            _BlockField("sc_low", "u4", 16, 192, ((2, 1), (8, 2))),
            _BlockField("sc_high", "u2", 16, 416, ((4, 1), (4, 4))),
            _BlockField("d", "f16", 256, 54),
        ),
        Rule(_number("qs:2", "hmask", minus=4), (_D, _number("sc_low:4", "sc_high", minus=32))),
    ),
    "q4_k": _BlockType(
        144,
        256,
        (
            _BlockField("d", "f16", 256, 0),
            _BlockField("dmin", "f16", 256, 1),
            *_SIX_BIT,
            _BlockField("qs", "u4", 1, 32, _NIBBLES_32),
        ),
        _scaled_twice(_number("qs")),
    ),
    "q5_k": _BlockType(
        176,
        256,
        (
            _BlockField("d", "f16", 256, 0),
            _BlockField("dmin", "f16", 256, 1),
            *_SIX_BIT,
            _BlockField("qh", "u1", 1, 128, _PLANES_32),
            _BlockField("qs", "u4", 1, 96, _NIBBLES_32),
        ),
        _scaled_twice(_number("qs:4", "qh")),
    ),
    "q6_k": _BlockType(
        210,
        256,
        (
            _BlockField("ql", "u4", 1, 0, ((2, 128), (2, 1), (64, 2))),
            _BlockField("qh", "u2", 1, 512, _PAIRS_32),
            _BlockField("sc", "s8", 16, 192, ((16, 1),)),
            _BlockField("d", "f16", 256, 104),
        ),
        Rule(_number("ql:4", "qh", minus=32), (_D, _number("sc"))),
    ),
    "tq2_0": _BlockType(
        66,
        256,
        (_BlockField("qs", "u2", 1, 0, _PAIRS_32), _BlockField("d", "f16", 256, 32)),
        Rule(_number("qs", minus=1), (_D,)),
    ),
    "iq4_nl": _BlockType(
        18,
        32,
        (_BlockField("d", "f16", 32, 0), _BlockField("qs", "u4", 1, 4, _HALVES)),
        Rule(_number("qs", table=_IQ4), (_D,)),
    ),
    "iq4_xs": _BlockType(
        136,
        256,
        (
            _BlockField("d", "f16", 256, 0),
            _BlockField("sc_high", "u2", 32, 8, ((8, 1),)),
            _BlockField("sc_low", "u4", 32, 8, ((8, 1),)),
            _BlockField("qs", "u4", 1, 16, ((8, 32), *_HALVES)),
        ),
        Rule(_number("qs", table=_IQ4), (_D, _number("sc_low:4", "sc_high", minus=32))),
    ),
    "gguf_mxfp4": _BlockType(
        17,
        32,
        (_BlockField("e", "u8", 32, 0), _BlockField("qs", "u4", 1, 2, _HALVES)),
        Rule(_number("qs", table=_E2M1), (_number("e", table=_HALF_E8M0),)),
    ),
    "gguf_nvfp4": _BlockType(
        36,
        64,
        (
            _BlockField("d", "u8", 16, 0, ((4, 1),)),
            _BlockField("qs", "u4", 1, 8, ((4, 16), (2, 1), (8, 2))),
        ),
        Rule(_number("qs", table=_E2M1), (_number("d", table=_HALF_E4M3),)),
    ),
}


def gguf_record(name: str, dims: tuple[int, ...]) -> tuple[tuple[Field, ...], Rule]:
    """Return the fields and the rule of a block type for some dims, with blocks along the last one.

    Raises
    ------
    MemdescError
        If the last dim is not a multiple of the block.
    """
    row = GGUF_TYPES[name]
    if dims[-1] % row.block:
        msg = (
            f"{name} has blocks of {row.block} elements, which do not divide "
            f"{dim_name(len(dims) - 1)} of size {dims[-1]}"
        )
        raise MemdescError(msg)
    return tuple(_field(part, row, dims) for part in row.fields), row.rule


def _field(part: _BlockField, row: _BlockType, dims: tuple[int, ...]) -> Field:
    bits = BIT_PLANES.get(part.kind) or DATA_TYPES[part.kind].bits
    last = len(dims) - 1
    step = row.block // part.group
    stride = row.nbytes * 8 // bits
    blocks = [Block(last, step, dims[-1] // row.block, stride)]
    for extent, inner in part.digits:
        step //= extent
        blocks.append(Block(last, step, extent, inner))
    outer = [
        Block(dim, 1, size, stride * (dims[-1] // row.block) * prod(dims[dim + 1 : -1]))
        for dim, size in enumerate(dims[:-1])
    ]
    sizes = (*dims[:-1], dims[-1] // part.group)
    axes = tuple(Axis((dim,), size) for dim, size in enumerate(sizes))
    layout = Layout(sizes, axes, (*outer, *blocks), part.first)
    return Field(part.name, part.kind, layout, (*[1] * last, part.group), TENSOR)
