"""The batches of a plan that needs tiles: those that convert, and moves that go through scratch."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from memdesc.dtypes import BYTE_BITS
from reorder.cpu.schedule.batches import Batch, BatchBuilder, is_tiled
from reorder.cpu.schedule.loops import size_of
from reorder.cpu.schedule.partition import Partition, StepRange, Workload, partition
from reorder.cpu.schedule.post_ops import Conversion
from reorder.cpu.schedule.program import points_in_bytes
from reorder.cpu.schedule.tile_program import (
    OPERANDS,
    SLOT_BITS,
    Base,
    TileStep,
    encode_tile,
)
from reorder.cpu.schedule.tile_steps import StepWriter
from reorder.cpu.schedule.tiles import Tile, TileSpec, cut_into_tiles
from reorder.cpu.tables import Words
from reorder.plan.nodes import DST, NOWHERE, SRC, Box, IndirectLoop
from reorder.plan.passes import src_and_dst, zeros_of

# Tiles hold a multiple of this many elements: whole 512-bit registers, even of bytes.
_LIMIT_GRAIN = 64


def tile_batches(builder: BatchBuilder) -> list[Batch]:
    """Return the batches of a plan that needs tiles.

    They run in this order: tiles of boxes without indirect loops; boxes that are moved; tiles of
    boxes with indirect loops, each followed by its zeros; zeros beyond the tiles of the others.
    """
    plan = builder.plan
    conversion = Conversion.of(plan)
    spec = _spec(builder, conversion)
    tagged = [(box, is_tiled(plan, box)) for box in plan.boxes]
    batches = builder.move(box for box, tiled in tagged if not tiled)
    tiles: list[Tile] = []
    zeros: list[Box] = []
    for box in (box for box, tiled in tagged if tiled):
        if box.indirect:
            batches += _indirect_batches(builder, conversion, spec, box)
        else:
            inside, beyond = cut_into_tiles(box, spec)
            tiles += inside
            zeros += beyond
    if tiles:
        builder.kernels += ("tiles",)
        batches.insert(0, _tile_batch(builder, conversion, tiles))
    return batches + builder.move(zeros)


def _spec(builder: BatchBuilder, conversion: Conversion) -> TileSpec:
    """Return what the tiles of a plan depend on."""
    src, dst = builder.plan.src.dtype, builder.plan.dst.dtype
    limit = SLOT_BITS // conversion.max_bits & -_LIMIT_GRAIN
    place = None if dst.is_packed else builder.place_of_tiles
    return TileSpec((src.bits, dst.bits), limit, conversion.is_single, place, builder.exceeds)


def _indirect_batches(
    builder: BatchBuilder, conversion: Conversion, spec: TileSpec, box: Box
) -> list[Batch]:
    """Return the batches of a box with indirect loops: its tiles, their zeros, its padding."""
    tiles, beyond = cut_into_tiles(box._replace(indirect=()), spec)
    batches = [_tile_batch(builder, conversion, [tile], box.indirect) for tile in tiles]
    # boxes of zeros have no operands besides src and dst
    indirect = tuple(loop._replace(params=()) for loop in box.indirect)
    batches += [builder.move_indirect(zeros._replace(indirect=indirect)) for zeros in beyond]
    if tiles:
        padding = builder.move_indirect(zeros_of(src_and_dst(box))._replace(indirect=indirect))
        place = partial(place_padding, bits=builder.plan.dst.dtype.bits)
        batches.append(padding._replace(place=place))
    return batches


def _tile_batch(
    builder: BatchBuilder,
    conversion: Conversion,
    tiles: list[Tile],
    indirect: tuple[IndirectLoop, ...] = (),
) -> Batch:
    """Return the batch of tiles."""
    words: list[Any] = []
    workloads = []
    for tile in tiles:
        workloads.append(Workload(len(words), size_of(tile.outer), 1, 1, _size(tile)))
        writer = StepWriter(builder, conversion, tile, is_indirect=bool(indirect))
        words += writer.write()
    src, dst = builder.plan.src.dtype, builder.plan.dst.dtype
    size = sum(map(_size, tiles)) * size_of(indirect)
    # two threads must not write the two 4-bit elements of one byte
    is_shared = dst.is_packed and not (indirect == () and all(map(_owns_bytes, tiles)))
    nbytes, threads = size * max(src.bits, dst.bits) // BYTE_BITS, builder.threads
    shares = partition(workloads, nbytes, 1 if is_shared else threads, builder.machine)
    return Batch(None, words, shares, place_data, indirect)


def join(batches: Sequence[Batch]) -> Batch:
    """Return one batch of the chunks of all, in order, which a call runs without Python code.

    Each chunk of boxes becomes a tile of one step. Threads run chunks at once, so no batch may read
    what another one writes, and no two may write 4-bit elements of the same byte.
    """
    words: list[Any] = []
    ranges: list[StepRange] = []
    bounds = [0]
    for batch in batches:
        start, shares = len(words), batch.partition
        if batch.kernel is None:
            words += batch.program
            moved = (StepRange(*span) for span in shares.ranges.tolist())
            ranges += [span._replace(instruction=span.instruction + start) for span in moved]
            bounds += [bounds[-1] + stop for stop in shares.bounds[1:].tolist()]
            continue
        for first, last in pairwise(shares.bounds.tolist()):
            code = batch.kernel, batch.program, shares.ranges[first:last], last - first
            step = TileStep(*code, Base.SRC, Base.DST)
            ranges.append(StepRange(len(words), 0, 1, 0, 0))
            words += encode_tile((0, 0), (), (step,))
            bounds.append(bounds[-1] + 1)
    threads = max(batch.partition.threads for batch in batches)
    table = np.array(ranges, np.int64).reshape(-1, len(StepRange._fields))
    shares = Partition(table, np.array(bounds, np.int64), threads)
    return Batch(None, words, shares, place_data)


def place_data(points: Words) -> Words:
    """Return those points that have data, with an offset for each operand of `encode_tile`."""
    points = points[points[:, SRC] != NOWHERE]
    return np.pad(points, ((0, 0), (0, OPERANDS - points.shape[1])))


def place_padding(points: Words, bits: int) -> Words:
    """Return those points that have no data, as `points_in_bytes` returns all."""
    return points_in_bytes(points[points[:, SRC] == NOWHERE], bits)


def _size(tile: Tile) -> int:
    return size_of((*tile.outer, *tile.inner))


def _owns_bytes(tile: Tile) -> bool:
    """Whether no two tiles share a byte of 4-bit elements: all but pairs are an even step apart."""
    steps = [tile.offsets[DST], *(node.strides[DST] for node in (*tile.outer, *tile.inner))]
    pairs = [node for node in tile.inner if node.strides[DST] == 1]
    return bool(pairs) and pairs[0].extent % 2 == 0 and sum(step % 2 for step in steps) == 1
