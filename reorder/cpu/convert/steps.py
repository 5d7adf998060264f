"""The steps that convert one tile: moves, conversions, arithmetic, as numbers for the walker.

Forms of a tile: where src or dst lie, or dense in a slot of scratch, always in the order of the tile.
A step leads from one form to another.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memdesc import DATA_TYPES
from reorder.cpu.convert.operation import PERIOD, Operation, has_quotient
from reorder.cpu.convert.records import CombineRecord, ConvertRecord, PrefetchRecord
from reorder.cpu.convert.scratch import SLOT_NBYTES
from reorder.cpu.convert.stages import combine_stage, convert_stage, prefetch_stage
from reorder.cpu.convert.tile_walker import STEP
from reorder.cpu.convert.tiling import Tile, contiguous, dense_strides
from reorder.cpu.runtime.walker import walker_at
from reorder.cpu.schedule.kernel import Kernel
from reorder.cpu.schedule.program import encode, split, tile
from reorder.cpu.target import LINE_BITS
from reorder.memory.buffers import address_of
from reorder.plan.nodes import Box, Node
from reorder.plan.passes import pack_elements, simplify

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reorder.cpu.convert.recipe import Recipe

__all__ = ["steps_of"]

_SRC, _DST, _MOVED, _VALUES, _OLD_BITS, _OLD, _RESULT = 0, 1, 2, 3, 4, 5, 6
# how far ahead in all rows of a tile together
_AHEAD_NBYTES = 8192
# the longest rows that the machine does not foresee
_SHORT_BITS = 2048
# the place of an operand along a row, where it goes along; periods of fewer or for more values are not worth while
_GOES, _FEW, _MANY = -1, 8, 1 << 14


class _Form(NamedTuple):
    """Where a tile lies: a base (src, dst, a slot), its type, the operand that places it, strides of its nodes."""

    base: int
    dtype: str
    operand: int
    strides: list[int]


def _is_loaded(name: str) -> bool:
    """Whether arithmetic takes and gives elements of a type as they lie: 4-bit ones share bytes."""
    return not DATA_TYPES[name].is_packed


def steps_of(recipe: Recipe, own: Tile, outer_numbers: list[tuple[int, ...]]) -> list[list[int]]:
    """Return the steps for tiles of one shape.

    `outer_numbers` are all that moves a tile, for each operand: elements are joined to wider ones
    only where it stays whole.
    """
    maker = _Maker(recipe, own, outer_numbers)
    maker.convert()
    return maker.steps


class _Maker:
    def __init__(self, recipe: Recipe, own: Tile, outer_numbers: list[tuple[int, ...]]) -> None:
        self.recipe, self.tile, self.outer_numbers = recipe, own, outer_numbers
        self.nodes = tuple(node._replace(extent=node.valid) for node in own.inner)
        self.dense = dense_strides(self.nodes)
        self.steps: list[list[int]] = []

    def slot(self, base: int, dtype: str) -> _Form:
        # what is longer would write over the stack
        assert prod(node.valid for node in self.nodes) * DATA_TYPES[dtype].bits <= SLOT_NBYTES * 8  # noqa: S101 - see tiles.cut
        return _Form(base, dtype, -1, self.dense)

    def _own(self, side: int, dtype: str) -> _Form:
        return _Form(side, dtype, side, [node.strides[side] for node in self.nodes])

    def convert(self) -> None:
        recipe, work = self.recipe, self.recipe.work
        if recipe.src == recipe.dst and DATA_TYPES[recipe.src].is_packed and not recipe.operations:
            self._move(
                self._own(_SRC, recipe.src), self._own(_DST, recipe.dst), recipe.ends[0], pads=True
            )
            return
        form = self._own(_SRC, recipe.src)
        if not self.tile.reads:
            if recipe.is_far:
                self._ask(form)
            form = self._move(form, self.slot(_MOVED, recipe.src), recipe.ends[0])
        target = self._own(_DST, recipe.dst) if self.tile.writes else self.slot(_RESULT, recipe.dst)
        operations = recipe.operations
        old = self._old() if recipe.bound.beta else None
        if operations and operations[0][0] == Operation.SUBTRACT and recipe.difference != work:
            # the difference of 32-bit integers is exact in f64 alone
            form = self.change(form, self.slot(_RESULT, recipe.difference))
            form = self._combine(form, form, operations.pop(0), None, recipe.difference)
            form = self.change(form, self.slot(_VALUES, work))
        elif recipe.src != work and (
            not _is_loaded(recipe.src) if operations else recipe.dst != work
        ):
            form = self.change(form, self.slot(_VALUES, work))
        for k, operation in enumerate(operations):
            # the first operation loads elements, the last one stores them
            is_stored = k == len(operations) - 1 and (
                recipe.dst == work or (_is_loaded(recipe.dst) and form.dtype == work)
            )
            form = self._combine(
                form, target if is_stored else self.slot(_VALUES, work), operation, old, work
            )
        # elements that stay as they are have no use for a second slot
        if form.base != target.base and not (
            form.base == _MOVED and form.dtype == target.dtype and not self.tile.writes
        ):
            form = self.change(form, target)
        if not self.tile.writes:
            self._move(
                form,
                self._own(_DST, recipe.dst),
                SLOT_NBYTES * 8 // DATA_TYPES[recipe.dst].bits,
                pads=True,
            )

    def _old(self) -> _Form:
        """Bring what dst holds into values."""
        recipe = self.recipe
        form = self._own(_DST, recipe.dst)
        if not self.tile.writes:
            form = self._move(form, self.slot(_OLD_BITS, recipe.dst), recipe.ends[1])
        return (
            form if recipe.dst == recipe.work else self.change(form, self.slot(_OLD, recipe.work))
        )

    def change(self, fro: _Form, to: _Form, *, raw: bool = False) -> _Form:
        """Convert from one form into another; equal types are moved, and with `raw` codes."""
        if fro.dtype == to.dtype:
            return self._move(
                fro,
                to,
                self.recipe.ends[fro.base]
                if fro.base < _MOVED
                else SLOT_NBYTES * 8 // DATA_TYPES[fro.dtype].bits,
            )
        rows, count = self._rows([fro.strides, to.strides])
        program = self.recipe.address(
            [
                *ConvertRecord(len(rows[0]), count, self._ahead(fro, rows[0], count)),
                *rows[0],
                *rows[1],
            ]
        )
        streams = (
            self.recipe.streams
            and to.base == _DST
            and count * DATA_TYPES[to.dtype].bits >= LINE_BITS
        )
        streams &= not DATA_TYPES[to.dtype].is_packed
        self._step(
            convert_stage(fro.dtype, to.dtype, streams=streams, as_codes=raw), program, fro, to
        )
        return to

    def _combine(
        self,
        fro: _Form,
        to: _Form,
        operation: tuple[int, str | float],
        old: _Form | None,
        work: str,
    ) -> _Form:
        recipe = self.recipe
        code, given = operation
        operand, number, strides = -1, 0, [0] * len(self.nodes)
        values: NDArray[Any] | None = None
        if isinstance(given, str):
            values = dict(
                zip((own.role for own in recipe.bound.operands), recipe.bound.values, strict=True)
            )[given]
            if code == Operation.DIVIDE and has_quotient(values, work):
                code = Operation.QUOTIENT
            if given in recipe.varying:
                operand = 2 + recipe.varying.index(given)
                strides = [node.strides[operand] for node in self.nodes]
        elif code == Operation.ADD_PRODUCT:
            assert old is not None  # noqa: S101 - there is what is added
            base, operand, strides = old.base, old.operand, old.strides
            number = recipe.address([given], DATA_TYPES[work].numpy)
        else:
            base = recipe.address([given], DATA_TYPES[work].numpy)
        # along a row the operand goes along, stays, or is the same again and again
        mask, up, period = _GOES, 0, 0
        rows, count = self._rows([fro.strides, to.strides, strides])
        staying, long = self._rows([fro.strides, to.strides], self._still(strides, 1))
        if long > count or count == 1:
            mask, rows, count = 0, [*staying, self._table(strides, long)], long
        if values is not None and values.size <= _MANY and operand >= 0:
            size = self._period(strides, operand)
            again, long = self._rows([fro.strides, to.strides], self._still(strides, size))
            if _FEW <= size <= PERIOD and long > count:
                period, up = size, (2 * PERIOD // size).bit_length() - 1
                mask, rows, count = (
                    PERIOD - 1,
                    [*again, [offset << up for offset in self._table(strides, long)]],
                    long,
                )
        if isinstance(given, str) and values is not None:
            base = address_of(recipe.array(given, values, work, period))
            if code == Operation.QUOTIENT:
                number = address_of(
                    recipe.array(f"1 / {given}", 1 / values.astype(np.float32), work, period)
                )
        program = recipe.address(
            [
                *CombineRecord(code, len(rows[0]), count, mask, self._ahead(fro, rows[0], count)),
                *rows[0],
                *rows[1],
                *rows[2],
            ]
        )
        streams = (
            recipe.streams and to.base == _DST and count * DATA_TYPES[to.dtype].bits >= LINE_BITS
        )
        self._step(
            combine_stage(fro.dtype, to.dtype, work, streams=streams),
            program,
            fro,
            to,
            (base, operand, -up),
            number,
        )
        return to

    def _period(self, strides: list[int], operand: int) -> int:
        """Return how many values an operand has along the innermost nodes, if it lies in whole periods, else 0."""
        inner = contiguous(self.nodes, strides)
        period = prod(node.valid for node in self.nodes[len(self.nodes) - inner :])
        numbers = [*self.outer_numbers[operand], *strides[: len(self.nodes) - inner]]
        return 0 if period & (period - 1) or any(number % period for number in numbers) else period

    def _still(self, strides: list[int], period: int) -> int:
        """Return along how many of the innermost nodes an operand has no more values than a period."""
        size, inner = 1, 0
        for node, stride in zip(reversed(self.nodes), reversed(strides), strict=True):
            if size < period:
                size *= node.valid
            elif stride:
                break
            inner += 1
        return inner

    def _ask(self, form: _Form) -> None:
        """Ask for what a tile to come has of src: what follows rows of this one."""
        bits = DATA_TYPES[form.dtype].bits
        order = sorted(range(len(self.nodes)), key=lambda k: -abs(form.strides[k]))
        maker = _Maker(
            self.recipe,
            self.tile._replace(inner=tuple(self.nodes[k] for k in order)),
            self.outer_numbers,
        )
        (rows,), count = maker._rows([[form.strides[k] for k in order]])
        if count * bits > _SHORT_BITS:
            return
        program = self.recipe.address(
            [*PrefetchRecord(len(rows), count * bits // 8, bits), *(row + count for row in rows)]
        )
        self._step(prefetch_stage(), program, form, form)

    def _ahead(self, fro: _Form, rows: list[int], count: int) -> int:
        """Return how many bytes ahead rows are asked for: where they lie far, in tiles to come."""
        if fro.base != _SRC or not self.recipe.is_far:
            return 0
        nbytes = count * DATA_TYPES[fro.dtype].bits // 8
        return max(nbytes, _AHEAD_NBYTES // len(rows))

    def _rows(self, sides: list[list[int]], most: int | None = None) -> tuple[list[list[int]], int]:
        """Return tables of rows, and their length, that are contiguous on all sides, along `most` nodes."""
        inner = min(contiguous(self.nodes, strides) for strides in sides)
        inner = inner if most is None else min(inner, most)
        count = prod(node.valid for node in self.nodes[len(self.nodes) - inner :])
        return [self._table(strides, count) for strides in sides], count

    def _table(self, strides: list[int], count: int) -> list[int]:
        """Return offsets of rows of `count` elements."""
        offsets = np.zeros(1, np.int64)
        size = 1
        for node, stride in zip(reversed(self.nodes), reversed(strides), strict=True):
            if size >= count:
                offsets = (
                    np.arange(node.valid, dtype=np.int64)[:, None] * stride + offsets
                ).ravel()
            size *= node.valid
        return [int(offset) for offset in offsets]

    def _move(self, fro: _Form, to: _Form, end: int, *, pads: bool = False) -> _Form:
        """Move elements as they are; with `pads` zeros go where the tile has no data."""
        if DATA_TYPES[fro.dtype].is_packed and self._move_bytes(fro, to, pads=pads):
            return to
        recipe = self.recipe
        nodes = self.tile.inner if pads else self.nodes
        inner = tuple(
            Node(node.extent, node.valid, (a, b))
            for node, a, b in zip(nodes, fro.strides, to.strides, strict=True)
        )
        bits = DATA_TYPES[fro.dtype].bits
        (box,) = simplify((Box((0, 0), inner),))
        wide, width = pack_elements(box, bits)
        factor = width // bits
        if any(
            number % factor
            for form in (fro, to)
            if form.operand >= 0
            for number in self.outer_numbers[form.operand]
        ):
            wide, width, factor = box, bits, 1
        records = encode(
            tile(simplify((wide,))), end // factor, is_far=recipe.is_far and fro.base == _SRC
        )
        tasks, _ = split(records[1], 1)
        recipe.kept += [records[0], tasks]
        shift = factor.bit_length() - 1
        self._step(
            walker_at(Kernel(width)),
            address_of(records[0]),
            fro,
            to,
            tasks=(address_of(tasks), len(tasks)),
            shift=shift,
        )
        return to

    def _move_bytes(self, fro: _Form, to: _Form, *, pads: bool) -> bool:
        """Move 4-bit elements as bytes: unpacked in the order of one side, packed in that of the other; or not, for want of room."""
        data = list(self.nodes)
        whole = [node._replace(valid=node.extent) for node in self.tile.inner] if pads else data
        if prod(node.extent for node in whole) > SLOT_NBYTES or self.recipe.bound.beta:
            return False
        free = [base for base in (_MOVED, _VALUES, _RESULT) if base not in {fro.base, to.base}]
        unpack, near = self._ordered(data, fro)
        pack, far = self._ordered(whole, to)
        sides: list[_Form] = []
        loose, dense = unpack.slot(free[0], "u8"), pack.slot(free[1], "u8")
        unpack.change(
            fro._replace(dtype="u4", strides=[fro.strides[k] for k in near]), loose, raw=True
        )
        sides = [
            form._replace(strides=[form.strides[order.index(k)] for k in range(len(order))])
            for form, order in ((loose, near), (dense, far))
        ]
        self._move(sides[0], sides[1], SLOT_NBYTES, pads=pads)
        pack.change(dense, to._replace(dtype="u4", strides=[to.strides[k] for k in far]), raw=True)
        return True

    def _ordered(self, nodes: list[Node], form: _Form) -> tuple[_Maker, list[int]]:
        """Return what makes steps over nodes as they follow each other in a form, and their order."""
        order = sorted(range(len(nodes)), key=lambda k: -abs(form.strides[k]))
        maker = _Maker(
            self.recipe,
            self.tile._replace(inner=tuple(nodes[k] for k in order)),
            self.outer_numbers,
        )
        maker.steps = self.steps
        return maker, order

    def _step(
        self,
        kernel: int,
        program: int,
        fro: _Form,
        to: _Form,
        operand: tuple[int, int, int] = (0, -1, 0),
        number: int = 0,
        *,
        tasks: tuple[int, int] = (0, 1),
        shift: int = 0,
    ) -> None:
        step = [
            kernel,
            program,
            *tasks,
            fro.base,
            fro.operand,
            shift,
            to.base,
            to.operand,
            shift,
            *operand,
            number,
        ]
        assert len(step) == STEP  # noqa: S101 - what the walker reads
        self.steps.append(step)
