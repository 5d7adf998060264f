"""The batches of a plan that needs tiles: those that convert, and moves that go through scratch."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from reorder.cpu.kernels.rows import masks_elements
from reorder.cpu.runtime.job import Job, make_job
from reorder.cpu.runtime.pool import run_job
from reorder.cpu.runtime.scratch import SCRATCH_BLOCK
from reorder.cpu.runtime.stages import tile_walker_at
from reorder.cpu.runtime.steps import steps_of
from reorder.cpu.schedule.cache_tiling import tile_boxes
from reorder.cpu.schedule.config import KernelConfig
from reorder.cpu.schedule.partition import Workload
from reorder.cpu.schedule.program import Point, each_points
from reorder.cpu.schedule.select import Kernel
from reorder.cpu.schedule.tile_program import OPERANDS, SLOT_BITS, TilesHead, encode_tile
from reorder.cpu.schedule.tiles import GROWN, SlotLimits, cut_into_tiles, is_tiled
from reorder.cpu.tables import fields_of
from reorder.cpu.target import BYTE_BITS
from reorder.memory.buffers import address_of
from reorder.plan.nodes import NOWHERE
from reorder.plan.passes import src_and_dst, zeros_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reorder.cpu.runtime.batch import Batch, BatchBuilder, BoxBatch
    from reorder.cpu.schedule.partition import Partition
    from reorder.cpu.schedule.tiles import Tile
    from reorder.plan.nodes import Box, IndirectLoop

__all__ = ["tile_batches"]

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
    tagged = [(box, is_tiled(plan, box)) for box in builder.boxes]
    batches = builder.move_all(box for box, tiled in tagged if not tiled)
    tiles: list[Tile] = []
    zeros: list[Box] = []
    for box in (box for box, tiled in tagged if tiled):
        if box.indirect:
            batches += _gathered_batches(builder, config, box)
        else:
            inside, beyond = _tiles_of(builder, config, box)
            tiles += inside
            zeros += beyond
    if tiles:
        builder.kernels += ("tiles",)
        batches.insert(0, _TileBatch(_TileProgram(builder, config, tiles)))
    return batches + builder.move(zeros)


def _tiles_of(
    builder: BatchBuilder, config: KernelConfig, box: Box
) -> tuple[list[Tile], list[Box]]:
    """Return the tiles of a box without indirect loops, and the zeros beyond them."""
    plan = builder.plan
    limit = SLOT_BITS // config.max_bits & -_LIMIT_GRAIN
    widths = plan.src.dtype.bits, plan.dst.dtype.bits
    in_place = config.is_direct
    masks = plan.converts and masks_elements(config.src, config.dst)
    # beyond the caches of a core, wide rows of src and their prefetched lines fill half of L1
    is_wide = config.prefetches and widths[0] > widths[1]
    grown = GROWN // 2 if is_wide else GROWN
    limits = SlotLimits(limit, 2 * limit if config.is_single else limit, grown)
    return cut_into_tiles(
        box, widths, limits, in_place=in_place, streams=config.streams, masks=masks
    )


def _gathered_batches(builder: BatchBuilder, config: KernelConfig, box: Box) -> list[Batch]:
    """Return the batches of a box with indirect loops: its tiles, their zeros, its padding."""
    kernel = Kernel(builder.plan.dst.dtype.bits)
    tiles, beyond = _tiles_of(builder, config, box._replace(indirect=()))
    points = prod(loop.extent for loop in box.indirect)
    batches: list[Batch] = [
        _GatheredTileBatch(_TileProgram(builder, config, [tile], points), box.indirect)
        for tile in tiles
    ]
    # zeros have no operands besides src and dst
    indirect = tuple(loop._replace(params=()) for loop in box.indirect)
    for zeros in beyond:
        scheduled = tile_boxes((zeros._replace(indirect=indirect),), kernel.bits)
        batches.append(builder.box_batch(scheduled, kernel, indirect))
    if tiles:
        padding = zeros_of(src_and_dst(box))._replace(indirect=())
        zeros_batch = builder.box_batch(tile_boxes((padding,), kernel.bits), kernel)
        batches.append(_PaddingBatch(zeros_batch, box.indirect))
    return batches


_POINT = fields_of(Point)
_ORIGIN = np.zeros((1, OPERANDS), np.int64)


class _TileProgram:
    """The program of tiles, and how threads share it.

    Parameters
    ----------
    builder : BatchBuilder
        Partitions the work among threads.
    config : KernelConfig
        Owner of the arrays that steps point to.
    tiles : list of Tile
        The tiles.
    points : int, optional
        Number of points at which the tiles run; by default they run once, at offset 0.
    """

    def __init__(
        self,
        builder: BatchBuilder,
        config: KernelConfig,
        tiles: list[Tile],
        points: int | None = None,
    ) -> None:
        self._config = config
        program: list[int] = []
        workloads = []
        for tile in tiles:
            # points may be odd: a stride of 1 keeps elements from being packed into wider ones
            point = () if points is None else (1,)
            outer_strides = [
                (offset, *(node.strides[n] for node in tile.outer), *point)
                for n, offset in enumerate(tile.offsets)
            ]
            steps = prod(node.extent for node in tile.outer)
            workloads.append(Workload(len(program), steps, 1, 1, _size(tile)))
            program += encode_tile(tile.offsets, tile.outer, steps_of(config, tile, outer_strides))
        self._program = np.array([*TilesHead(SCRATCH_BLOCK), *program], np.int64)
        self.partition = _partition(builder, workloads, tiles, points)

    def job(self) -> Job:
        """Return the job that runs the tiles once, at offset 0."""
        return make_job(tile_walker_at(), address_of(self._program), self.partition, _ORIGIN)


def _partition(
    builder: BatchBuilder, workloads: list[Workload], tiles: list[Tile], points: int | None
) -> Partition:
    src, dst = builder.plan.src.dtype, builder.plan.dst.dtype
    size = sum(_size(tile) for tile in tiles) * (points or 1)
    # two threads must not write the two 4-bit elements of one byte
    is_shared = dst.is_packed and not (points is None and all(_owns_bytes(tile) for tile in tiles))
    return builder.partition(
        workloads, size * max(src.bits, dst.bits) // BYTE_BITS, is_whole=is_shared
    )


def _size(tile: Tile) -> int:
    return prod(node.extent for node in (*tile.outer, *tile.inner))


def _owns_bytes(tile: Tile) -> bool:
    """Whether no two tiles share a byte of 4-bit elements.

    They do not if the contiguous node has whole pairs, and all other strides and the offset are
    even.
    """
    steps = [tile.offsets[1], *(node.strides[1] for node in (*tile.outer, *tile.inner))]
    pairs = [node for node in tile.inner if node.strides[1] == 1]
    return bool(pairs) and pairs[0].extent % 2 == 0 and sum(step % 2 for step in steps) == 1


class _TileBatch:
    """Tiles without indirect loops."""

    def __init__(self, program: _TileProgram) -> None:
        self._program = program

    @property
    def direct_job(self) -> Job | None:
        """The job, if every call runs the same one; else None."""
        return self._program.job()

    def execute(self, src_at: int, dst_at: int) -> None:
        """Run the tiles on src and dst at two addresses."""
        run_job(src_at, dst_at, self._program.job())


class _GatheredTileBatch:
    """Tiles at those points of offset tables that have data."""

    direct_job = None

    def __init__(self, program: _TileProgram, indirect: tuple[IndirectLoop, ...]) -> None:
        self._program, self._indirect = program, indirect

    def execute(self, src_at: int, dst_at: int) -> None:
        """Run the tiles on src and dst at two addresses."""
        for points in each_points(self._indirect):
            data = points[points[:, _POINT.src] != NOWHERE]
            if len(data):
                table = _of_each_operand(data)
                job = self._program.job()
                job = job._replace(points=address_of(table), point_count=len(table))
                run_job(src_at, dst_at, job)


def _of_each_operand(points: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return points with an offset for each operand, as `encode_tile` writes offsets."""
    return np.pad(points, ((0, 0), (0, OPERANDS - points.shape[1])))


class _PaddingBatch:
    """Zeros at those points of offset tables that have no data."""

    direct_job = None

    def __init__(self, zeros: BoxBatch, indirect: tuple[IndirectLoop, ...]) -> None:
        self._zeros, self._indirect = zeros, indirect

    def execute(self, src_at: int, dst_at: int) -> None:
        """Write the zeros to dst."""
        for points in each_points(self._indirect):
            padding = points[points[:, _POINT.src] == NOWHERE]
            if len(padding):
                self._zeros.execute_at(src_at, dst_at, padding)
