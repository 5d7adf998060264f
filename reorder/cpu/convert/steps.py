"""The steps that convert one tile.

In this order, each only if it is needed: a prefetch of later tiles; a move out of src; a
conversion to the working type; operations, of which the first may load elements of src and the
last may store elements of dst; a conversion to the type of dst; a move into dst, which writes the
padding too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc import DATA_TYPES
from reorder.cpu.convert.combine_step import combine
from reorder.cpu.convert.moves import fits_slots_as_bytes, move
from reorder.cpu.convert.records import Base
from reorder.cpu.convert.step_writer import StepWriter
from reorder.values.formats import FORMATS, IntegerFormat, narrow_working_type

if TYPE_CHECKING:
    from reorder.cpu.convert.recipe import Recipe
    from reorder.cpu.convert.records import Step
    from reorder.cpu.convert.step_writer import TileBuffer
    from reorder.cpu.convert.tiling import Tile

__all__ = ["steps_of"]

# A type of each width: elements that are not converted share a stage.
_SAME_BITS = {4: "u4", 8: "u8", 16: "bf16", 32: "f32", 64: "f64"}


def steps_of(recipe: Recipe, tile: Tile, outer_strides: list[tuple[int, ...]]) -> list[Step]:
    """Return the steps for tiles of one shape; parameters as for `StepWriter`."""
    writer = StepWriter(recipe, tile, outer_strides)
    if recipe.moves_packed:
        src, dst = writer.in_place(Base.SRC, recipe.src), writer.in_place(Base.DST, recipe.dst)
        move(writer, src, dst, pads=True)
        return writer.steps
    buffer = _read(writer)
    in_dst = writer.in_place(Base.DST, recipe.dst)
    dtype = _computed(writer, recipe.dst, in_place=tile.writes)
    is_packed_later = dtype != recipe.dst
    target = in_dst if tile.writes and not is_packed_later else writer.slot(Base.RESULT, dtype)
    buffer = _calculate(writer, buffer, target)
    # elements that are not converted need no second slot
    is_moved_only = buffer.base is Base.SRC_ELEMENTS and buffer.dtype == target.dtype
    if buffer.base is not target.base and not (is_moved_only and not tile.writes):
        buffer = _change(writer, buffer, target)
    if not tile.writes:
        move(writer, buffer, in_dst, pads=True)
    elif is_packed_later:
        writer.convert(buffer, in_dst)
    return writer.steps


def _computed(writer: StepWriter, dtype: str, *, in_place: bool) -> str:
    """Return the type of a side's elements where they are computed with, or moved.

    Integers of 4 bits are bytes there: they are unpacked before, or packed after that. One
    conversion that does all needs no bytes.
    """
    recipe = writer.recipe
    is_integer = DATA_TYPES[dtype].is_packed and isinstance(FORMATS[dtype], IntegerFormat)
    if not is_integer or (in_place and recipe.is_direct):
        return dtype
    if not fits_slots_as_bytes(writer, pads=True):
        return dtype
    return narrow_working_type(dtype, dtype, arithmetic=False)


def _read(writer: StepWriter) -> TileBuffer:
    """Return the elements of src: in place, or moved into a slot."""
    recipe, reads = writer.recipe, writer.tile.reads
    src = writer.in_place(Base.SRC, recipe.src)
    dtype = _computed(writer, recipe.src, in_place=reads)
    if reads and dtype == recipe.src:
        return src
    slot = writer.slot(Base.SRC_ELEMENTS, dtype)
    if reads:
        return writer.convert(src, slot)
    if recipe.prefetches:
        writer.prefetch(src)
    return move(writer, src, slot)


def _read_old(writer: StepWriter) -> TileBuffer:
    """Return the values that dst holds before the reorder."""
    recipe = writer.recipe
    old = writer.in_place(Base.DST, recipe.dst)
    if not writer.tile.writes:
        old = move(writer, old, writer.slot(Base.OLD_ELEMENTS, recipe.dst))
    if recipe.dst == recipe.work:
        return old
    return _change(writer, old, writer.slot(Base.OLD_VALUES, recipe.work))


def _change(writer: StepWriter, src: TileBuffer, dst: TileBuffer) -> TileBuffer:
    """Convert, or move where the types are equal: by whole lines where dst is streamed."""
    if src.dtype != dst.dtype:
        return writer.convert(src, dst)
    if src.is_slot and dst.base is Base.DST and writer.recipe.streams:
        bits = _SAME_BITS[src.bits]
        return writer.convert(src._replace(dtype=bits), dst._replace(dtype=bits), as_codes=True)
    return move(writer, src, dst, pads=writer.zeroed_extent(dst) > 0)


def _calculate(writer: StepWriter, buffer: TileBuffer, target: TileBuffer) -> TileBuffer:
    """Convert to values if needed, and run all operations; the last one may write the target."""
    recipe, work = writer.recipe, writer.recipe.work
    calculations = recipe.calculations
    old = _read_old(writer) if recipe.bound.beta else None
    if recipe.subtracts_wide:
        # the difference of numbers of more than 24 bits is exact in f64 only
        buffer = _change(writer, buffer, writer.slot(Base.RESULT, recipe.difference))
        buffer = combine(writer, buffer, buffer, calculations.pop(0), recipe.difference)
        buffer = _change(writer, buffer, writer.slot(Base.VALUES, work))
    else:
        has_values = _loads(buffer.dtype) if calculations else recipe.is_direct
        if buffer.dtype != work and not has_values:
            buffer = _change(writer, buffer, writer.slot(Base.VALUES, work))
    for k, calculation in enumerate(calculations):
        is_last = k == len(calculations) - 1
        has_stage = buffer.dtype == work or recipe.has_stage(buffer.dtype, target.dtype)
        stores = target.dtype == work or (_loads(target.dtype) and has_stage)
        dst = target if is_last and stores else writer.slot(Base.VALUES, work)
        buffer = combine(writer, buffer, dst, calculation, work, old)
    return buffer


def _loads(dtype: str) -> bool:
    """Whether operations load and store elements of a type: not 4-bit ones, which share bytes."""
    return not DATA_TYPES[dtype].is_packed
