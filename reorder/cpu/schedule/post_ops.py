"""The post-ops of a plan: operations on values, and the types between which tiles convert."""

from itertools import product

import numpy as np

from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.tuples import NamedTuple
from reorder.cpu.machine import Instructions
from reorder.cpu.schedule.operands import Operands
from reorder.cpu.schedule.tile_program import Operation, StageTypes
from reorder.cpu.tables import Array
from reorder.plan.plan import ReorderPlan
from reorder.values.binding import BETA
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

# Bound on divisors that are replaced by factors, and on their inverses: within it, the product of
# any dividend and the inverse's residue is finite.
_MAX_DIVISOR = 2.0**24
# The widest of the narrow types. A result rounds up on one side of the midpoint of two neighbouring
# numbers and down on the other. Midpoints of these types have at most 12 bits, and products fall on
# the right side for every divisor: a test tries all. For s16, with 17 bits, one divisor in six
# thousand fails.
_MAX_INTEGER_BITS, _MAX_FLOAT_BITS = 8, 16
# The exponent of the smallest step of f16.
_MIN_STEP = -24


# The operations whose results may be a NaN that is not canonical: sums and products.
# `NARROW_QUOTIENT` makes its NaNs canonical where it divides, and the others return what they got.
MAKES_NAN = frozenset({Operation.ADD, Operation.MULTIPLY, Operation.DIVIDE, Operation.ACCUMULATE})


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


def operations_at(types: "StageTypes | Stage", instructions: Instructions) -> set[Operation]:
    """Return the operations that may take the place of a stage's operation, which is one of them.

    Between others, and next to 4-bit integers, an operation has the working type on both sides.
    """
    if types.operation is Operation.CONVERT:
        return {Operation.CONVERT}
    dst, work = types.dst, types.work
    operations = {Operation.ADD, Operation.MULTIPLY, Operation.DIVIDE, Operation.ACCUMULATE}
    if instructions.fma and work == "f32" and rounding_bits(dst) is not None:
        operations.add(Operation.NARROW_QUOTIENT)
    if largest_number(dst) is not None or dst == work:
        operations.add(Operation.CLAMP)
    if rounds_through_f16(dst) or dst == work:
        operations.add(Operation.ROUND_F16)
    return operations


def operands_at(operation: Operation) -> list[Operands]:
    """Return which operands rows may have in an operation."""
    if operation in {Operation.CONVERT, Operation.ROUND_F16, Operation.CLAMP}:
        return [Operands.ONE]
    # the old dst has no groups
    return [Operands.ONE, Operands.EACH, *[Operands.GROUPS] * (operation != Operation.ACCUMULATE)]


# The operations on values, in the order in which they are computed, by what their operands are.
_OPERATIONS = {
    "src_zero_point": Operation.ADD,
    "src_scale": Operation.MULTIPLY,
    BETA: Operation.ACCUMULATE,
    "dst_scale": Operation.DIVIDE,
    "dst_zero_point": Operation.ADD,
    "largest": Operation.CLAMP,
    "through_f16": Operation.ROUND_F16,
}

# Types between which one stage converts or computes although neither is the working type. Each pair
# needs code of its own, so only quantised types are paired with those that models compute with.
_DIRECT = {
    frozenset(pair) for pair in (*product(("s8", "u8"), ("bf16", "f16", "s32")), ("s8", "u8"))
}


def as_bytes(dtype: str) -> str:
    """Return the type of whole bytes that holds integers of 4 bits; other types are as they are."""
    is_integer = DATA_TYPES[dtype].is_packed and isinstance(FORMATS[dtype], IntegerFormat)
    return narrow_working_type(dtype, dtype, arithmetic=False) if is_integer else dtype


class Stage(NamedTuple):
    """A stage of a conversion, from one type to another, with at most one operation on values."""

    src: str
    dst: str
    # the type in which it computes
    work: str
    operation: Operation = Operation.CONVERT
    # whose values are its operands; empty: it has none
    role: str = ""

    def joined(self, following: "Stage") -> "Stage | None":
        """Return the stage that does what this one and the following one do, or None."""
        src, dst, work = self.src, following.dst, self.work
        computes = [
            stage for stage in (self, following) if stage.operation is not Operation.CONVERT
        ]
        # operations load and store no elements that share bytes
        is_packed = any(DATA_TYPES[name].is_packed for name in (src, dst))
        if work != following.work or len(computes) > (0 if is_packed else 1):
            return None
        if work not in {src, dst} and {src, dst} not in _DIRECT:
            return None
        return next(iter(computes), self)._replace(src=src, dst=dst)


