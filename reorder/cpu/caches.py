"""Caches of the machine, and how much of a reorder they hold: a model as a pure function."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CORE_CACHE_NBYTES",
    "MAX_CACHE_NBYTES",
    "OWN_CACHE_NBYTES",
    "PAGE_NBYTES",
    "PREFETCHED_PAGES",
    "Cache",
    "cache_limits",
    "own_cache",
    "own_limits",
    "read_caches",
    "streamed_part",
]

# Cap on the size of the largest cache: one of hundreds of MiB serves a whole socket, so a process
# finds little of it free. On machines with 300 and 480 MiB, using three quarters of this paid off.
MAX_CACHE_NBYTES = 88 << 20
# Cap on what the caches of one core hold of src, its share of shared caches included: beyond it
# reads wait for memory unless they are prefetched, even on servers with 2 MiB of L2 and hundreds of
# MiB of L3.
CORE_CACHE_NBYTES = 8 << 20

# The page of virtual memory: x86 prefetchers stop at its end.
PAGE_NBYTES = 4096
# How many pages the L2 prefetcher follows at once (32 in Intel processors since 2008).
PREFETCHED_PAGES = 32
# Private cache of a core if the system reports none: the smallest among servers since 2017.
OWN_CACHE_NBYTES = 1 << 20

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


class Cache(NamedTuple):
    """A cache of data, and how many cores share it."""

    nbytes: int
    cores: int


@cache
def own_limits(unknown: int) -> tuple[int, int, int, int]:
    """Return the cache limits of this machine, in the order of the fields of `Machine`."""
    caches = read_caches(_CACHES)
    own = own_cache(caches) or OWN_CACHE_NBYTES
    return (*cache_limits(caches, unknown), own, streamed_part(caches))


def cache_limits(caches: Sequence[Cache], unknown: int = MAX_CACHE_NBYTES) -> tuple[int, int]:
    """Return how many bytes of src and dst all caches hold, and how many those of one core.

    If the system lists none, the largest is assumed to have `unknown` bytes.
    The model: a reorder gets the largest cache, less an eighth for stacks, code and tables; a core
    gets its share of every level together. Both are capped at measured bounds.

    >>> cache_limits([Cache(48 << 10, 1), Cache(2 << 20, 1), Cache(300 << 20, 16)])
    (80740352, 8388608)
    >>> cache_limits([Cache(32 << 10, 1), Cache(256 << 10, 1), Cache(1 << 20, 4)])
    (917504, 557056)
    """
    largest = max((cache.nbytes for cache in caches), default=unknown)
    part = _part(caches) or CORE_CACHE_NBYTES
    return min(largest, MAX_CACHE_NBYTES) * 7 // 8, min(part, CORE_CACHE_NBYTES)


def streamed_part(caches: Sequence[Cache]) -> int:
    """Return the bytes of src and dst per thread from which non-temporal stores pay off.

    The model: a thread gets no more of the caches than its core's share, and other code uses half
    of that. The lower bound is measured.

    >>> streamed_part([Cache(48 << 10, 1), Cache(2 << 20, 1), Cache(300 << 20, 16)])
    10903552
    >>> streamed_part([Cache(32 << 10, 2), Cache(1 << 20, 2), Cache(32 << 20, 16)])
    8388608
    """
    return max(_part(caches) // 2, CORE_CACHE_NBYTES)


def _part(caches: Sequence[Cache]) -> int:
    """Return a core's share of all caches."""
    return sum(cache.nbytes // cache.cores for cache in caches)


def own_cache(caches: Sequence[Cache]) -> int:
    """Return the size of the largest cache private to a core or to its two hardware threads.

    >>> own_cache([Cache(48 << 10, 1), Cache(2 << 20, 2), Cache(300 << 20, 16)])
    1048576
    """
    return max((cache.nbytes // cache.cores for cache in caches if cache.cores <= 2), default=0)  # noqa: PLR2004 - hardware threads of a core


def read_caches(folder: Path) -> list[Cache]:
    """Return the data caches that Linux lists for a core, except unreadable ones."""
    found = []
    for cache_folder in sorted(folder.glob("index*")):
        with suppress(OSError, ValueError):
            kind, size, shared = (
                (cache_folder / name).read_text(encoding="utf-8").strip()
                for name in ("type", "size", "shared_cpu_list")
            )
            spans = [span.partition("-") for span in shared.split(",")]
            cores = sum(int(last or first) - int(first) + 1 for first, _, last in spans)
            nbytes = int(size.removesuffix("K")) << 10
            if kind != "Instruction" and nbytes > 0 and cores > 0:
                found.append(Cache(nbytes, cores))
    return found
