"""What the bits of each data type mean: the one table behind every conversion.

The reference decodes and encodes by it, and the kernels are generated from it. How values
are rounded is said in `reorder/values/convert.py`, and for users in `docs/dtypes.md`.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FLOATS", "INTEGERS", "FloatFormat", "is_integer", "working_type"]


class FloatFormat(NamedTuple):
    """A binary floating-point format: a sign, `exponent` bits, `mantissa` bits.

    A code is the bits without the sign. Codes above `largest` are no finite number.
    """

    exponent: int
    mantissa: int
    bias: int
    # codes: of the largest finite number, of what lies beyond it, of a NaN
    largest: int
    overflow: int
    nan: int

    @property
    def has_inf(self) -> bool:
        """Whether the format keeps infinities, and NaNs with a payload beside them."""
        return self.overflow != self.nan and self.overflow > self.largest

    @property
    def max(self) -> float:
        """The largest finite number."""
        significand = self.largest % (1 << self.mantissa) + (1 << self.mantissa)
        return float(
            significand * 2.0 ** ((self.largest >> self.mantissa) - self.bias - self.mantissa)
        )


def _ieee(exponent: int, mantissa: int) -> FloatFormat:
    infinity = ((1 << exponent) - 1) << mantissa
    return FloatFormat(
        exponent,
        mantissa,
        (1 << (exponent - 1)) - 1,
        infinity - 1,
        infinity,
        infinity | 1 << (mantissa - 1),
    )


# f8_e4m3 is float8_e4m3fn: no infinities, one NaN. f4_e2m1 has neither: all beyond 6 is 6, and so is
# NaN, as in oneDNN 3.13. e8m0, an exponent alone, is in neither table.
FLOATS: dict[str, FloatFormat] = {
    "f64": _ieee(11, 52),
    "f32": _ieee(8, 23),
    "f16": _ieee(5, 10),
    "bf16": _ieee(8, 7),
    "f8_e5m2": _ieee(5, 2),
    "f8_e4m3": FloatFormat(4, 3, 7, 0x7E, 0x7F, 0x7F),
    "f4_e2m1": FloatFormat(2, 1, 1, 0x7, 0x7, 0x7),
}

# the lowest and the highest value
INTEGERS: dict[str, tuple[int, int]] = {
    "s64": (-(2**63), 2**63 - 1),
    "s32": (-(2**31), 2**31 - 1),
    "s8": (-128, 127),
    "u8": (0, 255),
    "s4": (-8, 7),
    "u4": (0, 15),
}


def is_integer(name: str) -> bool:
    """Whether a data type of that name holds integers."""
    return name in INTEGERS


def working_type(src: str, dst: str, *, arithmetic: bool) -> str:
    """Return the type that a conversion computes in: f64 where a side has 64 bits, else f32.

    Integers that only become other integers stay integers: s64.
    """
    if is_integer(src) and is_integer(dst) and not arithmetic:
        return "s64"
    return "f64" if {"f64", "s64"} & {src, dst} else "f32"
