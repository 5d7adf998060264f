"""The post-ops of a reorder: operations on its values, and when one may replace another."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TYPE_CHECKING

import numpy as np

from reorder.cpu.target import has_fma
from reorder.values.formats import FORMATS, INTEGERS, FloatFormat, IntegerFormat

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "MAKES_NAN",
    "PERIOD",
    "QUOTIENTS",
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
# Bound of divisors and their inverses if dst has few bits: then the product of any dividend and the
# inverse's residue is finite.
_MAX_NARROW = 2.0**24
# The widest types of few bits. Their results are rounded up or down at numbers of at most 12 bits,
# and products fall on the right side of these for every divisor: a test tries all. For s16, with 17
# bits, one divisor in six thousand fails.
_MAX_INTEGER_BITS, _MAX_FLOAT_BITS = 8, 16
# The exponent of the smallest step of f16.
_MIN_STEP = -24


class Numbers(Enum):
    """What a table of operands holds."""

    VALUES = 0
    INVERSES = 1
    # the residues of the rounded inverses
    LACKING = 2


class Operation(IntEnum):
    """An operation on a value x and its operand y."""

    SUBTRACT = 0
    MULTIPLY = 1
    DIVIDE = 2
    # division by y, computed with its reciprocal, which is stored beside it
    QUOTIENT = 3
    # division where dst has few bits: y is the residue of the reciprocal that is stored beside it
    NARROW_QUOTIENT = 4
    ADD = 5
    # x + factor * y
    ADD_PRODUCT = 6
    # x limited to the range from -y to y
    CLAMP = 7
    # x rounded to f16 and converted back; no operand
    ROUND_F16 = 8


# Divisions by multiplications: reciprocals are stored beside their operands.
QUOTIENTS = frozenset({Operation.QUOTIENT, Operation.NARROW_QUOTIENT})


# The operations whose results may be a NaN that is not canonical: sums and products. `QUOTIENTS`
# make theirs canonical where they divide, and the others return what they got.
MAKES_NAN = frozenset(
    {
        Operation.SUBTRACT,
        Operation.MULTIPLY,
        Operation.DIVIDE,
        Operation.ADD,
        Operation.ADD_PRODUCT,
    }
)
# The operations of scales: these have code for short rows, of one block of channels.
SCALING = QUOTIENTS | {Operation.MULTIPLY}


def has_exact_inverses(divisors: NDArray[np.float64]) -> bool:
    """Whether divisions by these numbers are multiplications by their inverses, to the bit.

    That holds if all are powers of two with magnitudes within the divisor limits.
    """
    mantissas, _ = np.frexp(divisors)
    is_inside = (abs(divisors) >= _MIN_DIVISOR) & (abs(divisors) <= _MAX_DIVISOR)
    return bool(((abs(mantissas) == 0.5) & is_inside).all())  # noqa: PLR2004 - a power of two


def has_quotient(divisors: NDArray[np.float64], work: str, dst: str) -> bool:
    """Whether divisions by these numbers may be `QUOTIENTS`: in f32, with fused multiply-add.

    `dst` is the type in which results are stored.
    """
    magnitudes = abs(divisors)
    has_few_bits = rounding_bits(dst) is not None
    low, high = (1 / _MAX_NARROW, _MAX_NARROW) if has_few_bits else (_MIN_DIVISOR, _MAX_DIVISOR)
    is_inside = bool(((magnitudes >= low) & (magnitudes <= high)).all())
    # zeros get the signs of the dividends
    has_signs = not has_few_bits or dst in INTEGERS or bool((divisors > 0).all())
    return work == "f32" and has_fma() and is_inside and has_signs


def rounding_bits(dst: str) -> int | None:
    """Return how many bits the numbers have at which results in a type round up or down.

    None if the type has more bits.
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


def inverse_parts(
    divisors: NDArray[np.float64],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the rounded inverses of numbers as f32, and their rounded residues."""
    single = divisors.astype(np.float32)
    inverses: NDArray[np.float32] = np.float32(1) / single
    exact = single.astype(np.float64)
    # the product of two numbers of f32 is exact in f64, and so is its difference from 1
    lacking = (1 - exact * inverses) / exact
    return inverses, lacking.astype(np.float32)
