"""The batches of a plan that needs tiles."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from reorder.cpu.convert.recipe import Recipe
from reorder.cpu.convert.rows import masks_elements
from reorder.cpu.convert.scratch import SLOT_BITS
from reorder.cpu.convert.selection import is_tiled
from reorder.cpu.convert.tile_batches import (
    GatheredTileBatch,
    PaddingBatch,
    TileBatch,
    TileProgram,
)
from reorder.cpu.convert.tile_counts import GROWN, SlotLimits
from reorder.cpu.convert.tiling import tile_box
from reorder.cpu.schedule.kernel import Kernel
from reorder.cpu.schedule.tiling import tile_boxes
from reorder.plan.passes import src_and_dst, zeros_of

if TYPE_CHECKING:
    from reorder.cpu.convert.tiling import Tile
    from reorder.cpu.runtime.batch import Batch
    from reorder.cpu.runtime.batch_builder import BatchBuilder
    from reorder.plan.nodes import Box

__all__ = ["tile_batches"]

# Tiles hold a multiple of this many elements: whole 512-bit registers, even of bytes.
_LIMIT_GRAIN = 64


def tile_batches(builder: BatchBuilder) -> list[Batch]:
    """Return the batches of a plan that needs tiles.

    They run in this order: tiles of boxes without lookups; boxes that are moved; tiles of boxes
    with lookups, each followed by its zeros; zeros beyond the tiles of boxes without lookups.
    """
    plan = builder.plan
    recipe = Recipe(
        plan.src.dtype.name,
        plan.dst.dtype.name,
        plan.bound_attr,
        (plan.src.layout.last + 1, plan.dst.layout.last + 1),
        streams=builder.exceeds,
        streams_rows=builder.machine.exceeds_parts(builder.nbytes, builder.threads),
        prefetches=builder.machine.exceeds_core_cache(builder.nbytes),
    )
    tagged = [(box, is_tiled(plan, box)) for box in builder.boxes]
    batches = builder.move_all(box for box, tiled in tagged if not tiled)
    tiles: list[Tile] = []
    zeros: list[Box] = []
    for box in (box for box, tiled in tagged if tiled):
        if box.lookups:
            batches += _gathered_batches(builder, recipe, box)
        else:
            inside, beyond = _tiles_of(builder, recipe, box)
            tiles += inside
            zeros += beyond
    if tiles:
        builder.kernels += ("tiles",)
        batches.insert(0, TileBatch(TileProgram(builder, recipe, tiles)))
    return batches + builder.move(zeros)


def _tiles_of(builder: BatchBuilder, recipe: Recipe, box: Box) -> tuple[list[Tile], list[Box]]:
    """Return the tiles of a box without lookups, and the zeros beyond them."""
    plan = builder.plan
    limit = SLOT_BITS // recipe.max_bits & -_LIMIT_GRAIN
    widths = plan.src.dtype.bits, plan.dst.dtype.bits
    in_place = recipe.is_direct
    masks = plan.converts and masks_elements(recipe.src, recipe.dst)
    # beyond the caches of a core, wide rows of src and what is prefetched of them fill half of L1
    is_wide = recipe.prefetches and widths[0] > widths[1]
    grown = GROWN // 2 if is_wide else GROWN
    limits = SlotLimits(limit, 2 * limit if recipe.is_single else limit, grown)
    return tile_box(box, widths, limits, in_place=in_place, streams=recipe.streams, masks=masks)


def _gathered_batches(builder: BatchBuilder, recipe: Recipe, box: Box) -> list[Batch]:
    """Return the batches of a box with lookups: its tiles, the zeros beyond them, its padding."""
    kernel = Kernel(builder.plan.dst.dtype.bits)
    tiles, beyond = _tiles_of(builder, recipe, box._replace(lookups=()))
    points = prod(lookup.extent for lookup in box.lookups)
    batches: list[Batch] = [
        GatheredTileBatch(TileProgram(builder, recipe, [tile], points), box.lookups)
        for tile in tiles
    ]
    # zeros have no operands beside src and dst
    lookups = tuple(lookup._replace(others=()) for lookup in box.lookups)
    for zeros in beyond:
        scheduled = tile_boxes((zeros._replace(lookups=lookups),), kernel.bits)
        batches.append(builder.box_batch(scheduled, kernel, lookups))
    if tiles:
        padding = zeros_of(src_and_dst(box))._replace(lookups=())
        zeros_batch = builder.box_batch(tile_boxes((padding,), kernel.bits), kernel)
        batches.append(PaddingBatch(zeros_batch, box.lookups))
    return batches
