"""Tiles in local memory: the loops along their runs, and the banks that work items access.

Local memory has 32 banks of words. The work items of a subgroup should access different banks, both
when they store a tile and when they load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reorder.opencl.kernel.launch import ceil_log2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reorder.opencl.kernel.placement import Loop

SUBGROUP = 32
# local memory that every kernel on NVIDIA's devices may use
MAX_LOCAL_NBYTES = 48 << 10


class Chain(NamedTuple):
    """The loops that form a contiguous run in an operand, and the steps of each in a tile."""

    run: tuple[int, ...]
    extents: tuple[int, ...]


def chain_of(loops: Sequence[Loop], operand: int, limit: int) -> Chain | None:
    """Return the contiguous loops of an operand until their run has `limit` elements."""
    run: list[int] = []
    extents: list[int] = []
    length = 1
    while length < limit:
        steps = (k for k, loop in enumerate(loops) if loop.stride(operand) == length)
        k = next((k for k in steps if k not in run and loops[k].extent > 1), None)
        if k is None:
            break
        loop, needed = loops[k], -(-limit // length)
        run.append(k)
        # of a longer loop, the least power of two that is enough
        extents.append(loop.extent if loop.extent <= needed else 1 << ceil_log2(needed))
        length *= extents[-1]
        # a run continues only after whole loops of data
        if operand == 0 and loop.valid != loop.extent:
            break
    return Chain(tuple(run), tuple(extents)) if run else None


class LocalLayout(NamedTuple):
    """Where a tile is in local memory.

    `element` has the bytes of an element, `strides` those between the steps of each loop, and then
    of the lanes of a pixel. After each `gap_steps` steps of a loop, `gap` more bytes follow: after
    `gap_elements` of the run that is contiguous here, if the loop is part of it.
    """

    element: int
    strides: tuple[int, ...] = ()
    nbytes: int = 0
    gap: int = 0
    gap_loop: int = 0
    gap_steps: int = 1
    gap_elements: int = 0

    def offset(self, loop: int, index: int) -> int:
        """Return the bytes from the start of the tile to a step of a loop."""
        gap = self.gap if loop == self.gap_loop else 0
        return index * self.strides[loop] + index // self.gap_steps * gap

    def terms(self, loop: int, index: str) -> list[str]:
        """Return the expressions whose sum is the `offset` of a step of a loop."""
        gaps = self.gap and loop == self.gap_loop
        more = [f"{index} / {self.gap_steps} * {self.gap}"] if gaps else []
        return [f"{index} * {self.strides[loop]}", *more]
