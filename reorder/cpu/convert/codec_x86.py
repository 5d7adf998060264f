"""Instructions of AVX-512 that LLVM does not choose by itself, for registers of f32 and s32."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from llvmlite import ir

from reorder.cpu.convert.vectors import BFLOAT, GROUP
from reorder.cpu.kernels.shuffle import LANE_BITS, concatenate, pick
from reorder.cpu.target import BYTE_BITS, LINE_BITS, has_masks
from reorder.values.formats import IntegerFormat

if TYPE_CHECKING:
    from reorder.cpu.convert.vectors import Vectors
    from reorder.cpu.kernels.emit import Value

__all__ = [
    "are_special",
    "narrow_integers",
    "narrows_registers",
    "round_to_bfloat",
    "rounded",
    "truncated",
]

_I32 = ir.IntType(32)
# classes of numbers that the instruction vfpclassps tests: quiet NaN, denormal, signalling NaN
_NAN_OR_DENORMAL = 0x01 | 0x20 | 0x80
# of an instruction with an operand for it: round to nearest, no exceptions
_TO_NEAREST = 8


def are_special(vectors: Vectors, values: Value) -> Value:
    """Return a flag for each lane of 512 bits: whether any 512-bit part has a NaN or denormal."""
    flag = ir.VectorType(ir.IntType(1), GROUP)
    flags = [
        vectors.call(
            "llvm.x86.avx512.fpclass.ps.512", flag, part, ir.Constant(_I32, _NAN_OR_DENORMAL)
        )
        for part in vectors.parts(values, GROUP)
    ]
    return reduce(vectors.builder.or_, flags)


def round_to_bfloat(vectors: Vectors, values: Value) -> Value:
    """Return the codes of f32 values in bf16; denormals become zeros.

    One instruction converts two registers: LLVM takes two, and a third one to join them.
    """
    builder = vectors.builder
    if vectors.lanes % (2 * GROUP):
        bfloats = builder.fptrunc(values, vectors.vector(BFLOAT))
        return builder.bitcast(bfloats, vectors.integers(16))
    parts = vectors.parts(values, GROUP)
    pair = ir.VectorType(BFLOAT, 2 * GROUP)
    joined = [
        vectors.call("llvm.x86.avx512bf16.cvtne2ps2bf16.512", pair, high, low)
        for low, high in zip(parts[::2], parts[1::2], strict=True)
    ]
    codes = ir.VectorType(ir.IntType(16), 2 * GROUP)
    return concatenate(builder, [builder.bitcast(part, codes) for part in joined])


def rounded(vectors: Vectors, values: Value) -> Value:
    """Return f32 values as s32, to nearest; those out of range and NaN become the least one."""
    kind = ir.VectorType(_I32, GROUP)
    every = ir.Constant(ir.IntType(GROUP), -1)
    parts = [
        vectors.call(
            "llvm.x86.avx512.mask.cvtps2dq.512",
            kind,
            part,
            ir.Constant(kind, None),
            every,
            ir.Constant(_I32, _TO_NEAREST),
        )
        for part in vectors.parts(values, GROUP)
    ]
    return concatenate(vectors.builder, parts)


def narrows_registers(lanes: int, form: IntegerFormat) -> bool:
    """Whether `narrow_integers` takes vectors of so many lanes: those that fill registers."""
    is_whole = form.bits in {BYTE_BITS, 2 * BYTE_BITS} and lanes * form.bits % LINE_BITS == 0
    return has_masks() and is_whole


def truncated(vectors: Vectors, codes: Value, bits: int) -> Value:
    """Return codes of i32 that fit fewer bits, or have these already, as integers of these."""
    form = IntegerFormat(0, (1 << bits) - 1)
    if codes.type.element == _I32 and narrows_registers(vectors.lanes, form):
        return narrow_integers(vectors, codes, form)
    kind = vectors.integers(bits)
    return codes if codes.type == kind else vectors.builder.trunc(codes, kind)


def narrow_integers(vectors: Vectors, codes: Value, form: IntegerFormat) -> Value:
    """Saturate integers of s32 to a format of 8 or 16 bits, two registers by one instruction."""
    builder = vectors.builder
    parts, bits = vectors.parts(codes, GROUP), _I32.width
    while bits > form.bits:
        bits //= 2
        # one that is followed by another one keeps the sign
        sign = "s" if form.is_signed or bits > form.bits else "u"
        name = f"llvm.x86.avx512.pack{sign}s{'dw' if bits > BYTE_BITS else 'wb'}.512"
        kind = ir.VectorType(ir.IntType(bits), LINE_BITS // bits)
        parts = [
            vectors.call(name, kind, low, high)
            for low, high in zip(parts[::2], parts[1::2], strict=True)
        ]
    return concatenate(
        builder, [_in_order(vectors, part, _I32.width // form.bits) for part in parts]
    )


def _in_order(vectors: Vectors, packed: Value, registers: int) -> Value:
    """Return packed elements in order: each 128-bit lane has some of each of the registers."""
    builder = vectors.builder
    size = LANE_BITS // registers
    count, lanes = LINE_BITS // size, LINE_BITS // LANE_BITS
    chunks = builder.bitcast(packed, ir.VectorType(ir.IntType(size), count))
    order = (lane * registers + k for k in range(registers) for lane in range(lanes))
    return builder.bitcast(pick(builder, chunks, order), packed.type)
