"""What all compiled interpreters share: the loop over ranges, and an instruction's outer loops.

An interpreter runs a program, which is bytecode: Python encodes a plan as tables of int64, and
compiled code reads them. An instruction is a loop nest and what runs inside it: a micro-kernel, the
steps of a tile, or sums. So a new layout is a new program, not new code.

A range is some consecutive steps of one instruction. A point is the start of the nest in each
operand: one for each step of the indirect loops, which follow indirection tables, not strides. An
interpreter is a C function whose parameters are `InterpreterCall`; it runs each range at each
point, with the outer loops of the instruction over any number of operands.
"""

from collections.abc import Iterator

from memdesc.tuples import NamedTuple
from reorder.cpu.llvm.emit import (
    I64,
    IRValue,
    Value,
    Variable,
    load_fields,
    loop,
    phi,
    stack_pointer,
    where,
)
from reorder.cpu.schedule.partition import StepRange
from reorder.cpu.schedule.program import LoopHead
from reorder.cpu.tables import WORD_NBYTES, nbytes_of

# Upper bound of the outer loops: each has two steps or more, and their product is below 2**63.
_MAX_LOOPS = 64


class InterpreterCall(NamedTuple):
    """The parameters of a compiled interpreter, all int64."""

    # addresses of both buffers, of the program and of its table of ranges
    src_at: Value
    dst_at: Value
    program: Value
    ranges: Value
    # the first step and one past the last; with n points, step k is range k // n at point k % n
    begin: Value
    end: Value
    # address of the table of points, and how many there are
    points: Value
    point_count: Value


def each_range(call: InterpreterCall) -> Iterator[tuple[StepRange, Value, Value]]:
    """Emit a loop over the steps of a call.

    Yields the range, the address of its instruction, and the index of the point.
    """
    with loop(call.begin, call.end) as step:
        at = call.ranges + step // call.point_count * nbytes_of(StepRange)
        step_range = load_fields(at, StepRange)
        instruction = call.program + step_range.instruction * WORD_NBYTES
        yield step_range, instruction, step % call.point_count


class Position(NamedTuple):
    """The position of a step of the outer loops."""

    # offset in each operand, in bytes or elements, like the strides
    offsets: tuple[Value, ...]
    # number of loops that are at a step without data: src is read only if it is 0
    padded: Value


class OuterLoops:
    """The outer loops of an instruction: `count` times `LoopHead` and a stride for each operand."""

    def __init__(self, address: Value, count: Value, operands: int) -> None:
        self._builder, self._address, self._count = address.builder, address, count
        self._nbytes = nbytes_of(LoopHead) + WORD_NBYTES * operands
        self._counters = stack_pointer(self._builder, I64, _MAX_LOOPS)
        self._offsets = [Variable(self._builder) for _ in range(operands)]
        self._padded, self._rest = Variable(self._builder), Variable(self._builder)

    def end(self) -> Value:
        """Return the address of what follows the loops in the instruction."""
        return self._address + self._count * self._nbytes

    def each_step(self, first: Value, last: Value, start: Position) -> Iterator[Position]:
        """Emit one loop over a range of the steps of all loops; yields the position of each.

        `start` is the position of step 0.
        """
        self._enter(first, start)
        with loop(first, last):
            yield self._position()
            self._advance()

    def each_pair(
        self, first: Value, last: Value, start: Position
    ) -> Iterator[tuple[Position, Position]]:
        """Emit the loop of `each_step`; yields the position of each step and of the next one.

        The step after the last one is the first.
        """
        self._enter(first, start)
        with loop(first, last):
            position = self._position()
            self._advance()
            yield position, self._position()

    def _position(self) -> Position:
        return Position(tuple(offset.value for offset in self._offsets), self._padded.value)

    def _loop(self, k: Value) -> tuple[LoopHead, list[Value]]:
        """Load a loop: its head and strides."""
        address = self._address + k * self._nbytes
        strides = address + nbytes_of(LoopHead)
        return load_fields(address, LoopHead), [strides[n] for n in range(len(self._offsets))]

    def _move(self, strides: list[Value], steps: Value) -> None:
        """Add a number of steps of a loop to all offsets."""
        for offset, stride in zip(self._offsets, strides, strict=True):
            offset.value += steps * stride

    def _enter(self, first: Value, start: Position) -> None:
        """Set counters, offsets and padding to those of a step, from the innermost loop outward."""
        for offset, value in zip(self._offsets, start.offsets, strict=True):
            offset.value = value
        self._padded.value = start.padded
        self._rest.value = first
        innermost = self._count - 1
        with loop(0, self._count) as outward:
            k = innermost - outward
            head, strides = self._loop(k)
            rest = self._rest.value
            i = rest % head.extent
            self._rest.value = rest // head.extent
            self._builder.store(i, self._counter(k))
            self._padded.value += where(i >= head.valid, 1, 0)
            self._move(strides, i)

    def _advance(self) -> None:
        """Advance by one step, like an odometer, from the innermost loop outward."""
        builder = self._builder
        before = builder.block
        body, inside, wrapped, done = (
            builder.append_basic_block(name) for name in ("loop", "inside", "wrapped", "advanced")
        )
        innermost = self._count - 1
        builder.cbranch(innermost >= 0, body, done)

        builder.position_at_end(body)
        k = phi((innermost, before))
        head, strides = self._loop(k)
        i = self._counter(k).load() + 1
        self._move(strides, 1)
        self._padded.value += where(i == head.valid, 1, 0)
        builder.cbranch(i < head.extent, inside, wrapped)

        builder.position_at_end(inside)
        builder.store(i, self._counter(k))
        builder.branch(done)

        # wrap from step `extent` to step 0; either counts as padded if it is not below `valid`
        builder.position_at_end(wrapped)
        is_padded, was_padded = where(head.valid <= 0, 1, 0), where(head.extent >= head.valid, 1, 0)
        self._padded.value += is_padded - was_padded
        self._move(strides, -head.extent)
        builder.store(k.like(0), self._counter(k))
        outer = k - 1
        k.raw.add_incoming(outer, builder.block)
        builder.cbranch(outer >= 0, body, done)
        builder.position_at_end(done)

    def _counter(self, k: Value) -> Value:
        return IRValue(self._builder, self._builder.gep(self._counters, [k]))
