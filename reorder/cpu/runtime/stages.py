"""Compiled stages, the interpreter of tiles that calls them, and programs with their addresses.

A conversion is compiled for a pair of a type and a working type, an operation for a working type
and the types that it loads and stores. A stage is an interpreter whose program is a table, and
whose point is a `Placement`, so the interpreter of tiles calls all steps alike.

Tiles are in scratch: slots for those of one thread, in a block that all threads share. They are not
on the stack, because a caller's thread may have only 64 KiB of it. A call of the interpreter of
tiles takes a free scratch from the block, and frees it at the end.
"""

from typing import Any

import numpy as np

from reorder.cpu.runtime.jit import compiled_interpreter, interpreter_at
from reorder.cpu.runtime.pool import WORDS, lasting_words
from reorder.cpu.runtime.worker import POOL
from reorder.cpu.schedule.batches import Batch
from reorder.cpu.schedule.operands import Operands
from reorder.cpu.schedule.tile_program import (
    LOCKS_AT,
    SCRATCH_NBYTES,
    SCRATCHES,
    SCRATCHES_AT,
    YIELD_AT,
    StageTypes,
)
from reorder.cpu.tables import WORD_NBYTES, Words
from reorder.forks import at_fork
from reorder.memory.buffers import address_of


def _free_all() -> None:
    """Free all scratches in a forked child, which lacks the threads that held them."""
    _BLOCK[LOCKS_AT // WORD_NBYTES : SCRATCHES_AT // WORD_NBYTES] = 0


# pages that were never written take no memory
_BLOCK = lasting_words(SCRATCHES_AT + SCRATCHES * SCRATCH_NBYTES)
_BLOCK[YIELD_AT] = WORDS[POOL.yield_at]
at_fork(lambda: None, lambda: None, _free_all)


def tile_interpreter_at() -> int:
    """Return the address of the interpreter of tiles."""
    return compiled_interpreter("interpreter of tiles", "reorder.cpu.kernels.tiles:emit_tiles")


def stage_at(types: StageTypes) -> int:
    """Return the address of a stage."""
    key = [types.operation.name.lower(), types.src, types.dst, types.work]
    if types.operands is not Operands.ONE:
        key.append(f"an operand for {types.operands.name.lower()}")
    key += ["non-temporal stores"] * types.streams
    key += [f"{types.prefetched_bits}-bit elements prefetched"] * (types.prefetched_bits > 0)
    name = f"stage: {', '.join(key)}"
    return compiled_interpreter(name, "reorder.cpu.kernels.stage:emit_stage", types)


def link(batch: Batch) -> Words:
    """Return the program of a batch of tiles with addresses; the batch must outlive it."""
    return np.array([*map(_word, batch.program)], np.int64)


def _word(word: Any) -> int:
    match word:
        case int():
            return word
        case np.ndarray():
            return address_of(word)
        case StageTypes():
            return stage_at(word)
        case None:
            return address_of(_BLOCK)
    return interpreter_at(word)
