"""What `identify` found: candidates, and the answer in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memdesc.tags import LETTERS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from memdesc import MemoryDesc, Name

__all__ = ["Candidate", "Identification", "no_layout", "title", "titles"]

# names of one layout, layouts, and sizes in one sentence
_MAX_NAMES = 4
_MAX_LISTED = 3


class Candidate(NamedTuple):
    """A layout that bytes may have.

    Parameters
    ----------
    desc : MemoryDesc
        The layout, by the dims of the caller.
    order : tuple of int
        Dim k of `names` is dim ``order[k]`` of the caller: ``(1, 0)`` where the names are for the
        transposed matrix.
    names : tuple of Name
        Every known name.
    agreement : float
        Share of the elements that are equal to those of the reference, 0 to 1; 1 without one.
    is_padding_zero : bool
        Whether the padding, if there is any, holds zeros.
    """

    desc: MemoryDesc
    order: tuple[int, ...]
    names: tuple[Name, ...]
    agreement: float
    is_padding_zero: bool


class Identification(NamedTuple):
    """What `identify` found.

    Parameters
    ----------
    candidates : tuple of Candidate
        Every known layout that the bytes may have; without a reference those with most padding,
        all of it zero, first.
    near : tuple of Candidate
        Without candidates: up to three that put most elements right, 3 of 4 at least.
    verdict : str
        The answer in one sentence.
    """

    candidates: tuple[Candidate, ...]
    near: tuple[Candidate, ...]
    verdict: str


def title(found: Candidate) -> str:
    """Return the names of a layout, the dims in their order, and whether padding is not zero."""
    # canonical tags first, then packings
    ranked = sorted(
        found.names, key=lambda name: (name.domain != "any", name.vocabulary != "weights")
    )
    names = [name.text for name in ranked[:_MAX_NAMES]]
    if len(ranked) > _MAX_NAMES:
        names.append("...")
    text = names[0] if names else repr(found.desc)
    if names[1:]:
        text += f" ({', '.join(names[1:])})"
    if found.order != tuple(sorted(found.order)):
        text += f" of the dims in the order {' '.join(LETTERS[dim] for dim in found.order)}"
    return text if found.is_padding_zero else f"{text}, with padding that is not zero"


def titles(found: Sequence[Candidate]) -> str:
    """Return the first layouts, joined."""
    shown = "; ".join(title(each) for each in found[:_MAX_LISTED])
    return f"{shown}; ..." if len(found) > _MAX_LISTED else shown


def no_layout(nbytes: int, what: str, sizes: Collection[int]) -> str:
    """Return why there is no candidate: the size, or else the values."""
    if nbytes in sizes:
        return f"no known layout of {what} gives these bytes"
    nearest = sorted(sorted(sizes, key=lambda size: abs(size - nbytes))[:_MAX_LISTED])
    listed = ", ".join(map(str, nearest))
    return f"no known layout of {what} takes {nbytes} bytes; the nearest sizes are {listed}"
