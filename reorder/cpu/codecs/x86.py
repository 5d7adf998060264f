"""Instructions of AVX-512 that LLVM does not choose by itself, for registers of f32 and s32."""

import operator
from functools import reduce

from llvmlite import ir

from memdesc.dtypes import BYTE_BITS
from reorder.cpu.llvm.emit import Value
from reorder.cpu.llvm.shuffle import LANE_BITS, concatenate, pick
from reorder.cpu.llvm.vectors import BFLOAT, GROUP, Vectors
from reorder.cpu.target import LINE_BITS, has_masks
from reorder.values.formats import IntegerFormat

_I32 = ir.IntType(32)
# classes of numbers that the instruction vfpclassps tests: quiet NaN, denormal, signalling NaN
_NAN_OR_DENORMAL = 0x01 | 0x20 | 0x80
# rounding operand of an instruction: to nearest, no exceptions
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
    return reduce(operator.or_, flags)


def round_to_bfloat(vectors: Vectors, values: Value) -> Value:
    """Return the codes of f32 values in bf16; denormals become zeros.

    One instruction converts two registers: LLVM alone uses two, and a third one to join them.
    """
    if vectors.lanes % (2 * GROUP):
        return values.fptrunc(vectors.vector(BFLOAT)).bitcast(vectors.integers(16))
    parts = vectors.parts(values, GROUP)
    pair = ir.VectorType(BFLOAT, 2 * GROUP)
    joined = [
        vectors.call("llvm.x86.avx512bf16.cvtne2ps2bf16.512", pair, high, low)
        for low, high in zip(parts[::2], parts[1::2], strict=True)
    ]
    codes = ir.VectorType(ir.IntType(16), 2 * GROUP)
    return concatenate([part.bitcast(codes) for part in joined])


def rounded(vectors: Vectors, values: Value) -> Value:
    """Return f32 values rounded to s32; NaN and values out of range become the least number."""
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
    return concatenate(parts)


def narrows_registers(lanes: int, bits: int) -> bool:
    """Whether `lanes` integers of `bits` bits fill whole registers, as `narrow_integers` needs."""
    return has_masks() and bits in {BYTE_BITS, 2 * BYTE_BITS} and lanes * bits % LINE_BITS == 0


def truncated(vectors: Vectors, codes: Value, bits: int) -> Value:
    """Return codes, of i32 or already of this width, as integers of `bits` bits."""
    if codes.type.element == _I32 and narrows_registers(vectors.lanes, bits):
        return narrow_integers(vectors, codes, IntegerFormat(0, (1 << bits) - 1))
    kind = vectors.integers(bits)
    return codes if codes.type == kind else codes.trunc(kind)


def narrow_integers(vectors: Vectors, codes: Value, form: IntegerFormat) -> Value:
    """Saturate integers of s32 to a format of 8 or 16 bits, two registers by one instruction."""
    parts, bits = vectors.parts(codes, GROUP), _I32.width
    while bits > form.bits:
        bits //= 2
        # integers that are narrowed again keep their sign
        parts = _packed(vectors, parts, is_signed=form.is_signed or bits > form.bits)
    return _in_order(parts, _I32.width // form.bits)


def _packed(vectors: Vectors, parts: list[Value], *, is_signed: bool) -> list[Value]:
    """Saturate registers of signed integers to integers of half the width, two to one."""
    bits = parts[0].type.element.width // 2
    kind = ir.VectorType(ir.IntType(bits), LINE_BITS // bits)
    step = "dw" if bits > BYTE_BITS else "wb"
    name = f"llvm.x86.avx512.pack{'s' if is_signed else 'u'}s{step}.512"
    return [
        vectors.call(name, kind, low, high)
        for low, high in zip(parts[::2], parts[1::2], strict=True)
    ]


def _in_order(parts: list[Value], registers: int) -> Value:
    """Return packed elements in order: each 128-bit lane has some of each of the registers."""
    size = LANE_BITS // registers
    count, lanes = LINE_BITS // size, LINE_BITS // LANE_BITS
    order = [lane * registers + k for k in range(registers) for lane in range(lanes)]
    chunks = ir.VectorType(ir.IntType(size), count)
    return concatenate([pick(part.bitcast(chunks), order).bitcast(part.type) for part in parts])
