"""Jobs that decode block-quantised tensors or compare them, with an interpreter for each kernel."""

from __future__ import annotations

import hashlib
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from memdesc import DATA_TYPES
from memdesc.dtypes import BYTE_BITS
from reorder.cpu.kernels.decode import DecodeHead, DecodeKernel, FieldHead, emit_decode
from reorder.cpu.machine import Machine, this_machine
from reorder.cpu.runtime.interpreters import compiled_interpreter
from reorder.cpu.runtime.job import make_job
from reorder.cpu.runtime.pool import run_job
from reorder.cpu.schedule.partition import Partition, Workload, partition
from reorder.cpu.target import LINE_NBYTES
from reorder.memory.buffers import address_of
from reorder.threads import checked_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reorder.cpu.schedule.record_pattern import Access

    Tensors = dict[str, NDArray[np.uint8]]


def decode(
    access: Access, tensors: Tensors, dst: NDArray[np.uint8], dtype: str, threads: int | None
) -> None:
    """Decode a record into row-major memory, as floats of a type.

    The tensors have the sizes that the descriptor needs, and dst has room for all elements of the
    record.
    """
    kernel = DecodeKernel(access.pattern, dtype)
    _run(kernel, access, tensors, (0, address_of(dst)), threads)


def differences(
    access: Access, tensors: Tensors, src: NDArray[np.uint8], dtype: str, threads: int | None
) -> NDArray[np.float32]:
    """Return how far a record is from row-major memory at most, for each segment.

    It is NaN where either has a NaN, or both have an infinity.
    """
    kernel = DecodeKernel(access.pattern, dtype, compares=True)
    found = np.empty((len(access.starts), kernel.lanes), np.float32)
    _run(kernel, access, tensors, (address_of(src), address_of(found)), threads)
    largest: NDArray[np.float32] = found.max(1)
    return largest


def _run(
    kernel: DecodeKernel,
    access: Access,
    tensors: Tensors,
    addresses: tuple[int, int],
    threads: int | None,
) -> None:
    """Run a kernel on all segments of a record; the addresses are those of src and dst."""
    machine = this_machine()
    limit = machine.threads if threads is None else min(checked_threads(threads), machine.threads)
    program = [*DecodeHead(access.blocks, address_of(access.starts))]
    for name, advance in zip(access.tensors, access.advances, strict=True):
        program += FieldHead(address_of(tensors[name]), advance)
    # the job has the address of this array
    words = np.array(program, np.int64)
    segments = len(access.starts)
    blocks, bits = segments * access.blocks, DATA_TYPES[kernel.dtype].bits
    nbytes = blocks * kernel.pattern.block * bits // BYTE_BITS
    if not kernel.compares and kernel.fills_lines and addresses[1] % LINE_NBYTES == 0:
        both = nbytes + blocks * sum(access.advances)
        kernel = kernel._replace(streams=machine.streams(both, limit))
    shares = _shares(segments, nbytes, limit, machine)
    job = make_job(decoder_at(kernel), address_of(words), shares)
    run_job(*addresses, job)


@lru_cache(maxsize=256)  # the tensors of a model have few sizes
def _shares(segments: int, nbytes: int, limit: int, machine: Machine) -> Partition:
    """Return how at most `limit` threads share the segments of a record."""
    work = Workload(instruction=0, outer=segments, inner=1, grain=1, size=nbytes)
    return partition([work], nbytes, limit, machine)


@cache
def decoder_at(kernel: DecodeKernel) -> int:
    """Return the address of the compiled interpreter of a kernel."""
    # code on disk is found by this hash; Python's own differs between processes
    key = hashlib.sha256(repr(kernel).encode()).hexdigest()[:14]
    how = "compared with" if kernel.compares else "to"
    count = len(kernel.pattern.fields)
    name = f"interpreter {key} of records of {count} fields {how} {kernel.dtype}"
    name += ", non-temporal stores" * kernel.streams
    return compiled_interpreter(name, lambda call, _: emit_decode(call, kernel))
