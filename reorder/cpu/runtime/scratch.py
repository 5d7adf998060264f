"""Scratch: slots for the tiles of one thread, in a block that all threads share.

They are not on the stack, because a caller's thread may have only 64 KiB of it. A call of the
interpreter of tiles takes a free scratch of the block, and frees it at its end. The search starts
at a place that depends on the stack of the thread, so that a thread finds the scratch that is in
its caches.

The block is `ScratchHead`, then a lock for each scratch in its own cache line, then the scratches.
"""

import numpy as np

from memdesc.tuples import NamedTuple
from reorder.cpu.runtime.intrinsics import (
    call_c,
    exchange_shared,
    load_int,
    load_shared,
    stack_address,
    store_shared,
)
from reorder.cpu.runtime.pool_block import POOL, pool_words
from reorder.cpu.schedule.tile_program import SLOT_NBYTES, Base
from reorder.cpu.tables import Array, fields_of
from reorder.cpu.target import SHARED_NBYTES
from reorder.forks import at_fork
from reorder.memory.buffers import address_of

# Every `Base` but src and dst is a slot.
_SLOTS = len(Base) - Base.SRC_ELEMENTS
# How many scratches there are; the system gives each its memory at its first use. A call that finds
# none free waits for one: none is held for longer than the call of an interpreter.
_COUNT = 256
_NBYTES = _SLOTS * SLOT_NBYTES


class ScratchHead(NamedTuple):
    """The start of the block."""

    # address of the C function that yields the core
    yield_at: int


_HEAD = fields_of(ScratchHead)
_LOCKS_AT = SHARED_NBYTES
_SLOTS_AT = _LOCKS_AT + _COUNT * SHARED_NBYTES
# Fibonacci hashing: the odd number closest to 2**64 divided by the golden ratio, as a signed
# number. Stacks are at least 16 KiB apart; the highest bits of the product are the place.
_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)
_STACK_SHIFT, _PLACE_SHIFT = 14, 64 - (_COUNT - 1).bit_length()


def take_scratch(block: int) -> int:
    """Take a scratch that no thread uses; returns its number."""
    place: int = ((stack_address() >> _STACK_SHIFT) * _FACTOR >> _PLACE_SHIFT) & (_COUNT - 1)
    while True:
        for _ in range(_COUNT):
            lock = block + _LOCKS_AT + SHARED_NBYTES * place
            if not load_shared(lock, 0) and exchange_shared(lock, 0, 0, 1):
                return place
            place = (place + 1) & (_COUNT - 1)
        call_c(load_int(block, _HEAD.yield_at), (0,))


def slots_of(block: int, number: int) -> int:
    """Return the address of the first slot of a scratch, at a cache line."""
    return block + _SLOTS_AT + _NBYTES * number


def free_scratch(block: int, number: int) -> None:
    """Give a scratch back."""
    store_shared(block + _LOCKS_AT + SHARED_NBYTES * number, 0, 0)


def _allocate() -> Array:
    """Return the block: pages that were never written take no memory."""
    memory = np.zeros(_SLOTS_AT + _COUNT * _NBYTES + SHARED_NBYTES, np.uint8)
    return memory[-address_of(memory) % SHARED_NBYTES :]


def _free_all() -> None:
    """Free all scratches in a forked child, which lacks the threads that held them."""
    _BLOCK[_LOCKS_AT:_SLOTS_AT] = 0


_BLOCK = _allocate()
_BLOCK.view(np.int64)[_HEAD.yield_at] = pool_words()[POOL.yield_at]
at_fork(lambda: None, lambda: None, _free_all)
SCRATCH_BLOCK = address_of(_BLOCK)
