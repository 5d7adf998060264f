"""Attributes, checked against two descriptors: which parameter belongs to which element."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import Axis, Block, MemdescError, MemoryDesc
from memdesc.layout import dim_name
from memdesc.tuples import NamedTuple
from reorder.values.attr import F8_ROUNDINGS, GROUPED_DIMS, Attr, Parameter, check_attr
from reorder.values.formats import INTEGERS, largest_number, rounds_through_f16, working_type

if TYPE_CHECKING:
    from numpy.typing import NDArray


# the role of beta, the factor of what dst held
BETA = "beta"


class Operand(NamedTuple):
    """The values of one role, and which of them belongs to each element: a layout over the dims."""

    # one of `attr.ROLES`
    role: str
    # the dims of the tensor
    dims: tuple[int, ...]
    # how many values there are along each dim: 1 where they do not differ
    sizes: tuple[int, ...]
    # how many adjacent elements along each dim share a value
    groups: tuple[int, ...]
    # bit d is set if the values differ along dim d; the strides of other dims are 0
    mask: int
    # flat, in f64, which is exact for all of them
    values: NDArray[np.float64]

    @property
    def offset0(self) -> int:
        """Offset of the first value: 0."""
        return 0

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The dims, one by one."""
        return tuple(Axis((dim,), size) for dim, size in enumerate(self.dims))

    def axis_blocks(self, axis: int) -> tuple[Block, ...]:
        """Return the blocks of a dim, with the largest step first."""
        stride = prod(self.sizes[axis + 1 :]) if self.mask >> axis & 1 else 0
        size, group = self.dims[axis], self.groups[axis]
        if group == 1 or not stride:
            return (Block(axis, 1, size, stride),)
        return Block(axis, group, size // group, stride), Block(axis, 1, group, 0)

    @property
    def is_scalar(self) -> bool:
        """Whether one value applies to all elements."""
        return self.values.size == 1


class BoundAttr(NamedTuple):
    """Attributes that were checked against two descriptors, by `bind`."""

    # in the order of `attr.ROLES`
    operands: tuple[Operand, ...]
    # the factor of the old elements of dst
    beta: float
    # whether the result is clamped to dst's largest number, and whether it is rounded to f16 before
    # dst's type; both are false if bits are only moved
    saturates: bool
    through_f16: bool

    @property
    def is_arithmetic(self) -> bool:
        """Whether anything is computed besides the conversion."""
        return bool(self.operands or self.beta)

    @property
    def varying(self) -> tuple[Operand, ...]:
        """The parameters that differ along the dims: the operands of boxes besides src and dst."""
        return tuple(operand for operand in self.operands if not operand.is_scalar)

    @property
    def by_role(self) -> dict[str, NDArray[np.float64]]:
        """The values of each role, flat; also those of beta, unless it is 0."""
        values = {operand.role: operand.values for operand in self.operands}
        return values | {BETA: np.array([self.beta])} if self.beta else values

    def arrays(self, dtype: np.dtype[Any]) -> dict[str, NDArray[Any]]:
        """Return the values of each role as an array that can be broadcast over the dims."""
        arrays = {}
        for operand in self.operands:
            array = operand.values.astype(dtype).reshape(operand.sizes)
            for dim, group in enumerate(operand.groups):
                if group > 1 and operand.mask >> dim & 1:
                    array = array.repeat(group, dim)
            arrays[operand.role] = array
        return arrays


_NEUTRAL = Attr()


def bind(attr: Attr | None, src: MemoryDesc, dst: MemoryDesc) -> BoundAttr:
    """Check the parameters against the descriptors of a reorder."""
    check_attr(attr)
    if attr is None:
        attr = _NEUTRAL
    work = working_type(src.dtype.name, dst.dtype.name, arithmetic=True)
    operands = []
    for parameter in attr.parameters:
        side, desc = ("src", src) if parameter.role.startswith("src") else ("dst", dst)
        exact = parameter.values.astype(np.float64).reshape(-1)
        if "scale" in parameter.role:
            _check_in_f32(parameter.role, exact, work)
        elif desc.dtype.name not in INTEGERS:
            raise MemdescError(
                f"{parameter.role} is for integers, but {side} is {desc.dtype.name}; pass a zero "
                "point of 0"
            )
        operands.append(_operand_of(parameter, desc, exact))
    if attr.beta:
        _check_in_f32(BETA, np.array([attr.beta]), work)
    adjust = 1.0 if dst.extra is None else dst.extra.scale_adjust
    if adjust != 1:
        # weights are scaled down for instructions whose sums saturate
        if "src_scale" not in (operand.role for operand in operands):
            position = sum(operand.role == "src_zero_point" for operand in operands)
            ones = (1,) * dst.ndims
            operands.insert(position, Operand("src_scale", dst.dims, ones, ones, 0, np.ones(1)))
        operands = [
            x._replace(values=x.values * adjust) if x.role == "src_scale" else x for x in operands
        ]
    converts = bool(src.dtype != dst.dtype or operands or attr.beta)
    name = dst.dtype.name
    through_f16 = attr.f8_rounding == F8_ROUNDINGS[1] and rounds_through_f16(name)
    return BoundAttr(
        tuple(operands),
        attr.beta,
        saturates=converts and attr.saturate and largest_number(name) is not None,
        through_f16=converts and through_f16,
    )


def _operand_of(parameter: Parameter, desc: MemoryDesc, values: NDArray[np.float64]) -> Operand:
    """Return the values of one role over the dims of a descriptor."""
    role, mask, ndims = parameter.role, parameter.mask, desc.ndims
    if mask >> ndims:
        name = dim_name(mask.bit_length() - 1, desc.letters)
        raise MemdescError(f"{role}_mask {mask} names {name}, but the dims are {desc.dims}")
    groups = [1] * ndims
    if parameter.groups:
        last = 3 << (ndims - 2) if ndims >= GROUPED_DIMS else -1
        if mask & last != last:
            raise MemdescError(
                f"{role}_groups {parameter.groups} are along the last two dims; {role}_mask must "
                f"name both: {mask} does not"
            )
        groups[-GROUPED_DIMS:] = parameter.groups
    sizes = []
    for dim, (size, group) in enumerate(zip(desc.dims, groups, strict=True)):
        if size % group:
            raise MemdescError(
                f"{role}_groups {parameter.groups}: a group of {group} does not divide "
                f"{dim_name(dim, desc.letters)} of size {size}"
            )
        sizes.append(size // group if mask >> dim & 1 else 1)
    shape = parameter.values.shape
    if parameter.values.size != prod(sizes) or (
        len(shape) > 1 and [n for n in shape if n > 1] != [n for n in sizes if n > 1]
    ):
        masked = tuple(n for dim, n in enumerate(sizes) if mask >> dim & 1)
        if not shape:
            raise MemdescError(
                f"{role}_mask {mask} is given, but {role} is one number; dims {desc.dims} need "
                f"{prod(sizes)} of shape {masked}"
            )
        fitting = [dim for dim, size in enumerate(desc.dims) if size == parameter.values.size]
        hint = "".join(
            f"; {dim_name(dim, desc.letters)} has size {desc.dims[dim]}: mask {1 << dim}"
            for dim in fitting[:1]
            if len(shape) == 1 and mask != 1 << dim
        )
        raise MemdescError(
            f"{role} of shape {shape} has {parameter.values.size} values, but mask {mask} over "
            f"dims {desc.dims} needs {prod(sizes)} of shape {masked}{hint}"
        )
    return Operand(role, desc.dims, tuple(sizes), tuple(groups), mask, values)


def _check_in_f32(role: str, values: NDArray[np.float64], work: str) -> None:
    with np.errstate(all="ignore"):
        narrow = values.astype(np.float32)
    bad = values[~np.isfinite(narrow) | (narrow == 0)]
    if work == "f32" and bad.size:
        raise MemdescError(
            f"{role} {bad[0]} is 0 or infinite in f32, in which this reorder computes; a reorder "
            "from or to f64 computes in f64"
        )