class Conversion(NamedTuple):
    """The types and the post-ops of a plan, which its boxes share."""

    src: str
    dst: str
    # the working type
    work: str
    # the type in which the zero points of src are subtracted
    exact: str
    # the operands of each post-op, by what they are
    values: dict[str, Array]
    # which of these differ between elements: the operands of boxes besides src and dst
    varying: tuple[str, ...]

    @classmethod
    def of(cls, plan: ReorderPlan) -> "Conversion":
        """Return the conversion of a plan."""
        src, dst, bound = plan.src.dtype.name, plan.dst.dtype.name, plan.bound_attr
        work = narrow_working_type(src, dst, arithmetic=bound.is_arithmetic)
        values: dict[str, Array] = {**bound.by_role}
        exact = difference_type(src, work, values.get("src_zero_point"))
        if "src_zero_point" in values:
            values["src_zero_point"] = -values["src_zero_point"]  # they are added
        limit = largest_number(dst) if bound.saturates else None
        if limit is not None:
            values["largest"] = np.array([limit])
        if bound.through_f16:
            values["through_f16"] = np.zeros(1)
        return cls(src, dst, work, exact, values, tuple(operand.role for operand in bound.varying))

    def stages(self, *, reads: bool, writes: bool) -> list[Stage]:
        """Return the stages between src and dst; none if elements are only moved.

        Integers of 4 bits are bytes unless they are read or written in place, and where there are
        operations on them.
        """
        work = self.work
        operations = [
            Stage(work, work, work, operation, role)
            for role, operation in _OPERATIONS.items()
            if role in self.values
        ]
        if self.src == self.dst and not operations:
            return []
        is_direct = not operations and convert(self.src, work).joined(convert(work, self.dst))
        # the types in which elements are computed
        first = self.src if reads and is_direct else as_bytes(self.src)
        last = self.dst if writes and is_direct else as_bytes(self.dst)
        if "src_zero_point" in self.values and self.exact != work:
            # the difference of numbers of more than 24 bits is exact in f64 only
            wide = operations[0]._replace(src=self.exact, dst=self.exact, work=self.exact)
            operations[:1] = [wide, convert(self.exact, work)]
        path = [
            convert(self.src if reads else first, first),
            convert(first, operations[0].src if operations else work),
            *operations,
            convert(work, last),
            convert(last, self.dst if writes else last),
        ]
        stages: list[Stage] = []
        for stage in path:
            if stage.src == stage.dst and stage.operation is Operation.CONVERT:
                continue
            joined = stages[-1].joined(stage) if stages else None
            stages[-1:] = [*stages[-1:], stage] if joined is None else [joined]
        return stages

    @property
    def is_single(self) -> bool:
        """Whether one stage computes dst from src: only elements that are moved need scratch then.

        Integers of 4 bits are bytes there.
        """
        return len(self.stages(reads=False, writes=False)) <= 1 and BETA not in self.values

    @property
    def max_bits(self) -> int:
        """Width of the widest elements in a slot of scratch, where 4-bit ones may be bytes."""
        types = {self.src, self.dst, *([self.work] if BETA in self.values else [])}
        for stage in self.stages(reads=False, writes=False):
            types |= {stage.src, stage.dst}
        return max(BYTE_BITS, *(DATA_TYPES[name].bits for name in types))


def tables_of(
    stage: Stage, values: Array, instructions: Instructions
) -> tuple[Operation, list[Array]]:
    """Return the operation of a stage, and its operands: `NARROW_QUOTIENT` has two tables."""
    operation, tables = stage.operation, [values]
    magnitudes = abs(values)
    is_inside = (magnitudes <= _MAX_DIVISOR) & (magnitudes >= 1 / _MAX_DIVISOR)
    if operation is Operation.DIVIDE and stage.work == "f32" and is_inside.all():
        inverses, residues = inverse_parts(values)
        # zeros get the signs of the dividends
        has_signs = stage.dst in INTEGERS or bool((values > 0).all())
        if not residues.any():  # powers of two
            operation, tables = Operation.MULTIPLY, [inverses]
        elif has_signs and Operation.NARROW_QUOTIENT in operations_at(stage, instructions):
            operation, tables = Operation.NARROW_QUOTIENT, [residues, inverses]
    return operation, [table.astype(DATA_TYPES[stage.work].numpy) for table in tables]


def convert(src: str, dst: str) -> Stage:
    """Return the stage that only converts."""
    return Stage(src, dst, narrow_working_type(src, dst, arithmetic=False))
