"""Boxes of a reorder that converts, between two buffers, to launches: runs of elements."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memdesc import DATA_TYPES
from reorder.opencl.codegen.conversion import Conversion
from reorder.opencl.codegen.pattern import Access, AccessKind, Pattern, Run
from reorder.opencl.schedule.lower_run_tiles import lower_run_tile
from reorder.opencl.schedule.run_launch import (
    MAX_RUN,
    RUN_BITS,
    Shares,
    is_aligned,
    make_launch,
    quotients,
)
from reorder.opencl.schedule.workgroups import ceil_log2, floor_log2
from reorder.plan.nodes import Node
from reorder.plan.passes import src_and_dst

if TYPE_CHECKING:
    from reorder.opencl.schedule.conversions import ConversionSpec
    from reorder.opencl.schedule.lower import Launch
    from reorder.plan.nodes import Box

__all__ = ["lower_runs", "without_others"]

_BYTE = 8
_MAX_WORK_ITEMS = 256
# Runs of a work item, of 4 elements; fewer of more. Fewer as well where groups would be too few.
_RUNS, _MIN_GROUPS = 4, 1024
# Nests with fewer loops are filled up with loops of one step, so that there are fewer patterns.
_MIN_LOOPS = 3


def lower_runs(box: Box, spec: ConversionSpec) -> tuple[tuple[Launch, ...], tuple[Launch, ...]]:
    """Make the launches of a box.

    Elements of 4 bits that do not make whole bytes are written in two launches, each of which
    writes one half of a byte.

    Returns
    -------
    first, second : tuple of Launch
        The second ones start when all first ones, of all boxes, are done.
    """
    conversion = spec.conversion
    if box.is_zero:
        conversion = Conversion(conversion.dst, conversion.dst)
        box = without_others(box)
    nodes = sorted(box.nodes, key=lambda node: abs(node.strides[1]))
    unit = Node(1, 1, (0,) * len(box.offsets))
    nodes += [unit] * (_MIN_LOOPS - len(nodes))
    box = box._replace(nodes=tuple(nodes))
    spec = spec._replace(conversion=conversion)
    tiled = lower_run_tile(box, spec)
    if tiled is not None:
        return (tiled,), ()
    bits = [DATA_TYPES[name].bits for name in (conversion.src, conversion.dst)]
    length = _length(box, bits, spec)
    kinds = [
        AccessKind.VECTOR
        if length > 1
        and spec.is_aligned | (bits[k] * length == _BYTE)
        and is_aligned(box, k, length)
        else AccessKind.BUFFER
        for k in range(2)
    ]
    if box.is_zero:
        kinds[0] = AccessKind.NONE
    roles = conversion.varying
    uniform = tuple(
        role for role, stride in zip(roles, nodes[0].strides[2:], strict=True) if not stride
    )
    run = Run(
        length,
        nodes[0].valid == nodes[0].extent and not nodes[0].extent % length,
        bits[1] < _BYTE and length == 1,
        uniform,
    )
    accesses = [Access(kind, f"b{width}") for kind, width in zip(kinds, bits, strict=True)]
    total = floor_log2(min(_MAX_WORK_ITEMS, spec.max_work_items))
    pattern = Pattern(
        accesses[0],
        accesses[1],
        (0,),
        (),
        1 << total,
        conversion=quotients(conversion, uniform, spec),
        run=run,
    )
    shares = _shares(box, length, total)
    if not run.is_nibble:
        return (make_launch(box, pattern, spec, shares, 0),), ()
    strides = [node.strides[1] for node in nodes]
    strides += [
        block.stride for gather in box.lookups for _, blocks in gather.dst for block in blocks
    ]
    if all(stride % 2 == 0 for stride in strides):
        alone = (make_launch(box, pattern, spec, shares, box.offsets[1] % 2),)
        return ((), alone) if box.offsets[1] % 2 else (alone, ())
    return (make_launch(box, pattern, spec, shares, 0),), (
        make_launch(box, pattern, spec, shares, 1),
    )


def without_others(box: Box) -> Box:
    """Return a box with src and dst alone: scales and zero points do not matter to zeros."""
    lookups = tuple(lookup._replace(others=()) for lookup in box.lookups)
    return src_and_dst(box)._replace(lookups=lookups)


def _length(box: Box, bits: list[int], spec: ConversionSpec) -> int:
    """Return how many elements a work item converts: a power of two that keeps dst aligned."""
    length = min(RUN_BITS // max(bits), MAX_RUN)
    if not spec.is_aligned:
        length = min(length, max(_BYTE // bits[1], 1))
    while length > 1 and (length > box.nodes[0].extent or not is_aligned(box, 1, length)):
        length //= 2
    return length


def _shares(box: Box, length: int, total: int) -> Shares:
    """Divide the loops among 2^total work items."""
    free, shifts = total, []
    extents = [-(-box.nodes[0].extent // length), *(node.extent for node in box.nodes[1:])]
    for extent in extents:
        shifts.append(min(ceil_log2(extent), free))
        free -= shifts[-1]
    gather_shift = min(ceil_log2(box.lookups[0].extent), free) if box.lookups else 0
    # the remaining work items are idle, past the end of the last loop
    shifts[-1] += free - gather_shift
    steps = _steps(extents, shifts, length)
    return Shares(tuple(steps), tuple(shifts), gather_shift)


def _steps(extents: list[int], shifts: list[int], length: int) -> list[int]:
    """Return how many steps of each loop a work item has: of one loop, if there are many groups."""
    groups = prod(-(-extent >> shift) for extent, shift in zip(extents, shifts, strict=True))
    steps = [1] * len(extents)
    wanted = max(_RUNS // max(length // _RUNS, 1), 1)
    while wanted > 1 and groups < wanted * _MIN_GROUPS:
        wanted //= 2
    for k, (extent, shift) in enumerate(zip(extents, shifts, strict=True)):
        if wanted > 1 and extent >> shift >= wanted:
            steps[k] = wanted
            break
    return steps
