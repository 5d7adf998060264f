"""A second implementation of the conversion rule, in exact fractions.

It shares nothing with reorder/. A data type without a row here fails the tests.
"""

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import reorder
from memdesc import memory_desc
from memdesc.dtypes import DATA_TYPES

# bits
INTEGERS = {f"{sign}{bits}": bits for sign in "su" for bits in (64, 32, 16, 8, 4)}
# bits of exponent and mantissa, exponent bias
FLOATS = {
    "f64": (11, 52, 1023),
    "f32": (8, 23, 127),
    "f16": (5, 10, 15),
    "bf16": (8, 7, 127),
    "f8_e5m2": (5, 2, 15),
    "f8_e4m3": (4, 3, 7),
    "f8_e5m2fnuz": (5, 2, 16),
    "f8_e4m3fnuz": (4, 3, 8),
    "f4_e2m1": (2, 1, 1),
}
# for formats that deviate from IEEE 754: the NaN code, which overflow also becomes; it has a sign
# bit, or is the only NaN
SIGNED_NAN = {"f8_e4m3": 0x7F, "f4_e2m1": 0x7}
ONLY_NAN = {"f8_e5m2fnuz": 0x80, "f8_e4m3fnuz": 0x80}
IEEE = [name for name in FLOATS if name not in SIGNED_NAN and name not in ONLY_NAN]
# Pairs of types that together read and write every type, in every working type. Tests that vary
# layouts, offsets and attributes draw from these, so that few kernels are compiled.
PAIRS = [
    *((name, "f32") for name in DATA_TYPES),
    *(("f32", name) for name in DATA_TYPES if name != "f32"),
    *(("f64", name) for name in DATA_TYPES if name != "f32"),
    *(("s64", name) for name in ("f64", "u64", "s32", "u4", "f16", "f8_e4m3")),
    *((name, "s64") for name in ("u64", "s8", "u4", "boolean")),
    *(("u64", name) for name in ("f64", "u64", "u32", "s8")),
    *((name, name) for name in ("s8", "s4", "f16", "f4_e2m1", "e8m0", "boolean")),
    *(("s8", name) for name in ("u8", "s32", "bf16", "s4", "boolean")),
    *((name, "s8") for name in ("u8", "s32", "bf16", "u4", "boolean")),
    *(("s32", "u8"), ("u32", "s16"), ("u16", "s32"), ("s16", "u8"), ("u4", "s4"), ("f16", "u8")),
    *(("bf16", "f16"), ("f8_e5m2", "f8_e4m3"), ("f4_e2m1", "bf16"), ("e8m0", "f8_e5m2fnuz")),
]
_NAN, _INF = "nan", "inf"
# what `run` converts by
BY = ["definition", "kernels"]


def value_of(code: int, name: str) -> tuple[int, Fraction | str]:
    """Return the sign (0 or 1) and the magnitude of the bits of an element."""
    if name in INTEGERS:
        bits = INTEGERS[name]
        number = code - (1 << bits) if name[0] == "s" and code >> (bits - 1) else code
        return int(number < 0), Fraction(abs(number))
    if name in FLOATS:
        return _value_of_float(code, name)
    if name == "boolean":
        return 0, Fraction(code != 0)
    assert name == "e8m0"
    return 0, _NAN if code == 255 else Fraction(2) ** (code - 127)


def _value_of_float(code: int, name: str) -> tuple[int, Fraction | str]:
    exponent_bits, mantissa_bits, bias = FLOATS[name]
    sign = code >> (exponent_bits + mantissa_bits)
    exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1)
    fraction = code & ((1 << mantissa_bits) - 1)
    if (name in ONLY_NAN and code == ONLY_NAN[name]) or (name == "f8_e4m3" and code & 127 == 127):
        return sign, _NAN
    if name in IEEE and exponent == (1 << exponent_bits) - 1:
        return sign, _NAN if fraction else _INF
    significand = fraction + (1 << mantissa_bits) * (exponent > 0)
    return sign, significand * Fraction(2) ** (max(exponent, 1) - bias - mantissa_bits)


def _rounded(magnitude: Fraction) -> int:
    return round(magnitude)  # Python rounds halves of fractions to even


def _exponent(magnitude: Fraction) -> int:
    """Return the largest e with 2**e <= magnitude; of zero a number below all exponents."""
    if not magnitude:
        return -(1 << 20)
    top, bottom = magnitude.numerator, magnitude.denominator
    e = top.bit_length() - bottom.bit_length()
    is_below = top << -e < bottom if e < 0 else top < bottom << e
    return e - is_below


def _code_of(sign: int, magnitude: Fraction | str, name: str) -> int:
    """Return the bits of what is nearest."""
    if name in INTEGERS:
        return _code_of_integer(sign, magnitude, name)
    if name in FLOATS:
        return _code_of_float(sign, magnitude, name)
    if name == "boolean":
        return int(magnitude != 0)
    assert name == "e8m0"
    if isinstance(magnitude, str) or magnitude >= Fraction(2) ** 128:
        return 255
    return max(_exponent(magnitude) + 127, 0)


