"""The interpreter of tiles: it runs the steps of each tile, at the offsets of the tile."""

from llvmlite import ir

from memdesc.tuples import NamedTuple
from reorder.cpu.kernels.elements import Location
from reorder.cpu.kernels.interpreter import (
    InterpreterCall,
    OuterLoops,
    Position,
    each_range,
    emit_call,
)
from reorder.cpu.llvm.emit import I64, Value, load_fields, loop, stack_space, where
from reorder.cpu.schedule.tile_program import (
    NO_OPERAND,
    OPERANDS,
    SLOT_NBYTES,
    Base,
    Placement,
    TileHead,
    TileStep,
)
from reorder.cpu.tables import WORD_NBYTES, nbytes_of
from reorder.plan.nodes import SRC


class _Tile(NamedTuple):
    """What the steps of a tile share."""

    call: InterpreterCall
    # addresses of the offset of each operand, of the slots, and of the `Placement` of the step
    offsets: Value
    slots: Value
    placement: Value
    # offset in src of the tile that follows
    following: Value


def emit_tiles(call: InterpreterCall, slots: Value) -> None:
    """Run the steps of all tiles of a call."""
    builder = slots.builder
    offsets = stack_space(builder, I64, OPERANDS)
    placement = stack_space(builder, I64, len(Placement._fields))
    offsets_nbytes = OPERANDS * WORD_NBYTES
    for step_range, instruction, index in each_range(call):
        head = load_fields(instruction, TileHead)
        offsets_at = instruction + nbytes_of(TileHead)
        point_at = call.points + index * offsets_nbytes
        starts = tuple(offsets_at[n] + point_at[n] for n in range(OPERANDS))
        loops = OuterLoops(offsets_at + offsets_nbytes, head.outer, OPERANDS)
        steps_at = loops.end()
        steps = step_range.first, step_range.last
        for position, following in loops.each_pair(*steps, Position(starts, 0)):
            for n, offset in enumerate(position.offsets):
                offsets[n] = offset
            tile = _Tile(call, offsets, slots, placement, following.offsets[SRC])
            with loop(0, head.steps) as k:
                _emit_step(tile, steps_at + k * nbytes_of(TileStep))
    # make non-temporal stores visible to other threads
    builder.fence("seq_cst")


def _emit_step(tile: _Tile, step_at: Value) -> None:
    """Run one step of a tile."""
    step = load_fields(step_at, TileStep)
    src = _locate(tile, step.src_base, step.src_placed_by, step.shift)
    dst = _locate(tile, step.dst_base, step.dst_placed_by, step.shift)
    operand = _locate(tile, step.operand_base, step.operand_placed_by, 0)
    placement = Placement(
        src.index,
        dst.index,
        operand.address,
        operand.index,
        _address(tile, step.factor_base),
        tile.call.src_at,
        tile.following,
    )
    for k, number in enumerate(placement):
        tile.placement[k] = number
    call = InterpreterCall(
        src.address,
        dst.address,
        step.program,
        step.ranges,
        begin=ir.Constant(I64, 0),
        end=step.range_count,
        points=tile.placement,
        point_count=ir.Constant(I64, 1),
    )
    emit_call(step.interpreter, call)


def _address(tile: _Tile, base: Value) -> Value:
    """Return the address that a `Base` stands for, or the address that it is."""
    slot_at = tile.slots + (base - Base.SRC_ELEMENTS) * SLOT_NBYTES
    address = where(base.below(len(Base)), slot_at, base)
    for each, buffer in ((Base.SRC, tile.call.src_at), (Base.DST, tile.call.dst_at)):
        address = where(base == each, buffer, address)
    return address


def _locate(tile: _Tile, base: Value, placed_by: Value, shift: Value) -> Location:
    """Return where one of the three sides of a step starts, by its fields of a `TileStep`."""
    is_placed = placed_by != NO_OPERAND
    offset = tile.offsets[where(is_placed, placed_by, 0)] << shift
    return Location(_address(tile, base), where(is_placed, offset, 0))
