"""The kernel config: the types, post-ops and arrays that all tiles of a plan share."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memdesc import DATA_TYPES
from reorder.cpu.schedule.post_ops import PERIOD, Numbers, Operation, inverse_parts
from reorder.cpu.target import BYTE_BITS
from reorder.memory.buffers import address_of
from reorder.values.formats import difference_type, largest_number, narrow_working_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from reorder.values.binding import BoundAttr

__all__ = ["KernelConfig", "PostOp"]

# The operation of each role, in the order in which they are computed; a sum with what dst held
# comes between src and dst.
_SRC_ROLES = {"src_zero_point": Operation.SUBTRACT, "src_scale": Operation.MULTIPLY}
_DST_ROLES = {"dst_scale": Operation.DIVIDE, "dst_zero_point": Operation.ADD}


# Types between which one stage converts or computes, though neither is the working type. Each pair
# needs code of its own, so only quantized types are paired with those that models compute with.
_DIRECT = {
    frozenset(pair) for pair in (*product(("s8", "u8"), ("bf16", "f16", "s32")), ("s8", "u8"))
}


class PostOp(NamedTuple):
    """An operation, and its operand: the values of a role, or a number if there is no role."""

    operation: Operation
    role: str | None
    number: float = 0.0


@dataclass
class KernelConfig:
    """What all boxes of a plan share."""

    src: str
    dst: str
    bound: BoundAttr
    # how many elements of src and of dst may be read; then those of each varying operand
    ends: tuple[int, ...]
    # whether src and dst together exceed the caches, so that dst is written by non-temporal stores
    streams: bool = False
    # whether they exceed the threads' shares of the caches, so that long rows converted in place
    # are written the same way
    streams_rows: bool = False
    # whether they exceed the caches of one core, so that src is prefetched
    prefetches: bool = False
    # arrays whose addresses are in tables: they must live as long as the config
    kept: list[Any] = field(default_factory=list)
    # addresses of the values of roles, by role, kind of numbers, working type and period
    _addresses: dict[tuple[str, Numbers, str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.work = narrow_working_type(self.src, self.dst, arithmetic=self.bound.is_arithmetic)
        if self.src == self.dst and not self.post_ops:
            self.work = self.src  # bits, not values
        self.varying = [operand.role for operand in self.bound.varying]
        roles = (operand.role for operand in self.bound.operands)
        self.values = dict(zip(roles, self.bound.values, strict=True))
        self.ends += tuple(self.values[role].size for role in self.varying)
        # the type in which zero points are subtracted
        points = self.values.get("src_zero_point")
        self.difference = difference_type(self.src, self.work, points)

    def keep(self, numbers: Iterable[float], dtype: str = "s64") -> int:
        """Store numbers in an array that lives as long as the config; returns its address."""
        array = np.array([*numbers], DATA_TYPES[dtype].numpy)
        self.kept.append(array)
        return address_of(array)

    def address_of_values(
        self, role: str, work: str, period: int, kind: Numbers = Numbers.VALUES
    ) -> int:
        """Return the address of the numbers of a role, in a working type.

        If `period` is not 0, each group of that many values is stored repeatedly, so that a vector
        can be loaded starting at any of them.
        """
        key = role, kind, work, period
        if key not in self._addresses:
            values = self._numbers_of(role, kind)
            if period:
                groups = np.append(values, np.ones(-values.size % period)).reshape(-1, period)
                values = np.tile(groups, 2 * PERIOD // period)
            self._addresses[key] = self.keep(values.reshape(-1), work)
        return self._addresses[key]

    def address_of_places(
        self, role: str, work: str, places: list[int], kind: Numbers = Numbers.VALUES
    ) -> int:
        """Return the address of the numbers at some places, as `address_of_values` returns all."""
        numbers = self._numbers_of(role, kind).reshape(-1)
        return self.keep(numbers[places], work)

    def _numbers_of(self, role: str, kind: Numbers) -> NDArray[Any]:
        """Return the values of a role, their inverses, or the residues of these."""
        values = self.values[role]
        if kind is Numbers.VALUES:
            return values
        return inverse_parts(values)[kind is Numbers.LACKING]

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
        """Whether one stage computes dst from src, with at most one operation."""
        has_old_or_wide = bool(self.bound.beta) or self.subtracts_wide
        is_short = len(self.post_ops) <= 1 and not has_old_or_wide
        return is_short and self.has_stage(self.src, self.dst)

    def has_stage(self, src: str, dst: str) -> bool:
        """Whether a stage may load elements of one type and store elements of the other."""
        return self.work in {src, dst} or {src, dst} in _DIRECT

    @property
    def max_bits(self) -> int:
        """Width of the widest elements in a slot of scratch, where 4-bit ones may be bytes."""
        between: tuple[str, ...] = () if self.is_direct else (self.work,)
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
        found = [PostOp(code, role) for role, code in _SRC_ROLES.items() if role in roles]
        if self.bound.beta:
            found.append(PostOp(Operation.ADD_PRODUCT, None, self.bound.beta))
        found += [PostOp(code, role) for role, code in _DST_ROLES.items() if role in roles]
        limit = largest_number(self.dst) if self.bound.saturates else None
        if limit is not None:
            found.append(PostOp(Operation.CLAMP, None, limit))
        if self.bound.through_f16:
            found.append(PostOp(Operation.ROUND_F16, None))
        return found
