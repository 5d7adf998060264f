"""An OpenCL C function that divides by what has an inverse, correctly rounded.

Two corrections by the exact remainder round a product with the inverse correctly (Markstein, IBM
J. Res. Dev. 34, 1990), provided that no step overflows or is denormal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["QUOTIENT", "quotient_lines"]

QUOTIENT = "static float quotient(float x, float y, float inverse)"
# Magnitudes of the divisors and dividends from which no step of a quotient overflows or loses bits.
_DIVISORS, _DIVIDENDS = (2.0**-40, 2.0**40), (2.0**-64, 2.0**64)


def quotient_lines(*, is_rounded: bool) -> Iterator[str]:
    """Return the body; with `is_rounded` the quotient is used only to be rounded to an integer."""
    (low, high), (least, most) = (
        [np.float32(limit).view(np.uint32) for limit in limits]
        for limits in (_DIVISORS, _DIVIDENDS)
    )
    dividends = f"dividend - {least:#x}u < {most - least:#x}u"
    if is_rounded:
        # small quotients become 0, whatever their last bit and the sign of a zero
        dividends = f"dividend < {most:#x}u"
    yield "const uint dividend = as_uint(x) & 0x7fffffffu, divisor = as_uint(y) & 0x7fffffffu;"
    yield "float q = x * inverse;"
    yield "q = fma(fma(-q, y, x), inverse, q);"
    yield "q = fma(fma(-q, y, x), inverse, q);"
    yield f"const int is_safe = {dividends};"
    yield f"return is_safe && divisor - {low:#x}u < {high - low:#x}u ? q : x / y;"