def _code_of_integer(sign: int, magnitude: Fraction | str, name: str) -> int:
    bits = INTEGERS[name]
    low, high = 0, (1 << bits) - 1
    if name[0] == "s":
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    if isinstance(magnitude, str):
        number = 0 if magnitude == _NAN else (low if sign else high)
    else:
        number = min(max(-_rounded(magnitude) if sign else _rounded(magnitude), low), high)
    return number % (1 << bits)


def _code_of_float(sign: int, magnitude: Fraction | str, name: str) -> int:
    exponent_bits, mantissa_bits, bias = FLOATS[name]
    signed = sign << (exponent_bits + mantissa_bits)
    top = ((1 << exponent_bits) - 1) << mantissa_bits
    special = {_NAN: top | 1 << (mantissa_bits - 1), _INF: top}
    if name in SIGNED_NAN:
        special = dict.fromkeys(special, SIGNED_NAN[name])
    if name in ONLY_NAN:
        special = dict.fromkeys(special, ONLY_NAN[name])
    if isinstance(magnitude, str):
        return signed | special[magnitude]
    exponent = max(_exponent(magnitude), 1 - bias)
    steps = _rounded(magnitude / Fraction(2) ** (exponent - mantissa_bits))
    code = ((exponent + bias - 1) << mantissa_bits) + steps
    if name in ONLY_NAN and not code:
        return 0  # there is no -0.0
    return signed | min(code, special[_INF])


def written_rule(code: int, src: str, dst: str) -> int:
    """Convert the bits of one element; any NaN comes out as the quiet one without payload."""
    sign, magnitude = value_of(code, src)
    if src in INTEGERS and dst in FLOATS | {"e8m0": ()}:
        # through the working type
        work = "f64" if "64" in src + dst else "f32"
        sign, magnitude = value_of(_code_of(sign, magnitude, work), work)
    return _code_of(sign, magnitude, dst)


def same(ours: NDArray[Any], theirs: NDArray[Any], dst: str) -> NDArray[np.bool_]:
    """Compare bits of elements; NaNs are equal where their signs are."""
    equal: NDArray[np.bool_] = ours == theirs
    if dst in IEEE:
        exponent, mantissa, _ = FLOATS[dst]
        top = ((1 << exponent) - 1) << mantissa
        rest = (1 << (exponent + mantissa)) - 1
        quiet = ours & ours.dtype.type(1 << (mantissa - 1)) != 0
        both = (
            (ours & rest > top)
            & (theirs & rest > top)
            & (ours >> (exponent + mantissa) == theirs >> (exponent + mantissa))
        )
        equal |= both & quiet
    return equal


def every_code(name: str) -> NDArray[Any]:
    """Return all bit patterns of a type of up to 16 bits, 4-bit ones one a byte."""
    dtype = DATA_TYPES[name]
    return np.arange(1 << dtype.bits, dtype=np.uint32).astype(dtype.bits_dtype)


@cache
def _random_bytes(count: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def random_codes(name: str, count: int, seed: int = 0) -> NDArray[Any]:
    """Return random bit patterns: among them NaN, infinities, denormals.

    A third of those of 32 and 64 bits are of middling size.
    """
    dtype = DATA_TYPES[name]
    codes = _random_bytes(count * dtype.bits_dtype.itemsize, seed).view(dtype.bits_dtype).copy()
    if dtype.is_packed:
        return codes & 15
    if name in {"f32", "f64"}:
        rng = np.random.default_rng(seed + 1)
        middling = np.ldexp(
            rng.standard_normal(count // 3), rng.integers(-20, 20, count // 3)
        ).astype(dtype.numpy)
        codes[: count // 3] = middling.view(dtype.bits_dtype)
    elif dtype.bits > 16:
        codes[: count // 3] >>= codes.dtype.type(dtype.bits // 2)
    return codes


def _packed(codes: NDArray[Any], name: str) -> NDArray[np.uint8]:
    if DATA_TYPES[name].is_packed:
        codes = np.append(codes, np.zeros(codes.size % 2, np.uint8))
        codes = codes[0::2] | codes[1::2] << 4
    packed: NDArray[np.uint8] = codes.view(np.uint8)
    return packed


def run(
    codes: NDArray[Any], src: str, dst: str, attr: reorder.Attr | None = None, *, by: str
) -> NDArray[Any]:
    """Convert a row of elements by ``"definition"`` or by ``"kernels"``.

    Both take and return bits, one element each.
    """
    from_desc, to_desc = memory_desc((codes.size,), src, "a"), memory_desc((codes.size,), dst, "a")
    out = np.zeros(to_desc.nbytes, np.uint8)
    if by == "definition":
        reorder.reference.execute_reference(from_desc, to_desc, _packed(codes, src), out, attr)
    else:
        reorder.execute(reorder.plan_reorder(from_desc, to_desc, attr), _packed(codes, src), out)
    if to_desc.dtype.is_packed:
        return np.stack([out & 15, out >> 4], axis=1).reshape(-1)[: codes.size]
    return out.view(to_desc.dtype.bits_dtype)
