"""Compile interpreters of programs: C functions with the parameters of `InterpreterCall`.

A job has the address of its interpreter, so that the code of the pool is compiled once, not for
each interpreter.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, TypeAlias

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from reorder.cpu.kernels.boxes import emit_boxes
from reorder.cpu.kernels.emit import Builder, Number, Value
from reorder.cpu.kernels.interpreter import InterpreterCall
from reorder.cpu.runtime.intrinsics import INTERPRETER
from reorder.cpu.runtime.jit import compile_callback

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numba.core.typing.templates import Signature

    from reorder.cpu.schedule.select import Kernel

# What emits the body of an interpreter: it takes its parameters, and numba's context.
_Emit: TypeAlias = "Callable[[InterpreterCall, Any], None]"

# by the number that stands for each in compiled code and in the files of the cache
_emitters: dict[int, _Emit] = {}
# addresses of compiled interpreters, by name
_addresses: dict[str, int] = {}


def compiled_interpreter(name: str, emit: _Emit) -> int:
    """Return the address of an interpreter whose body `emit` writes, compiled or loaded once.

    The name identifies the code, on disk too.
    """
    if name in _addresses:
        return _addresses[name]
    # Python's own hashes differ between processes
    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7])
    _emitters[key] = emit

    def interpret(  # noqa: PLR0913, PLR0917 - `InterpreterCall` as a C signature
        src_at: int,
        dst_at: int,
        program: int,
        ranges: int,
        begin: int,
        end: int,
        points: int,
        point_count: int,
    ) -> None:
        _run((src_at, dst_at, program, ranges, begin, end, points, point_count), key)

    # numba names the files of the cache after `__qualname__`
    interpret.__qualname__ = f"interpreter_{key:x}"
    _addresses[name] = int(compile_callback(interpret, INTERPRETER, name).address)
    return _addresses[name]


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator] # numba ships no types
def _run(_context: Any, call: Any, key: Any) -> tuple[Signature, Any]:
    """Emit the body of an interpreter; its key is a constant in compiled code."""
    emit = _emitters[key.literal_value]

    def build(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        values = cgutils.unpack_tuple(builder, args[0])
        emit(InterpreterCall(*(Number(builder, value) for value in values)), context)
        return context.get_dummy_value()

    return types.void(call, key), build


def interpreter_at(kernel: Kernel) -> int:
    """Return the address of the compiled interpreter of boxes whose elements a kernel moves."""
    return compiled_interpreter(
        f"interpreter of {kernel}", lambda call, _: emit_boxes(call, kernel)
    )
