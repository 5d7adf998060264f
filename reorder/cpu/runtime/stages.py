"""Compiled stages, the interpreter of tiles that calls them, and programs with their addresses.

A conversion is compiled for a pair of a type and a working type, arithmetic for a working type and
the types that it loads and stores. A stage is an interpreter whose program is a table, and whose
point is a `Placement`, so the interpreter of tiles calls steps of any kind alike.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from reorder.cpu.runtime.interpreters import compiled_interpreter, interpreter_at
from reorder.cpu.runtime.intrinsics import load_int, run_tiles
from reorder.cpu.runtime.jit import compiled_at
from reorder.cpu.runtime.scratch import SCRATCH_BLOCK, free_scratch, slots_of, take_scratch
from reorder.cpu.schedule.batches import Batch
from reorder.cpu.schedule.tile_program import TILES, StageTypes, TilesHead
from reorder.cpu.tables import Words, nbytes_of
from reorder.memory.buffers import address_of

_HEAD_NBYTES = nbytes_of(TilesHead)


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
    number = take_scratch(block)
    first = program + _HEAD_NBYTES
    call = (src_at, dst_at, first, ranges, begin, end, points, point_count)
    run_tiles(call, slots_of(block, number))
    free_scratch(block, number)


def stage_at(types: StageTypes) -> int:
    """Return the address of a stage."""
    key = ["combine" if types.computes else "convert", types.src, types.dst, types.work]
    key += ["non-temporal stores"] * types.streams
    name = f"stage: {', '.join(key)}"
    return compiled_interpreter(name, _load_stage, types)


def _load_stage() -> Callable[..., None]:
    from reorder.cpu.kernels.stage import emit_stage

    return emit_stage


def link(batch: Batch) -> Words:
    """Return the program of a batch of tiles with addresses; the batch must outlive it."""
    program = np.array([*map(_word, batch.program)], np.int64)
    program[TILES.scratch_block] = SCRATCH_BLOCK
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
