"""Boxes of a tensor along whole blocks of two layouts, so that both sides of each are bounded.

Dims are halved, in whole blocks, until a box fits; each time the one whose halves are made of the
longest runs.
"""

from __future__ import annotations

from itertools import product
from math import lcm
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from memdesc import MemdescError
from reorder.storage.pieces.attributes import groups_along
from reorder.storage.pieces.runs import compact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memdesc import MemoryDesc
    from reorder.storage.pieces.runs import Runs
    from reorder.values.attr import Attr

__all__ = ["Cut", "boxes_within"]

_BYTE_BITS = 8

Box = tuple[tuple[int, ...], tuple[int, ...]]


class Cut(NamedTuple):
    """Boxes of one size: the runs of the first, and the bytes of the largest.

    The last ones have the padding of their tensors, which may be more than what they miss.
    """

    sizes: tuple[int, ...]
    nbytes: int
    src: Runs
    dst: Runs

    @property
    def cost(self) -> float:
        """Runs for each byte."""
        return self.src.number / self.src.nbytes + self.dst.number / self.dst.nbytes


def boxes_within(
    src: MemoryDesc, dst: MemoryDesc, attr: Attr | None, max_bytes: int
) -> Iterator[Box]:
    """Return boxes, each as sizes and offsets, that cover a tensor with elements.

    Raises
    ------
    MemdescError
        If blocks are so large that no box fits; with the bytes that it takes.
    """
    units = _units(src, dst, attr)
    best = _cut(src, dst, dst.dims)
    while best is None or best.nbytes > max_bytes:
        sizes = dst.dims if best is None else best.sizes
        found = [_cut(src, dst, halved) for halved in _halved(sizes, units)]
        legal = [each for each in found if each is not None]
        if not legal:
            _refuse(src, dst, best, max_bytes)
        best = min(legal, key=lambda each: each.cost)
    steps = best.sizes
    ranges = (range(0, size, step) for size, step in zip(dst.dims, steps, strict=True))
    return (
        (tuple(min(step, size - i) for step, size, i in zip(steps, dst.dims, at, strict=True)), at)
        for at in product(*ranges)
    )


def _units(src: MemoryDesc, dst: MemoryDesc, attr: Attr | None) -> tuple[int, ...]:
    """Return what the sizes of boxes are multiples of, for each dim: whole blocks and bytes."""
    units = list(groups_along(attr, dst.ndims))
    for desc in (src, dst):
        if desc.extra is not None or desc.layout.has_partial_blocks:
            return dst.dims
        for k, axis in enumerate(desc.axes):
            if len(axis.dims) > 1:
                for dim in axis.dims:
                    units[dim] = dst.dims[dim]
                continue
            outer = desc.layout.outer(k)
            step = outer.step
            if outer.stride * desc.dtype.bits % _BYTE_BITS:
                step *= 2
            (dim,) = axis.dims
            units[dim] = lcm(units[dim], step)
    return tuple(min(unit, size) for unit, size in zip(units, dst.dims, strict=True))


def _halved(sizes: tuple[int, ...], units: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Return the sizes with one of them halved, for each that consists of several units."""
    for dim, (size, unit) in enumerate(zip(sizes, units, strict=True)):
        if size > unit:
            half = -(-size // unit) // 2 * unit if size % unit else size // unit // 2 * unit
            yield (*sizes[:dim], max(half, unit), *sizes[dim + 1 :])


def _cut(src: MemoryDesc, dst: MemoryDesc, sizes: tuple[int, ...]) -> Cut | None:
    """Return the box of some sizes at the origin, with the padding behind it if it is all."""
    origin = (0,) * len(sizes)
    is_all = sizes == dst.dims
    sides = [desc if is_all else desc.submemory(sizes, origin) for desc in (src, dst)]
    read, written = (
        compact(side, is_written=k == 1 and not is_all) for k, side in enumerate(sides)
    )
    if read is None or written is None:
        return None
    nbytes = _largest(src, sizes, read[0]) + _largest(dst, sizes, written[0])
    return Cut(sizes, nbytes, read[0], written[0])


def _largest(desc: MemoryDesc, sizes: tuple[int, ...], first: Runs) -> int:
    """Return the bytes of the largest box, from those of the first one."""
    nbytes = first.nbytes
    for axis in desc.axes:
        if len(axis.dims) == 1 and (step := sizes[axis.dims[0]]) < (
            size := desc.dims[axis.dims[0]]
        ):
            last = axis.padded - (size - 1) // step * step
            nbytes = -(-nbytes * max(last, step) // step)
    return nbytes


def _refuse(src: MemoryDesc, dst: MemoryDesc, best: Cut | None, max_bytes: int) -> NoReturn:
    need = src.min_nbytes + dst.nbytes if best is None else best.nbytes
    msg = (
        f"{src!r} to {dst!r}: the smallest piece of whole blocks takes {need} bytes, read and "
        f"written, and max_bytes is {max_bytes}; give at least {need}"
    )
    raise MemdescError(msg)
