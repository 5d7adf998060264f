"""Jobs that decode block-quantised tensors, with an interpreter for each kernel."""

from functools import cache, lru_cache

import numpy as np

from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from reorder.cpu.decoding.pattern import DecodeHead, DecodeKernel, FieldHead, PlacedPattern
from reorder.cpu.host import this_machine
from reorder.cpu.machine import LINE_NBYTES, Machine
from reorder.cpu.runtime.jit import compiled_interpreter
from reorder.cpu.runtime.pool import make_job, run_job
from reorder.cpu.schedule.partition import Partition, Workload, partition
from reorder.cpu.tables import Array
from reorder.memory.buffers import address_of
from reorder.threads import checked_threads

Tensors = dict[str, Array]


def decode(
    placed: PlacedPattern,
    tensors: Tensors,
    dst: Array,
    dtype: str,
    threads: int | None,
    machine: Machine | None = None,
) -> None:
    """Decode a record, whose tensors and dst have the right sizes, into row-major floats."""
    machine = this_machine() if machine is None else machine
    limit = machine.threads
    limit = limit if threads is None else min(checked_threads(threads), limit)
    kernel = choose_kernel(placed, dtype, address_of(dst), limit, machine)
    program = [*DecodeHead(placed.blocks, address_of(placed.starts))]
    for name, advance in zip(placed.tensors, placed.advances, strict=True):
        program += FieldHead(address_of(tensors[name]), advance)
    # the job has the address of this array
    words = np.array(program, np.int64)
    # how threads share the segments of the record
    shares = _partition(len(placed.starts), _result_nbytes(placed, dtype), limit, machine)
    job, _ = make_job(decoder_at(kernel), words, shares)
    run_job(0, address_of(dst), job)


def choose_kernel(
    placed: PlacedPattern, dtype: str, dst_at: int, threads: int, machine: Machine
) -> DecodeKernel:
    """Return the kernel that decodes a record into memory at an address."""
    kernel = DecodeKernel(placed.pattern, dtype)
    nbytes = placed.nbytes + _result_nbytes(placed, dtype)
    is_aligned = kernel.fills_lines and dst_at % LINE_NBYTES == 0
    return kernel._replace(streams=is_aligned and machine.streams(nbytes, threads))


def _result_nbytes(placed: PlacedPattern, dtype: str) -> int:
    elements = len(placed.starts) * placed.blocks * placed.pattern.block
    return elements * DATA_TYPES[dtype].bits // BYTE_BITS


@lru_cache(maxsize=256)  # the tensors of a model have few sizes
def _partition(segments: int, nbytes: int, limit: int, machine: Machine) -> Partition:
    work = Workload(instruction=0, outer=segments, inner=1, grain=1, size=nbytes)
    return partition([work], nbytes, limit, machine)


@cache
def decoder_at(kernel: DecodeKernel) -> int:
    """Return the address of the compiled interpreter of a kernel."""
    key, count = kernel.pattern.key, len(kernel.pattern.fields)
    name = f"interpreter {key} of records of {count} fields to {kernel.dtype}"
    name += ", non-temporal stores" * kernel.streams
    return compiled_interpreter(name, "reorder.cpu.decoding.kernel:emit_decode", kernel)
