"""The few operations that the walker needs beside plain Python, as numba intrinsics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from reorder.cpu.emit import I64, Elements, Loop, int64
from reorder.cpu.program import HEAD, LOOP, RUN, TRANSPOSED
from reorder.cpu.run import emit_run
from reorder.cpu.strided import emit_strided
from reorder.cpu.transpose import emit_transposed

if TYPE_CHECKING:
    from numba.core.typing.templates import Signature

__all__ = ["counters", "load_int", "run_inner", "store_int"]

# Loops of one step are dropped, and the product of the others fits 63 bits.
_MAX_LOOPS = 64


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def run_inner(
    _context: Any, src_at: Any, dst_at: Any, src: Any, dst: Any, box: Any, first: Any, last: Any, is_valid: Any, unit: Any
) -> tuple[Signature, Any]:
    """Run the innermost loops of a box at one place, the first of them from `first` to `last`."""

    def build(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        src_at, dst_at, src, dst, box, first, last, is_valid, _ = args
        elements = Elements(builder, unit)

        def read(index: Any) -> Any:
            return builder.load(builder.gep(builder.inttoptr(box, I64.as_pointer()), [index]))

        kernel, loops, inner = read(int64(0)), read(int64(3)), read(int64(4))
        at = builder.add(int64(HEAD), builder.mul(int64(LOOP), builder.sub(loops, inner)))

        def clamp(value: Any, low: Any, high: Any) -> Any:
            value = builder.select(builder.icmp_signed("<", value, low), low, value)
            return builder.select(builder.icmp_signed(">", value, high), high, value)

        extent = builder.sub(last, first)
        valid = clamp(builder.sub(read(builder.add(at, int64(1))), first), int64(0), extent)
        valid = builder.select(is_valid, valid, int64(0))
        node = Loop(extent, valid, read(builder.add(at, int64(2))), read(builder.add(at, int64(3))))
        places = (src_at, src), (dst_at, dst)
        is_run = builder.icmp_signed("==", kernel, int64(RUN))
        with builder.if_else(is_run) as (then, otherwise):
            with then:
                emit_run(elements, *places, extent, valid)
            with otherwise:
                is_transposed = builder.icmp_signed("==", kernel, int64(TRANSPOSED))
                with builder.if_else(is_transposed) as (then_transposed, then_strided):
                    with then_transposed:
                        columns = Loop(*(read(builder.add(at, int64(LOOP + k))) for k in range(LOOP)))
                        emit_transposed(elements, *places, node, columns)
                    with then_strided:
                        emit_strided(elements, *places, node)
        return _context.get_dummy_value()

    index = types.int64
    return types.void(index, index, index, index, index, index, index, types.boolean, unit), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def load_int(_context: Any, address: Any, index: Any) -> tuple[Signature, Any]:
    """Return the int64 at an index from an address."""

    def build(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.load(builder.gep(builder.inttoptr(args[0], I64.as_pointer()), [args[1]]))

    return types.int64(types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def store_int(_context: Any, address: Any, index: Any, value: Any) -> tuple[Signature, Any]:
    """Write an int64 at an index from an address."""

    def build(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        builder.store(args[2], builder.gep(builder.inttoptr(args[0], I64.as_pointer()), [args[1]]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def counters(_context: Any) -> tuple[Signature, Any]:
    """Return the address of 64 int64 on the stack of the calling kernel."""

    def build(_context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        return builder.ptrtoint(cgutils.alloca_once(builder, I64, size=_MAX_LOOPS), I64)

    return types.int64(), build
