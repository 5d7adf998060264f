"""The walker over tiles: for each place of a tile it runs the steps that convert it.

A record is [loops, operands, steps], the offset of each operand, for each loop its extent and
a stride for each operand, outermost first, and the steps. A step is [kernel, program, tasks, number of
tasks, three sides of (base, operand, shift), address of a number]. A base is 0 for src, 1 for dst, 2
and more for a slot of scratch, or an address; an operand is the number of the one whose offset
places the side, or -1; offsets are in elements, joined to wider ones `shift` times, or where that is negative split. A task is
[start of a record, first, last, unused, unused]: a range of the places of its tile.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numba
from llvmlite import ir
from numba import types
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from reorder.cpu.convert.scratch import SLOT_NBYTES, SLOTS, scratch
from reorder.cpu.kernels.emit import I64, int64, load_int64
from reorder.cpu.kernels.emit import loop as emit_loop
from reorder.cpu.runtime.intrinsics import ARGUMENTS, fence, load_int, store_int
from reorder.cpu.runtime.jit import compile_callback

if TYPE_CHECKING:
    from numba.core.typing.templates import Signature

__all__ = ["STEP", "tile_walker_at"]

# numbers of a step
STEP = 14
# where, in the room on the stack, the numbers of the loops stand, the offsets, the place of a step, the slots
_LOOPS, _OFFSETS, _PLACE, _ROOM = 0, 64, 96, 128
_FIRST_ADDRESS = 2 + SLOTS


def tile_walker_at() -> int:
    """Return the address of the compiled walker, which takes what one of boxes does."""
    return int(_compiled().address)


@cache
def _compiled() -> Any:
    with global_compiler_lock:
        return compile_callback(_walk, numba.void(*[numba.int64] * ARGUMENTS), "walker of tiles")


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def run_steps(
    _context: Any, src_at: Any, dst_at: Any, actions: Any, steps: Any, room: Any
) -> tuple[Signature, Any]:
    """Run the steps of a tile that lies where the offsets in the room say."""

    def build(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        src_at, dst_at, actions, steps, room = args
        place = builder.add(room, int64(8 * _PLACE))
        kernel = ir.FunctionType(ir.VoidType(), [I64] * ARGUMENTS)

        def side(at: Any, n: int) -> tuple[Any, Any]:
            """Return the address and the offset of one side."""
            base, operand, shift = (load_int64(builder, at, int64(4 + 3 * n + k)) for k in range(3))
            slot = builder.add(room, int64(8 * _ROOM - 2 * SLOT_NBYTES))
            slot = builder.add(slot, builder.mul(base, int64(SLOT_NBYTES)))
            base = builder.select(
                builder.icmp_unsigned("<", base, int64(_FIRST_ADDRESS)), slot, base
            )
            number = load_int64(builder, at, int64(4 + 3 * n))
            base = builder.select(builder.icmp_signed("==", number, int64(0)), src_at, base)
            base = builder.select(builder.icmp_signed("==", number, int64(1)), dst_at, base)
            is_placed = builder.icmp_signed(">=", operand, int64(0))
            index = builder.add(int64(_OFFSETS), builder.select(is_placed, operand, int64(0)))
            offset = load_int64(builder, room, index)
            is_split = builder.icmp_signed("<", shift, int64(0))
            offset = builder.select(
                is_split, builder.shl(offset, builder.neg(shift)), builder.ashr(offset, shift)
            )
            return base, builder.select(is_placed, offset, int64(0))

        with emit_loop(builder, int64(0), steps) as step:
            at = builder.add(actions, builder.mul(step, int64(8 * STEP)))
            (fro, fro_offset), (to, to_offset), (operand, operand_offset) = (
                side(at, n) for n in range(3)
            )
            numbers = (
                fro_offset,
                to_offset,
                operand,
                operand_offset,
                load_int64(builder, at, int64(13)),
            )
            for k, number in enumerate(numbers):
                builder.store(
                    number, builder.gep(builder.inttoptr(place, I64.as_pointer()), [int64(k)])
                )
            address, program, tasks, count = (load_int64(builder, at, int64(k)) for k in range(4))
            builder.call(
                builder.inttoptr(address, kernel.as_pointer()),
                [fro, to, program, tasks, int64(0), count, place, int64(1)],
            )
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), build


def _walk(
    src_at: int,
    dst_at: int,
    program: int,
    tasks: int,
    begin: int,
    end: int,
    places: int,
    count: int,
) -> None:
    room = scratch()
    offsets = room + 8 * _OFFSETS
    for step in range(begin, end):
        task = tasks + 40 * (step // count)
        box = program + 8 * load_int(task, 0)
        first, last = load_int(task, 1), load_int(task, 2)
        outer, operands, steps = load_int(box, 0), load_int(box, 1), load_int(box, 2)
        for n in range(operands):
            store_int(
                offsets, n, load_int(box, 3 + n) + load_int(places, step % count * operands + n)
            )
        nest = box + 8 * (3 + operands)
        width = 8 * (1 + operands)
        rest = first
        for k in range(outer - 1, -1, -1):
            loop = nest + k * width
            extent = load_int(loop, 0)
            store_int(room, _LOOPS + k, rest % extent)
            for n in range(operands):
                store_int(offsets, n, load_int(offsets, n) + rest % extent * load_int(loop, 1 + n))
            rest //= extent
        for _ in range(first, last):
            run_steps(src_at, dst_at, nest + outer * width, steps, room)
            k = outer - 1
            while k >= 0:
                loop = nest + k * width
                i, extent = load_int(room, _LOOPS + k) + 1, load_int(loop, 0)
                # one step on, or all of them back
                move = 1 if i < extent else 1 - extent
                for n in range(operands):
                    store_int(offsets, n, load_int(offsets, n) + move * load_int(loop, 1 + n))
                store_int(room, _LOOPS + k, i if i < extent else 0)
                k = -1 if i < extent else k - 1
    fence()
