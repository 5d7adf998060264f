"""Compile interpreters of programs: C functions with the parameters of `InterpreterCall`.

A job has the address of its interpreter, so that the code of the pool is compiled once, not for
each interpreter.
"""

from __future__ import annotations

from importlib.util import source_hash
from typing import TYPE_CHECKING

from reorder.cpu.runtime.jit import Kernel, kernel_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from reorder.cpu.kernels.interpreter import InterpreterCall
    from reorder.cpu.schedule.select import Kernel as MoveKernel


def compiled_interpreter(
    name: str, emit: Callable[[InterpreterCall], None], *, moves: bool = False
) -> int:
    """Return the address of an interpreter whose body `emit` writes, compiled or loaded once.

    The name identifies the code, on disk too. `emit` is called only if there is no code; it imports
    the kernels that it emits, so that a process that finds all its code does not load them. With
    `moves` LLVM takes fewer passes, which suffices for code that computes nothing.
    """

    def text() -> tuple[str, str]:
        from reorder.cpu.kernels.interpreter import InterpreterCall
        from reorder.cpu.runtime.compiler import text_of

        # no two functions that are loaded have the same name
        symbol = f"interpreter_{source_hash(name.encode()).hex()}"
        count = len(InterpreterCall._fields)
        return text_of(lambda *given: emit(InterpreterCall(*given)), count, symbol), symbol

    return kernel_at(Kernel(name, text, moves))


def interpreter_at(kernel: MoveKernel) -> int:
    """Return the address of the compiled interpreter of boxes whose elements a kernel moves."""

    def emit(call: InterpreterCall) -> None:
        from reorder.cpu.kernels.boxes import emit_boxes

        emit_boxes(call, kernel)

    return compiled_interpreter(f"interpreter of {kernel}", emit, moves=True)
