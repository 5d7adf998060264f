"""The kernel of a box: the width of its elements, and how it stores them."""

from __future__ import annotations

from typing import NamedTuple

from reorder.cpu.target import BYTE_BITS

__all__ = ["Kernel"]


class Kernel(NamedTuple):
    """The variant of a walker and its micro-kernels: each is compiled separately.

    `bits` is 4, 8, 16, 32 or 64. With `streams` whole, aligned cache lines of dst are written by
    non-temporal stores; not for 4-bit elements.
    """

    bits: int
    streams: bool = False

    @property
    def is_packed(self) -> bool:
        """Whether elements share bytes."""
        return self.bits < BYTE_BITS

    def __str__(self) -> str:
        return f"{self.bits}-bit elements{', non-temporal stores' if self.streams else ''}"
