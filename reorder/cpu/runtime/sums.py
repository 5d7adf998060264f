"""Sums of int8 elements over some dims: a second pass over the elements that a reorder stored."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from reorder.cpu.kernels.reduce import emit_reduction
from reorder.cpu.kernels.walk import WalkerCall
from reorder.cpu.runtime.intrinsics import WALKER
from reorder.cpu.runtime.jit import compile_callback
from reorder.cpu.runtime.job import make_job
from reorder.cpu.runtime.pool import run_on_pool
from reorder.cpu.schedule.reduction import reduce_dims
from reorder.memory.buffers import address_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba.core.typing.templates import Signature
    from numpy.typing import NDArray

    from memdesc import MemoryDesc
    from reorder.cpu.kernels.emit import Builder, Value

__all__ = ["Sums"]

_NO_POINTS = np.zeros(1, np.int64)


class Sums:
    """Sums of the elements of a descriptor, prepared for many calls."""

    def __init__(self, desc: MemoryDesc, mask: int, threads: int) -> None:
        # the job has addresses of its arrays
        self._reduction = reduction = reduce_dims(desc, mask, threads)
        program = address_of(reduction.program)
        walker = int(_compiled().address)
        self._job = make_job(walker, program, reduction.partition, _NO_POINTS)
        self._offset = desc.offset0

    def __call__(self, address: int) -> NDArray[np.int32]:
        """Return the sums of a buffer, over padded indices of the dims that are kept."""
        sums = np.zeros(self._reduction.shape, np.int32)
        run_on_pool(address + self._offset, address_of(sums), self._job)
        return sums


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def _walk_reduction(_context: Any, call: Any) -> tuple[Signature, Any]:
    """Walk reductions."""

    def build(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        emit_reduction(builder, WalkerCall(*cgutils.unpack_tuple(builder, args[0])))
        return context.get_dummy_value()

    return types.void(call), build


@cache
def _compiled() -> Any:
    return compile_callback(_walk, WALKER, "walker of sums of 8-bit elements")


def _walk(  # noqa: PLR0913, PLR0917 - `WalkerCall` as a C signature
    src_at: int,
    dst_at: int,
    program: int,
    tasks: int,
    begin: int,
    end: int,
    points: int,
    point_count: int,
) -> None:
    _walk_reduction((src_at, dst_at, program, tasks, begin, end, points, point_count))
