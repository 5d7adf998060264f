"""The interpreter of joined jobs: it calls that of each job for its steps."""

from reorder.cpu.kernels.interpreter import InterpreterCall, emit_call
from reorder.cpu.llvm.emit import load_fields, loop, maximum, minimum, when
from reorder.cpu.schedule.partition import JobRange
from reorder.cpu.tables import WORD_NBYTES, nbytes_of


def emit_joined(call: InterpreterCall) -> None:
    """Run the steps of each job that are in the range of steps of a call."""
    first_part = call.program + WORD_NBYTES
    with loop(0, call.program[0]) as k:
        part = load_fields(first_part + k * nbytes_of(JobRange), JobRange)
        start, stop = maximum(call.begin, part.first), minimum(call.end, part.last)
        with when(start < stop):
            own = InterpreterCall(
                call.src_at,
                call.dst_at,
                part.program,
                part.ranges,
                begin=start - part.first,
                end=stop - part.first,
                points=part.points,
                point_count=part.point_count,
            )
            emit_call(part.interpreter, own)
