"""The operations of a reorder's arithmetic, and when one of them may be used."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from reorder.cpu.target import has_fma

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["PERIOD", "Operation", "has_quotient"]

# Operands that repeat along a row do so after this many elements, or after a part of it. They
# are stored twice, so that vectors can be loaded from any of the first half on.
PERIOD = 64
# Divisors of a quotient: with dividends from 2^-64 to 2^64 no step of it overflows or loses bits.
_MIN_DIVISOR, _MAX_DIVISOR = 2.0**-40, 2.0**40


class Operation(IntEnum):
    """What is done to a value x with its operand y."""

    SUBTRACT = 0
    MULTIPLY = 1
    DIVIDE = 2
    # a division whose operand comes with its reciprocal, computed by multiplications
    QUOTIENT = 3
    ADD = 4
    # x + factor * y
    ADD_PRODUCT = 5
    # to -y and y
    CLAMP = 6
    # round to f16 and back; it has no operand
    ROUND_F16 = 7


def has_quotient(divisors: NDArray[np.float64], work: str) -> bool:
    """Whether divisions by these numbers may be quotients: in f32, with fused operations."""
    magnitudes = abs(divisors)
    is_inside = (magnitudes >= _MIN_DIVISOR) & (magnitudes <= _MAX_DIVISOR)
    return work == "f32" and has_fma() and bool(is_inside.all())
