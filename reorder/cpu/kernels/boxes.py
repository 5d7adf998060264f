"""The interpreter of boxes: outer loops that run the instruction's micro-kernel in each step."""

from collections.abc import Callable

from memdesc.tuples import NamedTuple
from reorder.cpu.kernels.copy import Rows, emit_copy, emit_permuted_lines, emit_strided
from reorder.cpu.kernels.elements import Elements, Location
from reorder.cpu.kernels.interpreter import InterpreterCall, OuterLoops, Position, each_range
from reorder.cpu.kernels.transpose import Transposition, emit_transposed
from reorder.cpu.llvm.emit import Value, either, load_fields, where
from reorder.cpu.schedule.partition import StepRange
from reorder.cpu.schedule.program import (
    WAYS,
    BoxHead,
    KernelLoop,
    Point,
    RowsHead,
    TransposeHead,
)
from reorder.cpu.schedule.select import PERMUTED, RUN, STRIDED, TRANSPOSED, Kernel, Part
from reorder.cpu.tables import WORD_NBYTES, nbytes_of
from reorder.plan.nodes import NOWHERE


def emit_boxes(call: InterpreterCall, kernel: Kernel) -> None:
    """Move the boxes of all steps of a call."""
    builder = call.src_at.builder
    elements = Elements(builder, kernel)
    transposes = not {*WAYS}.isdisjoint(kernel.parts)
    moves = [_TRANSPOSED] * transposes + [_RUN] * (Part.RUNS in kernel.parts)
    moves += [_PERMUTED] * (Part.PERMUTED_LINES in kernel.parts) + [_STRIDED]
    for step_range, instruction, index in each_range(call):
        box = load_fields(instruction, BoxHead)
        point = load_fields(call.points + index * nbytes_of(Point), Point)
        is_nowhere = point.src == NOWHERE
        offsets = where(is_nowhere, 0, point.src) + box.src, point.dst + box.dst
        loops = OuterLoops(instruction + nbytes_of(BoxHead), box.outer, len(offsets))
        box = box._replace(src_end=call.src_at + box.src_end)
        address = loops.end()
        start = Position(offsets, where(is_nowhere, 1, 0))
        for position in loops.each_step(step_range.first, step_range.last, start):
            starts = Location(call.src_at, 0), Location(call.dst_at, 0)
            src, dst = map(elements.moved, starts, position.offsets)
            step = _Step(elements, box, address, step_range, src, dst, position.padded == 0)
            _emit_one_of(moves, step)
    if kernel.streams:
        # make non-temporal stores visible to other threads
        builder.fence("seq_cst")


class _Step(NamedTuple):
    """A step of the outer loops of a box: what its micro-kernel needs."""

    elements: Elements
    box: BoxHead
    # address of what follows the outer loops in the instruction
    address: Value
    step_range: StepRange
    src: Location
    dst: Location
    # unless this holds, zeros are written
    is_data: Value


def _emit_one_of(moves: list[tuple[int, Callable[[_Step], None]]], step: _Step) -> None:
    """Emit a branch to the micro-kernel that the box names.

    Each micro-kernel loads the fields: loaded before the branch, they would occupy registers.
    """
    (number, emit), *others = moves
    if not others:
        emit(step)
        return
    with either(step.box.micro_kernel == number) as (chosen, otherwise):
        with chosen:
            emit(step)
        with otherwise:
            _emit_one_of(others, step)


def _rows(step: _Step) -> Rows:
    """Return the rows of a `RowsHead`."""
    head: Value = load_fields(step.address, RowsHead)
    dst_table = step.address + nbytes_of(RowsHead)
    return Rows(
        step.elements,
        step.src,
        step.dst,
        head._replace(valid_rows=where(step.is_data, head.valid_rows, 0)),
        first=step.step_range.inner_first,
        last=step.step_range.inner_last,
        src_table=dst_table + head.rows * WORD_NBYTES,
        dst_table=dst_table,
    )


def _transposition(step: _Step) -> Transposition:
    """Return the loop groups of a `TransposeHead`."""
    kernel_loop_at = step.address + nbytes_of(TransposeHead)
    column_table = kernel_loop_at + nbytes_of(KernelLoop)
    head: Value = load_fields(step.address, TransposeHead)
    row_table = column_table + head.columns * WORD_NBYTES
    head = head._replace(
        valid_columns=where(step.is_data, head.valid_columns, 0),
        prefetches_dst=head.prefetches_dst != 0,
        rows_collide=head.rows_collide != 0,
    )
    return Transposition(
        step.elements,
        step.src,
        step.dst,
        head,
        column_table,
        row_table,
        first=step.step_range.inner_first,
        last=step.step_range.inner_last,
        src_end=step.box.src_end,
        kernel_loop_at=kernel_loop_at,
    )


_TRANSPOSED = TRANSPOSED, lambda step: emit_transposed(_transposition(step))
_RUN = RUN, lambda step: emit_copy(_rows(step), step.box.src_end)
_PERMUTED = PERMUTED, lambda step: emit_permuted_lines(_rows(step))
_STRIDED = STRIDED, lambda step: emit_strided(_rows(step))
