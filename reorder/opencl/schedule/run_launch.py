"""The launch of a box that converts between two buffers, once its loops are divided."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from reorder.opencl.codegen.params import param_names
from reorder.opencl.codegen.pattern import LoopShape
from reorder.opencl.schedule.arguments import Division, gather_values
from reorder.opencl.schedule.lower import MAX_INT, Launch, gather_shape, grid_dims, grid_of

if TYPE_CHECKING:
    from memdesc import Axis, Block
    from reorder.opencl.codegen.conversion import Conversion
    from reorder.opencl.codegen.pattern import Pattern
    from reorder.opencl.schedule.conversions import ConversionSpec
    from reorder.plan.nodes import Box

__all__ = ["MAX_RUN", "RUN_BITS", "Shares", "is_aligned", "make_launch", "quotients"]

# Bits of a run, on the side of the wider elements, and its most elements.
RUN_BITS, MAX_RUN = 128, 16


class Shares(NamedTuple):
    """For each loop the steps of a work item, and log2 of the work items along it.

    A step of the first loop is a run, unless there are tiles. `gather_shift` is for the first
    gather.
    """

    steps: tuple[int, ...]
    shifts: tuple[int, ...]
    gather_shift: int = 0


def is_aligned(box: Box, operand: int, length: int, loop: int = 0) -> bool:
    """Whether steps of a loop follow one another, and start at multiples of `length`."""
    nodes = box.nodes
    starts = [box.offsets[operand]]
    starts += [node.strides[operand] for k, node in enumerate(nodes) if k != loop]
    for gather in box.lookups:
        starts += [
            block.stride for _, blocks in (gather.src, gather.dst)[operand] for block in blocks
        ]
    return nodes[loop].strides[operand] == 1 and all(start % length == 0 for start in starts)


def quotients(conversion: Conversion, uniform: tuple[str, ...], spec: ConversionSpec) -> Conversion:
    """Let quotients be products where a run has one divisor, and the device fused operations."""
    shared = "dst_scale" in (*conversion.scalars, *uniform)
    return conversion._replace(multiplies=shared and spec.has_fma and conversion.work == "f32")


def make_launch(
    box: Box, pattern: Pattern, spec: ConversionSpec, shares: Shares, parity: int = 0
) -> Launch:
    """Fill in the work-groups and the parameters of a pattern."""
    assert pattern.run is not None  # noqa: S101 - for the type checker: runs are lowered
    steps, shifts, gather_shift = shares
    length = pattern.run.length if pattern.run_tile is None else 1
    tiles = [step << shift for step, shift in zip(steps, shifts, strict=True)]
    tiles[0] *= length
    counts = [-(-node.extent // tile) for node, tile in zip(box.nodes, tiles, strict=True)]
    dims = grid_dims(counts, has_gathers=bool(box.lookups))
    gathers = [
        Division(-(-gather.extent >> shift), shift)
        for gather, shift in zip(
            box.lookups, (gather_shift, *(0 for _ in box.lookups)), strict=False
        )
    ]
    pattern = pattern._replace(
        loops=tuple(LoopShape(step, dim) for step, dim in zip(steps, dims, strict=True)),
        gathers=tuple(map(gather_shape, box.lookups)),
        is_wide=_is_wide(box, tiles) or spec.needs_wide_parameters,
    )
    values = {"parity": parity} | spec.numbers
    operands = ("src", "dst", *pattern.others)
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
