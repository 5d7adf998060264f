"""New buffers, and the memory of freed results, which later results take."""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memdesc import OutOfMemoryError
from reorder.forks import at_fork
from reorder.memory.buffers import address_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_LINE_NBYTES = 64
# A block that starts at a huge page has no small pages at its two ends: 16 times fewer page faults
# for 64 MiB. The GNU C library maps each block of more than 32 MiB, and numpy asks for huge pages.
_HUGE_PAGE_NBYTES, _MIN_HUGE = 2 << 20, 32 << 20
# Blocks have whole huge pages, so smaller results would waste more than an eighth of their memory.
_MIN_KEPT, _MAX_KEPT = 16 << 20, 256 << 20


class _Block(NamedTuple):
    """Mapped memory, and its bytes from a huge page on."""

    mapping: mmap.mmap
    data: NDArray[np.uint8]


class _Lease:
    """What the arrays over a block hold: without the last of them, the block is free again."""

    __slots__ = ("__array_interface__", "_block", "_pool")

    def __init__(self, pool: Pool, block: _Block, nbytes: int) -> None:
        self._pool, self._block = pool, block
        self.__array_interface__ = block.data[:nbytes].__array_interface__

    def __del__(self) -> None:
        self._pool.keep(self._block)


class Pool:
    """Blocks of freed results, of at most `limit` bytes.

    `advice` is the number with which the system may take the memory of a block back, as long as
    nobody writes to it (`MADV_FREE` of madvise).

    Blocks are freed on any thread, in the middle of any code, and in forked children: there are no
    locks, and each step is one call of a dict, which is atomic.
    """

    def __init__(self, limit: int, advice: int) -> None:
        self._limit, self._advice = limit, advice
        # by their identities, the one that was freed first comes first
        self._free: dict[int, _Block] = {}

    @property
    def nbytes(self) -> int:
        """The bytes of all blocks."""
        return sum(block.data.nbytes for block in self._free.copy().values())

    def new(self, nbytes: int) -> NDArray[np.uint8]:
        """Return bytes of a freed block, or else of a new one.

        Fails with an OSError if the system does not have this much memory.
        """
        size = -(-nbytes // _HUGE_PAGE_NBYTES) * _HUGE_PAGE_NBYTES
        block = self._take(size) or _map(size)
        return np.asarray(_Lease(self, block, nbytes))

    def keep(self, block: _Block) -> None:
        """Keep a free block; the ones that were freed first go if there are too many."""
        try:
            block.mapping.madvise(self._advice)
        except OSError:
            return
        self._free[id(block)] = block
        surplus = self.nbytes - self._limit
        for key, each in self._free.copy().items():
            if surplus <= 0:
                break
            self._free.pop(key, None)
            surplus -= each.data.nbytes

    def clear(self) -> bool:
        """Return all blocks to the system, and whether there were any."""
        had_any = bool(self._free)
        self._free.clear()
        return had_any

    def _take(self, nbytes: int) -> _Block | None:
        for key, block in reversed(self._free.copy().items()):
            # another thread may have taken it meanwhile
            if block.data.nbytes == nbytes and self._free.pop(key, None) is not None:
                return block
        return None


def _map(nbytes: int) -> _Block:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    mapping = mmap.mmap(-1, nbytes + _HUGE_PAGE_NBYTES, flags=flags)
    data = np.frombuffer(mapping, np.uint8)
    start = -address_of(data) % _HUGE_PAGE_NBYTES
    with suppress(AttributeError, OSError):  # not on all systems
        mapping.madvise(mmap.MADV_HUGEPAGE, start, nbytes)
    return _Block(mapping, data[start : start + nbytes])


_HAS_PAGES = all(hasattr(mmap, name) for name in ("MAP_PRIVATE", "MAP_ANONYMOUS", "MADV_FREE"))
_POOL = Pool(_MAX_KEPT, mmap.MADV_FREE) if _HAS_PAGES else None


def zeroed_bytes(nbytes: int) -> NDArray[np.uint8]:
    """Allocate zeros, aligned to a cache line.

    Fails with an `OutOfMemoryError` if the system does not have this much memory.
    """
    return _allocate(np.zeros, nbytes)


def uninitialized_bytes(nbytes: int) -> NDArray[np.uint8]:
    """Allocate bytes for a caller that writes all of them, aligned like `zeroed_bytes`.

    They may be those of a freed result, which needs neither clearing nor page faults. Fails where
    `zeroed_bytes` does.
    """
    if _POOL is not None and _MIN_KEPT <= nbytes <= _MAX_KEPT:
        with suppress(OSError):
            return _POOL.new(nbytes)
    return _allocate(np.empty, nbytes)


def _allocate(allocate: Callable[[int, type[np.uint8]], Any], nbytes: int) -> NDArray[np.uint8]:
    """Return the aligned part of a new array; the pool is cleared before this fails."""
    alignment = _HUGE_PAGE_NBYTES if nbytes > _MIN_HUGE else _LINE_NBYTES
    try:
        raw: NDArray[np.uint8] = allocate(nbytes + alignment, np.uint8)
    except (MemoryError, ValueError):
        if _POOL is not None and _POOL.clear():
            return _allocate(allocate, nbytes)
        msg = f"{nbytes} bytes are more memory than is available; reorder the tensor in parts"
        raise OutOfMemoryError(msg) from None
    skipped = -address_of(raw) % alignment
    return raw[skipped : skipped + nbytes]


if _POOL is not None:
    at_fork(lambda: None, lambda: None, _POOL.clear)
