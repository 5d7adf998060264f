"""Divide tensors into regions of bounded size, along whole blocks of every operand.

One dim after another is halved, in whole blocks, until a region is small enough: each time the dim
whose halves have the longest runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import lcm, prod
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from memdesc import MemdescError
from reorder.storage.pieces.runs import FieldLayout, Region, compact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from reorder.storage.pieces.runs import Runs

__all__ = ["Bound", "Cut", "Operand", "Sizes", "has_long_runs", "sizes_within"]

# Bytes that a piece reads and writes where memory allows, so that its runs are long.
PIECE_NBYTES = 128 << 20
# Shorter runs are not worth a system call each.
_LONG = 64 << 10
_BYTE_BITS = 8


Sizes = tuple[int, ...]
_PieceT_co = TypeVar("_PieceT_co", covariant=True)


class Operand(NamedTuple):
    """A tensor that is read or written: its fields, over the dims of the regions."""

    fields: tuple[FieldLayout, ...]
    is_written: bool


class Bound(NamedTuple):
    """How many bytes of all tensors together a region should have, and how many at most.

    It should have up to `wide` bytes where that makes its runs long.
    """

    wanted: int
    most: int
    wide: int = 0

    @classmethod
    def shared(cls, max_bytes: int, threads: int) -> Bound:
        """Return the bound of pieces that threads of one process run within `max_bytes`.

        Wide pieces run two at a time, or fewer threads than there are would wait for each other.
        """
        share = max(min(PIECE_NBYTES, max_bytes // threads), 1)
        return cls(share, max_bytes, min(PIECE_NBYTES, max_bytes // 2))


@dataclass(frozen=True)
class Cut(Generic[_PieceT_co]):
    """Pieces, one for each region of a grid, made while iterating.

    Attributes
    ----------
    dims : tuple of int
        The sizes of what is cut.
    sizes : tuple of int
        The sizes of the regions; the last one along a dim may be shorter.
    make : callable
        Returns the piece of a region.
    """

    dims: Sizes
    sizes: Sizes
    make: Callable[[Region], _PieceT_co]

    def __len__(self) -> int:
        return prod(-(-size // step) for size, step in zip(self.dims, self.sizes, strict=True))

    def __iter__(self) -> Iterator[_PieceT_co]:
        steps = zip(self.dims, self.sizes, strict=True)
        for at in product(*(range(0, size, step) for size, step in steps)):
            ends = zip(self.sizes, self.dims, at, strict=True)
            yield self.make(Region(tuple(min(step, size - i) for step, size, i in ends), at))


class _Candidate(NamedTuple):
    """Regions of one size: the bytes of the largest, and the runs per byte of the first.

    The last regions hold the padding of their tensors, so they may be larger than the first.
    """

    sizes: Sizes
    nbytes: int
    cost: float


@lru_cache(maxsize=256)  # the layers of a model are alike
def sizes_within(
    dims: Sizes, operands: tuple[Operand, ...], units: Sizes, bound: Bound, what: str
) -> Sizes:
    """Return the sizes of regions that cover dims without a 0.

    Sizes and offsets of regions are multiples of `units`, as well as whole blocks of the operands.
    Fails if no region fits; with `what` is cut, and the bytes that the smallest one takes.
    """
    steps = _units(dims, operands, units)
    best = _candidate(dims, operands, dims)
    while best is None or best.nbytes > bound.wanted:
        sizes = dims if best is None else best.sizes
        found = [_candidate(dims, operands, halved) for halved in _halved(sizes, steps)]
        legal = [each for each in found if each is not None]
        if legal:
            best = min(legal, key=lambda each: each.cost)
        elif best is not None and best.nbytes <= bound.most:
            break
        else:
            need = "an unknown number of bytes" if best is None else f"{best.nbytes} bytes"
            msg = (
                f"{what}: the smallest piece of whole blocks takes {need}, read and written, and "
                f"max_bytes is {bound.most}; give more"
            )
            raise MemdescError(msg)
    return _grown(dims, operands, steps, best, bound.wanted).sizes


def has_long_runs(operands: Sequence[Operand], sizes: Sizes) -> bool:
    """Whether the first region of some sizes is read and written in long runs."""
    first = Region(sizes, (0,) * len(sizes))
    found = [compact(fields, first, is_written=is_written) for fields, is_written in operands]
    return all(each is None or each[0].number == 1 or each[0].length >= _LONG for each in found)


def _units(dims: Sizes, operands: Sequence[Operand], units: Sizes) -> Sizes:
    """Return the step of sizes along each dim: whole blocks, groups and bytes."""
    steps = list(units)
    for layout, bits, groups, counts in (field for operand in operands for field in operand.fields):
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
                continue  # one element for the whole dim, which all regions share
            is_odd = outer.extent > 1 and outer.stride * bits % _BYTE_BITS
            whole = _BYTE_BITS // bits if is_odd else 1
            step = lcm(outer.step * whole, counts[dim]) // counts[dim]
            steps[dim] = lcm(steps[dim], groups[dim] * step)
    return tuple(min(step, size) for step, size in zip(steps, dims, strict=True))


def _halved(sizes: Sizes, units: Sizes) -> Iterator[Sizes]:
    """Return the sizes with one of them halved, for each that consists of several units."""
    for dim, (size, unit) in enumerate(zip(sizes, units, strict=True)):
        if size > unit:
            half = max(-(-size // unit) // 2, 1) * unit
            yield (*sizes[:dim], half, *sizes[dim + 1 :])


def _grown(
    dims: Sizes,
    operands: Sequence[Operand],
    units: Sizes,
    best: _Candidate,
    wanted: int,
) -> _Candidate:
    """Return regions closer to the wanted size, as halving may have gone too far."""
    for dim, (size, unit) in enumerate(zip(best.sizes, units, strict=True)):
        whole = -(-dims[dim] // unit)
        most = size // unit * wanted // best.nbytes
        if size >= dims[dim] or most <= size // unit:
            continue
        # regions of about one size
        count = -(-whole // -(-whole // most))
        grown = min(count * unit, dims[dim])
        found = _candidate(dims, operands, (*best.sizes[:dim], grown, *best.sizes[dim + 1 :]))
        if found is not None and best.nbytes < found.nbytes <= wanted:
            best = found
    return best


def _candidate(dims: Sizes, operands: Sequence[Operand], sizes: Sizes) -> _Candidate | None:
    """Return the regions of some sizes; None if one of them has no runs."""
    first = Region(sizes, (0,) * len(sizes))
    nbytes, cost = 0, 0.0
    for fields, is_written in operands:
        found = compact(fields, first, is_written=is_written)
        if found is None or not all(
            compact(fields, tail, is_written=is_written) for tail in _tails(dims, fields, sizes)
        ):
            return None
        nbytes += max(_largest(dims, sizes, found[0], field) for field in fields)
        cost += found[0].number / found[0].nbytes
    return _Candidate(sizes, nbytes, cost)


def _tails(dims: Sizes, fields: tuple[FieldLayout, ...], sizes: Sizes) -> list[Region]:
    """Return the last regions along one or more dims, which may start inside a byte."""
    if all(field.bits >= _BYTE_BITS for field in fields):
        return []
    ends = [
        ((step, 0),) if size % step == 0 else ((step, 0), (size % step, size - size % step))
        for size, step in zip(dims, sizes, strict=True)
    ]
    # the first of all is not a tail
    return [Region(*zip(*each, strict=True)) for each in [*product(*ends)][1:]]


def _largest(dims: Sizes, sizes: Sizes, first: Runs, field: FieldLayout) -> int:
    """Return the bytes of the largest region of a tensor, from those of the first one."""
    nbytes = first.nbytes
    for axis in field.layout.axes:
        dim, group = axis.dims[0], field.groups[axis.dims[0]]
        count = field.counts[dim]
        if len(axis.dims) == 1 and sizes[dim] < dims[dim]:
            step = -(-sizes[dim] // group) * count
            last = axis.padded - (dims[dim] - 1) // sizes[dim] * sizes[dim] // group * count
            nbytes = -(-nbytes * max(last, step) // step)
    return nbytes
