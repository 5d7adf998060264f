"""Compile interpreters of programs: C functions with the parameters of `InterpreterCall`.

A job has the address of its interpreter, so that the code of the pool is compiled once, not for
each interpreter.
"""

from importlib import import_module
from importlib.util import source_hash
from typing import Any

from reorder.cpu.runtime.jit import Kernel, kernel_at
from reorder.cpu.schedule.select import Kernel as MoveKernel


def compiled_interpreter(name: str, emits: str, *given: Any, moves: bool = False) -> int:
    """Return the address of an interpreter, compiled or loaded once by its name, on disk too.

    `emits` names the function that writes its body from an `InterpreterCall` and what is given, as
    ``module:function``: only a process without the code imports the module. With `moves` LLVM takes
    fewer passes, which suffices for code that computes nothing.
    """

    def text() -> tuple[str, str]:
        from reorder.cpu.kernels.interpreter import InterpreterCall
        from reorder.cpu.runtime.compiler import text_of

        module, _, function = emits.partition(":")
        emit = getattr(import_module(module), function)
        # no two functions that are loaded have the same name
        symbol = f"interpreter_{source_hash(name.encode()).hex()}"
        count = len(InterpreterCall._fields)
        written = text_of(lambda *call: emit(InterpreterCall(*call), *given), count, symbol)
        return written, symbol

    return kernel_at(Kernel(name, text, moves))


def interpreter_at(kernel: MoveKernel) -> int:
    """Return the address of the compiled interpreter of boxes whose elements a kernel moves."""
    emits = "reorder.cpu.kernels.boxes:emit_boxes"
    return compiled_interpreter(f"interpreter of {kernel}", emits, kernel, moves=True)
