"""The post-ops of a plan: operations on values, and the types between which tiles convert."""

from dataclasses import dataclass, field
from itertools import product

import numpy as np

from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.tuples import NamedTuple
from reorder.cpu.schedule.tile_program import Operation, StageTypes
from reorder.cpu.tables import Array
from reorder.values.binding import BoundAttr
from reorder.values.formats import (
    FORMATS,
    INTEGERS,
    FloatFormat,
    IntegerFormat,
    difference_type,
    largest_number,
    narrow_working_type,
    rounds_through_f16,
)

# Bound on divisors that are powers of two, and on their inverses: f32 holds both.
_MAX_POWER = 2.0**40
# Bound on the divisors of `NARROW_QUOTIENT` and on their inverses: within it, the product of any
# dividend and the inverse's residue is finite.
_MAX_NARROW = 2.0**24
# The widest of the narrow types. A result rounds up on one side of the midpoint of two neighbouring
# numbers and down on the other. Midpoints of these types have at most 12 bits, and products fall on
# the right side for every divisor: a test tries all. For s16, with 17 bits, one divisor in six
# thousand fails.
_MAX_INTEGER_BITS, _MAX_FLOAT_BITS = 8, 16
# The exponent of the smallest step of f16.
_MIN_STEP = -24


# The operations whose results may be a NaN that is not canonical: sums and products.
# `NARROW_QUOTIENT` makes its NaNs canonical where it divides, and the others return what they got.
MAKES_NAN = frozenset({Operation.ADD, Operation.MULTIPLY, Operation.DIVIDE, Operation.ADD_PRODUCT})


def has_exact_inverses(divisors: Array) -> bool:
    """Whether divisions by these numbers are multiplications by their inverses, to the bit.

    That is so if all are powers of two, and f32 holds them and their inverses.
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
    """Return the bits of the midpoints between neighbouring numbers of a narrow type, or None.

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


def operations_at(types: StageTypes, *, has_fma: bool) -> set[Operation]:
    """Return the operations that may take the place of a stage's operation, which is one of them.

    Between others, and next to 4-bit integers, an operation has the working type on both sides.
    """
    if types.operation is Operation.CONVERT:
        return {Operation.CONVERT}
    dst, work = types.dst, types.work
    operations = {Operation.ADD, Operation.MULTIPLY, Operation.DIVIDE, Operation.ADD_PRODUCT}
    if has_fma and work == "f32" and rounding_bits(dst) is not None:
        operations.add(Operation.NARROW_QUOTIENT)
    if largest_number(dst) is not None or dst == work:
        operations.add(Operation.CLAMP)
    if rounds_through_f16(dst) or dst == work:
        operations.add(Operation.ROUND_F16)
    return operations


class PostOp(NamedTuple):
    """An operation, and its operand: the values of a role, or a number if there is no role."""

    operation: Operation
    role: str | None
    number: float = 0.0


# The operation of each role, in the order in which they are computed. With beta, the old dst is
# added between the roles of src and those of dst.
_SRC_ROLES = {"src_zero_point": Operation.ADD, "src_scale": Operation.MULTIPLY}
_DST_ROLES = {"dst_scale": Operation.DIVIDE, "dst_zero_point": Operation.ADD}


# Types between which one stage converts or computes although neither is the working type. Each pair
# needs code of its own, so only quantised types are paired with those that models compute with.
_DIRECT = {
    frozenset(pair) for pair in (*product(("s8", "u8"), ("bf16", "f16", "s32")), ("s8", "u8"))
}


def as_bytes(dtype: str) -> str:
    """Return the type of whole bytes that holds integers of 4 bits; other types are as they are."""
    is_integer = DATA_TYPES[dtype].is_packed and isinstance(FORMATS[dtype], IntegerFormat)
    return narrow_working_type(dtype, dtype, arithmetic=False) if is_integer else dtype


