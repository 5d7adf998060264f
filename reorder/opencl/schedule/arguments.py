"""The arguments of a kernel, by the names of `codegen.params`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memdesc import Block
    from reorder.opencl.schedule.placement import Coords, PixelLoop, PixelNest
    from reorder.plan.nodes import Lookup

__all__ = ["Division", "argument_values", "block_values", "end_of_src", "gather_values"]


class Division(NamedTuple):
    """The work-groups along a loop or gather, and log2 of the work items of each along it."""

    groups: int
    shift: int


def argument_values(
    nest: PixelNest,
    loops: tuple[Division, ...],
    gathers: tuple[Division, ...],
    others: tuple[str, ...] = (),
) -> dict[str, int]:
    """Return the arguments of a nest by name; a kernel takes some of them.

    `others` names the scales and zero points that differ along the dims.
    """
    values = _coord_values("src", nest.src, "") | _coord_values("dst", nest.dst, "")
    if len(nest.src) == 1:
        values["src_end"] = end_of_src(nest.src[0], nest.loops)
    values |= dict(zip(others, nest.others, strict=True))
    for k, lane in enumerate(nest.lanes):
        values |= {f"src_lane{k}": lane.src, f"dst_lane{k}": lane.dst}
        values |= dict(zip((f"{role}_lane{k}" for role in others), lane.others, strict=True))
    for k, (loop, (groups, shift)) in enumerate(zip(nest.loops, loops, strict=True)):
        values |= {f"extent{k}": loop.extent, f"valid{k}": loop.valid}
        values |= {f"groups{k}": groups, f"shift{k}": shift}
        values |= _coord_values("src", loop.src, str(k)) | _coord_values("dst", loop.dst, str(k))
        strides = loop.others or (0,) * len(others)
        values |= dict(zip((f"{role}{k}" for role in others), strides, strict=True))
    for k, (gather, (groups, shift)) in enumerate(zip(nest.gathers, gathers, strict=True)):
        values |= {f"gather{k}_groups": groups, f"gather{k}_shift": shift}
        values |= gather_values(f"gather{k}", gather)
    return values


def end_of_src(start: int, loops: Iterable[PixelLoop]) -> int:
    """Return the offset behind the last element of src that some loops read."""
    return start + 1 + sum(max((loop.valid - 1) * loop.src[0], 0) for loop in loops)


def _coord_values(operand: str, coords: Coords, loop: str) -> dict[str, int]:
    if len(coords) == 1:
        return {f"{operand}{loop}": coords[0]}
    return {f"{operand}_{c}{loop}": value for c, value in zip("xy", coords, strict=False)}


def gather_values(prefix: str, gather: Lookup, others: tuple[str, ...] = ()) -> dict[str, int]:
    """Return the arguments of a gather by name; `others` names operands beside src and dst."""
    values = {f"{prefix}_extent": gather.extent}
    values |= {f"{prefix}_size{dim}": size for dim, size in gather.sizes}
    operands = [("src", gather.src), ("dst", gather.dst)]
    operands += zip(others, gather.others, strict=True)
    for operand, axes in operands:
        for j, (axis, blocks) in enumerate(axes):
            values[f"{prefix}_{operand}{j}_padded"] = axis.padded
            values |= block_values(f"{prefix}_{operand}{j}", blocks)
    return values


def block_values(prefix: str, blocks: tuple[Block, ...]) -> dict[str, int]:
    """Return the steps, extents and strides of blocks by name, the outermost block first."""
    values: dict[str, int] = {}
    for b, block in enumerate(sorted(blocks, key=lambda block: -block.step)):
        values |= {
            f"{prefix}_step{b}": block.step,
            f"{prefix}_extent{b}": block.extent,
            f"{prefix}_stride{b}": block.stride,
        }
    return values
