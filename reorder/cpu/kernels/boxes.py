"""The interpreter of boxes: outer loops that run the instruction's micro-kernel in each step."""

from memdesc.tuples import NamedTuple
from reorder.cpu.kernels.copy import Rows, emit_copy, emit_strided
from reorder.cpu.kernels.elements import Elements, Location
from reorder.cpu.kernels.interpreter import InterpreterCall, OuterLoops, Position, each_range
from reorder.cpu.kernels.transpose import Transposition, emit_transposed
from reorder.cpu.llvm.emit import Value, either, load_fields, where
from reorder.cpu.schedule.partition import StepRange
from reorder.cpu.schedule.program import BoxHead, KernelLoop, Point, RowsHead, TransposeHead
from reorder.cpu.schedule.select import RUN, TRANSPOSED, Kernel
from reorder.cpu.tables import WORD_NBYTES, nbytes_of
from reorder.plan.nodes import NOWHERE


def emit_boxes(call: InterpreterCall, kernel: Kernel) -> None:
    """Move the boxes of all steps of a call."""
    builder = call.src_at.builder
    elements = Elements(builder, kernel)
    for step_range, instruction, index in each_range(call):
        box = load_fields(instruction, BoxHead)
        point = load_fields(call.points + index * nbytes_of(Point), Point)
        is_nowhere = point.src == NOWHERE
        offsets = where(is_nowhere, 0, point.src) + box.src, point.dst + box.dst
        loops = OuterLoops(instruction + nbytes_of(BoxHead), box.outer, len(offsets))
        box = box._replace(src_end=call.src_at + box.src_end)
        inner = _Inner(elements, box, loops.end(), step_range)
        start = Position(offsets, where(is_nowhere, 1, 0))
        for position in loops.each_step(step_range.first, step_range.last, start):
            starts = Location(call.src_at, 0), Location(call.dst_at, 0)
            src, dst = map(elements.moved, starts, position.offsets)
            _emit_inner(inner, src, dst, position.padded == 0)
    if kernel.streams:
        # make non-temporal stores visible to other threads
        builder.fence("seq_cst")


class _Inner(NamedTuple):
    """What the code of the inner loops needs besides the locations of src and dst."""

    elements: Elements
    box: BoxHead
    # address of what follows the outer loops in the instruction
    address: Value
    step_range: StepRange


def _emit_inner(inner: _Inner, src: Location, dst: Location, is_data: Value) -> None:
    """Run the micro-kernel of a box; unless `is_data` it writes zeros."""
    box = inner.box
    with either(box.micro_kernel == TRANSPOSED) as (transposed, otherwise):
        with transposed:
            _emit_transpose(inner, src, dst, is_data)
        with otherwise, either(box.micro_kernel == RUN) as (run, strided):
            # both load the fields: loaded before the branch, these would occupy registers
            with run:
                emit_copy(_rows(inner, src, dst, is_data), box.src_end)
            with strided:
                emit_strided(_rows(inner, src, dst, is_data))


def _rows(inner: _Inner, src: Location, dst: Location, is_data: Value) -> Rows:
    """Return the rows of a `RowsHead`."""
    head: Value = load_fields(inner.address, RowsHead)
    src_table = inner.address + nbytes_of(RowsHead)
    return Rows(
        inner.elements,
        src,
        dst,
        head._replace(valid_rows=where(is_data, head.valid_rows, 0)),
        first=inner.step_range.inner_first,
        last=inner.step_range.inner_last,
        src_table=src_table,
        dst_table=src_table + head.rows * WORD_NBYTES,
    )


def _emit_transpose(inner: _Inner, src: Location, dst: Location, is_data: Value) -> None:
    """Run the transposing kernel on a `TransposeHead`."""
    kernel_loop_at = inner.address + nbytes_of(TransposeHead)
    column_table = kernel_loop_at + nbytes_of(KernelLoop)
    head: Value = load_fields(inner.address, TransposeHead)
    row_table = column_table + head.columns * WORD_NBYTES
    head = head._replace(
        valid_columns=where(is_data, head.valid_columns, 0),
        prefetches_dst=head.prefetches_dst != 0,
        turns=head.turns != 0,
    )
    move = Transposition(
        inner.elements,
        src,
        dst,
        head,
        column_table,
        row_table,
        first=inner.step_range.inner_first,
        last=inner.step_range.inner_last,
        src_end=inner.box.src_end,
        kernel_loop_at=kernel_loop_at,
    )
    emit_transposed(move)
