"""The compiled walkers of boxes, one for each kernel, as C functions.

A job has the address of its walker, so that the code of the pool is compiled once, not for each
walker.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from reorder.cpu.kernels.box import emit_walk
from reorder.cpu.kernels.walk import WalkerCall
from reorder.cpu.runtime.intrinsics import WALKER
from reorder.cpu.runtime.jit import compile_callback
from reorder.cpu.schedule.kernel import Kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numba.core.typing.templates import Signature

    from reorder.cpu.kernels.emit import Builder, Value

__all__ = ["walker_at"]


def walker_at(kernel: Kernel) -> int:
    """Return the address of the compiled walker of boxes whose elements a kernel moves."""
    return int(_compiled(kernel).address)


@cache
def _compiled(kernel: Kernel) -> Any:
    return compile_callback(_walker(kernel), WALKER, f"walker of {kernel}")


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator] # numba ships no types
def _walk_boxes(_context: Any, call: Any, bits: Any, streams: Any) -> tuple[Signature, Any]:
    """Walk boxes; the fields of the kernel are known when it is compiled."""
    kernel = Kernel(bits.literal_value, bool(streams.literal_value))

    def build(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        emit_walk(builder, WalkerCall(*cgutils.unpack_tuple(builder, args[0])), kernel)
        return context.get_dummy_value()

    return types.void(call, bits, streams), build


def _walker(kernel: Kernel) -> Callable[..., None]:
    """Return the walker of one kernel, to be compiled."""
    bits, streams = kernel.bits, int(kernel.streams)

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
        _walk_boxes(call, bits, streams)

    return walk
