"""The kernel of a box: the width of its elements, and how it stores them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Kernel"]

_BYTE = 8


class Kernel(NamedTuple):
    """What the code of a walker and its micro-kernels is compiled for.

    `bits` is 4, 8, 16, 32 or 64. With `streams` whole cache lines of dst are written by
    non-temporal stores; they must be aligned, and 4-bit elements have no such stores.
    """

    bits: int
    streams: bool = False

    @property
    def is_packed(self) -> bool:
        """Whether elements share bytes."""
        return self.bits < _BYTE

    def __str__(self) -> str:
        return f"{self.bits}-bit elements{', non-temporal stores' if self.streams else ''}"
