"""Post-ops: operations on values, and when one may replace another."""

from enum import Enum, IntEnum

import numpy as np

from memdesc.tuples import NamedTuple
from reorder.cpu.tables import Array
from reorder.values.formats import FORMATS, INTEGERS, FloatFormat, IntegerFormat

# Bound of divisors that are powers of two, and of their inverses: f32 holds these.
_MAX_POWER = 2.0**40
# Bound of the divisors of `NARROW_QUOTIENT` and of their inverses: the product of any dividend and
# the inverse's residue is finite.
_MAX_NARROW = 2.0**24
# The widest types of few bits. A result rounds up on one side of the midpoint of two neighbouring
# numbers and down on the other. Midpoints of these types have at most 12 bits, and products fall on
# the right side for every divisor: a test tries all. For s16, with 17 bits, one divisor in six
# thousand fails.
_MAX_INTEGER_BITS, _MAX_FLOAT_BITS = 8, 16
# The exponent of the smallest step of f16.
_MIN_STEP = -24


class OperandTable(Enum):
    """What a table of operands holds."""

    VALUES = 0
    INVERSES = 1
    # the residues of the rounded inverses
    RESIDUES = 2


class Operation(IntEnum):
    """An operation on a value x and its operand y."""

    SUBTRACT = 0
    MULTIPLY = 1
    DIVIDE = 2
    # division by multiplications, where dst has few bits: y is the residue of the inverse, which is
    # stored beside it
    NARROW_QUOTIENT = 3
    ADD = 4
    # x + factor * y
    ADD_PRODUCT = 5
    # x limited to the range from -y to y
    CLAMP = 6
    # x rounded to f16 and converted back; no operand
    ROUND_F16 = 7
    # x itself; no operand
    CONVERT = 8


# The operations whose results may be a NaN that is not canonical: sums and products.
# `NARROW_QUOTIENT` makes its own canonical where it divides, and the others return what they got.
MAKES_NAN = frozenset(
    {Operation.SUBTRACT, Operation.MULTIPLY, Operation.DIVIDE, Operation.ADD, Operation.ADD_PRODUCT}
)
# The operations of scales: these have code for short rows, of one block of channels.
SCALING = frozenset({Operation.MULTIPLY, Operation.NARROW_QUOTIENT})


def has_exact_inverses(divisors: Array) -> bool:
    """Whether divisions by these numbers are multiplications by their inverses, to the bit.

    That holds if all are powers of two that f32 holds with their inverses.
    """
    mantissas, _ = np.frexp(divisors)
    is_inside = (abs(divisors) >= 1 / _MAX_POWER) & (abs(divisors) <= _MAX_POWER)
    return bool(((abs(mantissas) == 0.5) & is_inside).all())  # noqa: PLR2004 - a power of two


def has_quotient(divisors: Array, work: str, dst: str) -> bool:
    """Whether divisions by these numbers may be `NARROW_QUOTIENT`, if the processor has an fma.

    `dst` is the type in which results are stored.
    """
    magnitudes = abs(divisors)
    is_inside = bool(((magnitudes >= 1 / _MAX_NARROW) & (magnitudes <= _MAX_NARROW)).all())
    # zeros get the signs of the dividends
    has_signs = dst in INTEGERS or bool((divisors > 0).all())
    is_narrow = rounding_bits(dst) is not None
    return is_narrow and work == "f32" and is_inside and has_signs


def rounding_bits(dst: str) -> int | None:
    """Return the bits of the midpoints between neighbouring numbers of a type of few bits, or None.

    There, results round up or down.
    """
    form = FORMATS[dst]
    if isinstance(form, IntegerFormat) and form.bits <= _MAX_INTEGER_BITS:
        return form.bits + 1
    if isinstance(form, FloatFormat) and form.bits <= _MAX_FLOAT_BITS:
        return form.mantissa + 2
    return None


def has_small_steps(dst: str) -> bool:
    """Whether a type has numbers below 2^-25; other types round such results to 0."""
    form = FORMATS[dst]
    return isinstance(form, FloatFormat) and 1 - form.bias - form.mantissa < _MIN_STEP


def inverse_parts(divisors: Array) -> tuple[Array, Array]:
    """Return the rounded inverses of numbers as f32, and their rounded residues."""
    single = divisors.astype(np.float32)
    inverses: Array = np.float32(1) / single
    exact = single.astype(np.float64)
    # the product of two numbers of f32 is exact in f64, and so is its difference from 1
    residues = (1 - exact * inverses) / exact
    return inverses, residues.astype(np.float32)


class PostOp(NamedTuple):
    """An operation, and its operand: the values of a role, or a number if there is no role."""

    operation: Operation
    role: str | None
    number: float = 0.0
