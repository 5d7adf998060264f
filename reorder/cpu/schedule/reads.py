"""How many rows of src are read in turn, so that what prefetchers read ahead of each is used."""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING

from reorder.cpu.caches import PAGE_NBYTES, PREFETCHED_PAGES
from reorder.cpu.schedule.select import TILE
from reorder.cpu.target import LINE_NBYTES

if TYPE_CHECKING:
    from reorder.cpu.target import Machine
    from reorder.plan.nodes import Node

__all__ = ["MAX_STEPS", "pages_to_read", "rows_at_once", "runs_at_once", "steps_of"]

# From how many pages is read in turn for whole lines that non-temporal stores write, in any order:
# reads go on for longer from fewer pages, and neighbouring lines are written together from several.
_STREAMED_PAGES = 8
# Longer runs gain nothing from shorter pieces.
_MAX_ALIASED_NBYTES = 2 * LINE_NBYTES
# Runs of a piece whose stores meet few loads.
_ALIASED_RUNS = 32

# Most steps of a loop group in a tile; a loop of less than twice the steps of a tile is not cut.
MAX_STEPS = 4 * TILE


def pages_to_read(machine: Machine, nbytes: int, *, streams: bool) -> int:
    """Return from how many pages of src runs are read in turn.

    The model: the caches serve as many as the machine says; memory as many as prefetchers follow;
    and where non-temporal stores write whole lines of dst, a few suffice.

    Parameters
    ----------
    machine : Machine
        The machine.
    nbytes : int
        Bytes of src and dst together.
    streams : bool
        Whether runs are whole cache lines of dst, written by non-temporal stores.
    """
    if streams:
        return _STREAMED_PAGES
    return PREFETCHED_PAGES if machine.exceeds_cache(nbytes) else machine.pages_in_turn


def rows_at_once(
    rows: tuple[Node, ...], line: int, step: int, pages: int = PREFETCHED_PAGES
) -> int:
    """Return how many steps of the outermost loop of a group of rows a tile takes.

    The model: rows of a tile start in at most `pages` pages of src, and fill whole lines of dst.

    Parameters
    ----------
    rows : tuple of Node
        The loops, innermost first.
    line : int
        Elements of a cache line.
    step : int
        Bytes of a stride of 1.
    pages : int
        Pages of src from which is read in turn.

    Examples
    --------
    >>> from reorder.plan.nodes import Node
    >>> rows_at_once((Node(4096, 4096, (4096, 1)),), 16, 4)
    32
    >>> rows_at_once((Node(3136, 3136, (16, 1)),), 16, 4)
    1024
    """
    *inner, outermost = rows
    inside = prod(max(1, min(node.extent, _span(node, step) // PAGE_NBYTES)) for node in inner)
    stride = min(max(1, abs(outermost.strides[0]) * step), PAGE_NBYTES)
    steps = max(1, pages // inside) * (PAGE_NBYTES // stride)
    grain = line // gcd(line, prod(node.extent for node in inner))
    limit = min(steps, steps_of(rows, MAX_STEPS))
    return max(1, limit // grain) * grain


def runs_at_once(rows: tuple[Node, ...], nbytes: int, step: int, pages: int) -> int:
    """Return how many steps of the outermost loop around runs follow each other in dst.

    The model: as `rows_at_once`, but a load waits for an earlier store whose address has the same
    lowest 12 bits (4K aliasing). If runs start at few places of a page, as with strides of powers
    of two, stores of longer pieces of dst meet nearly all loads.

    Parameters
    ----------
    rows : tuple of Node
        The loops, innermost first.
    nbytes : int
        Bytes of a run.
    step : int
        Bytes of a stride of 1.
    pages : int
        Pages of src from which is read in turn.

    Examples
    --------
    >>> from reorder.plan.nodes import Node
    >>> runs_at_once((Node(2048, 2048, (32 * 64, 64)),), 64, 1, 128)
    32
    >>> runs_at_once((Node(2048, 2048, (65 * 64, 64)),), 64, 1, 128)
    128
    """
    steps = rows_at_once(rows, 1, step, pages)
    is_aliased = gcd(rows[-1].strides[0] * step, PAGE_NBYTES) > LINE_NBYTES
    if not is_aliased or nbytes > _MAX_ALIASED_NBYTES:
        return steps
    return min(steps, steps_of(rows, _ALIASED_RUNS))


def steps_of(group: tuple[Node, ...], size: int) -> int:
    """Return how many steps of the outermost loop of a group are about `size` steps of it all."""
    return max(1, size // prod(node.extent for node in group[:-1]))


def _span(node: Node, step: int) -> int:
    """Return the bytes of src between the first step of a loop and the end of the last one."""
    return node.extent * abs(node.strides[0]) * step
