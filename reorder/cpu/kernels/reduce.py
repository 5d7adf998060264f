"""Sums of int8 elements over some dims, as compensation needs them: the second pass over what a reorder has stored.

Every block of a layout is a loop; those of dims that are kept move a place among the sums, the others do
not. The innermost loops are taken as vectors: 1, 2 or 4 neighbours that come to one sum, or a run that does as a whole.

A record is [groups, elements of a group, does one sum take all, rows, stride of the rows, outer loops], then for each of
those, outermost first, extent, stride and stride among the sums. A task is [first, last] of their steps.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from reorder.cpu.kernels.emit import I64, int64, loop
from reorder.cpu.kernels.shuffle import pick
from reorder.cpu.runtime import pool
from reorder.cpu.runtime.intrinsics import ARGUMENTS, load_int
from reorder.cpu.runtime.jit import compile_callback
from reorder.memory.buffers import address_of

if TYPE_CHECKING:
    from numba.core.typing.templates import Signature
    from numpy.typing import NDArray

    from memdesc import MemoryDesc

__all__ = ["Sums"]

_HEAD = 6
_SUM = ir.IntType(32)
_LANES = 16
_GROUPS = (4, 2)
# As much is summed in a few microseconds.
_LEAST_NBYTES = 1 << 17


class _Loop(NamedTuple):
    """A loop: how far a step leads in memory, and among the sums."""

    extent: int
    stride: int
    sum_stride: int


class Sums:
    """Sums of the elements of a descriptor, prepared for many calls."""

    def __init__(self, desc: MemoryDesc, mask: int, threads: int) -> None:
        loops = _loops(desc, mask)
        inner, rows, outer = _nest(loops)
        groups, group, is_single = inner
        program = [groups, group, int(is_single), rows.extent, rows.stride, len(outer)]
        for own in outer:
            program += own
        # threads share the steps of the outermost loop, if those come to different sums
        steps = outer[0].extent if outer and outer[0].sum_stride else 1
        parts = max(1, min(steps, threads, prod(own.extent for own in loops) // _LEAST_NBYTES))
        each = prod(own.extent for own in outer) // steps
        bounds = [part * steps // parts for part in range(parts + 1)]
        tasks = [(first * each, last * each) for first, last in pairwise(bounds)]
        tables = program, tasks, range(parts + 1)
        self._tables = [np.array(table, np.int64) for table in tables]
        at = [address_of(table) for table in self._tables]
        self._job = pool.Job(
            _compiled().address, at[0], at[1], parts, 0, 1, at[2], parts, parts - 1, pool.ADDRESS
        )
        self._shape = [size for dim, size in enumerate(desc.padded_dims) if mask >> dim & 1]
        self._offset = desc.offset0

    def __call__(self, at: int) -> NDArray[np.int32]:
        """Return the sums of the elements in a buffer at an address, over padded indices of the dims that are kept."""
        sums = np.zeros(self._shape, np.int32)
        pool.run(at + self._offset, address_of(sums), self._job)
        return sums


def _loops(desc: MemoryDesc, mask: int) -> list[_Loop]:
    """Return the blocks of a layout as loops, the nearest in memory last."""
    loops: list[_Loop] = []
    size = 1
    # blocks come axis by axis, the largest step first, and so do the indices of the sums
    for block in reversed(desc.layout.blocks):
        is_kept = mask >> block.axis & 1
        if block.extent > 1:
            loops.append(_Loop(block.extent, block.stride, size if is_kept else 0))
        size *= block.extent if is_kept else 1
    merged: list[_Loop] = []
    for own in sorted(loops, key=lambda own: -abs(own.stride)):
        if (
            merged
            and merged[-1].stride == own.extent * own.stride
            and merged[-1].sum_stride == own.extent * own.sum_stride
        ):
            own = own._replace(extent=own.extent * merged.pop().extent)  # noqa: PLW2901 - the two are one
        merged.append(own)
    return merged


def _nest(loops: list[_Loop]) -> tuple[tuple[int, int, bool], _Loop, list[_Loop]]:
    """Return what vectors take (groups, elements of a group, whether one sum takes all), the rows of that, and the loops around."""
    inner, left = (1, 1, True), [*loops]
    if left and left[-1].stride == 1:
        last = left.pop()
        above = left[-1] if left else None
        if last.sum_stride == 1:
            inner = last.extent, 1, False
        elif last.sum_stride:
            left.append(last)
        elif (
            last.extent in _GROUPS
            and above
            and (above.stride, above.sum_stride) == (last.extent, 1)
        ):
            inner = left.pop().extent, last.extent, False
        else:
            inner = last.extent, 1, True
    away = [own for own in left if not own.sum_stride]
    rows = away[-1] if away else _Loop(1, 0, 0)
    # what is kept stands outermost, so that threads come to different sums
    outer = sorted((own for own in left if own is not rows), key=lambda own: -own.sum_stride)
    return inner, rows, outer


@cache
def _compiled() -> Any:
    with global_compiler_lock:
        return compile_callback(
            _walk, numba.void(*[numba.int64] * ARGUMENTS), "sums of 8-bit elements"
        )


def _walk(
    src_at: int,
    sums_at: int,
    program: int,
    tasks: int,
    begin: int,
    end: int,
    _places: int,
    _points: int,
) -> None:
    outer = load_int(program, _HEAD - 1)
    for task in range(begin, end):
        for step in range(load_int(tasks, 2 * task), load_int(tasks, 2 * task + 1)):
            src, to = src_at, sums_at
            rest = step
            for k in range(outer - 1, -1, -1):
                own = program + 8 * (_HEAD + 3 * k)
                extent = load_int(own, 0)
                i = rest % extent
                rest //= extent
                src += i * load_int(own, 1)
                to += 4 * i * load_int(own, 2)
            add_rows(src, to, program)


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def add_rows(_context: Any, address: Any, to: Any, program: Any) -> tuple[Signature, Any]:
    """Add rows of elements to the sums from an address on."""

    def build(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        src, sums, record = args
        table = builder.inttoptr(record, I64.as_pointer())
        groups, size, is_single, rows, stride = (
            builder.load(builder.gep(table, [int64(k)])) for k in range(_HEAD - 1)
        )
        is_one = builder.icmp_signed("!=", is_single, int64(0))
        with loop(builder, int64(0), rows) as row:
            start = builder.add(src, builder.mul(row, stride))
            with builder.if_else(is_one) as (one, many):
                with one:
                    _add_run(builder, start, sums, groups)
                with many:
                    for known in (1, *_GROUPS):
                        with builder.if_then(builder.icmp_signed("==", size, int64(known))):
                            _add_groups(builder, start, sums, groups, known)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


def _add_groups(builder: Any, src: Any, sums: Any, count: Any, size: int) -> None:
    """Add each group of so many neighbours to a sum of its own."""
    whole = builder.and_(count, int64(-_LANES))
    for start, stop, lanes in ((int64(0), whole, _LANES), (whole, count, 1)):
        with loop(builder, start, stop, lanes) as i:
            found = _sum_of_groups(
                builder, builder.add(src, builder.mul(i, int64(size))), lanes, size
            )
            _add(builder, builder.add(sums, builder.mul(i, int64(4))), found)


def _add_run(builder: Any, src: Any, sums: Any, count: Any) -> None:
    """Add a run to one sum."""
    wide = _LANES * _GROUPS[0]
    whole = builder.and_(count, int64(-wide))
    kind = ir.VectorType(_SUM, _LANES)
    every = cgutils.alloca_once(builder, kind)
    builder.store(ir.Constant(kind, None), every)
    with loop(builder, int64(0), whole, wide) as i:
        found = _sum_of_groups(builder, builder.add(src, i), _LANES, _GROUPS[0])
        builder.store(builder.add(builder.load(every), found), every)
    lanes = builder.load(every)
    for k in range(_LANES):
        _add(builder, sums, pick(builder, lanes, [k]))
    with loop(builder, whole, count) as i:
        _add(builder, sums, _sum_of_groups(builder, builder.add(src, i), 1, 1))


def _add(builder: Any, address: Any, values: Any) -> None:
    """Add to the sums at an address."""
    place = builder.inttoptr(address, values.type.as_pointer())
    old = builder.load(place)
    old.align = 4
    builder.store(builder.add(old, values), place).align = 4


def _sum_of_groups(builder: Any, src: Any, lanes: int, size: int) -> Any:
    """Return sums of neighbours: each group is loaded as one integer, and its bytes are taken from that with their signs."""
    bits = 8 * size
    own, wide = ir.VectorType(ir.IntType(bits), lanes), ir.VectorType(_SUM, lanes)
    group = builder.load(builder.inttoptr(src, own.as_pointer()))
    group.align = 1
    if size == 1:
        return builder.sext(group, wide)
    found = ir.Constant(own, None)
    for k in range(size):
        left, right = (ir.Constant(own, [by] * lanes) for by in (bits - 8 * (k + 1), bits - 8))
        found = builder.add(found, builder.ashr(builder.shl(group, left), right))
    return found if own == wide else builder.sext(found, wide)
