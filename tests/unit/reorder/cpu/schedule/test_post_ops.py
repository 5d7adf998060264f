"""When a division may be computed by multiplications."""

import numpy as np
import pytest
from numpy.typing import NDArray

from reorder.cpu.machine import Instructions
from reorder.cpu.schedule.post_ops import Stage, inverse_parts, rounding_bits, tables_of
from reorder.cpu.schedule.tile_program import Operation
from reorder.values.formats import FORMATS


def _rounds_right(divisors: NDArray[np.float64], bits: int) -> bool:
    """Whether x * z + x * w, fused, is on the right side of all numbers of so many bits.

    z is the inverse of a divisor y, and w what it lacks. With significands as integers X and Y of
    24 bits, X / Y lies beside a number halfway between two floats, M / 2^25, by a multiple of
    1 / (Y 2^25). The error is less than two of these, and X / Y < 1 where one is not enough
    (Brisebarre, Muller and Raina, IEEE Trans. Computers 53, 2004). So only X = 1 / 2^25 and
    X = -1 / 2^25 modulo Y are tried, where they have 24 bits.
    """
    significands, _ = np.frexp(abs(divisors.astype(np.float32).astype(np.float64)))
    size = 24
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


def _significands(first: int, count: int) -> NDArray[np.float64]:
    return np.arange(first, first + count) / (1 << 23)


_FEW_BITS = sorted({bits for dst in FORMATS if (bits := rounding_bits(dst)) is not None})


def test_a_divisor_that_is_wrong_for_17_bits_is_right_for_few() -> None:
    divisor = _significands(12977665, 1)
    assert not _rounds_right(divisor, 17)
    assert all(_rounds_right(divisor, bits) for bits in _FEW_BITS)


@pytest.mark.parametrize("first", [1 << 23, pytest.param(0, marks=pytest.mark.campaign)])
def test_products_are_on_the_right_side_of_numbers_of_few_bits(first: int) -> None:
    count = 1 << 15 if first else 1 << 18
    starts = [first] if first else range(1 << 23, 1 << 24, count)
    for start in starts:
        assert all(_rounds_right(_significands(start, count), bits) for bits in _FEW_BITS)


@pytest.mark.parametrize(
    ("types", "divisors", "operation"),
    [
        (("f32", "s8"), [0.3, -3.0], Operation.NARROW_QUOTIENT),
        (("f32", "bf16"), [0.3, -3.0], Operation.DIVIDE),
        (("f32", "f32"), [0.3], Operation.DIVIDE),
        # powers of two
        (("f32", "f32"), [0.25, -8.0], Operation.MULTIPLY),
        (("f32", "f32"), [0.25, 2.0**25], Operation.DIVIDE),
        (("f64", "f64"), [1e305, 1e-305], Operation.DIVIDE),
        # the nearest f32 is a power of two
        (("f64", "f64"), [1 + 2.0**-40], Operation.DIVIDE),
    ],
)
def test_divisions_become_products_where_results_are_equal(
    types: tuple[str, str], divisors: list[float], operation: Operation
) -> None:
    work, dst = types
    stage = Stage(work, dst, work, Operation.DIVIDE, "dst_scale")
    found, _ = tables_of(stage, np.array(divisors), Instructions(fma=True))
    assert found is operation