@dataclass
class KernelConfig:
    """What all boxes of a plan share."""

    src: str
    dst: str
    bound: BoundAttr
    # how many elements of src and of dst may be read
    ends: tuple[int, int]
    # whether src and dst together exceed the caches, so that dst is written by non-temporal stores
    streams: bool = False
    # whether they exceed the threads' shares of the caches, so that long rows that are converted in
    # place are written by non-temporal stores too
    streams_rows: bool = False
    # elements between the start of a cache line and dst; None: any number
    place: int | None = None
    # whether the processor has a fused multiply-add
    has_fma: bool = True
    # the working type, and the type in which zero points are subtracted
    work: str = field(init=False)
    difference: str = field(init=False)
    # the roles whose values differ between elements, and the values of all roles
    varying: list[str] = field(init=False)
    values: dict[str, Array] = field(init=False)

    def __post_init__(self) -> None:
        self.work = narrow_working_type(self.src, self.dst, arithmetic=self.bound.is_arithmetic)
        if self.src == self.dst and not self.post_ops:
            self.work = self.src  # bits, not values
        self.varying = [operand.role for operand in self.bound.varying]
        self.values = {operand.role: operand.values for operand in self.bound.operands}
        points = self.values.get("src_zero_point")
        self.difference = difference_type(self.src, self.work, points)
        if points is not None:
            self.values["src_zero_point"] = -points  # they are added

    def operation_of(
        self, post_op: PostOp, work: str, dst: str
    ) -> tuple[Operation, tuple[Array, ...]]:
        """Return the operation that computes a post-op, and its tables of operands.

        `dst` is the type in which its results are stored. Only `NARROW_QUOTIENT` has two tables.
        """
        operation, role, number = post_op
        if role is None:
            return operation, (np.array([number]),)
        values = self.values[role]
        if operation is Operation.DIVIDE:
            if has_exact_inverses(values):
                return Operation.MULTIPLY, inverse_parts(values)[:1]
            if self.has_fma and has_quotient(values, work, dst):
                return Operation.NARROW_QUOTIENT, inverse_parts(values)[::-1]
        return operation, (values,)

    @property
    def moves_packed(self) -> bool:
        """Whether 4-bit elements are moved and not converted."""
        is_packed = DATA_TYPES[self.src].is_packed
        return is_packed and self.src == self.dst and not self.post_ops

    @property
    def is_direct(self) -> bool:
        """Whether one stage converts src to dst, without values between them."""
        return self.has_stage(self.src, self.dst) and not self.post_ops

    @property
    def is_single(self) -> bool:
        """Whether one stage computes dst from src, where integers of 4 bits are bytes.

        It has at most one operation. Only elements that are moved need scratch then.
        """
        types = as_bytes(self.src), as_bytes(self.dst)
        # operations load and store no 4-bit floats
        most = 0 if any(DATA_TYPES[name].is_packed for name in types) else 1
        has_one = len(self.post_ops) <= most and not self.bound.beta and not self.subtracts_wide
        return has_one and self.has_stage(*types)

    def has_stage(self, src: str, dst: str) -> bool:
        """Whether a stage may load elements of one type and store elements of the other."""
        return self.work in {src, dst} or {src, dst} in _DIRECT

    @property
    def max_bits(self) -> int:
        """Width of the widest elements in a slot of scratch, where 4-bit ones may be bytes."""
        between: tuple[str, ...] = () if self.is_single else (self.work,)
        if self.subtracts_wide:
            between = (self.work, self.difference)
        types = (self.src, self.dst, *between)
        return max(BYTE_BITS, *(DATA_TYPES[name].bits for name in types))

    @property
    def subtracts_wide(self) -> bool:
        """Whether zero points are subtracted in a wider type than the working type."""
        return "src_zero_point" in self.values and self.difference != self.work

    @property
    def post_ops(self) -> list[PostOp]:
        """What is computed in the working type, in order."""
        roles = {operand.role for operand in self.bound.operands}
        post_ops = [PostOp(code, role) for role, code in _SRC_ROLES.items() if role in roles]
        if self.bound.beta:
            post_ops.append(PostOp(Operation.ADD_PRODUCT, None, self.bound.beta))
        post_ops += [PostOp(code, role) for role, code in _DST_ROLES.items() if role in roles]
        limit = largest_number(self.dst) if self.bound.saturates else None
        if limit is not None:
            post_ops.append(PostOp(Operation.CLAMP, None, limit))
        if self.bound.through_f16:
            post_ops.append(PostOp(Operation.ROUND_F16, None))
        return post_ops
