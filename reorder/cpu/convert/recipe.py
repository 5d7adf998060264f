"""What all boxes of a plan that converts share: types, what is computed in which order, and the numbers for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import DATA_TYPES
from reorder.cpu.convert.operation import PERIOD, Operation
from reorder.memory.buffers import address_of
from reorder.values.formats import difference_type, largest_number, working_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reorder.values.binding import Bound

__all__ = ["Recipe"]

_ROLES = {
    "src_zero_point": Operation.SUBTRACT,
    "src_scale": Operation.MULTIPLY,
    "dst_scale": Operation.DIVIDE,
    "dst_zero_point": Operation.ADD,
}


@dataclass
class Recipe:
    """What all boxes of a plan share: types, parameters, ends of buffers."""

    src: str
    dst: str
    bound: Bound
    # elements of src, and of dst, that may be read
    ends: tuple[int, int]
    # whether both are more than the caches hold
    streams: bool = False
    # whether src is in no cache of one core
    is_far: bool = False
    # values of each operand beyond src and dst, and of those that do not change, by working type
    values: dict[tuple[str, str, int], NDArray[Any]] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.work = working_type(self.src, self.dst, arithmetic=self.bound.is_arithmetic)
        if self.src == self.dst and not self.operations:
            self.work = self.src  # bits, not values
        self.difference = difference_type(self.src, self.work)
        self.varying = [operand.role for operand in self.bound.operands if not operand.is_scalar]

    def address(self, numbers: Any, dtype: Any = np.int64) -> int:
        """Keep an array alive and return where it is."""
        array = np.ascontiguousarray(numbers, dtype)
        self.kept.append(array)
        return address_of(array)

    def array(self, name: str, values: NDArray[Any], work: str, period: int) -> NDArray[Any]:
        """Return values in a working type, kept alive; equal names give the same array.

        Each `period` of them, if any, stand there again and again, so that vectors find them from any of them on.
        """
        key = name, work, period
        if key not in self.values:
            if period:
                groups = np.append(values, np.ones(-values.size % period)).reshape(-1, period)
                values = np.tile(groups, 2 * PERIOD // period)
            self.values[key] = np.ascontiguousarray(values, np.dtype(DATA_TYPES[work].numpy))
        return self.values[key]

    @property
    def needs_values(self) -> bool:
        """Whether anything is computed, or no stage leads from src to dst."""
        return bool(self.operations) or self.work not in {self.src, self.dst}

    @property
    def operations(self) -> list[tuple[int, str | float]]:
        """What is computed in the working type, in order: an operation, and the role or number it takes."""
        values: list[tuple[int, str | float]] = []
        roles = {operand.role for operand in self.bound.operands}
        for role in ("src_zero_point", "src_scale"):
            values += [(_ROLES[role], role)] if role in roles else []
        values += [(Operation.ADD_PRODUCT, self.bound.beta)] if self.bound.beta else []
        for role in ("dst_scale", "dst_zero_point"):
            values += [(_ROLES[role], role)] if role in roles else []
        limit = largest_number(self.dst) if self.bound.saturates else None
        if limit is not None:
            values.append((Operation.CLAMP, limit))
        if self.bound.through_f16:
            values.append((Operation.ROUND_F16, 0.0))
        return values
