"""Operations that numba lacks, as intrinsics: memory by address, atomics, calls by address.

Operations on memory take an address and the index of an int64 from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from reorder.cpu.kernels.emit import I64, int64_pointer, load_int64
from reorder.cpu.kernels.walk import WalkerCall
from reorder.cpu.tables import WORD_NBYTES
from reorder.cpu.target import is_arm, is_x86

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba.core.typing.templates import Signature

    from reorder.cpu.kernels.emit import Builder, Value

__all__ = [
    "WALKER",
    "call_c",
    "call_walker",
    "exchange_shared",
    "load_int",
    "load_relaxed",
    "load_shared",
    "pause",
    "stack_address",
    "store_int",
    "store_relaxed",
    "store_shared",
]

# The operand of ARM's `isb`: the whole system, the only one there is.
_ISB_SYSTEM = 15
# The signature of all compiled walkers and stages.
WALKER = numba.void(*[numba.int64] * len(WalkerCall._fields))


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def load_int(_context: Any, address: Any, index: Any) -> tuple[Signature, Any]:
    """Return an int64."""

    def build(_context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        return load_int64(builder, *args)

    return types.int64(types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def store_int(_context: Any, address: Any, index: Any, value: Any) -> tuple[Signature, Any]:
    """Write an int64."""

    def build(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        address, index, value = args
        builder.store(value, int64_pointer(builder, address, index))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def load_relaxed(_context: Any, address: Any, index: Any) -> tuple[Signature, Any]:
    """Return an int64 that another thread may write meanwhile; it orders nothing (relaxed)."""

    def build(_context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        return builder.load_atomic(int64_pointer(builder, *args), "monotonic", WORD_NBYTES)

    return types.int64(types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def store_relaxed(_context: Any, address: Any, index: Any, value: Any) -> tuple[Signature, Any]:
    """Write an int64 that another thread may read meanwhile; it orders nothing (relaxed)."""

    def build(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        address, index, value = args
        pointer = int64_pointer(builder, address, index)
        builder.store_atomic(value, pointer, "monotonic", WORD_NBYTES)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def load_shared(_context: Any, address: Any, index: Any) -> tuple[Signature, Any]:
    """Return an int64; what its writer wrote before it is visible (acquire)."""

    def build(_context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        return builder.load_atomic(int64_pointer(builder, *args), "acquire", WORD_NBYTES)

    return types.int64(types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def store_shared(_context: Any, address: Any, index: Any, value: Any) -> tuple[Signature, Any]:
    """Write an int64 after all earlier writes (release)."""

    def build(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        address, index, value = args
        pointer = int64_pointer(builder, address, index)
        builder.store_atomic(value, pointer, "release", WORD_NBYTES)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def exchange_shared(
    _context: Any, address: Any, index: Any, expected: Any, value: Any
) -> tuple[Signature, Any]:
    """Compare and exchange an int64 atomically; returns whether it was as expected."""

    def build(_context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        address, index, expected, value = args
        pointer = int64_pointer(builder, address, index)
        exchanged = builder.cmpxchg(pointer, expected, value, "seq_cst", "seq_cst")
        return builder.extract_value(exchanged, 1)

    return types.boolean(types.int64, types.int64, types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def pause(_context: Any) -> tuple[Signature, Any]:
    """Let a core that spins rest for some cycles, if it has an instruction for that."""

    def build(context: Any, builder: Builder, _signature: Any, _args: Sequence[Value]) -> Value:
        if is_x86():
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(
                cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), []
            )
        elif is_arm():
            kind = ir.FunctionType(ir.VoidType(), [ir.IntType(32)])
            # `yield` does nothing on cores of one thread; a barrier of instructions takes as long
            # as x86's pause
            builder.call(
                cgutils.get_or_insert_function(builder.module, kind, "llvm.aarch64.isb"),
                [ir.IntType(32)(_ISB_SYSTEM)],
            )
        return context.get_dummy_value()

    return types.void(), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def stack_address(_context: Any) -> tuple[Signature, Any]:
    """Return an address on the stack of this thread."""

    def build(_context: Any, builder: Builder, _signature: Any, _args: Sequence[Value]) -> Value:
        return builder.ptrtoint(cgutils.alloca_once(builder, I64), I64)

    return types.int64(), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def call_c(_context: Any, address: Any, values: Any) -> tuple[Signature, Any]:
    """Call the C function at an address with a tuple of integers or addresses.

    A function with fewer parameters ignores the others. The result of one that returns a C int is
    its low half; that of one that returns nothing has no meaning.
    """

    def build(_context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        address, values = args
        arguments = cgutils.unpack_tuple(builder, values)
        kind = ir.FunctionType(I64, [I64] * len(arguments))
        return builder.call(builder.inttoptr(address, kind.as_pointer()), arguments)

    return types.int64(types.int64, types.UniTuple(types.int64, len(values))), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def call_walker(_context: Any, address: Any, call: Any) -> tuple[Signature, Any]:
    """Call the compiled walker at an address with a `WalkerCall`."""

    def build(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        address, call = args
        arguments = cgutils.unpack_tuple(builder, call)
        function = ir.FunctionType(ir.VoidType(), [I64] * len(arguments))
        builder.call(builder.inttoptr(address, function.as_pointer()), arguments)
        return context.get_dummy_value()

    return types.void(types.int64, call), build
