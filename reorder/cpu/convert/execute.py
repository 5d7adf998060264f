"""Prepare a plan that converts for execution on the CPU, and run it."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from reorder.cpu.convert.recipe import Recipe
from reorder.cpu.convert.scratch import SLOT_NBYTES
from reorder.cpu.convert.steps import steps_of
from reorder.cpu.convert.tile_walker import tile_walker_at
from reorder.cpu.convert.tiling import Tile, is_scattered, tile_box
from reorder.cpu.runtime.execute import PreparedReorder, Split
from reorder.cpu.runtime.layers import job_of, run
from reorder.cpu.schedule.kernel import Kernel
from reorder.cpu.schedule.program import Record, points
from reorder.cpu.schedule.program import tile as split_up
from reorder.memory.buffers import address_of
from reorder.plan.nodes import NOWHERE, Box
from reorder.plan.passes import pack_elements, simplify, src_and_dst, zeros_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reorder.cpu.runtime.pool import Job
    from reorder.plan.nodes import Lookup
    from reorder.plan.plan import ReorderPlan

__all__ = ["ConvertingReorder", "needs_tiles"]

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

    def _make_parts(self) -> list[Any]:
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
        parts: list[Any] = []
        zeros: list[Box] = []
        plain = tuple(
            box for box in plan.boxes if not plan.converts and not _is_shuffled(plan, box)
        )
        parts += self._moving_parts(plain)
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
                parts += [_Looked(self, [tile], box.lookups) for tile in tiles]
                pairs = tuple(lookup._replace(others=()) for lookup in box.lookups)
                parts += [
                    self._part(split_up((own._replace(lookups=pairs),)), Kernel(dst.bits), pairs)
                    for own in beyond
                ]
                if tiles:
                    parts.append(_Padding(self, box))
            else:
                whole += tiles
                zeros += beyond
        if whole:
            self.kernels += ("tiles",)
            parts.insert(0, _Tiles(self, whole))
        return parts + self._moves(zeros)

    def _split_tiles(self, records: list[Record], tiles: list[Tile], places: int = 1) -> Split:
        """Return how threads share tiles that are run at so many places."""
        nbytes = (
            sum(_size(tile) for tile in tiles)
            * places
            * max(self.plan.src.dtype.bits, self.plan.dst.dtype.bits)
            // 8
        )
        # two 4-bit elements of one byte must not fall to two threads
        is_owner = places == 1 and all(_owns_bytes(tile) for tile in tiles)
        return self._split(records, nbytes, is_whole=self.plan.dst.dtype.is_packed and not is_owner)


def _size(tile: Tile) -> int:
    return prod(node.extent for node in (*tile.outer, *tile.inner))


def _owns_bytes(tile: Tile) -> bool:
    """Whether no two tiles share a byte of 4-bit elements."""
    steps = [tile.offsets[1], *(node.strides[1] for node in (*tile.outer, *tile.inner))]
    pairs = [node for node in tile.inner if node.strides[1] == 1]
    return bool(pairs) and pairs[0].extent % 2 == 0 and sum(step % 2 for step in steps) == 1


def _encode(
    recipe: Recipe, tiles: list[Tile], points: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], list[Record]]:
    """Write the records of tiles; returns with them how they can be shared."""
    program: list[int] = []
    records = []
    for own in tiles:
        operands = len(own.offsets)
        numbers = [
            (
                own.offsets[n],
                *(node.strides[n] for node in own.outer),
                *(() if points is None else (int(np.gcd.reduce(points[:, n])),)),
            )
            for n in range(operands)
        ]
        steps = steps_of(recipe, own, numbers)
        records.append(
            Record(len(program), prod(node.extent for node in own.outer), 1, 1, _size(own))
        )
        program += [len(own.outer), operands, len(steps), *own.offsets]
        for node in own.outer:
            program += [node.extent, *node.strides]
        for step in steps:
            program += step
    return np.array(program, np.int64), records


class _Tiles:
    """Boxes of tiles, and how threads share them."""

    def __init__(self, owner: ConvertingReorder, tiles: list[Tile]) -> None:
        self._program, records = _encode(owner._recipe, tiles)  # noqa: SLF001 - of this module
        self._own = owner._split_tiles(records, tiles)  # noqa: SLF001 - of this module
        self._origin = np.zeros((1, len(tiles[0].offsets)), np.int64)
        self._recipe = owner._recipe  # noqa: SLF001 - it owns what the steps point to

    @property
    def direct(self) -> Job | None:
        """What the pool runs, where nothing else is to decide."""
        shares = self._own.shares
        return (
            None
            if shares.is_long
            else job_of(
                shares, tile_walker_at(), address_of(self._program), (address_of(self._origin), 1)
            )
        )

    def run(self, src_at: int, dst_at: int) -> None:
        """Run the boxes on src and dst that start at two addresses."""
        starts = src_at, dst_at, address_of(self._program)
        run(starts, self._own.shares, (address_of(self._origin), 1), tile_walker_at())


class _Looked:
    """Tiles that are placed at points from tables."""

    direct = None

    def __init__(
        self, owner: ConvertingReorder, tiles: list[Tile], lookups: tuple[Lookup, ...]
    ) -> None:
        self._recipe = owner._recipe  # noqa: SLF001 - it owns what the steps point to
        # any point: elements are joined to wider ones only where all are whole
        self._program, records = _encode(
            self._recipe, tiles, np.ones((1, len(tiles[0].offsets)), np.int64)
        )
        self._own = owner._split_tiles(records, tiles, prod(lookup.extent for lookup in lookups))  # noqa: SLF001 - of this module
        self._lookups = lookups

    def run(self, src_at: int, dst_at: int) -> None:
        """Run the boxes at every point that has data."""
        starts = src_at, dst_at, address_of(self._program)
        for places in points(self._lookups):
            data = np.ascontiguousarray(places[places[:, 0] != NOWHERE])
            if len(data):
                run(starts, self._own.shares, (address_of(data), len(data)), tile_walker_at())


class _Padding:
    """Zeros for a whole box at the points that have no data."""

    direct = None

    def __init__(self, owner: ConvertingReorder, box: Box) -> None:
        zeros = zeros_of(src_and_dst(box))._replace(lookups=())
        self._lookups = box.lookups
        self._zeros = owner._part(  # noqa: SLF001 - of this module
            split_up((zeros,)), Kernel(owner.plan.dst.dtype.bits), ()
        )

    def run(self, src_at: int, dst_at: int) -> None:
        """Write the zeros."""
        for places in points(self._lookups):
            padding = np.ascontiguousarray(places[places[:, 0] == NOWHERE][:, :2])
            if len(padding):
                self._zeros.run_at(src_at, dst_at, padding)
