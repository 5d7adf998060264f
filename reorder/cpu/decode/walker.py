"""The compiled walkers that decode records, one for each kernel, and the jobs that run them."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from reorder.cpu.decode.kernel import DecodeHead, DecodeKernel, FieldHead, emit_decode
from reorder.cpu.kernels.walk import WalkerCall
from reorder.cpu.runtime.intrinsics import WALKER
from reorder.cpu.runtime.jit import compile_callback
from reorder.cpu.runtime.job import make_job
from reorder.cpu.runtime.pool import run_on_pool
from reorder.cpu.schedule.partition import Workload, partition
from reorder.cpu.target import this_machine
from reorder.memory.buffers import address_of
from reorder.threads import checked_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numba.core.typing.templates import Signature
    from numpy.typing import NDArray

    from reorder.cpu.decode.pattern import Access
    from reorder.cpu.kernels.emit import Builder, Value

__all__ = ["decode"]

_NO_POINTS = np.zeros(1, np.int64)

# Kernels by a number that names them in compiled code and in its files.
_kernels: dict[int, DecodeKernel] = {}


def decode(
    access: Access,
    tensors: dict[str, NDArray[np.uint8]],
    dst: NDArray[np.uint8],
    dtype: str,
    threads: int | None,
) -> None:
    """Decode a record into row-major memory.

    Parameters
    ----------
    access : Access
        Where its fields are.
    tensors : dict of str to ndarray of uint8
        Its tensors, of the sizes that its descriptor needs.
    dst : ndarray of uint8
        What is written; as many elements as the record has.
    dtype : str
        The float type to write.
    threads : int, optional
        At most this many threads.
    """
    machine = this_machine()
    limit = machine.threads if threads is None else min(checked_threads(threads), machine.threads)
    walker = int(_compiled(DecodeKernel(access.pattern, dtype)).address)
    program = [*DecodeHead(access.blocks, address_of(access.starts))]
    for name, advance in zip(access.tensors, access.advances, strict=True):
        program += FieldHead(address_of(tensors[name]), advance)
    # the job has the address of this array
    words = np.array(program, np.int64)
    segments = len(access.starts)
    work = Workload(record=0, outer=segments, inner=1, grain=1, size=dst.nbytes)
    shares = partition([work], dst.nbytes, limit, machine)
    job = make_job(walker, address_of(words), shares, _NO_POINTS)
    run_on_pool(0, address_of(dst), job)


@cache
def _compiled(kernel: DecodeKernel) -> Any:
    # a hash of Python differs between processes, and files are found by this number
    key = int.from_bytes(hashlib.sha256(repr(kernel).encode()).digest()[:7])
    _kernels[key] = kernel
    name = f"walker {key:x} of records of {len(kernel.pattern.fields)} fields to {kernel.dtype}"
    return compile_callback(_walker(key), WALKER, name)


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator] # numba ships no types
def _walk_records(_context: Any, call: Any, key: Any) -> tuple[Signature, Any]:
    """Walk records; the kernel is known when it is compiled."""
    kernel = _kernels[key.literal_value]

    def build(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        emit_decode(builder, WalkerCall(*cgutils.unpack_tuple(builder, args[0])), kernel)
        return context.get_dummy_value()

    return types.void(call, key), build


def _walker(key: int) -> Callable[..., None]:
    """Return the walker of one kernel, to be compiled."""

    def walk(  # noqa: PLR0913, PLR0917 - `WalkerCall` as a C signature
        src_at: int,
        dst_at: int,
        program: int,
        tasks: int,
        begin: int,
        end: int,
        points: int,
        point_count: int,
    ) -> None:
        call = (src_at, dst_at, program, tasks, begin, end, points, point_count)
        _walk_records(call, key)

    return walk
