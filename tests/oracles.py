"""The meaning of layouts in plain Python loops, which share no code with memdesc."""

from collections.abc import Iterable
from itertools import product

from memdesc import Axis, Block, MemoryDesc


def places(axes: Iterable[Axis], blocks: Iterable[Block]) -> dict[tuple[int, ...], int]:
    """Return what each padded index adds to offset0, one index per axis: the formula of blocks."""
    blocks = tuple(blocks)
    return {
        index: sum(index[b.axis] // b.step % b.extent * b.stride for b in blocks)
        for index in product(*(range(axis.padded) for axis in axes))
    }


def offsets(desc: MemoryDesc) -> dict[tuple[int, ...], int]:
    """Return the offset of every padded index, one index per axis."""
    return {index: desc.offset0 + at for index, at in places(desc.axes, desc.blocks).items()}
