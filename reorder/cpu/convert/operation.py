"""The operations of a reorder's arithmetic, and when one of them may be used."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TYPE_CHECKING

import numpy as np

from reorder.cpu.target import has_fma
from reorder.values.formats import FLOATS, FORMATS, INTEGERS, FloatFormat, IntegerFormat

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "MAKES_NAN",
    "PERIOD",
    "SCALING",
    "Numbers",
    "Operation",
    "has_exact_inverses",
    "has_quotient",
    "has_small_steps",
    "inverse_parts",
    "rounding_bits",
]

# Operands that repeat along a row do so after this many elements or a divisor of it. This many
# values are stored twice, so that a vector can be loaded from any position in the first half.
PERIOD = 64
# Magnitudes of the divisors of `QUOTIENT`: with dividends from 2^-64 to 2^64 no step of it
# overflows or loses bits.
_MIN_DIVISOR, _MAX_DIVISOR = 2.0**-40, 2.0**40
# The same where dst has few bits, and from the inverse of this: then the product of any dividend
# and of what the inverse lacks is finite.
_MAX_NARROW = 2.0**24
# More divisors are not tested whether their quotients round right.
_MAX_TESTED = 1 << 16
# Types of more bits are rounded at numbers of as many bits as f32 has.
_MAX_INTEGER_BITS = _MAX_FLOAT_BITS = 16
# The exponent of the least step of f16.
_MIN_STEP = -24


class Numbers(Enum):
    """What a table of operands holds."""

    VALUES = 0
    INVERSES = 1
    # what the rounded inverses lack
    LACKING = 2


class Operation(IntEnum):
    """An operation on a value x and its operand y."""

    SUBTRACT = 0
    MULTIPLY = 1
    DIVIDE = 2
    # division by multiplications with the reciprocal of y, which is stored beside y; or beside
    # what it lacks, where dst has few bits
    QUOTIENT = 3
    ADD = 4
    # x + factor * y
    ADD_PRODUCT = 5
    # x limited to the range from -y to y
    CLAMP = 6
    # x rounded to f16 and converted back; no operand
    ROUND_F16 = 7


# The operations whose results may be NaN that is not the canonical one: sums and products.
# `QUOTIENT` makes it where it divides, and the others return what they got.
MAKES_NAN = frozenset(
    {
        Operation.SUBTRACT,
        Operation.MULTIPLY,
        Operation.DIVIDE,
        Operation.ADD,
        Operation.ADD_PRODUCT,
    }
)
# The operations of scales: they have code for short rows, of one block of channels.
SCALING = frozenset({Operation.MULTIPLY, Operation.QUOTIENT})


def has_exact_inverses(divisors: NDArray[np.float64]) -> bool:
    """Whether divisions by these numbers are multiplications by their inverses, to the bit.

    That is so if all are powers of two, of magnitudes within the divisor limits.
    """
    mantissas, _ = np.frexp(divisors)
    is_inside = (abs(divisors) >= _MIN_DIVISOR) & (abs(divisors) <= _MAX_DIVISOR)
    return bool(((abs(mantissas) == 0.5) & is_inside).all())  # noqa: PLR2004 - a power of two


def has_quotient(divisors: NDArray[np.float64], work: str, dst: str) -> bool:
    """Whether divisions by these numbers may be quotients: in f32, with fused operations.

    `dst` is the type in which results are stored.
    """
    magnitudes = abs(divisors)
    bits = rounding_bits(dst)
    low, high = (_MIN_DIVISOR, _MAX_DIVISOR) if bits is None else (1 / _MAX_NARROW, _MAX_NARROW)
    is_inside = bool(((magnitudes >= low) & (magnitudes <= high)).all())
    if work != "f32" or not has_fma() or not is_inside or bits is None:
        return work == "f32" and has_fma() and is_inside
    # signs of zeros are those of the dividends
    has_signs = dst in INTEGERS or bool((divisors > 0).all())
    return has_signs and divisors.size <= _MAX_TESTED and rounds_right(divisors, bits)


def rounding_bits(dst: str) -> int | None:
    """Return how many bits the numbers have at which results in a type are rounded up or down.

    None if they have as many as f32.
    """
    form = FORMATS[dst]
    if isinstance(form, IntegerFormat) and form.bits <= _MAX_INTEGER_BITS:
        return form.bits + 1
    if isinstance(form, FloatFormat) and form.bits <= _MAX_FLOAT_BITS:
        return form.mantissa + 2
    return None


def has_small_steps(dst: str) -> bool:
    """Whether a type has numbers below 2^-25: others round these to 0."""
    form = FORMATS[dst]
    return isinstance(form, FloatFormat) and 1 - form.bias - form.mantissa < _MIN_STEP


def rounds_right(divisors: NDArray[np.float64], bits: int) -> bool:
    """Whether x * z + x * w, fused, is on the right side of all numbers of so many bits.

    z is the inverse of a divisor y, and w what it lacks. With significands as integers X and Y of
    24 bits, X / Y lies beside a number halfway between two floats, M / 2^25, by a multiple of
    1 / (Y 2^25). The error is less than two of these, and X / Y < 1 where one is not enough
    (Brisebarre, Muller and Raina, IEEE Trans. Computers 53, 2004). So only X = 1 / 2^25 and
    X = -1 / 2^25 modulo Y are tried, where they have 24 bits.
    """
    significands, _ = np.frexp(abs(divisors.astype(np.float32).astype(np.float64)))
    size = FLOATS["f32"].mantissa + 1
    whole = np.unique((significands * (1 << size)).astype(np.int64))
    whole = whole[whole % 2 == 1]  # multiples of even numbers are not next to odd ones
    inverse = np.ones_like(whole)
    for _ in range(size + 1):
        inverse = np.where(inverse % 2, inverse + whole, inverse) >> 1
    y = whole / (1 << (size - 1))
    z, w = inverse_parts(y)
    for beside, dividend in ((1, inverse), (-1, whole - inverse)):
        middle = ((dividend << (size + 1)) - beside) // whole
        x = dividend / (1 << (size - 1))
        product = (x * w.astype(np.float64)).astype(np.float32)
        # both products have at most 53 bits, and so has their difference
        distance = x * z - middle / (1 << (size + 1)) + product
        is_wrong = np.sign(distance) != beside
        unit = 1 << (size - bits)
        # one of the two floats has so few bits
        is_near = (middle // 2 + 1) % unit <= 1
        if (is_wrong & is_near & (dividend >= 1 << (size - 1))).any():
            return False
    return True


def inverse_parts(
    divisors: NDArray[np.float64],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the inverses of numbers as f32, rounded, and what they lack, rounded."""
    single = divisors.astype(np.float32)
    inverses: NDArray[np.float32] = np.float32(1) / single
    exact = single.astype(np.float64)
    # the product of two numbers of f32 is exact in f64, and so is its difference from 1
    lacking = (1 - exact * inverses) / exact
    return inverses, lacking.astype(np.float32)
