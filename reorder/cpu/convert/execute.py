"""Prepare a plan that converts for execution on the CPU, and run it."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from reorder.cpu.convert.recipe import Recipe
from reorder.cpu.convert.scratch import SLOT_NBYTES
from reorder.cpu.convert.steps import steps_of
from reorder.cpu.convert.tile_record import OPERANDS, encode_tile
from reorder.cpu.convert.tile_walker import tile_walker_at
from reorder.cpu.convert.tiling import Tile, is_scattered, tile_box
from reorder.cpu.runtime.execute import PreparedReorder
from reorder.cpu.runtime.job import Job, make_job
from reorder.cpu.runtime.layers import run_job
from reorder.cpu.schedule.kernel import Kernel
from reorder.cpu.schedule.partition import Partition, Workload
from reorder.cpu.schedule.points import each_points
from reorder.cpu.schedule.tiling import tile_boxes
from reorder.memory.buffers import address_of
from reorder.plan.nodes import NOWHERE, Box
from reorder.plan.passes import pack_elements, simplify, src_and_dst, zeros_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reorder.cpu.runtime.batch import Batch
    from reorder.plan.nodes import Lookup
    from reorder.plan.plan import ReorderPlan

__all__ = ["ConvertingReorder", "needs_tiles"]

_ORIGIN = np.zeros((1, OPERANDS), np.int64)

_BYTE = 8
# 4-bit elements that are too few to be unpacked
_FEW = 64


def needs_tiles(plan: ReorderPlan) -> bool:
    """Whether a plan runs tile by tile: it converts, or moves elements that lie scattered on both sides."""
    if plan.converts:
        return True
    return any(_is_shuffled(plan, box) for box in plan.boxes)


def _is_shuffled(plan: ReorderPlan, box: Box) -> bool:
    """Whether a box of equal types is moved through scratch: twice, or as bytes where elements share them."""
    bits = plan.dst.dtype.bits
    if box.lookups or box.is_zero:
        return False
    wide, width = pack_elements(box, bits)
    (wide,) = simplify((wide,))
    return width == bits and (is_scattered(wide) or (bits < _BYTE and box.size > _FEW))


class ConvertingReorder(PreparedReorder):
    """A plan that converts, with all that its execution needs; call it with src and dst buffers."""

    __slots__ = ("_recipe",)

    def _make_batches(self) -> list[Batch]:
        plan = self.plan
        src, dst = plan.src.dtype, plan.dst.dtype
        self._recipe = recipe = Recipe(
            src.name,
            dst.name,
            plan.bound_attr,
            (plan.src.layout.last + 1, plan.dst.layout.last + 1),
        )
        recipe.streams = self._machine.exceeds_cache(self._nbytes)
        recipe.prefetches = self._machine.exceeds_core_cache(self._nbytes)
        limit = SLOT_NBYTES * 8 // recipe.max_bits & -64
        whole: list[Tile] = []
        batches: list[Batch] = []
        zeros: list[Box] = []
        plain = tuple(
            box for box in plan.boxes if not plan.converts and not _is_shuffled(plan, box)
        )
        batches += self._move_all(plain)
        for box in plan.boxes:
            if box in plain:
                continue
            widths = src.bits, dst.bits
            tiles, beyond = tile_box(
                box._replace(lookups=()),
                widths,
                limit,
                in_place=not recipe.needs_values,
                streams=recipe.streams,
            )
            if box.lookups:
                batches += [_GatheredTileBatch(self, [tile], box.lookups) for tile in tiles]
                pairs = tuple(lookup._replace(others=()) for lookup in box.lookups)
                for zero_box in beyond:
                    scheduled = tile_boxes((zero_box._replace(lookups=pairs),))
                    batches.append(self._box_batch(scheduled, Kernel(dst.bits), pairs))
                if tiles:
                    batches.append(_PaddingBatch(self, box))
            else:
                whole += tiles
                zeros += beyond
        if whole:
            self.kernels += ("tiles",)
            batches.insert(0, _TileBatch(self, whole))
        return batches + self._move(zeros)

    def _partition_tiles(
        self, workloads: list[Workload], tiles: list[Tile], points: int = 1
    ) -> Partition:
        """Share out tiles that are run at a number of points."""
        widest = max(self.plan.src.dtype.bits, self.plan.dst.dtype.bits)
        nbytes = sum(_size(tile) for tile in tiles) * points * widest // 8
        # two 4-bit elements of one byte must not fall to two threads
        is_owner = points == 1 and all(_owns_bytes(tile) for tile in tiles)
        is_whole = self.plan.dst.dtype.is_packed and not is_owner
        return self._partition(workloads, nbytes, is_whole=is_whole)


def _size(tile: Tile) -> int:
    return prod(node.extent for node in (*tile.outer, *tile.inner))


def _owns_bytes(tile: Tile) -> bool:
    """Whether no two tiles share a byte of 4-bit elements."""
    steps = [tile.offsets[1], *(node.strides[1] for node in (*tile.outer, *tile.inner))]
    pairs = [node for node in tile.inner if node.strides[1] == 1]
    return bool(pairs) and pairs[0].extent % 2 == 0 and sum(step % 2 for step in steps) == 1


def _encode(
    recipe: Recipe, tiles: list[Tile], points: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], list[Workload]]:
    """Write the records of tiles; returns with them how they can be shared."""
    program: list[int] = []
    workloads = []
    for tile in tiles:
        numbers = [
            (
                tile.offsets[n],
                *(node.strides[n] for node in tile.outer),
                *(() if points is None else (int(np.gcd.reduce(points[:, n])),)),
            )
            for n in range(len(tile.offsets))
        ]
        steps = prod(node.extent for node in tile.outer)
        workloads.append(Workload(len(program), steps, 1, 1, _size(tile)))
        program += encode_tile(tile.offsets, tile.outer, steps_of(recipe, tile, numbers))
    return np.array(program, np.int64), workloads


class _TileBatch:
    """Boxes of tiles."""

    def __init__(self, owner: ConvertingReorder, tiles: list[Tile]) -> None:
        self._program, workloads = _encode(owner._recipe, tiles)  # noqa: SLF001 - of this module
        self._partition = owner._partition_tiles(workloads, tiles)  # noqa: SLF001 - of this module
        self._recipe = owner._recipe  # noqa: SLF001 - it owns what the steps point to

    @property
    def direct_job(self) -> Job | None:
        """The job, if a call has nothing to decide before it runs."""
        return None if self._partition.is_long else self._job()

    def _job(self) -> Job:
        return make_job(tile_walker_at(), address_of(self._program), self._partition, _ORIGIN)

    def execute(self, src_at: int, dst_at: int) -> None:
        """Run the boxes on src and dst at two addresses."""
        run_job(src_at, dst_at, self._job(), self._partition)


class _GatheredTileBatch:
    """Tiles that are placed at points from tables."""

    direct_job = None

    def __init__(
        self, owner: ConvertingReorder, tiles: list[Tile], lookups: tuple[Lookup, ...]
    ) -> None:
        self._recipe = owner._recipe  # noqa: SLF001 - it owns what the steps point to
        # any point: elements are packed into wider ones only where all are whole
        any_point = np.ones((1, len(tiles[0].offsets)), np.int64)
        self._program, workloads = _encode(self._recipe, tiles, any_point)
        count = prod(lookup.extent for lookup in lookups)
        self._partition = owner._partition_tiles(workloads, tiles, count)  # noqa: SLF001 - of this module
        self._lookups = lookups

    def execute(self, src_at: int, dst_at: int) -> None:
        """Run the boxes at every point that has data."""
        job = make_job(tile_walker_at(), address_of(self._program), self._partition, _ORIGIN)
        for points in each_points(self._lookups):
            data = points[points[:, 0] != NOWHERE]
            if len(data):
                # as `encode_tile` writes offsets
                data = np.pad(data, ((0, 0), (0, OPERANDS - data.shape[1])))
                placed = job._replace(points=address_of(data), point_count=len(data))
                run_job(src_at, dst_at, placed, self._partition)


class _PaddingBatch:
    """Zeros for a whole box at the points that have no data."""

    direct_job = None

    def __init__(self, owner: ConvertingReorder, box: Box) -> None:
        zeros = zeros_of(src_and_dst(box))._replace(lookups=())
        self._lookups = box.lookups
        kernel = Kernel(owner.plan.dst.dtype.bits)
        self._zeros = owner._box_batch(tile_boxes((zeros,)), kernel)  # noqa: SLF001 - of this module

    def execute(self, src_at: int, dst_at: int) -> None:
        """Write the zeros."""
        for points in each_points(self._lookups):
            padding = np.ascontiguousarray(points[points[:, 0] == NOWHERE][:, :2])
            if len(padding):
                self._zeros.execute_at(src_at, dst_at, padding)
