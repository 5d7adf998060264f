"""The meaning of layouts in plain Python loops, which share no code with memdesc."""

from itertools import product

from memdesc import MemoryDesc

# a digit: letters, step, extent; None is the outer digit, which counts whole steps
Digits = list[tuple[str, int, int | None]]


def offsets(desc: MemoryDesc) -> dict[tuple[int, ...], int]:
    """Return the offset of every padded index, one index per axis, by the formula of blocks."""
    found = {}
    for index in product(*(range(axis.padded) for axis in desc.axes)):
        found[index] = desc.offset0 + sum(
            index[b.axis] // b.step % b.extent * b.stride for b in desc.blocks
        )
    return found
