"""What all compiled interpreters share: the loop over tasks, and an instruction's outer loops.

An interpreter runs a program, which is bytecode: Python encodes a plan as tables of int64, and
compiled code reads them. An instruction is a loop nest with what runs inside of it: a micro-kernel,
the steps of a tile, or sums. So a new layout is a new program, not new code.

A task is a range of the steps of one instruction. A point is where the loop nest starts: the
offsets of the operands at one step of the loops around it that have no common strides. An
interpreter is a C function whose parameters are `InterpreterCall`; it runs each task at each point,
with the outer loops of the instruction over any number of operands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from llvmlite import ir
from numba.core import cgutils

from reorder.cpu.kernels.emit import I64, entry_address, int64, load_fields, load_int64, loop
from reorder.cpu.schedule.partition import Task
from reorder.cpu.schedule.program import LoopHead
from reorder.cpu.tables import WORD_NBYTES, nbytes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.cpu.kernels.emit import Builder, Value

__all__ = ["InterpreterCall", "OuterLoops", "Position", "each_task", "emit_call"]

# Upper bound of the outer loops: each has two steps or more, and their product is below 2**63.
_MAX_LOOPS = 64


class InterpreterCall(NamedTuple):
    """The parameters of a compiled interpreter, all int64."""

    # addresses of both buffers, of the program and of its table of tasks
    src_at: Value
    dst_at: Value
    program: Value
    tasks: Value
    # the first step and one past the last; step k is task k // point_count at point k % point_count
    begin: Value
    end: Value
    # address of the table of points, and how many there are
    points: Value
    point_count: Value


def emit_call(builder: Builder, interpreter: Value, call: InterpreterCall) -> None:
    """Call the interpreter at an address."""
    function = ir.FunctionType(ir.VoidType(), [I64] * len(call))
    builder.call(builder.inttoptr(interpreter, function.as_pointer()), call)


def each_task(builder: Builder, call: InterpreterCall) -> Iterator[tuple[Task, Value, Value]]:
    """Emit a loop over the steps of a call.

    Yields the task, the address of its instruction, and the index of the point.
    """
    with loop(builder, call.begin, call.end) as step:
        index = builder.udiv(step, call.point_count)
        address = entry_address(builder, call.tasks, index, nbytes_of(Task))
        task = load_fields(builder, address, Task)
        instruction = entry_address(builder, call.program, task.instruction)
        yield task, instruction, builder.urem(step, call.point_count)


class Position(NamedTuple):
    """The position of a step of the outer loops."""

    # offset in each operand, in the unit of the strides
    offsets: tuple[Value, ...]
    # number of loops that are at a step without data: src is read only if it is 0
    padded: Value


class OuterLoops:
    """The outer loops of an instruction: `count` times `LoopHead` and a stride for each operand."""

    def __init__(self, builder: Builder, address: Value, count: Value, operands: int) -> None:
        self._builder, self._address, self._count = builder, address, count
        self._nbytes = nbytes_of(LoopHead) + WORD_NBYTES * operands
        self._counters = cgutils.alloca_once(builder, I64, size=_MAX_LOOPS)
        # LLVM keeps these in registers
        self._offsets = [cgutils.alloca_once(builder, I64) for _ in range(operands)]
        self._padded = cgutils.alloca_once(builder, I64)
        self._rest = cgutils.alloca_once(builder, I64)

    def end(self) -> Value:
        """Return the address of what follows the loops in the instruction."""
        builder = self._builder
        return entry_address(builder, self._address, self._count, self._nbytes)

    def each_step(self, first: Value, last: Value, start: Position) -> Iterator[Position]:
        """Emit one loop over a range of the steps of all loops; yields the position of each.

        `start` is the position of step 0.
        """
        builder = self._builder
        self._enter(first, start)
        with loop(builder, first, last):
            yield Position(
                tuple(builder.load(offset) for offset in self._offsets),
                builder.load(self._padded),
            )
            self._advance()

    def _loop(self, k: Value) -> tuple[LoopHead, list[Value]]:
        """Load a loop: its head and strides."""
        builder = self._builder
        address = entry_address(builder, self._address, k, self._nbytes)
        strides = builder.add(address, int64(nbytes_of(LoopHead)))
        return load_fields(builder, address, LoopHead), [
            load_int64(builder, strides, n) for n in range(len(self._offsets))
        ]

    def _move(self, strides: list[Value], steps: Value) -> None:
        """Add a number of steps of a loop to all offsets."""
        builder = self._builder
        for offset, stride in zip(self._offsets, strides, strict=True):
            moved = builder.add(builder.load(offset), builder.mul(steps, stride))
            builder.store(moved, offset)

    def _add_padded(self, count: Value) -> None:
        builder = self._builder
        builder.store(builder.add(builder.load(self._padded), count), self._padded)

    def _enter(self, first: Value, start: Position) -> None:
        """Set counters, offsets and padding to those of a step, from the innermost loop outward."""
        builder = self._builder
        for offset, value in zip(self._offsets, start.offsets, strict=True):
            builder.store(value, offset)
        builder.store(start.padded, self._padded)
        builder.store(first, self._rest)
        innermost = builder.sub(self._count, int64(1))
        with loop(builder, int64(0), self._count) as outward:
            k = builder.sub(innermost, outward)
            head, strides = self._loop(k)
            rest = builder.load(self._rest)
            i = builder.urem(rest, head.extent)
            builder.store(builder.udiv(rest, head.extent), self._rest)
            builder.store(i, self._counter(k))
            self._add_padded(_as_int64(builder, builder.icmp_signed(">=", i, head.valid)))
            self._move(strides, i)

    def _advance(self) -> None:
        """Advance by one step, like an odometer, from the innermost loop outward."""
        builder = self._builder
        before = builder.block
        head_block, body, inside, wrapped, done = (
            builder.append_basic_block(name)
            for name in ("advance", "loop", "inside", "wrapped", "advanced")
        )
        innermost = builder.sub(self._count, int64(1))
        builder.branch(head_block)
        builder.position_at_end(head_block)
        k = builder.phi(I64)
        k.add_incoming(innermost, before)
        builder.cbranch(builder.icmp_signed(">=", k, int64(0)), body, done)

        builder.position_at_end(body)
        head, strides = self._loop(k)
        i = builder.add(builder.load(self._counter(k)), int64(1))
        self._move(strides, int64(1))
        self._add_padded(_as_int64(builder, builder.icmp_signed("==", i, head.valid)))
        builder.cbranch(builder.icmp_signed("<", i, head.extent), inside, wrapped)

        builder.position_at_end(inside)
        builder.store(i, self._counter(k))
        builder.branch(done)

        # wrap from step `extent` to step 0; either counts as padded if it is not below `valid`
        builder.position_at_end(wrapped)
        is_empty = _as_int64(builder, builder.icmp_signed("<=", head.valid, int64(0)))
        was_padded = _as_int64(builder, builder.icmp_signed(">=", head.extent, head.valid))
        self._add_padded(builder.sub(is_empty, was_padded))
        self._move(strides, builder.neg(head.extent))
        builder.store(int64(0), self._counter(k))
        k.add_incoming(builder.sub(k, int64(1)), builder.block)
        builder.branch(head_block)
        builder.position_at_end(done)

    def _counter(self, k: Value) -> Value:
        return self._builder.gep(self._counters, [k])


def _as_int64(builder: Builder, condition: Value) -> Value:
    return builder.zext(condition, I64)
