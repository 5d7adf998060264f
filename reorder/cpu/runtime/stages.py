"""Compiled stages, the interpreter of tiles that calls them, and programs with their addresses.

A conversion is compiled for a pair of a type and a working type, an operation for a working type
and the types that it loads and stores. A stage is an interpreter whose program is a table, and
whose point is a `Placement`, so the interpreter of tiles calls steps of any kind alike.

Tiles are in scratch: slots for those of one thread, in a block that all threads share. They are not
on the stack, because a caller's thread may have only 64 KiB of it. A call of the interpreter of
tiles takes a free scratch of the block, and frees it at its end. The search starts at a place that
depends on the stack of the thread, so that a thread finds the scratch that is in its caches.
"""

from typing import Any

import numpy as np

from reorder.cpu.runtime.interpreters import compiled_interpreter, interpreter_at
from reorder.cpu.runtime.intrinsics import (
    call_c,
    exchange_shared,
    load_int,
    load_shared,
    run_tiles,
    stack_address,
    store_shared,
)
from reorder.cpu.runtime.jit import compiled_at
from reorder.cpu.runtime.pool_block import POOL, pool_words
from reorder.cpu.schedule.batches import Batch
from reorder.cpu.schedule.tile_program import SLOT_NBYTES, TILES, Base, StageTypes, TilesHead
from reorder.cpu.tables import Words, nbytes_of
from reorder.cpu.target import SHARED_NBYTES
from reorder.forks import at_fork
from reorder.memory.buffers import address_of

_HEAD_NBYTES = nbytes_of(TilesHead)
# Every `Base` but src and dst is a slot.
_SLOTS = len(Base) - Base.SRC_ELEMENTS
# How many scratches there are; the system gives each its memory at its first use. A call that finds
# none free waits for one: none is held for longer than the call of an interpreter.
_COUNT = 256
_NBYTES = _SLOTS * SLOT_NBYTES
# The block is the address of the C function that yields the core, then a lock for each scratch in
# its own cache line, then the scratches.
_YIELD_AT = 0
_LOCKS_AT = SHARED_NBYTES
_SLOTS_AT = _LOCKS_AT + _COUNT * SHARED_NBYTES
# Fibonacci hashing: the odd number closest to 2**64 divided by the golden ratio, as a signed
# number. Stacks are at least 16 KiB apart; the highest bits of the product are the place.
_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)
_STACK_SHIFT, _PLACE_SHIFT = 14, 64 - (_COUNT - 1).bit_length()


def _take_scratch(block: int) -> int:
    """Take a scratch that no thread uses; returns its number."""
    place: int = ((stack_address() >> _STACK_SHIFT) * _FACTOR >> _PLACE_SHIFT) & (_COUNT - 1)
    while True:
        for _ in range(_COUNT):
            lock = block + _LOCKS_AT + SHARED_NBYTES * place
            if not load_shared(lock, 0) and exchange_shared(lock, 0, 0, 1):
                return place
            place = (place + 1) & (_COUNT - 1)
        call_c(load_int(block, _YIELD_AT), (0,))


def _free_all() -> None:
    """Free all scratches in a forked child, which lacks the threads that held them."""
    _BLOCK[_LOCKS_AT:_SLOTS_AT] = 0


# pages that were never written take no memory
_MEMORY = np.zeros(_SLOTS_AT + _COUNT * _NBYTES + SHARED_NBYTES, np.uint8)
_BLOCK = _MEMORY[-address_of(_MEMORY) % SHARED_NBYTES :]
_BLOCK.view(np.int64)[_YIELD_AT] = pool_words()[POOL.yield_at]
at_fork(lambda: None, lambda: None, _free_all)


def tile_interpreter_at() -> int:
    """Return the address of the interpreter of tiles, which takes a scratch for each call."""
    return compiled_at(_run_tiles, "interpreter of tiles")


def _run_tiles(  # noqa: PLR0913, PLR0917 - `InterpreterCall` as a C signature
    src_at: int,
    dst_at: int,
    program: int,
    ranges: int,
    begin: int,
    end: int,
    points: int,
    point_count: int,
) -> None:
    block = load_int(program, TILES.scratch_block)
    number = _take_scratch(block)
    first = program + _HEAD_NBYTES
    call = (src_at, dst_at, first, ranges, begin, end, points, point_count)
    # a scratch starts at a cache line
    run_tiles(call, block + _SLOTS_AT + _NBYTES * number)
    store_shared(block + _LOCKS_AT + SHARED_NBYTES * number, 0, 0)


def stage_at(types: StageTypes) -> int:
    """Return the address of a stage."""
    key = [types.operation.name.lower(), types.src, types.dst, types.work]
    key += ["non-temporal stores"] * types.streams
    key += [f"{types.prefetched_bits}-bit elements prefetched"] * (types.prefetched_bits > 0)
    name = f"stage: {', '.join(key)}"
    return compiled_interpreter(name, "reorder.cpu.kernels.stage:emit_stage", types)


def link(batch: Batch) -> Words:
    """Return the program of a batch of tiles with addresses; the batch must outlive it."""
    program = np.array([*map(_word, batch.program)], np.int64)
    program[TILES.scratch_block] = address_of(_BLOCK)
    return program


def _word(word: Any) -> int:
    match word:
        case int():
            return word
        case np.ndarray():
            return address_of(word)
        case StageTypes():
            return stage_at(word)
    return interpreter_at(word)
