"""New buffers, and the memory of freed results, which later results reuse."""

from __future__ import annotations

import mmap
import weakref
from contextlib import suppress
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc.errors import OutOfMemoryError
from reorder.forks import at_fork
from reorder.memory.buffers import address_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_LINE_NBYTES, _UINT8 = 64, np.dtype(np.uint8)
# A block that starts at a huge page has no small pages at its two ends: 16 times fewer page faults
# for 64 MiB. The GNU C library maps each block of more than 32 MiB, and numpy asks for huge pages.
_HUGE_PAGE_NBYTES, _MIN_HUGE = 2 << 20, 32 << 20
# Blocks have whole huge pages, so smaller results would waste more than an eighth of their memory.
_MIN_POOLED, _MAX_POOLED = 16 << 20, 256 << 20


class _Block:
    """Mapped memory, used from its first huge page; while it is free, `freed` has one item."""

    __slots__ = ("freed", "mapping", "nbytes", "start", "watches")

    def __init__(self, mapping: mmap.mmap, start: int, nbytes: int) -> None:
        self.mapping, self.start, self.nbytes = mapping, start, nbytes
        self.freed: list[object] = []
        self.watches: tuple[weakref.ref[NDArray[np.uint8]], ...] = ()


class _Watch(weakref.ref["NDArray[np.uint8]"]):
    """A weak reference to an array, with the `madvise` of its memory."""

    __slots__ = ("madvise",)
    madvise: Callable[[int], None]


class Pool:
    """The blocks of the last results, of at most `limit` bytes, free or not.

    After `advice` (`MADV_FREE` of madvise), the system may take the memory of a free block back.

    Blocks are freed on any thread, in the middle of any code, and in forked children. So there are
    no locks, each step is one call of a dict or list, which is atomic, and freeing a block runs no
    Python code: Python would raise a pending KeyboardInterrupt there, and lose it.

    All arrays over a block are views of one array, which is new for each result. Weak references
    show when it is gone. The garbage collector does not track numpy arrays, so it never reports one
    as gone that a finalizer revives.
    """

    def __init__(self, limit: int, advice: int) -> None:
        self._limit = limit
        self._advice, self._give_back = advice, methodcaller("madvise", advice)
        # by their identities, the one that was used first comes first
        self._blocks: dict[int, _Block] = {}

    @property
    def nbytes(self) -> int:
        """The bytes of all blocks."""
        return sum(block.nbytes for block in self._blocks.copy().values())

    def new(self, nbytes: int) -> NDArray[np.uint8]:
        """Return bytes of a free block or of a new one; an OSError if the system has none."""
        size = -(-nbytes // _HUGE_PAGE_NBYTES) * _HUGE_PAGE_NBYTES
        block = self._take(size) or _map(size, self._advice)
        self._blocks.pop(id(block), None)
        self._blocks[id(block)] = block
        surplus = self.nbytes - self._limit
        for key, oldest in self._blocks.copy().items():
            if surplus <= 0:
                break
            self._blocks.pop(key, None)
            surplus -= oldest.nbytes
        whole = np.frombuffer(block.mapping, np.uint8)
        watch = _Watch(whole, self._give_back)
        watch.madvise = block.mapping.madvise
        # the last one is called first: memory is given back before anybody can take it
        block.watches = (weakref.ref(whole, block.freed.append), watch)
        return whole[block.start : block.start + nbytes]

    def clear(self) -> bool:
        """Forget all blocks, which returns free ones to the system; whether there were any."""
        had_any = bool(self._blocks)
        self._blocks.clear()
        return had_any

    def _take(self, nbytes: int) -> _Block | None:
        for block in reversed(self._blocks.copy().values()):
            if block.nbytes == nbytes:
                with suppress(IndexError):  # in use, or taken by another thread
                    block.freed.pop()
                    return block
        return None


def _map(nbytes: int, advice: int) -> _Block:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    mapping = mmap.mmap(-1, nbytes + _HUGE_PAGE_NBYTES, flags=flags)
    mapping.madvise(advice)
    start = -address_of(np.frombuffer(mapping, np.uint8)) % _HUGE_PAGE_NBYTES
    with suppress(AttributeError, OSError):  # not on all systems
        mapping.madvise(mmap.MADV_HUGEPAGE, start, nbytes)
    return _Block(mapping, start, nbytes)


_HAS_PAGES = all(hasattr(mmap, name) for name in ("MAP_PRIVATE", "MAP_ANONYMOUS", "MADV_FREE"))
# a caller may hold one result until the next is there
_POOL = Pool(2 * _MAX_POOLED, mmap.MADV_FREE) if _HAS_PAGES else None


# Callers pass a dtype where smaller results come from functions of numpy.
def zeroed_bytes(nbytes: int, _dtype: object = _UINT8) -> NDArray[np.uint8]:
    """Allocate zeros, aligned to a cache line; may raise `OutOfMemoryError`."""
    return _allocate(np.zeros, nbytes)


def uninitialized_bytes(nbytes: int, _dtype: object = _UINT8) -> NDArray[np.uint8]:
    """Allocate bytes that the caller writes, perhaps a freed result's, like `zeroed_bytes`."""
    if _POOL is not None and _MIN_POOLED <= nbytes <= _MAX_POOLED:
        with suppress(OSError):
            return _POOL.new(nbytes)
    return _allocate(np.empty, nbytes)


def _allocate(allocate: Callable[[int, np.dtype[np.uint8]], Any], nbytes: int) -> NDArray[np.uint8]:
    """Return the aligned part of a new array; the pool is cleared before this fails."""
    alignment = _HUGE_PAGE_NBYTES if nbytes > _MIN_HUGE else _LINE_NBYTES
    try:
        raw: NDArray[np.uint8] = allocate(nbytes + alignment, _UINT8)
    except (MemoryError, ValueError):
        if _POOL is not None and _POOL.clear():
            return _allocate(allocate, nbytes)
        raise OutOfMemoryError(
            f"{nbytes} bytes are more memory than is available; reorder the tensor in parts"
        ) from None
    skipped = -address_of(raw) % alignment
    return raw[skipped : skipped + nbytes]


if _POOL is not None:
    at_fork(lambda: None, lambda: None, _POOL.clear)
