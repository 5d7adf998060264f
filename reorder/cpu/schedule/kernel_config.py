"""What all tiles of a plan share: the types between which they convert, and the post-ops."""

from dataclasses import dataclass, field
from itertools import product

from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from reorder.cpu.schedule.post_ops import (
    OperandTable,
    Operation,
    PostOp,
    has_exact_inverses,
    has_quotient,
    inverse_parts,
)
from reorder.cpu.schedule.tile_program import SLOT_BITS
from reorder.cpu.tables import Array
from reorder.values.binding import BoundAttr
from reorder.values.formats import difference_type, largest_number, narrow_working_type

# The operation of each role, in the order in which they are computed. With beta, the old dst is
# added between the roles of src and those of dst.
_SRC_ROLES = {"src_zero_point": Operation.SUBTRACT, "src_scale": Operation.MULTIPLY}
_DST_ROLES = {"dst_scale": Operation.DIVIDE, "dst_zero_point": Operation.ADD}


# Types between which one stage converts or computes, though neither is the working type. Each pair
# needs code of its own, so only quantized types are paired with those that models compute with.
_DIRECT = {
    frozenset(pair) for pair in (*product(("s8", "u8"), ("bf16", "f16", "s32")), ("s8", "u8"))
}


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
    # whether they exceed the threads' shares of the caches, so that long rows converted in place
    # are written the same way
    streams_rows: bool = False
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

    def numbers(self, role: str, table: OperandTable) -> Array:
        """Return what a table of the operands of a role holds."""
        values = self.values[role]
        if table is OperandTable.VALUES:
            return values
        inverses, residues = inverse_parts(values)
        return inverses if table is OperandTable.INVERSES else residues

    def operation_of(
        self, post_op: PostOp, work: str, dst: str
    ) -> tuple[Operation, tuple[OperandTable, ...]]:
        """Return the operation that computes a post-op, and what its tables of operands hold.

        `dst` is the type in which its results are stored. Only `NARROW_QUOTIENT` has two tables.
        """
        operation, role, _ = post_op
        if operation is Operation.DIVIDE and role is not None:
            divisors = self.values[role]
            if has_exact_inverses(divisors):
                return Operation.MULTIPLY, (OperandTable.INVERSES,)
            if self.has_fma and has_quotient(divisors, work, dst):
                return Operation.NARROW_QUOTIENT, (OperandTable.RESIDUES, OperandTable.INVERSES)
        return operation, (OperandTable.VALUES,)

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
        """Whether one stage computes dst from src: then only elements that are moved need scratch.

        It may have one operation, with so few operands that a slot holds all of them.
        """
        if not self.post_ops:
            return self.is_direct
        is_packed = any(DATA_TYPES[name].is_packed for name in (self.src, self.dst))
        count = max((self.values[role].size for role in self.varying), default=0)
        has_few = count * DATA_TYPES[self.work].bits <= SLOT_BITS
        has_one = len(self.post_ops) == 1 and not self.bound.beta and not self.subtracts_wide
        return has_one and has_few and not is_packed and self.has_stage(self.src, self.dst)

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
