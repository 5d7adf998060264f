"""Jobs that decode block-quantised tensors, with a compiled interpreter for each kernel."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from reorder.cpu.kernels.decode import DecodeHead, DecodeKernel, FieldHead, emit_decode
from reorder.cpu.machine import this_machine
from reorder.cpu.runtime.interpreters import compiled_interpreter
from reorder.cpu.runtime.job import make_job
from reorder.cpu.runtime.pool import run_on_pool
from reorder.cpu.schedule.partition import Workload, partition
from reorder.memory.buffers import address_of
from reorder.threads import checked_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reorder.cpu.schedule.record_pattern import Access

__all__ = ["decode"]

_NO_POINTS = np.zeros(1, np.int64)


def decode(
    access: Access,
    tensors: dict[str, NDArray[np.uint8]],
    dst: NDArray[np.uint8],
    dtype: str,
    threads: int | None,
) -> None:
    """Decode a record into row-major memory, as floats of a type.

    The tensors have the sizes that the descriptor needs, and dst has room for all elements of the
    record.
    """
    machine = this_machine()
    limit = machine.threads if threads is None else min(checked_threads(threads), machine.threads)
    interpreter = _interpreter_at(DecodeKernel(access.pattern, dtype))
    program = [*DecodeHead(access.blocks, address_of(access.starts))]
    for name, advance in zip(access.tensors, access.advances, strict=True):
        program += FieldHead(address_of(tensors[name]), advance)
    # the job has the address of this array
    words = np.array(program, np.int64)
    segments = len(access.starts)
    work = Workload(instruction=0, outer=segments, inner=1, grain=1, size=dst.nbytes)
    shares = partition([work], dst.nbytes, limit, machine)
    job = make_job(interpreter, address_of(words), shares, _NO_POINTS)
    run_on_pool(0, address_of(dst), job)


@cache
def _interpreter_at(kernel: DecodeKernel) -> int:
    # code on disk is found by this hash; Python's own differs between processes
    key = hashlib.sha256(repr(kernel).encode()).hexdigest()[:14]
    name = f"interpreter {key} of records of {len(kernel.pattern.fields)} fields to {kernel.dtype}"
    return compiled_interpreter(name, lambda call, _: emit_decode(call, kernel))
