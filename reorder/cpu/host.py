"""The machine of this process, or an assumed one: its cores, and how much its caches hold.

The limits of the caches are a model, a pure function of what the system lists, or of what
`reorder.assumed` says.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

from memdesc.tuples import NamedTuple
from reorder.assumed import assumed_machine
from reorder.cpu import settings
from reorder.cpu.machine import LEAST_STREAMED_NBYTES, OWN_CACHE_NBYTES, Machine
from reorder.cpu.target import instructions
from reorder.system import StrPath, count_cores, is_arm, read_text

# Cap on the size of the largest cache: one of hundreds of MiB serves a whole socket, so little of
# it is free for one process. On machines with 300 and 480 MiB, using three quarters of this cap
# paid off.
_MAX_CACHE_NBYTES = 88 << 20

# Size of the largest cache if the system reports none. That is common on 64-bit ARM, where firmware
# may lack cache tables, and on macOS. The size assumed on ARM is that of the L2 of Apple's
# processors; servers have more.
_UNKNOWN_CACHE_NBYTES = (12 if is_arm() else 64) << 20


_CACHES = "/sys/devices/system/cpu/cpu0/cache"


def this_machine() -> Machine:
    """Return the machine that this process runs on, or is to assume."""
    return _machine_with(count_threads(), assumed_machine().caches)


@cache
def _machine_with(threads: int, assumed: tuple[int, int, int] | None) -> Machine:
    if assumed is None:
        caches = read_caches(_CACHES)
    else:
        # two of each core, and one for all cores
        shared = zip(assumed, (1, 1, count_cores()), strict=True)
        caches = [Cache(nbytes, cores) for nbytes, cores in shared if nbytes]
    own = own_cache(caches) or OWN_CACHE_NBYTES
    limit = cache_limit(caches, _UNKNOWN_CACHE_NBYTES)
    machine = Machine(threads, limit, own, streamed_part(caches))
    return machine._replace(instructions=instructions())


def count_threads() -> int:
    """Return how many threads a reorder may use: the user's limit, and the cores allowed."""
    cores, limit = count_cores(), settings.thread_limit()
    return max(1, cores if limit is None else min(cores, limit))


class Cache(NamedTuple):
    """A cache of data, and how many cores share it."""

    nbytes: int
    cores: int


def cache_limit(caches: Sequence[Cache], unknown: int = _MAX_CACHE_NBYTES) -> int:
    """Return how many bytes of src and dst all caches hold.

    If the system lists none, the largest is assumed to have `unknown` bytes.
    The model: a reorder gets the largest cache, up to a measured bound, less an eighth for stacks,
    code and tables.

    >>> cache_limit([Cache(48 << 10, 1), Cache(2 << 20, 1), Cache(300 << 20, 16)])
    80740352
    >>> cache_limit([Cache(32 << 10, 1), Cache(256 << 10, 1), Cache(1 << 20, 4)])
    917504
    """
    largest = max((cache.nbytes for cache in caches), default=unknown)
    return min(largest, _MAX_CACHE_NBYTES) * 7 // 8


def streamed_part(caches: Sequence[Cache]) -> int:
    """Return how many bytes of src and dst per thread make non-temporal stores pay off.

    The model: a thread gets no more of the caches than its core's share, and other code uses half
    of that. The lower bound is measured.

    >>> streamed_part([Cache(48 << 10, 1), Cache(2 << 20, 1), Cache(300 << 20, 16)])
    10903552
    >>> streamed_part([Cache(32 << 10, 2), Cache(1 << 20, 2), Cache(32 << 20, 16)])
    8388608
    """
    share = sum(cache.nbytes // cache.cores for cache in caches)
    return max(share // 2, LEAST_STREAMED_NBYTES)


def own_cache(caches: Sequence[Cache]) -> int:
    """Return the size of the largest cache private to a core or to its two hardware threads.

    A third one is shared, though a virtual machine may list few cores for it.

    >>> own_cache([Cache(48 << 10, 1), Cache(2 << 20, 2), Cache(300 << 20, 16)])
    1048576
    >>> own_cache([Cache(32 << 10, 1), Cache(1 << 20, 1), Cache(32 << 20, 2)])
    1048576
    """
    private = [cache.nbytes // cache.cores for cache in sorted(caches)[:2] if cache.cores <= 2]  # noqa: PLR2004 - hardware threads of a core
    return max(private, default=0)


def read_caches(folder: StrPath) -> list[Cache]:
    """Return the data caches that Linux lists for a core, except unreadable ones."""
    caches: list[Cache] = []
    names: list[str] = []
    with suppress(OSError):
        names = sorted(name for name in os.listdir(folder) if name.startswith("index"))
    for index in names:
        with suppress(OSError, ValueError):
            type_, size, shared = (
                read_text(f"{folder}/{index}/{name}").strip()
                for name in ("type", "size", "shared_cpu_list")
            )
            spans = [span.partition("-") for span in shared.split(",")]
            cores = sum(int(last or first) - int(first) + 1 for first, _, last in spans)
            nbytes = int(size.removesuffix("K")) << 10
            if type_ != "Instruction" and nbytes > 0 and cores > 0:
                caches.append(Cache(nbytes, cores))
    return caches
