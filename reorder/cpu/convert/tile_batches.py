"""Batches of tiles: those that convert, and moves that go through scratch."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from reorder.cpu.convert.scratch import SCRATCH_BLOCK
from reorder.cpu.convert.steps import steps_of
from reorder.cpu.convert.tile_record import OPERANDS, TilesHead, encode_tile
from reorder.cpu.convert.tile_walker import tile_walker_at
from reorder.cpu.record import fields_of
from reorder.cpu.runtime.job import Job, make_job
from reorder.cpu.runtime.pool import run_job
from reorder.cpu.schedule.partition import Workload
from reorder.cpu.schedule.points import Point, each_points
from reorder.cpu.target import BYTE_BITS
from reorder.memory.buffers import address_of
from reorder.plan.nodes import NOWHERE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reorder.cpu.convert.recipe import Recipe
    from reorder.cpu.convert.tiling import Tile
    from reorder.cpu.runtime.batch import BoxBatch
    from reorder.cpu.runtime.batch_builder import BatchBuilder
    from reorder.cpu.schedule.partition import Partition
    from reorder.plan.nodes import Lookup

__all__ = ["GatheredTileBatch", "PaddingBatch", "TileBatch", "TileProgram"]

_POINT = fields_of(Point)
_ORIGIN = np.zeros((1, OPERANDS), np.int64)


class TileProgram:
    """The records of tiles, and how threads share them.

    Parameters
    ----------
    builder : BatchBuilder
        Partitions the work among threads.
    recipe : Recipe
        Owner of the arrays that steps point to; it lives as long as the program.
    tiles : list of Tile
        The tiles.
    points : int, optional
        Number of points at which the tiles run; without it they run once, at offset 0.
    """

    def __init__(
        self, builder: BatchBuilder, recipe: Recipe, tiles: list[Tile], points: int | None = None
    ) -> None:
        self._recipe = recipe
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
            program += encode_tile(tile.offsets, tile.outer, steps_of(recipe, tile, outer_strides))
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
    # two 4-bit elements of one byte must not fall to two threads
    is_shared = dst.is_packed and not (points is None and all(_owns_bytes(tile) for tile in tiles))
    return builder.partition(
        workloads, size * max(src.bits, dst.bits) // BYTE_BITS, is_whole=is_shared
    )


def _size(tile: Tile) -> int:
    return prod(node.extent for node in (*tile.outer, *tile.inner))


def _owns_bytes(tile: Tile) -> bool:
    """Whether no two tiles share a byte of 4-bit elements.

    The contiguous node has whole pairs, and every other stride and the offset are even.
    """
    steps = [tile.offsets[1], *(node.strides[1] for node in (*tile.outer, *tile.inner))]
    pairs = [node for node in tile.inner if node.strides[1] == 1]
    return bool(pairs) and pairs[0].extent % 2 == 0 and sum(step % 2 for step in steps) == 1


class TileBatch:
    """Tiles without lookups."""

    def __init__(self, program: TileProgram) -> None:
        self._program = program

    @property
    def direct_job(self) -> Job | None:
        """The job, if every call runs the same one; else None."""
        return self._program.job()

    def execute(self, src_at: int, dst_at: int) -> None:
        """Run the tiles on src and dst at two addresses."""
        run_job(src_at, dst_at, self._program.job())


class GatheredTileBatch:
    """Tiles at those points of offset tables that have data."""

    direct_job = None

    def __init__(self, program: TileProgram, lookups: tuple[Lookup, ...]) -> None:
        self._program, self._lookups = program, lookups

    def execute(self, src_at: int, dst_at: int) -> None:
        """Run the tiles on src and dst at two addresses."""
        for points in each_points(self._lookups):
            data = points[points[:, _POINT.src] != NOWHERE]
            if len(data):
                table = _of_each_operand(data)
                job = self._program.job()
                job = job._replace(points=address_of(table), point_count=len(table))
                run_job(src_at, dst_at, job)


def _of_each_operand(points: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return points with an offset for each operand, as `encode_tile` writes offsets."""
    return np.pad(points, ((0, 0), (0, OPERANDS - points.shape[1])))


class PaddingBatch:
    """Zeros at those points of offset tables that have no data."""

    direct_job = None

    def __init__(self, zeros: BoxBatch, lookups: tuple[Lookup, ...]) -> None:
        self._zeros, self._lookups = zeros, lookups

    def execute(self, src_at: int, dst_at: int) -> None:
        """Write the zeros to dst."""
        for points in each_points(self._lookups):
            padding = points[points[:, _POINT.src] == NOWHERE]
            if len(padding):
                self._zeros.execute_at(src_at, dst_at, padding)
