"""When a division may be computed by multiplications."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from reorder.cpu.convert.operation import (
    has_exact_inverses,
    has_quotient,
    inverse_parts,
    rounds_right,
)
from reorder.cpu.target import has_fma

if TYPE_CHECKING:
    from numpy.typing import NDArray


@pytest.mark.parametrize(
    ("divisors", "expected"),
    [
        ([0.5, 2.0, -4.0, 1.0], True),
        ([0.5, 3.0], False),
        ([2.0**-40, 2.0**40], True),
        ([2.0**-41], False),
        ([0.0], False),
        ([np.inf], False),
        ([np.nan], False),
    ],
)
def test_powers_of_two_have_exact_inverses(divisors: list[float], expected: bool) -> None:
    assert has_exact_inverses(np.array(divisors)) is expected


def _products(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return x times the inverse of y, with what that lacks, rounded as by one fused addition."""
    inverse, lacking = (part.astype(np.longdouble) for part in inverse_parts(y))
    return ((x * lacking).astype(np.float32) + x * inverse).astype(np.float32)


def test_divisors_whose_products_are_no_quotients_are_found() -> None:
    draw = np.random.default_rng(0)
    one = 1 << 23
    suspects, wrong = [], 0
    for significand in map(int, draw.integers(one, 2 * one, 2000)):
        y = np.array([significand / one])
        is_right = rounds_right(y, 24)
        inverse = pow(2, -25, significand) if significand % 2 else one
        dividends = [inverse, significand - inverse, *draw.integers(one, 2 * one, 100)]
        x = np.array(dividends) / one
        differs = (_products(x, y) != (x / y).astype(np.float32)).any()
        assert not (is_right and differs), significand
        suspects += [] if is_right else [y]
        wrong += differs
    assert wrong > len(suspects) // 4
    assert rounds_right(np.concatenate(suspects), 9)


@pytest.mark.parametrize(
    ("divisor", "dst", "expected"),
    [
        (0.3, "s8", True),
        (0.3, "bf16", True),
        (0.3, "f32", True),
        (-0.3, "s8", True),
        # a product may be a zero of the wrong sign
        (-0.3, "bf16", False),
        (0.3 * 2.0**-24, "s8", False),
        (0.3 * 2.0**-24, "f32", True),
        (0.3 * 2.0**27, "f16", False),
        (0.3 * 2.0**-50, "f32", False),
    ],
)
def test_quotients_depend_on_divisors_and_dst(divisor: float, dst: str, expected: bool) -> None:
    assert has_quotient(np.array([divisor]), "f32", dst) is (expected and has_fma())
