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

from reorder.cpu.kernels.emit import I64, Builder, Number, Value, call, int64_pointer, stack_space
from reorder.cpu.kernels.interpreter import InterpreterCall, emit_call
from reorder.cpu.tables import WORD_NBYTES
from reorder.cpu.target import is_arm, is_x86

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba.core.typing.templates import Signature


_PAUSE = "llvm.x86.sse2.pause"
# The operand of ARM's `isb`: the whole system, the only one there is.
_ISB_SYSTEM = ir.IntType(32)(15)
# The signature of all compiled interpreters and stages.
INTERPRETER = numba.void(*[numba.int64] * len(InterpreterCall._fields))


def _pointer(builder: Builder, address: Value, index: Value) -> Value:
    return int64_pointer(Number(builder, address), index).raw


def _load(order: str | None) -> Any:
    """Return the intrinsic that loads an int64, atomically if there is an order of LLVM."""

    @intrinsic  # type: ignore[untyped-decorator] # numba ships no types
    def load(_context: Any, address: Any, index: Any) -> tuple[Signature, Any]:
        def build(_context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
            pointer = _pointer(builder, *args)
            return (
                builder.load_atomic(pointer, order, WORD_NBYTES) if order else builder.load(pointer)
            )

        return types.int64(types.int64, types.int64), build

    return load


def _store(order: str | None) -> Any:
    """Return the intrinsic that stores an int64, atomically if there is an order of LLVM."""

    @intrinsic  # type: ignore[untyped-decorator] # numba ships no types
    def store(_context: Any, address: Any, index: Any, value: Any) -> tuple[Signature, Any]:
        def build(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
            *place, value = args
            pointer = _pointer(builder, *place)
            if order:
                builder.store_atomic(value, pointer, order, WORD_NBYTES)
            else:
                builder.store(value, pointer)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), build

    return store


load_int, store_int = _load(None), _store(None)
# For words that other threads use at the same time. These two order nothing (relaxed in C11);
load_relaxed, store_relaxed = _load("monotonic"), _store("monotonic")
# these do: what is written before a store (release) is visible after the load of it (acquire).
load_shared, store_shared = _load("acquire"), _store("release")


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def exchange_shared(
    _context: Any, address: Any, index: Any, expected: Any, value: Any
) -> tuple[Signature, Any]:
    """Compare and exchange an int64 atomically; returns whether it had the expected value."""

    def build(_context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        address, index, expected, value = args
        pointer = _pointer(builder, address, index)
        exchanged = builder.cmpxchg(pointer, expected, value, "seq_cst", "seq_cst")
        return builder.extract_value(exchanged, 1)

    return types.boolean(types.int64, types.int64, types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def pause(_context: Any) -> tuple[Signature, Any]:
    """Let a core that spins rest for some cycles, if it has an instruction for that."""

    def build(context: Any, builder: Builder, _signature: Any, _args: Sequence[Value]) -> Value:
        # on ARM `yield` does nothing on cores of one thread; an instruction barrier takes as long
        # as x86's pause
        name, arguments = ("llvm.aarch64.isb", [_ISB_SYSTEM]) if is_arm() else (_PAUSE, [])
        if is_arm() or is_x86():
            call(builder, name, ir.VoidType(), *arguments)
        return context.get_dummy_value()

    return types.void(), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def stack_address(_context: Any) -> tuple[Signature, Any]:
    """Return an address on the stack of this thread."""

    def build(_context: Any, builder: Builder, _signature: Any, _args: Sequence[Value]) -> Value:
        return stack_space(builder, I64, 1).raw

    return types.int64(), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def call_c(_context: Any, address: Any, values: Any) -> tuple[Signature, Any]:
    """Call the C function at an address with a tuple of integers or addresses.

    A function with fewer parameters ignores the rest. If it returns a C int, that is the low half
    of the result; if it returns nothing, the result has no meaning.
    """

    def build(_context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        address, values = args
        arguments = cgutils.unpack_tuple(builder, values)
        kind = ir.FunctionType(I64, [I64] * len(arguments))
        return builder.call(builder.inttoptr(address, kind.as_pointer()), arguments)

    return types.int64(types.int64, types.UniTuple(types.int64, len(values))), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def call_interpreter(_context: Any, address: Any, call: Any) -> tuple[Signature, Any]:
    """Call the compiled interpreter at an address with an `InterpreterCall`."""

    def build(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        address, *values = (
            Number(builder, each) for each in (args[0], *cgutils.unpack_tuple(builder, args[1]))
        )
        emit_call(address, InterpreterCall(*values))
        return context.get_dummy_value()

    return types.void(types.int64, call), build
