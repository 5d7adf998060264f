"""Write the addresses of compiled code and of arrays into the program of tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reorder.cpu.runtime.interpreters import interpreter_at
from reorder.cpu.runtime.scratch import SCRATCH_BLOCK
from reorder.cpu.runtime.stages import stage_at
from reorder.cpu.schedule.tile_program import TILES, StageTypes
from reorder.memory.buffers import address_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reorder.cpu.schedule.batches import Batch


def link(batch: Batch) -> NDArray[np.int64]:
    """Return the program of a batch of tiles with addresses; the batch must outlive it."""
    program = batch.program.copy()
    program[TILES.scratch_block] = SCRATCH_BLOCK
    for word, target in batch.relocations:
        program[word] = _address_of(target)
    return program


def _address_of(target: Any) -> int:
    match target:
        case np.ndarray():
            return address_of(target)
        case StageTypes():
            return stage_at(target)
    return interpreter_at(target)
