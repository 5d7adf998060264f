"""Boxes along whole blocks of all tensors that take part, so that each is bounded in bytes.

Dims are halved, in whole blocks, until a box is small enough; each time the one whose halves are
made of the longest runs.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import lcm
from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemdescError
from reorder.storage.pieces.runs import Part, compact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reorder.storage.pieces.runs import Box, Runs

__all__ = ["PIECE_NBYTES", "Bound", "Tensor", "boxes_within"]

# What a piece of a file reads and writes, where memory allows: its runs are long, and there are few
# to plan. What the caches hold is smaller, and a matter of its strips.
PIECE_NBYTES = 128 << 20
_BYTE_BITS = 8


class Tensor(NamedTuple):
    """A tensor that a box reads or writes: its parts, all over the dims of the box.

    Of one that is in memory as a whole, boxes take no more bytes, and their runs cost nothing.
    """

    parts: tuple[Part, ...]
    is_written: bool
    is_held: bool = False


class Bound(NamedTuple):
    """The bytes of a box, of all tensors together: how many are wanted, and the most."""

    wanted: int
    most: int


class _Cut(NamedTuple):
    """Boxes of one size: the bytes of the largest, and the runs for each byte of the first.

    The last ones have the padding of their tensors, which may be more than what they miss.
    """

    sizes: tuple[int, ...]
    nbytes: int
    cost: float


def boxes_within(
    dims: tuple[int, ...],
    tensors: Sequence[Tensor],
    units: tuple[int, ...],
    bound: Bound,
    what: str,
) -> Iterator[Box]:
    """Return boxes, each as sizes and offsets, that cover dims without a 0.

    Parameters
    ----------
    dims : tuple of int
        Sizes of all.
    tensors : sequence of Tensor
        What a box reads and writes.
    units : tuple of int
        What sizes and offsets are multiples of, beside whole blocks.
    bound : Bound
        In bytes; below what is wanted, boxes are as small as blocks allow.
    what : str
        What is cut, for messages.

    Raises
    ------
    MemdescError
        If no box fits; with the bytes that it takes.
    """
    chosen = _sizes(dims, tuple(tensors), units, bound, what)
    ranges = (range(0, size, step) for size, step in zip(dims, chosen, strict=True))
    return (
        (tuple(min(step, size - i) for step, size, i in zip(chosen, dims, at, strict=True)), at)
        for at in product(*ranges)
    )


@lru_cache(maxsize=256)  # the layers of a model are alike
def _sizes(
    dims: tuple[int, ...],
    tensors: tuple[Tensor, ...],
    units: tuple[int, ...],
    bound: Bound,
    what: str,
) -> tuple[int, ...]:
    """Return the sizes of boxes."""
    steps = _units(dims, tensors, units)
    best = _cut(dims, tensors, dims)
    while best is None or best.nbytes > bound.wanted:
        sizes = dims if best is None else best.sizes
        found = [_cut(dims, tensors, halved) for halved in _halved(sizes, steps)]
        legal = [each for each in found if each is not None]
        if legal:
            best = min(legal, key=lambda each: each.cost)
        elif best is not None and best.nbytes <= bound.most:
            break
        else:
            need = "that cannot be told" if best is None else f"{best.nbytes} bytes"
            msg = (
                f"{what}: the smallest piece of whole blocks takes {need}, read and written, and "
                f"max_bytes is {bound.most}; give more"
            )
            raise MemdescError(msg)
    return _grown(dims, tensors, steps, best, bound.wanted).sizes


def _units(
    dims: tuple[int, ...], tensors: Sequence[Tensor], units: tuple[int, ...]
) -> tuple[int, ...]:
    """Return what sizes of boxes are multiples of, for each dim: whole blocks, groups and bytes."""
    steps = list(units)
    for layout, bits, groups in (part for tensor in tensors for part in tensor.parts):
        if layout.has_partial_blocks:
            return dims
        for k, axis in enumerate(layout.axes):
            if len(axis.dims) > 1:
                for dim in axis.dims:
                    steps[dim] = dims[dim]
                continue
            (dim,) = axis.dims
            outer = layout.outer(k)
            if groups[dim] >= dims[dim] and layout.dims[dim] == 1:
                continue  # one element for the whole dim, which all boxes share
            is_odd = outer.extent > 1 and outer.stride * bits % _BYTE_BITS
            whole = _BYTE_BITS // bits if is_odd else 1
            steps[dim] = lcm(steps[dim], groups[dim] * outer.step * whole)
    return tuple(min(step, size) for step, size in zip(steps, dims, strict=True))


def _halved(sizes: tuple[int, ...], units: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Return the sizes with one of them halved, for each that consists of several units."""
    for dim, (size, unit) in enumerate(zip(sizes, units, strict=True)):
        if size > unit:
            half = max(-(-size // unit) // 2, 1) * unit
            yield (*sizes[:dim], half, *sizes[dim + 1 :])


def _grown(
    dims: tuple[int, ...],
    tensors: Sequence[Tensor],
    units: tuple[int, ...],
    best: _Cut,
    wanted: int,
) -> _Cut:
    """Return boxes that are as large as wanted: halves may be half as large."""
    for dim, (size, unit) in enumerate(zip(best.sizes, units, strict=True)):
        whole = -(-dims[dim] // unit)
        most = size // unit * wanted // best.nbytes
        if size >= dims[dim] or most <= size // unit:
            continue
        # parts of about one size
        count = -(-whole // -(-whole // most))
        grown = min(count * unit, dims[dim])
        found = _cut(dims, tensors, (*best.sizes[:dim], grown, *best.sizes[dim + 1 :]))
        if found is not None and best.nbytes < found.nbytes <= wanted:
            best = found
    return best


def _cut(dims: tuple[int, ...], tensors: Sequence[Tensor], sizes: tuple[int, ...]) -> _Cut | None:
    """Return the boxes of some sizes; None if there are no runs for one of them."""
    nbytes, cost = 0, 0.0
    for parts, is_written, is_held in tensors:
        found = compact(parts, (sizes, (0,) * len(sizes)), is_written=is_written)
        if found is None or not all(
            compact(parts, box, is_written=is_written) for box in _tails(dims, parts, sizes)
        ):
            return None
        if is_held:
            continue
        nbytes += max(_largest(dims, sizes, found[0], part) for part in parts)
        cost += found[0].number / found[0].nbytes
    return _Cut(sizes, nbytes, cost)


def _tails(dims: tuple[int, ...], parts: tuple[Part, ...], sizes: tuple[int, ...]) -> list[Box]:
    """Return the last boxes along each dim and several, which may start inside a byte."""
    if all(part.bits >= _BYTE_BITS for part in parts):
        return []
    ends = [
        ((step, 0),) if size % step == 0 else ((step, 0), (size % step, size - size % step))
        for size, step in zip(dims, sizes, strict=True)
    ]
    boxes = [[*zip(*each, strict=True)] for each in product(*ends)]
    return [(tuple(box), tuple(at)) for box, at in boxes[1:]]


def _largest(dims: tuple[int, ...], sizes: tuple[int, ...], first: Runs, part: Part) -> int:
    """Return the bytes of the largest box in a tensor, from those of the first one."""
    nbytes = first.nbytes
    for axis in part.layout.axes:
        dim, group = axis.dims[0], part.groups[axis.dims[0]]
        if len(axis.dims) == 1 and sizes[dim] < dims[dim]:
            step = -(-sizes[dim] // group)
            last = axis.padded - (dims[dim] - 1) // sizes[dim] * sizes[dim] // group
            nbytes = -(-nbytes * max(last, step) // step)
    return nbytes
