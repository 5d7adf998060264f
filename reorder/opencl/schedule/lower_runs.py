"""Boxes of a reorder that converts, between two buffers, to launches: runs of elements."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memdesc import DATA_TYPES
from reorder.opencl.codegen.conversion import Conversion
from reorder.opencl.codegen.params import param_names
from reorder.opencl.codegen.pattern import Access, AccessKind, LoopShape, Pattern, Run
from reorder.opencl.schedule.arguments import Division, gather_values
from reorder.opencl.schedule.lower import MAX_INT, Launch, gather_shape, grid_dims, grid_of
from reorder.plan.nodes import Node
from reorder.plan.passes import src_and_dst

if TYPE_CHECKING:
    from memdesc import Axis, Block
    from reorder.opencl.schedule.conversions import ConversionSpec
    from reorder.plan.nodes import Box

__all__ = ["lower_runs", "without_others"]

# Bits that a work item moves on the side of the wider elements, and most elements of it.
_RUN_BITS, _MAX_RUN = 128, 16
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
    bits = [DATA_TYPES[name].bits for name in (conversion.src, conversion.dst)]
    length = _length(box, bits, spec)
    kinds = [
        AccessKind.VECTOR
        if length > 1
        and spec.is_aligned | (bits[k] * length == _BYTE)
        and _is_aligned(box, k, length)
        else AccessKind.BUFFER
        for k in range(2)
    ]
    if box.is_zero:
        kinds[0] = AccessKind.NONE
    roles = conversion.varying
    uniform = tuple(
        role for role, stride in zip(roles, nodes[0].strides[2:], strict=True) if not stride
    )
    if spec.has_fma and conversion.work == "f32":
        multiplies = "dst_scale" in (*conversion.scalars, *uniform)
        conversion = conversion._replace(multiplies=multiplies)
    run = Run(
        length,
        nodes[0].valid == nodes[0].extent and not nodes[0].extent % length,
        bits[1] < _BYTE and length == 1,
        uniform,
    )
    accesses = [Access(kind, f"b{width}") for kind, width in zip(kinds, bits, strict=True)]
    pattern = Pattern(accesses[0], accesses[1], (0,), (), 0, conversion=conversion, run=run)
    if not run.is_nibble:
        return (_launch(box, pattern, spec, 0),), ()
    strides = [node.strides[1] for node in nodes]
    strides += [
        block.stride for gather in box.lookups for _, blocks in gather.dst for block in blocks
    ]
    if all(stride % 2 == 0 for stride in strides):
        alone = (_launch(box, pattern, spec, box.offsets[1] % 2),)
        return ((), alone) if box.offsets[1] % 2 else (alone, ())
    return (_launch(box, pattern, spec, 0),), (_launch(box, pattern, spec, 1),)


def without_others(box: Box) -> Box:
    """Return a box with src and dst alone: scales and zero points do not matter to zeros."""
    lookups = tuple(lookup._replace(others=()) for lookup in box.lookups)
    return src_and_dst(box)._replace(lookups=lookups)


def _length(box: Box, bits: list[int], spec: ConversionSpec) -> int:
    """Return how many elements a work item converts: a power of two that keeps dst aligned."""
    length = min(_RUN_BITS // max(bits), _MAX_RUN)
    if not spec.is_aligned:
        length = min(length, max(_BYTE // bits[1], 1))
    while length > 1 and (length > box.nodes[0].extent or not _is_aligned(box, 1, length)):
        length //= 2
    return length


def _is_aligned(box: Box, operand: int, length: int) -> bool:
    """Whether steps of the first loop follow one another, and start at multiples of `length`."""
    run, *outer = box.nodes
    starts = [box.offsets[operand], *(node.strides[operand] for node in outer)]
    for gather in box.lookups:
        starts += [
            block.stride for _, blocks in (gather.src, gather.dst)[operand] for block in blocks
        ]
    return run.strides[operand] == 1 and all(start % length == 0 for start in starts)


def _launch(box: Box, pattern: Pattern, spec: ConversionSpec, parity: int) -> Launch:
    """Divide the loops among work items, and fill in the parameters."""
    assert pattern.run is not None  # noqa: S101 - for the type checker: runs are lowered
    assert pattern.conversion is not None  # noqa: S101 - likewise
    length = pattern.run.length
    total = _floor_log2(min(_MAX_WORK_ITEMS, spec.max_work_items))
    free, shifts = total, []
    extents = [-(-box.nodes[0].extent // length), *(node.extent for node in box.nodes[1:])]
    for extent in extents:
        shifts.append(min(_ceil_log2(extent), free))
        free -= shifts[-1]
    gather_shift = min(_ceil_log2(box.lookups[0].extent), free) if box.lookups else 0
    # the remaining work items are idle, past the end of the last loop
    shifts[-1] += free - gather_shift
    steps = _steps(extents, shifts, length)
    counts = [
        -(-extent // (step << shift))
        for extent, step, shift in zip(extents, steps, shifts, strict=True)
    ]
    dims = grid_dims(counts, has_gathers=bool(box.lookups))
    gathers = [
        Division(-(-gather.extent >> shift), shift)
        for gather, shift in zip(
            box.lookups, (gather_shift, *(0 for _ in box.lookups)), strict=False
        )
    ]
    pattern = pattern._replace(
        loops=tuple(LoopShape(step, dim) for step, dim in zip(steps, dims, strict=True)),
        work_items=1 << total,
        gathers=tuple(map(gather_shape, box.lookups)),
        is_wide=_is_wide(box, _tiles(steps, shifts, length)) or spec.needs_wide_parameters,
    )
    values = {"parity": parity} | spec.numbers
    operands = ("src", "dst", *spec.conversion.varying)
    values |= dict(zip(operands, box.offsets, strict=True))
    for k, node in enumerate(box.nodes):
        values |= {f"extent{k}": node.extent, f"valid{k}": node.valid}
        values |= {f"groups{k}": counts[k], f"shift{k}": shifts[k]}
        values |= {f"{one}{k}": stride for one, stride in zip(operands, node.strides, strict=True)}
    for k, (gather, (groups, shift)) in enumerate(zip(box.lookups, gathers, strict=True)):
        values |= {f"gather{k}_groups": groups, f"gather{k}_shift": shift}
        values |= gather_values(f"gather{k}", gather, spec.conversion.varying)
    first, *others = grid_of(counts, dims)
    grid = (first * prod(gather.groups for gather in gathers), *others)
    return Launch(pattern, tuple(values[name] for name in param_names(pattern)), grid)


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


def _tiles(steps: list[int], shifts: list[int], length: int) -> list[int]:
    """Return the steps of each loop that a work-group has; of the first, elements."""
    tiles = [step << shift for step, shift in zip(steps, shifts, strict=True)]
    return [tiles[0] * length, *tiles[1:]]


def _is_wide(box: Box, tiles: list[int]) -> bool:
    """Whether an offset or an index needs 64 bits; extents are rounded up to whole groups."""
    bounds = [abs(offset) for offset in box.offsets]
    for node, tile in zip(box.nodes, tiles, strict=True):
        extent = node.extent + tile
        bounds = [
            bound + extent * (abs(stride) + 1)
            for bound, stride in zip(bounds, node.strides, strict=True)
        ]
    for gather in box.lookups:
        bounds = [
            bound + gather.extent + _reach(axes)
            for bound, axes in zip(bounds, (gather.src, gather.dst, *gather.others), strict=True)
        ]
    return max(bounds) > MAX_INT


def _reach(axes: tuple[tuple[Axis, tuple[Block, ...]], ...]) -> int:
    """Return a bound of the offsets of the axes of one operand of a gather."""
    return sum(
        abs(block.stride) * max(block.extent, -(-axis.padded // block.step)) + block.step
        for axis, blocks in axes
        for block in blocks
    )


def _ceil_log2(extent: int) -> int:
    return (extent - 1).bit_length()


def _floor_log2(extent: int) -> int:
    return extent.bit_length() - 1
