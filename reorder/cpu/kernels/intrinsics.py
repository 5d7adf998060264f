"""The instructions of the functions in `runtime/intrinsics.py`, each named after its function."""

from llvmlite import ir

from reorder.cpu.kernels.interpreter import InterpreterCall, emit_call
from reorder.cpu.llvm.emit import I64, Builder, IRValue, Value, call, int64_pointer, stack_space
from reorder.cpu.tables import WORD_NBYTES
from reorder.system import is_arm, is_x86

_PAUSE = "llvm.x86.sse2.pause"
# The operand of ARM's `isb`: the whole system, the only one there is.
_ISB_SYSTEM = ir.IntType(32)(15)


def _load_int(_: Builder, address: IRValue, index: IRValue) -> IRValue:
    return address[index]


def _store_int(_: Builder, address: IRValue, index: IRValue, value: IRValue) -> None:
    address[index] = value


def _load_shared(builder: Builder, address: IRValue, index: IRValue) -> IRValue:
    pointer = int64_pointer(address, index).raw
    return IRValue(builder, builder.load_atomic(pointer, "acquire", WORD_NBYTES))


def _store_shared(builder: Builder, address: IRValue, index: IRValue, value: IRValue) -> None:
    pointer = int64_pointer(address, index).raw
    builder.store_atomic(value.raw, pointer, "release", WORD_NBYTES)


def _exchange_shared(
    builder: Builder, address: IRValue, index: IRValue, expected: IRValue, value: IRValue
) -> IRValue:
    pointer = int64_pointer(address, index).raw
    exchanged = builder.cmpxchg(pointer, expected.raw, value.raw, "seq_cst", "seq_cst")
    return IRValue(builder, builder.extract_value(exchanged, 1))


def _pause(builder: Builder) -> None:
    # on ARM `yield` does nothing on cores of one thread; an instruction barrier takes as long
    # as x86's pause
    name, arguments = ("llvm.aarch64.isb", [_ISB_SYSTEM]) if is_arm() else (_PAUSE, [])
    if is_arm() or is_x86():
        call(builder, name, ir.VoidType(), *arguments)


def _stack_address(builder: Builder) -> Value:
    return stack_space(builder, I64, 1)


def _call_c(builder: Builder, address: IRValue, values: list[IRValue]) -> IRValue:
    signature = ir.FunctionType(I64, [I64] * len(values))
    function = builder.inttoptr(address.raw, signature.as_pointer())
    return IRValue(builder, builder.call(function, [value.raw for value in values]))


def _call_interpreter(_: Builder, address: IRValue, values: list[IRValue]) -> None:
    emit_call(address, InterpreterCall(*values))
