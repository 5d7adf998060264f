"""The operations of a reorder's arithmetic, and when one of them may be used."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from reorder.cpu.target import has_fma

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PERIOD", "SCALING", "Operation", "has_exact_inverses", "has_quotient"]

# Operands that repeat along a row do so after this many elements or a divisor of it. This many
# values are stored twice, so that a vector can be loaded from any position in the first half.
PERIOD = 64
# Magnitudes of the divisors of `QUOTIENT`: with dividends from 2^-64 to 2^64 no step of it
# overflows or loses bits.
_MIN_DIVISOR, _MAX_DIVISOR = 2.0**-40, 2.0**40


class Operation(IntEnum):
    """An operation on a value x and its operand y."""

    SUBTRACT = 0
    MULTIPLY = 1
    DIVIDE = 2
    # division by multiplications with the reciprocal of y, which is stored beside y
    QUOTIENT = 3
    ADD = 4
    # x + factor * y
    ADD_PRODUCT = 5
    # x limited to the range from -y to y
    CLAMP = 6
    # x rounded to f16 and converted back; no operand
    ROUND_F16 = 7


# The operations of scales: they have code for short rows, of one block of channels.
SCALING = frozenset({Operation.MULTIPLY, Operation.QUOTIENT})


def has_exact_inverses(divisors: NDArray[np.float64]) -> bool:
    """Whether divisions by these numbers are multiplications by their inverses, to the bit.

    That is so if all are powers of two, of magnitudes within the divisor limits.
    """
    mantissas, _ = np.frexp(divisors)
    is_inside = (abs(divisors) >= _MIN_DIVISOR) & (abs(divisors) <= _MAX_DIVISOR)
    return bool(((abs(mantissas) == 0.5) & is_inside).all())  # noqa: PLR2004 - a power of two


def has_quotient(divisors: NDArray[np.float64], work: str) -> bool:
    """Whether divisions by these numbers may be quotients: in f32, with fused operations."""
    magnitudes = abs(divisors)
    is_inside = (magnitudes >= _MIN_DIVISOR) & (magnitudes <= _MAX_DIVISOR)
    return work == "f32" and has_fma() and bool(is_inside.all())
