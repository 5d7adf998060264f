"""The interpreter of reductions: sums of int8 elements over some dims, as for compensation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llvmlite import ir
from numba.core import cgutils

from reorder.cpu.kernels.emit import entry_address, int64, load_fields, loop
from reorder.cpu.kernels.interpreter import InterpreterCall, OuterLoops, Position, each_task
from reorder.cpu.kernels.shuffle import pick
from reorder.cpu.schedule.reduction import GROUPS, ReductionHead
from reorder.cpu.tables import nbytes_of
from reorder.cpu.target import BYTE_BITS

if TYPE_CHECKING:
    from reorder.cpu.kernels.emit import Builder, Value

__all__ = ["emit_reduction"]

_SUM = ir.IntType(32)
_SUM_NBYTES = 4
# Sums of one vector: a 512-bit register.
_LANES = 16


def emit_reduction(builder: Builder, call: InterpreterCall) -> None:
    """Add elements of src to the sums at dst, for all steps of a call."""
    zero = int64(0)
    for task, instruction, _ in each_task(builder, call):
        head = load_fields(builder, instruction, ReductionHead)
        loops_at = builder.add(instruction, int64(nbytes_of(ReductionHead)))
        loops = OuterLoops(builder, loops_at, head.outer, 2)
        for position in loops.each_step(task.first, task.last, Position((zero, zero), zero)):
            element, index = position.offsets
            src = builder.add(call.src_at, element)
            sums = entry_address(builder, call.dst_at, index, _SUM_NBYTES)
            _add_rows(builder, src, sums, head)


def _add_rows(builder: Builder, src: Value, sums: Value, head: ReductionHead) -> None:
    """Add all rows of one step."""
    is_single = builder.icmp_signed("!=", head.is_single, int64(0))
    with loop(builder, int64(0), head.rows) as row:
        start = builder.add(src, builder.mul(row, head.row_stride))
        with builder.if_else(is_single) as (single, several):
            with single:
                _add_run(builder, start, sums, head.groups)
            with several:
                for size in (1, *GROUPS):
                    has_size = builder.icmp_signed("==", head.group_size, int64(size))
                    with builder.if_then(has_size):
                        _add_groups(builder, start, sums, head.groups, size)


def _add_groups(builder: Builder, src: Value, sums: Value, count: Value, size: int) -> None:
    """Add each group of `size` contiguous elements to its sum; sums are contiguous."""
    whole = builder.and_(count, int64(-_LANES))
    for start, stop, lanes in ((int64(0), whole, _LANES), (whole, count, 1)):
        with loop(builder, start, stop, lanes) as i:
            groups = entry_address(builder, src, i, size)
            found = _sum_of_groups(builder, groups, lanes, size)
            _add(builder, entry_address(builder, sums, i, _SUM_NBYTES), found)


def _add_run(builder: Builder, src: Value, sums: Value, count: Value) -> None:
    """Add a run to one sum: groups of the largest size in vectors, the tail one by one."""
    size = max(GROUPS)
    whole = builder.and_(count, int64(-_LANES * size))
    kind = ir.VectorType(_SUM, _LANES)
    lane_sums = cgutils.alloca_once(builder, kind)
    builder.store(ir.Constant(kind, None), lane_sums)
    with loop(builder, int64(0), whole, _LANES * size) as i:
        found = _sum_of_groups(builder, builder.add(src, i), _LANES, size)
        builder.store(builder.add(builder.load(lane_sums), found), lane_sums)
    lanes = builder.load(lane_sums)
    for lane in range(_LANES):
        _add(builder, sums, pick(builder, lanes, [lane]))
    with loop(builder, whole, count) as i:
        _add(builder, sums, _sum_of_groups(builder, builder.add(src, i), 1, 1))


def _add(builder: Builder, address: Value, values: Value) -> None:
    """Add to the sums at an address."""
    pointer = builder.inttoptr(address, values.type.as_pointer())
    old = builder.load(pointer)
    old.align = _SUM_NBYTES
    builder.store(builder.add(old, values), pointer).align = _SUM_NBYTES


def _sum_of_groups(builder: Builder, src: Value, lanes: int, size: int) -> Value:
    """Return the sums of groups of contiguous elements, a group in each lane.

    A group is loaded as one integer, from which two shifts extract each byte with its sign.
    """
    bits = BYTE_BITS * size
    groups, sums = ir.VectorType(ir.IntType(bits), lanes), ir.VectorType(_SUM, lanes)
    group = builder.load(builder.inttoptr(src, groups.as_pointer()))
    group.align = 1
    if size == 1:
        return builder.sext(group, sums)
    found = ir.Constant(groups, None)
    for k in range(size):
        left = ir.Constant(groups, [bits - BYTE_BITS * (k + 1)] * lanes)
        right = ir.Constant(groups, [bits - BYTE_BITS] * lanes)
        found = builder.add(found, builder.ashr(builder.shl(group, left), right))
    return found if groups == sums else builder.sext(found, sums)
