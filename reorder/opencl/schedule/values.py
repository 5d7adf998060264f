"""The values of a kernel's parameters that a loop nest has, by the names of `codegen.params`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reorder.opencl.schedule.placement import Coords, PixelNest
    from reorder.plan.nodes import Lookup

__all__ = ["param_values"]


def param_values(nest: PixelNest) -> dict[str, int]:
    """Return the parameters of a nest by name, more than its kernel may take."""
    values = _coord_values("src", nest.src, "") | _coord_values("dst", nest.dst, "")
    for k, lane in enumerate(nest.lanes):
        values |= {f"src_lane{k}": lane.src, f"dst_lane{k}": lane.dst}
    for k, loop in enumerate(nest.loops):
        values |= {f"extent{k}": loop.extent, f"valid{k}": loop.valid}
        values |= _coord_values("src", loop.src, str(k)) | _coord_values("dst", loop.dst, str(k))
    for k, gather in enumerate(nest.gathers):
        values |= _gather_values(f"gather{k}", gather)
    return values


def _coord_values(operand: str, coords: Coords, loop: str) -> dict[str, int]:
    if len(coords) == 1:
        return {f"{operand}{loop}": coords[0]}
    return {f"{operand}_{c}{loop}": value for c, value in zip("xy", coords, strict=False)}


def _gather_values(prefix: str, gather: Lookup) -> dict[str, int]:
    values = {f"{prefix}_extent": gather.extent}
    values |= {f"{prefix}_size{dim}": size for dim, size in gather.sizes}
    for operand, axes in (("src", gather.src), ("dst", gather.dst)):
        for j, (axis, blocks) in enumerate(axes):
            values[f"{prefix}_{operand}{j}_padded"] = axis.padded
            for b, block in enumerate(sorted(blocks, key=lambda block: -block.step)):
                name = f"{prefix}_{operand}{j}"
                values |= {
                    f"{name}_step{b}": block.step,
                    f"{name}_extent{b}": block.extent,
                    f"{name}_stride{b}": block.stride,
                }
    return values
