"""Sums of int8 elements over some dims: a second pass over the elements that a reorder stored."""

from collections.abc import Callable

import numpy as np

from memdesc import MemoryDesc
from reorder.cpu.runtime.interpreters import compiled_interpreter
from reorder.cpu.runtime.job import make_job
from reorder.cpu.runtime.pool import run_job
from reorder.cpu.schedule.reduction import reduce_dims
from reorder.cpu.tables import Array
from reorder.memory.buffers import address_of


class Sums:
    """Sums of the elements of a descriptor, prepared for many calls."""

    def __init__(self, desc: MemoryDesc, mask: int, threads: int) -> None:
        # the job has addresses of its arrays
        self._reduction = reduction = reduce_dims(desc, mask, threads)
        program = address_of(reduction.program)
        name = "interpreter of sums of 8-bit elements"
        interpreter = compiled_interpreter(name, _load_reduction)
        self._job = make_job(interpreter, program, reduction.partition)
        self._offset = desc.offset0

    def __call__(self, address: int) -> Array:
        """Return the sums of a buffer, over padded indices of the dims that are kept."""
        sums = np.zeros(self._reduction.shape, np.int32)
        run_job(address + self._offset, address_of(sums), self._job)
        return sums


def _load_reduction() -> Callable[..., None]:
    from reorder.cpu.kernels.reduce import emit_reduction

    return emit_reduction
