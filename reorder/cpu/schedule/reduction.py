"""Reductions: sums of the elements of a layout over some dims, as the program of an interpreter.

Every block of a layout is a loop. Loops over dims that are kept have a stride among the sums, the
others have 0. The innermost loops are summed as vectors: groups of 1, 2 or 4 contiguous elements
with a sum for each group, or a contiguous run with one sum.

A program is `ReductionHead`, then each outer loop, outermost first: `LoopHead`, its stride in
memory and its stride among the sums.
"""

from itertools import pairwise
from math import prod

import numpy as np

from memdesc import MemoryDesc
from memdesc.tuples import NamedTuple
from reorder.cpu.schedule.partition import Partition, StepRange
from reorder.cpu.schedule.program import LoopHead
from reorder.cpu.tables import Words
from reorder.plan.nodes import DST, SRC, Box, Node
from reorder.plan.passes import simplify

# Sizes of groups of contiguous elements that are loaded as one integer and added within it.
GROUPS = (4, 2)
# Least bytes of a thread: they take a few microseconds.
_MIN_THREAD_NBYTES = 1 << 17


class ReductionHead(NamedTuple):
    """What is summed in each step of the outer loops."""

    # number of groups of contiguous elements, and elements of each
    groups: int
    group_size: int
    # whether all groups have one sum (1), or each its sum (0)
    is_single: int
    # number of rows of such groups, which are added to the same sums, and their stride
    rows: int
    row_stride: int
    # number of outer loops
    outer: int


class Reduction(NamedTuple):
    """A reduction that is ready to run."""

    program: Words
    partition: Partition
    # shape of the sums: the padded extents of the dims that are kept
    shape: tuple[int, ...]


# The operands of a loop: the sums, and the elements in memory.
_SUMS, _ELEMENTS = SRC, DST


def reduce_dims(desc: MemoryDesc, mask: int, threads: int) -> Reduction:
    """Return the reduction over the dims outside of a mask, on at most `threads` threads."""
    loops = _loops(desc, mask)
    head, outer = _split_loops(loops)
    program = [*head]
    for loop in outer:
        program += [*LoopHead(loop.extent, loop.valid), *loop.strides[::-1]]
    # the outermost loop is divided among threads, if its steps have different sums
    steps = outer[0].extent if outer and outer[0].strides[_SUMS] else 1
    size = prod(loop.extent for loop in loops)
    chunks = max(1, min(steps, threads, size // _MIN_THREAD_NBYTES))
    inner_steps = prod(loop.extent for loop in outer) // steps
    bounds = [chunk * steps // chunks for chunk in range(chunks + 1)]
    ranges = [StepRange(0, a * inner_steps, b * inner_steps, 0, 0) for a, b in pairwise(bounds)]
    partition = Partition(np.array(ranges, np.int64), np.arange(chunks + 1, dtype=np.int64), chunks)
    shape = tuple(size for dim, size in enumerate(desc.padded_dims) if mask >> dim & 1)
    return Reduction(np.array(program, np.int64), partition, shape)


def _loops(desc: MemoryDesc, mask: int) -> tuple[Node, ...]:
    """Return the blocks of a layout as loops, the smallest stride last, fused where possible."""
    nodes: list[Node] = []
    size = 1
    # blocks come axis by axis, the largest step first, and so do the indices of the sums
    for block in reversed(desc.layout.blocks):
        is_kept = mask >> block.axis & 1
        nodes.append(Node(block.extent, block.extent, (size * is_kept, block.stride)))
        size *= block.extent if is_kept else 1
    (box,) = simplify((Box((0, 0), tuple(nodes)),))
    return box.nodes


def _split_loops(loops: tuple[Node, ...]) -> tuple[ReductionHead, list[Node]]:
    """Return what sums the innermost loops as vectors, and rows of them, and the outer loops."""
    # the first fields of the head
    vectors, rest = (1, 1, 1), [*loops]
    if rest and rest[-1].strides[_ELEMENTS] == 1:
        last = rest.pop()
        around = rest[-1] if rest else None
        if last.strides[_SUMS] == 1:
            vectors = last.extent, 1, 0
        elif last.strides[_SUMS]:
            rest.append(last)
        elif last.extent in GROUPS and around and around.strides == (1, last.extent):
            vectors = rest.pop().extent, last.extent, 0
        else:
            vectors = last.extent, 1, 1
    reduced = [loop for loop in rest if not loop.strides[_SUMS]]
    rows = reduced[-1] if reduced else Node(1, 1, (0, 0))
    # loops over kept dims are outermost, so that threads have different sums
    outer = sorted((loop for loop in rest if loop is not rows), key=lambda n: -n.strides[_SUMS])
    return ReductionHead(*vectors, rows.extent, rows.strides[_ELEMENTS], len(outer)), outer
