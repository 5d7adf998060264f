"""Cut a change between files into pieces: values that run alone, in bounded memory.

A piece says which bytes it reads and writes, and what becomes of them. No two pieces of a change
write the same bytes, unless they write the same values, so they run in any order, on any machine
that has the files, and again after a failure. A piece does not say where its tensors are, so layers
of equal shapes share their pieces.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemdescError
from reorder.storage.pieces.regions import Cut, Operand, has_long_runs, sizes_within
from reorder.storage.pieces.runs import Region, Runs, compact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.storage.pieces.changes import Change, Fields, Layouts
    from reorder.storage.pieces.regions import Bound, Sizes

__all__ = ["Piece", "cut"]

# Bytes of pieces whose runs are long: most of a piece then stays in the caches of a machine.
_SMALL = 16 << 20


class Piece(NamedTuple):
    """A region of a change.

    Attributes
    ----------
    change : Change
        What becomes of the bytes that are read.
    reads, writes : tuple of (str, Runs)
        Where these lie in each tensor that is read, and where what it makes lies in each one that
        is written; tensors are called by their roles.
    offsets : tuple of int
        Where the region begins, along the dims of the target; empty for the whole.
    """

    change: Change
    reads: tuple[tuple[str, Runs], ...]
    writes: tuple[tuple[str, Runs], ...]
    offsets: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes that it needs in memory."""
        return self.change.working * sum(runs.nbytes for _, runs in (*self.reads, *self.writes))

    @property
    def written(self) -> int:
        """Bytes that it writes."""
        return sum(runs.nbytes for _, runs in self.writes)


@lru_cache(maxsize=1024)  # the layers of a model are alike
def cut(change: Change, bound: Bound) -> Cut[Piece]:
    """Cut a change along whole blocks of all layouts into pieces of bounded size.

    *Law*: the pieces write each byte that the whole change writes, with the same value.

    Parameters
    ----------
    change : Change
        Of whole tensors.
    bound : Bound
        The most bytes that a piece may read and write, and how many it should where blocks allow.
        Blocks that hold nothing but padding belong to the piece before them, and may exceed this.

    Raises
    ------
    MemdescError
        If blocks are too large for any piece to fit.

    Examples
    --------
    >>> import memdesc
    >>> from reorder.storage.pieces.changes import Reorder, Repack
    >>> from reorder.storage.pieces.pieces import cut
    >>> from reorder.storage.pieces.regions import Bound
    >>> src, dst = (memdesc.memory_desc((64, 6), "f32", tag) for tag in ("ab", "Ab16a"))
    >>> pieces = cut(Reorder(src, dst), Bound(1600, 1600))
    >>> len(pieces)
    2
    >>> for piece in pieces:
    ...     print(piece.change.dst, piece.reads[0][1].start, piece.writes[0][1].start)
    memory_desc((32, 6), 'f32', 'Ab16a') 0 0
    memory_desc((32, 6), 'f32', 'Ab16a') 768 768
    >>> src, dst = (memdesc.record_desc((256, 64), name, group=32) for name in ("awq", "gptq"))
    >>> pieces = list(cut(Repack(src, dst), Bound(10000, 10000)))
    >>> len(pieces), pieces[1].change.dst.dims, pieces[1].writes[0]
    (2, (128, 64), ('qweight', Runs(start=4096, length=4096, loops=())))
    """
    dims = change.dims
    if 0 in dims:
        # scales of no elements are written too
        whole = _whole(change)
        return Cut((int(whole.written > 0),), (1,), lambda _: whole)
    operands = (
        *(Operand(fields, is_written=False) for fields in change.reads.values()),
        *(Operand(fields, is_written=True) for fields in change.writes.values()),
    )

    def within(wanted: int) -> Sizes:
        return sizes_within(
            dims, operands, change.units, bound._replace(wanted=wanted), str(change)
        )

    found = map(within, _wanted(bound))
    sizes = next((each for each in found if has_long_runs(operands, each)), None)
    return Cut(dims, sizes or within(bound.wanted), partial(_piece, change))


def _wanted(bound: Bound) -> Iterator[int]:
    """Return how many bytes pieces should have, if their runs are long: the fewest first."""
    wanted = bound.wanted
    if wanted > _SMALL:
        yield _SMALL
    while True:
        yield wanted
        wanted *= 2
        if wanted > bound.wide:
            return


def _whole(change: Change) -> Piece:
    """Return the one piece of a change that is not cut."""
    reads, writes = (
        tuple((role, Runs(0, nbytes)) for role, nbytes in sizes.items())
        for sizes in (change.read_sizes, change.write_sizes)
    )
    return Piece(change, reads, writes)


@lru_cache(maxsize=1024)  # likewise
def _piece(change: Change, region: Region) -> Piece:
    if region.sizes == change.dims == change.units:
        return _whole(change)
    reads, held = _compacted(change.reads, region, is_written=False)
    writes, made = _compacted(change.writes, region, is_written=True)
    if reads is None or writes is None:
        msg = f"{change}: the region of {region.sizes} at {region.offsets} shares bytes with others"
        raise MemdescError(msg)
    part = change.part(region, held, made)
    constants = tuple((role, Runs(0, nbytes)) for role, nbytes in part.constants.items())
    return Piece(part, reads, (*writes, *constants), region.offsets)


def _compacted(
    fields: Fields, region: Region, *, is_written: bool
) -> tuple[tuple[tuple[str, Runs], ...] | None, Layouts]:
    """Return the runs of a region in each tensor, and the layouts of its fields in these bytes."""
    found = {role: compact(each, region, is_written=is_written) for role, each in fields.items()}
    known = {role: each for role, each in found.items() if each is not None}
    runs = tuple((role, each[0]) for role, each in known.items())
    return (
        runs if len(known) == len(found) else None,
        {role: each[1] for role, each in known.items()},
    )
