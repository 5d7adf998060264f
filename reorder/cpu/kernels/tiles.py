"""The interpreter of tiles: it runs the steps of each tile, at the offsets of the tile."""

from memdesc.tuples import NamedTuple
from reorder.cpu.kernels.interpreter import InterpreterCall, OuterLoops, Position, each_range
from reorder.cpu.llvm.emit import (
    I64,
    Value,
    load_fields,
    loop,
    phi,
    stack_space,
    when,
    where,
)
from reorder.cpu.machine import SHARED_NBYTES
from reorder.cpu.schedule.tile_program import (
    LOCKS_AT,
    NO_OPERAND,
    OPERANDS,
    SCRATCH_NBYTES,
    SCRATCHES,
    SCRATCHES_AT,
    SLOT_NBYTES,
    YIELD_AT,
    Base,
    Placement,
    TileHead,
    TileStep,
)
from reorder.cpu.tables import WORD_NBYTES, nbytes_of
from reorder.plan.nodes import SRC

# Fibonacci hashing: the odd number closest to 2**64 divided by the golden ratio, as a signed
# number. Stacks are at least 16 KiB apart; the highest bits of the product are the place.
_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)
_STACK_SHIFT, _PLACE_SHIFT = 14, 64 - (SCRATCHES - 1).bit_length()


class _PlacedTile(NamedTuple):
    """What the steps of a tile share."""

    call: InterpreterCall
    # addresses of the offset of each operand, of the slots, and of the `Placement` of the step
    offsets: Value
    slots: Value
    placement: Value
    # offset in src of the tile that follows
    following: Value


def emit_tiles(call: InterpreterCall) -> None:
    """Run the steps of all tiles of a call, in a scratch that no other thread uses meanwhile."""
    block: Value = load_fields(call.program, TileHead).scratch_block
    number = _take_scratch(block)
    # a scratch starts at a cache line
    _emit_all(call, block + SCRATCHES_AT + number * SCRATCH_NBYTES)
    lock = _lock_of(block, number)
    block.builder.store_atomic(I64(0), lock.raw, "release", WORD_NBYTES)


def _take_scratch(block: Value) -> Value:
    """Take a scratch that no thread uses; return its number.

    The search starts at a place that depends on the stack of the thread, so that a thread finds the
    scratch that is in its caches.
    """
    builder = block.builder
    stack = stack_space(builder, I64, 1)
    first = ((stack >> _STACK_SHIFT) * _FACTOR >> _PLACE_SHIFT) & (SCRATCHES - 1)
    before = builder.block
    search, used, taken = map(builder.append_basic_block, ("search", "used", "taken"))
    builder.branch(search)
    builder.position_at_end(search)
    number = phi((first, before))
    lock = _lock_of(block, number).raw
    exchanged = builder.cmpxchg(lock, I64(0), I64(1), "seq_cst", "seq_cst")
    builder.cbranch(builder.extract_value(exchanged, 1), taken, used)
    builder.position_at_end(used)
    following = (number + 1) & (SCRATCHES - 1)
    with when(following == first):
        block[YIELD_AT].call_at(0)
    number.raw.add_incoming(following, builder.block)
    builder.branch(search)
    builder.position_at_end(taken)
    return number


def _lock_of(block: Value, number: Value) -> Value:
    return (block + LOCKS_AT + number * SHARED_NBYTES).word(0)


def _emit_all(call: InterpreterCall, slots: Value) -> None:
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
            tile = _PlacedTile(call, offsets, slots, placement, following.offsets[SRC])
            with loop(0, head.steps) as k:
                _emit_step(tile, steps_at + k * nbytes_of(TileStep))
    # make non-temporal stores visible to other threads
    builder.fence("seq_cst")


def _emit_step(tile: _PlacedTile, step_at: Value) -> None:
    """Run one step of a tile."""
    step = load_fields(step_at, TileStep)
    src, dst, operand = (
        _address(tile, base) for base in (step.src_base, step.dst_base, step.operand_base)
    )
    placement = Placement(
        _offset(tile, step.src_base, step.src_base.below(Base.VALUES)) << step.shift,
        _offset(tile, step.dst_base, step.dst_base.below(Base.VALUES)) << step.shift,
        operand,
        _offset(tile, step.operand_placed_by, step.operand_placed_by != NO_OPERAND),
        tile.call.src_at,
        tile.following,
    )
    for k, number in enumerate(placement):
        tile.placement[k] = number
    call = InterpreterCall(
        src,
        dst,
        step.program,
        step.ranges,
        begin=0,
        end=step.range_count,
        points=tile.placement,
        point_count=1,
    )
    step.interpreter.call_at(*call)


def _address(tile: _PlacedTile, base: Value) -> Value:
    """Return the address that a `Base` stands for, or the address that it is."""
    slot_at = tile.slots + (base - Base.VALUES) * SLOT_NBYTES
    address = where(base.below(len(Base)), slot_at, base)
    for known, buffer in ((Base.SRC, tile.call.src_at), (Base.DST, tile.call.dst_at)):
        address = where(base == known, buffer, address)
    return address


def _offset(tile: _PlacedTile, operand: Value, is_placed: Value) -> Value:
    """Return the offset of the tile in an operand of the box, or 0."""
    return where(is_placed, tile.offsets[where(is_placed, operand, 0)], 0)
