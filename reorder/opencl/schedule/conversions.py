"""The conversion of a reorder on a device: what is computed, and the numbers of its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memdesc import DATA_TYPES, MemdescError
from reorder.opencl.codegen.conversion import BETA, Conversion
from reorder.values.convert import wide_dtype
from reorder.values.formats import INTEGERS, difference_type, working_type

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from reorder.values.binding import BoundAttr

__all__ = ["ConversionSpec", "Floats", "buffers_of", "conversion_of", "numbers_of"]


_WORD = 32


class Floats(NamedTuple):
    """The arithmetic of a device.

    Attributes
    ----------
    has_f64 : bool
        Whether it has doubles.
    rounds : bool
        Whether sums of f32 are rounded to the nearest.
    is_exact : bool
        Whether sums and products of f32 are those of IEEE 754, denormals included.
    divides : bool
        Whether quotients of f32 are as well.
    has_fma : bool
        Whether fused operations of f32 are instructions.
    """

    has_f64: bool = True
    rounds: bool = True
    is_exact: bool = True
    divides: bool = True
    has_fma: bool = False


class ConversionSpec(NamedTuple):
    """What the launches of a conversion share, beside the box.

    `numbers` are its parameters that are one number, `max_work_items` is that of the device,
    `is_aligned` says whether buffers start at multiples of 16 bytes, `has_fma` whether quotients
    may be products.
    """

    conversion: Conversion
    numbers: dict[str, int]
    max_work_items: int
    is_aligned: bool
    has_fma: bool = False

    @property
    def has_narrow_elements(self) -> bool:
        """Whether four elements of either side fit 128 bits."""
        return all(
            DATA_TYPES[name].bits <= _WORD for name in (self.conversion.src, self.conversion.dst)
        )

    @property
    def needs_wide_parameters(self) -> bool:
        """Whether a number has 64 bits, as all parameters of the kernel then have."""
        return self.conversion.work == "f64" and bool(self.conversion.scalars)


def conversion_of(src: str, dst: str, bound: BoundAttr, floats: Floats) -> Conversion:
    """Return the conversion of an element, from the names of the types.

    Raises
    ------
    MemdescError
        If the device cannot compute it to the bit.
    """
    work = working_type(src, dst, arithmetic=bound.is_arithmetic)
    varying = tuple(operand.role for operand in bound.varying)
    scalars = [operand.role for operand in bound.operands if operand.role not in varying]
    if bound.beta:
        scalars.append(BETA)
    points = dict(zip((one.role for one in bound.operands), bound.values, strict=True))
    made = Conversion(
        src,
        dst,
        tuple(scalars),
        varying,
        work,
        difference_type(src, work, points.get("src_zero_point")),
        bound.saturates,
        bound.through_f16,
        divides_in_f64="dst_scale" in points and work == "f32" and not floats.divides,
    )
    if not made.is_move:
        _check(made, floats)
    return made


def _check(made: Conversion, floats: Floats) -> None:
    """Refuse what the device cannot compute to the bit."""
    reason = ""
    if made.work == "f64" and not floats.has_f64:
        reason = "is computed in f64, which the device does not have"
    elif made.divides_in_f64 and not floats.has_f64:
        reason = "divides by dst_scale, and the device neither rounds quotients of f32 nor has f64"
    elif made.work == "f32" and not floats.rounds and (made.roles or made.dst in INTEGERS):
        reason = "is rounded, and the device does not round to nearest"
    elif made.roles and made.work == "f32" and not floats.is_exact:
        reason = "computes in f32, and the device flushes denormals, or has no NaN"
    if reason:
        msg = f"{made.src} to {made.dst} {reason}; reorder on the CPU"
        raise MemdescError(msg)


def numbers_of(conversion: Conversion, bound: BoundAttr) -> dict[str, int]:
    """Return the parameters that are one number, by name; of floats the bits."""
    values = {
        operand.role: array[0]
        for operand, array in zip(bound.operands, bound.values, strict=True)
        if operand.role in conversion.scalars
    } | {BETA: bound.beta}
    found = {}
    for role in conversion.scalars:
        number = values[role]
        if not role.endswith("point"):
            wide = wide_dtype(conversion.work)
            number = np.array([number], wide).view(f"i{wide.itemsize}")[0]
        found[f"{role}_value"] = int(number)
    return found


def buffers_of(conversion: Conversion, bound: BoundAttr) -> tuple[NDArray[Any], ...]:
    """Return the values of each role that differ along the dims, as the kernel reads them."""
    kinds = {
        role: np.dtype(np.int32) if role.endswith("point") else wide_dtype(conversion.work)
        for role in conversion.varying
    }
    return tuple(
        values.astype(kinds[operand.role]).reshape(-1)
        for operand, values in zip(bound.operands, bound.values, strict=True)
        if operand.role in kinds
    )
