"""What is computed for each element of a reorder that converts: data, on which source depends."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BETA", "Conversion"]

# name of the factor of what dst held, among the names of roles
BETA = "beta"


class Conversion(NamedTuple):
    """The data types of both sides, and the operations between them, by `reorder.values.convert`.

    Attributes
    ----------
    src, dst : str
        Names of data types.
    scalars : tuple of str
        Roles whose value is one number, a parameter of the kernel; `BETA` among them.
    varying : tuple of str
        Roles whose values differ along the dims: each is a buffer.
    work : str
        The working type: ``f32``, ``f64``, ``s64``, ``u64``; the type itself where bits move.
    difference : str
        The type in which zero points are subtracted; f64 beside f32 means exact integers.
    saturates, through_f16 : bool
        As in `BoundAttr`.
    multiplies : bool
        Whether quotients of f32 are computed from the inverse of dst_scale and two remainders,
        which rounds them correctly; the device then has fused operations.
    divides_in_f64 : bool
        Whether quotients of f32 are computed in f64, since the device does not round them
        correctly.
    writes_halves : bool
        Whether dst is an image of f16, which is written with floats.
    has_half_instructions : bool
        Whether f16 and f32 are converted by what a device has for it, instead of by integers.
    """

    src: str
    dst: str
    scalars: tuple[str, ...] = ()
    varying: tuple[str, ...] = ()
    work: str = "f32"
    difference: str = "f32"
    saturates: bool = False
    through_f16: bool = False
    multiplies: bool = False
    divides_in_f64: bool = False
    writes_halves: bool = False
    has_half_instructions: bool = False

    @property
    def roles(self) -> tuple[str, ...]:
        """All scales, zero points, and beta."""
        return (*self.scalars, *self.varying)

    @property
    def is_move(self) -> bool:
        """Whether bits move as they are."""
        return self.src == self.dst and not self.roles
