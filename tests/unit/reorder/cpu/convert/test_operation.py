"""When a division may be computed by multiplications."""

from __future__ import annotations

import numpy as np
import pytest

from reorder.cpu.convert.operation import has_exact_inverses


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
