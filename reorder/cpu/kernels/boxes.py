"""The interpreter of boxes: outer loops, and in each step the micro-kernel of the instruction."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reorder.cpu.kernels.copy import InnerLoop, Rows, emit_copy, emit_strided
from reorder.cpu.kernels.elements import Elements, Location
from reorder.cpu.kernels.emit import entry_address, int64, load_fields
from reorder.cpu.kernels.interpreter import InterpreterCall, OuterLoops, Position, each_task
from reorder.cpu.kernels.loop_group import ColumnSpan, LoopGroup, Transposition
from reorder.cpu.kernels.transpose import emit_transposed
from reorder.cpu.schedule.program import BoxHead, Point, RepeatLoop, RowsHead, TransposeHead
from reorder.cpu.schedule.select import RUN, TRANSPOSED
from reorder.cpu.tables import nbytes_of
from reorder.plan.nodes import NOWHERE

if TYPE_CHECKING:
    from reorder.cpu.kernels.emit import Builder, Value
    from reorder.cpu.schedule.partition import Task
    from reorder.cpu.schedule.select import Kernel

__all__ = ["emit_boxes"]


def emit_boxes(builder: Builder, call: InterpreterCall, kernel: Kernel) -> None:
    """Move the boxes of all steps of a call."""
    elements = Elements(builder, kernel)
    for task, instruction, index in each_task(builder, call):
        box = load_fields(builder, instruction, BoxHead)
        point_at = entry_address(builder, call.points, index, nbytes_of(Point))
        point = load_fields(builder, point_at, Point)
        is_nowhere = builder.icmp_signed("==", point.src, int64(NOWHERE))
        points = builder.select(is_nowhere, int64(0), point.src), point.dst
        start = Position(
            (builder.add(points[0], box.src), builder.add(points[1], box.dst)),
            builder.zext(is_nowhere, int64(0).type),
        )
        loops_at = builder.add(instruction, int64(nbytes_of(BoxHead)))
        loops = OuterLoops(builder, loops_at, box.outer, len(start.offsets))
        src_end = builder.add(call.src_at, box.src_end)
        inner = _Inner(elements, box._replace(src_end=src_end), loops.end(), task)
        for position in loops.each_step(task.first, task.last, start):
            starts = Location(call.src_at, int64(0)), Location(call.dst_at, int64(0))
            src, dst = map(elements.moved, starts, position.offsets)
            is_data = builder.icmp_signed("==", position.padded, int64(0))
            _emit_inner(inner, src, dst, is_data)
    if kernel.streams:
        # other threads see what non-temporal stores have written
        builder.fence("seq_cst")


class _Inner(NamedTuple):
    """What the code of the inner loops needs besides the locations of src and dst."""

    elements: Elements
    box: BoxHead
    # address of what follows the outer loops in the instruction
    address: Value
    task: Task


def _emit_inner(inner: _Inner, src: Location, dst: Location, is_data: Value) -> None:
    """Run the micro-kernel of a box; unless `is_data` it writes zeros."""
    builder, box = inner.elements.builder, inner.box
    is_transposed = builder.icmp_signed("==", box.micro_kernel, int64(TRANSPOSED))
    with builder.if_else(is_transposed) as (transposed, otherwise):
        with transposed:
            _emit_transpose(inner, src, dst, is_data)
        with otherwise:
            is_run = builder.icmp_signed("==", box.micro_kernel, int64(RUN))
            with builder.if_else(is_run) as (run, strided):
                # both load the fields: loaded before the branch, these would occupy registers
                with run:
                    emit_copy(_rows(inner, src, dst, is_data), box.src_end)
                with strided:
                    emit_strided(_rows(inner, src, dst, is_data))


def _rows(inner: _Inner, src: Location, dst: Location, is_data: Value) -> Rows:
    """Return the rows of a `RowsHead`."""
    builder = inner.elements.builder
    head = load_fields(builder, inner.address, RowsHead)
    src_table = builder.add(inner.address, int64(nbytes_of(RowsHead)))
    return Rows(
        inner.elements,
        src,
        dst,
        InnerLoop(head.extent, head.valid, head.src_stride, head.dst_stride),
        first=inner.task.inner_first,
        last=inner.task.inner_last,
        valid=builder.select(is_data, head.valid_rows, int64(0)),
        src_table=src_table,
        dst_table=entry_address(builder, src_table, head.rows),
        src_span=head.src_span,
    )


def _emit_transpose(inner: _Inner, src: Location, dst: Location, is_data: Value) -> None:
    """Run the transposing kernel on a `TransposeHead`."""
    builder = inner.elements.builder
    repeat_at = builder.add(inner.address, int64(nbytes_of(TransposeHead)))
    column_table = builder.add(repeat_at, int64(nbytes_of(RepeatLoop)))
    head = load_fields(builder, inner.address, TransposeHead)
    row_table = entry_address(builder, column_table, head.columns)
    valid_columns = builder.select(is_data, head.valid_columns, int64(0))
    move = Transposition(
        inner.elements,
        src,
        dst,
        LoopGroup(head.columns, valid_columns, head.column_run, column_table),
        LoopGroup(head.rows, head.valid_rows, head.row_run, row_table),
        builder.icmp_signed("!=", head.prefetches_dst, int64(0)),
        repeat_at,
    )
    task = inner.task
    span = ColumnSpan(task.inner_first, task.inner_last, inner.box.src_end, head.src_span)
    emit_transposed(move, span)
