"""The batches of a plan that needs tiles: those that convert, and moves that go through scratch."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from memdesc.dtypes import BYTE_BITS
from reorder.cpu.runtime.batch import Batch, BatchBuilder
from reorder.cpu.runtime.scratch import SCRATCH_BLOCK
from reorder.cpu.runtime.stages import tile_interpreter_at
from reorder.cpu.runtime.steps import steps_of
from reorder.cpu.schedule.loops import size_of
from reorder.cpu.schedule.partition import Workload
from reorder.cpu.schedule.post_ops import KernelConfig
from reorder.cpu.schedule.program import Point
from reorder.cpu.schedule.tile_choice import is_tiled
from reorder.cpu.schedule.tile_program import OPERANDS, SLOT_BITS, TilesHead, encode_tile
from reorder.cpu.schedule.tiles import Tile, cut_into_tiles
from reorder.cpu.tables import fields_of
from reorder.plan.nodes import NOWHERE, Box, IndirectLoop
from reorder.plan.passes import src_and_dst, zeros_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


# Tiles hold a multiple of this many elements: whole 512-bit registers, even of bytes.
_LIMIT_GRAIN = 64


def tile_batches(builder: BatchBuilder) -> list[Batch]:
    """Return the batches of a plan that needs tiles.

    They run in this order: tiles of boxes without indirect loops; boxes that are moved; tiles of
    boxes with indirect loops, each followed by its zeros; zeros beyond the tiles of the others.
    """
    plan = builder.plan
    config = KernelConfig(
        plan.src.dtype.name,
        plan.dst.dtype.name,
        plan.bound_attr,
        (plan.src.layout.last + 1, plan.dst.layout.last + 1),
        streams=builder.exceeds,
        streams_rows=builder.machine.exceeds_parts(builder.nbytes, builder.threads),
        prefetches=builder.machine.exceeds_core_cache(builder.nbytes),
    )
    tagged = [(box, is_tiled(plan, box)) for box in plan.boxes]
    batches = builder.move_all(box for box, tiled in tagged if not tiled)
    tiles: list[Tile] = []
    zeros: list[Box] = []
    for box in (box for box, tiled in tagged if tiled):
        if box.indirect:
            batches += _indirect_batches(builder, config, box)
        else:
            inside, beyond = _tiles_of(builder, config, box)
            tiles += inside
            zeros += beyond
    if tiles:
        builder.kernels += ("tiles",)
        batches.insert(0, _tile_batch(builder, config, tiles))
    return batches + builder.move(zeros)


def _tiles_of(
    builder: BatchBuilder, config: KernelConfig, box: Box
) -> tuple[list[Tile], list[Box]]:
    """Return the tiles of a box without indirect loops, and the zeros beyond them."""
    plan = builder.plan
    limit = SLOT_BITS // config.max_bits & -_LIMIT_GRAIN
    widths = plan.src.dtype.bits, plan.dst.dtype.bits
    in_place = config.is_single
    return cut_into_tiles(box, widths, limit, in_place=in_place, streams=config.streams)


def _indirect_batches(builder: BatchBuilder, config: KernelConfig, box: Box) -> list[Batch]:
    """Return the batches of a box with indirect loops: its tiles, their zeros, its padding."""
    tiles, beyond = _tiles_of(builder, config, box._replace(indirect=()))
    batches = [_tile_batch(builder, config, [tile], box.indirect) for tile in tiles]
    # zeros have no operands besides src and dst
    indirect = tuple(loop._replace(params=()) for loop in box.indirect)
    batches += [builder.move_indirect(zeros._replace(indirect=indirect)) for zeros in beyond]
    if tiles:
        padding = builder.move_indirect(zeros_of(src_and_dst(box))._replace(indirect=()))
        place = partial(_only, place=padding.place, is_data=False)
        batches.append(replace(padding, place=place, indirect=box.indirect))
    return batches


_POINT = fields_of(Point)


def _only(
    points: NDArray[np.int64],
    place: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    *,
    is_data: bool,
) -> NDArray[np.int64]:
    """Place only those points of indirect loops that have data, or only those that have none."""
    return place(points[(points[:, _POINT.src] != NOWHERE) == is_data])


def _of_each_operand(points: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return points with an offset for each operand, as `encode_tile` writes offsets."""
    return np.pad(points, ((0, 0), (0, OPERANDS - points.shape[1])))


def _tile_batch(
    builder: BatchBuilder,
    config: KernelConfig,
    tiles: list[Tile],
    indirect: tuple[IndirectLoop, ...] = (),
) -> Batch:
    """Return the batch of tiles; `config` owns the arrays that their steps point to."""
    words: list[int] = []
    workloads = []
    for tile in tiles:
        # offsets of points may be odd: a stride of 1 keeps 4-bit elements from moving as bytes
        point = (1,) if indirect else ()
        outer_strides = [
            (offset, *(node.strides[n] for node in tile.outer), *point)
            for n, offset in enumerate(tile.offsets)
        ]
        steps = size_of(tile.outer)
        workloads.append(Workload(len(words), steps, 1, 1, _size(tile)))
        words += encode_tile(tile.offsets, tile.outer, steps_of(config, tile, outer_strides))
    program = np.array([*TilesHead(SCRATCH_BLOCK), *words], np.int64)
    src, dst = builder.plan.src.dtype, builder.plan.dst.dtype
    points = size_of(indirect)
    size = sum(map(_size, tiles)) * points
    # two threads must not write the two 4-bit elements of one byte
    is_shared = dst.is_packed and not (indirect == () and all(map(_owns_bytes, tiles)))
    shares = builder.partition(
        workloads, size * max(src.bits, dst.bits) // BYTE_BITS, is_whole=is_shared
    )

    place = partial(_only, place=_of_each_operand, is_data=True)
    return Batch(program, shares, tile_interpreter_at, place, indirect, owner=config)


def _size(tile: Tile) -> int:
    return size_of((*tile.outer, *tile.inner))


def _owns_bytes(tile: Tile) -> bool:
    """Whether no two tiles share a byte of 4-bit elements.

    That holds if the contiguous node has whole pairs, and all other strides and the offset are
    even.
    """
    steps = [tile.offsets[1], *(node.strides[1] for node in (*tile.outer, *tile.inner))]
    pairs = [node for node in tile.inner if node.strides[1] == 1]
    return bool(pairs) and pairs[0].extent % 2 == 0 and sum(step % 2 for step in steps) == 1
