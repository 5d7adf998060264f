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
    layout = desc.layout
    bases = places(layout.axes, layout.blocks)
    return {index: swizzled(layout.offset0 + at, layout.xor) for index, at in bases.items()}


def swizzled(base: int, terms: Iterable[tuple[int, int]]) -> int:
    """Return the offset of a base: each term adds bits of the base, by XOR, to others of it."""
    offset = base
    for shift, mask in terms:
        offset ^= (base >> shift if shift > 0 else base << -shift) & mask
    return offset
