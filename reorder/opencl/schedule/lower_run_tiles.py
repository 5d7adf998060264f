"""Boxes of a reorder that converts, whose innermost loops in src and dst differ, to launches."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memdesc import DATA_TYPES
from reorder.opencl.codegen.pattern import Access, AccessKind, Pattern, Run, RunTile
from reorder.opencl.schedule.banks import spread_runs
from reorder.opencl.schedule.run_launch import (
    MAX_RUN,
    RUN_BITS,
    Shares,
    is_aligned,
    make_launch,
    quotients,
)

if TYPE_CHECKING:
    from reorder.opencl.schedule.conversions import ConversionSpec
    from reorder.opencl.schedule.lower import Launch
    from reorder.plan.nodes import Box

__all__ = ["lower_run_tile"]

# Elements of a tile and the most of an edge; bytes of src and an edge where wider elements become
# bytes, or less.
_TILE, _EDGE = 4096, 64
_NARROW_NBYTES, _NARROW_EDGE = 1 << 15, 128
# The least edge, the elements of a box that is worth tiles, and the least run that is loaded.
_MIN_EDGE, _MIN_ELEMENTS, _MIN_RUN = 8, 1 << 14, 8
_WORK_ITEMS = 256
_BYTE = 8


def lower_run_tile(box: Box, spec: ConversionSpec) -> Launch | None:
    """Make the launch of a box through tiles; None if runs along dst alone are as good.

    The loops of the box are in the order of their strides in dst.
    """
    conversion = spec.conversion
    if (
        box.is_zero
        or box.lookups
        or "beta" in conversion.roles
        or spec.max_work_items < _WORK_ITEMS
    ):
        return None
    along_dst = box.nodes[0]
    along_src = next((node for node in box.nodes if node.strides[0] == 1), None)
    if along_src is None or along_src is along_dst or along_dst.strides[1] != 1:
        return None
    edges = along_src.extent, along_dst.extent
    if min(edges) < _MIN_EDGE or prod(node.extent for node in box.nodes) < _MIN_ELEMENTS:
        return None
    others = [node for node in box.nodes if node is not along_src and node is not along_dst]
    box = box._replace(nodes=(along_src, along_dst, *others))
    bits = [DATA_TYPES[name].bits for name in (conversion.src, conversion.dst)]
    # a run that is loaded should not be many vectors of dst
    longest = min(RUN_BITS // bits[0], max(RUN_BITS // bits[1], _MIN_RUN), MAX_RUN)
    most, edge = _TILE, _EDGE
    if bits[0] > _BYTE >= bits[1] and _length(box, 0, longest, spec) == longest:
        # rows of dst would be shorter than a cache line
        most, edge = _NARROW_NBYTES * _BYTE // bits[0], _NARROW_EDGE
    height = min(edge, _power(edges[1]))
    width = min(most // height, _power(edges[0]))
    height = min(most // width, _power(edges[1]))
    stored = min(RUN_BITS // bits[1], MAX_RUN, height)
    lengths = [_length(box, 0, min(longest, width), spec), _length(box, 1, stored, spec)]
    if bits[1] < _BYTE and lengths[1] == 1:
        return None
    roles = conversion.varying
    uniform = tuple(
        role for role, stride in zip(roles, along_src.strides[2:], strict=True) if not stride
    )
    valid, extent = along_src.valid, along_src.extent
    run = Run(lengths[0], valid == extent and extent % width == 0, uniform=uniform)
    kinds = [AccessKind.VECTOR if length > 1 else AccessKind.BUFFER for length in lengths]
    accesses = [Access(kind, f"b{width_}") for kind, width_ in zip(kinds, bits, strict=True)]
    pattern = Pattern(
        accesses[0],
        accesses[1],
        (0,),
        (),
        _WORK_ITEMS,
        conversion=quotients(conversion, uniform, spec),
        run=run,
        run_tile=spread_runs(
            RunTile(width, height, lengths[1], height), lengths[0], max(bits[1] // _BYTE, 1)
        ),
    )
    ones = (1,) * len(others)
    return make_launch(box, pattern, spec, Shares((width, height, *ones), (0,) * len(box.nodes)))


def _length(box: Box, operand: int, most: int, spec: ConversionSpec) -> int:
    """Return the elements of a run of an operand: a power of two that keeps it aligned."""
    name = (spec.conversion.src, spec.conversion.dst)[operand]
    length = most if spec.is_aligned else min(most, max(_BYTE // DATA_TYPES[name].bits, 1))
    while length > 1 and not is_aligned(box, operand, length, loop=operand):
        length //= 2
    return length


def _power(extent: int) -> int:
    return 1 << (extent - 1).bit_length()
