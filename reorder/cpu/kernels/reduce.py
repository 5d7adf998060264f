"""The interpreter of reductions: sums of int8 elements over some dims, as for compensation."""

import operator
from functools import reduce

from llvmlite import ir

from memdesc.dtypes import BYTE_BITS
from reorder.cpu.kernels.interpreter import InterpreterCall, OuterLoops, Position, each_range
from reorder.cpu.llvm.emit import Value, Variable, either, load_fields, loop, when
from reorder.cpu.llvm.shuffle import pick
from reorder.cpu.schedule.reduction import GROUPS, ReductionHead
from reorder.cpu.tables import nbytes_of

_SUM = ir.IntType(32)
_SUM_NBYTES = 4
# Sums of one vector: a 512-bit register.
_LANES = 16


def emit_reduction(call: InterpreterCall) -> None:
    """Add elements of src to the sums at dst, for all steps of a call."""
    for step_range, instruction, _ in each_range(call):
        head = load_fields(instruction, ReductionHead)
        loops = OuterLoops(instruction + nbytes_of(ReductionHead), head.outer, 2)
        for position in loops.each_step(step_range.first, step_range.last, Position((0, 0), 0)):
            element, index = position.offsets
            _add_rows(call.src_at + element, call.dst_at + index * _SUM_NBYTES, head)


def _add_rows(src: Value, sums: Value, head: ReductionHead) -> None:
    """Add all rows of one step."""
    with loop(0, head.rows) as row:
        start = src + row * head.row_stride
        with either(head.is_single != 0) as (single, several):
            with single:
                _add_run(start, sums, head.groups)
            with several:
                for size in (1, *GROUPS):
                    with when(head.group_size == size):
                        _add_groups(start, sums, head.groups, size)


def _add_groups(src: Value, sums: Value, count: Value, size: int) -> None:
    """Add each group of `size` contiguous elements to its sum; sums are contiguous."""
    whole = count & -_LANES
    for start, stop, lanes in ((0, whole, _LANES), (whole, count, 1)):
        with loop(start, stop, lanes) as i:
            _add(sums + i * _SUM_NBYTES, _sum_of_groups(src + i * size, lanes, size))


def _add_run(src: Value, sums: Value, count: Value) -> None:
    """Add a run to one sum: groups of the largest size in vectors, the tail one by one."""
    size = max(GROUPS)
    whole = count & (-_LANES * size)
    kind = ir.VectorType(_SUM, _LANES)
    lane_sums = Variable(src.builder, kind)
    lane_sums.value = ir.Constant(kind, None)
    with loop(0, whole, _LANES * size) as i:
        lane_sums.value += _sum_of_groups(src + i, _LANES, size)
    lanes = lane_sums.value
    for lane in range(_LANES):
        _add(sums, pick(lanes, [lane]))
    with loop(whole, count) as i:
        _add(sums, _sum_of_groups(src + i, 1, 1))


def _add(address: Value, values: Value) -> None:
    """Add to the sums at an address."""
    address.store_at(address.load_at(values.type, _SUM_NBYTES) + values, _SUM_NBYTES)


def _sum_of_groups(src: Value, lanes: int, size: int) -> Value:
    """Return the sums of groups of contiguous elements, a group in each lane."""
    bits = BYTE_BITS * size
    groups, sums = ir.VectorType(ir.IntType(bits), lanes), ir.VectorType(_SUM, lanes)
    group = src.load_at(groups)
    if size == 1:
        return group.sext(sums)
    # two shifts extract a byte with its sign
    bytes_ = [group << (bits - BYTE_BITS * (k + 1)) >> (bits - BYTE_BITS) for k in range(size)]
    total = reduce(operator.add, bytes_)
    return total if groups == sums else total.sext(sums)
