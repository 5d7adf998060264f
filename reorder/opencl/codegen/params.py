"""The parameters of a kernel: a struct of integers by value, so that one kernel fits all sizes.

Names and order, for operand `src` and then `dst`, loop k, gather k:

    src, or src_x, src_y      offset, or column and row, where the nest starts
    src_lane1, ...            offsets of the lanes after the first (buffers)
    extent0, valid0           iterations of loop 0, and those of them that hold data
    shift0                    log2 of the work items along loop 0
    groups0                   work-groups along loop 0, where another loop shares its dimension
    src_end                   behind the last element that is read, of shifted loads
    src0, or src_x0, src_y0   stride of loop 0
    gather0_extent, gather0_shift, gather0_groups
                              as for a loop
    gather0_size1             size of dim 1
    gather0_src0_padded       padded extent of axis 0 of src
    gather0_src0_step0, gather0_src0_extent0, gather0_src0_stride0
                              outermost block of axis 0 of src

A copy of rows has the loops that follow one another in dst as loop 0, all in bytes:

    length                    of a row
    inverse, row_shift        2^(32 + row_shift) / length, rounded up, in 32 bits
    count1, step1, ...        extent and stride in src of the loops around a row

A conversion has the roles of its scales and zero points as further operands, where they differ
along the dims. Between buffers extent0 and valid0 count elements, and a work item runs over some:

    src_scale_value, ...      a number for all elements; of floats, the bits
    parity                    of the offsets in dst that are written, of 4-bit elements
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.codegen.pattern import OTHER, AccessKind
from reorder.opencl.codegen.sums import sum_param_names

if TYPE_CHECKING:
    from reorder.opencl.codegen.pattern import Access, GatherShape, Pattern, RangeShape

__all__ = ["is_last_in_dimension", "param_names"]


def param_names(pattern: Pattern) -> list[str]:
    """Return the names of a kernel's parameters, in the order in which it takes them."""
    if pattern.ranges is not None:
        return _range_names(pattern.ranges)
    if pattern.sums is not None:
        return sum_param_names(pattern.sums)
    names: list[str] = []
    if pattern.conversion is not None:
        names += [f"{role}_value" for role in pattern.conversion.scalars]
    if pattern.run is not None and pattern.run.is_nibble:
        names.append("parity")
    if pattern.rows is not None:
        names += ["length", "inverse", "row_shift"]
        names += [
            f"{field}{k}" for k in range(1, pattern.rows.depth) for field in ("count", "step")
        ]
    names += _end_names(pattern)
    operands = [("src", pattern.src), ("dst", pattern.dst)]
    operands += [(role, OTHER) for role in pattern.others]
    for operand, access in operands:
        names += _coord_names(operand, access, "")
        if access.kind == AccessKind.BUFFER:
            names += [f"{operand}_lane{k}" for k in range(1, len(pattern.lanes))]
    for k in range(len(pattern.loops)):
        names += [f"extent{k}", f"valid{k}", f"shift{k}"]
        if not is_last_in_dimension(pattern, k):
            names.append(f"groups{k}")
        for operand, access in operands:
            names += _coord_names(operand, access, str(k))
    for k, gather in enumerate(pattern.gathers):
        names += _gather_names(f"gather{k}", gather, pattern.others)
    return names


def _end_names(pattern: Pattern) -> list[str]:
    """Return the end of src, where aligned loads have bytes around those that are wanted."""
    joins_words = pattern.tile is not None and pattern.tile.src.is_shifted
    has_pairs = pattern.skewed is not None and pattern.skewed.unit > 1
    return ["src_end"] if pattern.rows is not None or joins_words or has_pairs else []


def _range_names(shape: RangeShape) -> list[str]:
    """Return the parameters of a search for ranges, which `codegen.ranges` describes."""
    names = ["offset", "total", "parts"]
    for dim in range(sum(len(dims) for dims, _ in shape.axes)):
        names += [f"count{dim}", f"inside{dim}", f"size{dim}"]
    for j, (_, blocks) in enumerate(shape.axes):
        names += [
            f"axis{j}_{field}{b}" for b in range(blocks) for field in ("step", "extent", "stride")
        ]
    return names


def _coord_names(operand: str, access: Access, loop: str) -> list[str]:
    if access.kind == AccessKind.IMAGE:
        return [f"{operand}_x{loop}", f"{operand}_y{loop}"]
    return [] if access.kind == AccessKind.NONE else [f"{operand}{loop}"]


def _gather_names(prefix: str, gather: GatherShape, others: tuple[str, ...]) -> list[str]:
    names = [f"{prefix}_extent", f"{prefix}_shift", f"{prefix}_groups"]
    names += [f"{prefix}_size{dim}" for dim in gather.dims]
    operands = zip(("src", "dst", *others), (gather.src, gather.dst, *gather.others), strict=True)
    for operand, axes in operands:
        for j, (_, blocks) in enumerate(axes):
            names.append(f"{prefix}_{operand}{j}_padded")
            names += [
                f"{prefix}_{operand}{j}_{field}{b}"
                for b in range(blocks)
                for field in ("step", "extent", "stride")
            ]
    return names


def is_last_in_dimension(pattern: Pattern, k: int) -> bool:
    """Whether no loop or gather after loop k shares its dimension of the NDRange."""
    grid_dim = pattern.loops[k].grid_dim
    if pattern.gathers and grid_dim == 0:
        return False
    return all(other.grid_dim != grid_dim for other in pattern.loops[k + 1 :])
