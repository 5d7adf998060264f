"""The interpreter of tiles: it runs the steps of each tile, at the offsets of the tile."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from numba.core import cgutils

from reorder.cpu.kernels.elements import Location
from reorder.cpu.kernels.emit import I64, entry_address, int64, load_fields, load_int64, loop
from reorder.cpu.kernels.interpreter import (
    InterpreterCall,
    OuterLoops,
    Position,
    each_task,
    emit_call,
)
from reorder.cpu.schedule.tile_program import (
    NO_OPERAND,
    OPERANDS,
    SLOT_NBYTES,
    Base,
    Placement,
    Step,
    TileHead,
)
from reorder.cpu.tables import WORD_NBYTES, nbytes_of

if TYPE_CHECKING:
    from reorder.cpu.kernels.emit import Builder, Value

__all__ = ["emit_tiles"]


class _Tile(NamedTuple):
    """What the steps of a tile share."""

    call: InterpreterCall
    # pointer to the offset of each operand
    offsets: Value
    # address of the slots
    slots: Value
    # pointer to the `Placement` of the step that runs
    placement: Value


def emit_tiles(builder: Builder, call: InterpreterCall, slots: Value) -> None:
    """Run the steps of all tiles of a call."""
    offsets = cgutils.alloca_once(builder, I64, size=OPERANDS)
    placement = cgutils.alloca_once(builder, I64, size=len(Placement._fields))
    tile = _Tile(call, offsets, slots, placement)
    offsets_nbytes = int64(OPERANDS * WORD_NBYTES)
    for task, instruction, index in each_task(builder, call):
        head = load_fields(builder, instruction, TileHead)
        offsets_at = builder.add(instruction, int64(nbytes_of(TileHead)))
        point_at = builder.add(call.points, builder.mul(index, offsets_nbytes))
        starts = tuple(
            builder.add(load_int64(builder, offsets_at, n), load_int64(builder, point_at, n))
            for n in range(OPERANDS)
        )
        loops_at = builder.add(offsets_at, offsets_nbytes)
        loops = OuterLoops(builder, loops_at, head.outer, OPERANDS)
        steps_at = loops.end()
        for position in loops.each_step(task.first, task.last, Position(starts, int64(0))):
            for n, offset in enumerate(position.offsets):
                builder.store(offset, builder.gep(offsets, [int64(n)]))
            with loop(builder, int64(0), head.steps) as k:
                step_at = entry_address(builder, steps_at, k, nbytes_of(Step))
                _emit_step(builder, tile, step_at)
    # other threads see what non-temporal stores have written
    builder.fence("seq_cst")


def _emit_step(builder: Builder, tile: _Tile, step_at: Value) -> None:
    """Run one step of a tile."""
    step = load_fields(builder, step_at, Step)
    src = _locate(builder, tile, _Side(step.src_base, step.src_placed_by, step.src_shift))
    dst = _locate(builder, tile, _Side(step.dst_base, step.dst_placed_by, step.dst_shift))
    side = _Side(step.operand_base, step.operand_placed_by, step.operand_shift)
    operand = _locate(builder, tile, side)
    factor = _locate(builder, tile, _Side(step.factor_base, int64(NO_OPERAND), int64(0)))
    placement = Placement(src.index, dst.index, operand.address, operand.index, factor.address)
    for k, number in enumerate(placement):
        builder.store(number, builder.gep(tile.placement, [int64(k)]))
    call = InterpreterCall(
        src.address,
        dst.address,
        step.program,
        step.tasks,
        begin=int64(0),
        end=step.task_count,
        points=builder.ptrtoint(tile.placement, I64),
        point_count=int64(1),
    )
    emit_call(builder, step.interpreter, call)


class _Side(NamedTuple):
    """Where one side of a step lies: fields of a `Step`."""

    base: Value
    placed_by: Value
    shift: Value


def _locate(builder: Builder, tile: _Tile, side: _Side) -> Location:
    """Return where a side starts."""
    slot = builder.sub(side.base, int64(Base.SRC_ELEMENTS))
    slot_at = entry_address(builder, tile.slots, slot, SLOT_NBYTES)
    is_slot = builder.icmp_unsigned("<", side.base, int64(len(Base)))
    address = builder.select(is_slot, slot_at, side.base)
    for base, buffer in ((Base.SRC, tile.call.src_at), (Base.DST, tile.call.dst_at)):
        is_buffer = builder.icmp_signed("==", side.base, int64(base))
        address = builder.select(is_buffer, buffer, address)
    is_placed = builder.icmp_signed("!=", side.placed_by, int64(NO_OPERAND))
    index = builder.select(is_placed, side.placed_by, int64(0))
    offset = builder.load(builder.gep(tile.offsets, [index]))
    is_left = builder.icmp_signed("<", side.shift, int64(0))
    offset = builder.select(
        is_left, builder.shl(offset, builder.neg(side.shift)), builder.ashr(offset, side.shift)
    )
    return Location(address, builder.select(is_placed, offset, int64(0)))
