"""Compile LLVM's text of a kernel to an object file. Imported when a kernel has no file yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any

from llvmlite import binding, ir

from reorder.cpu.llvm.emit import I64, Builder, Number
from reorder.cpu.runtime.machine_code import target_machine

if TYPE_CHECKING:
    from reorder.cpu.llvm.emit import Value


class Effort(Enum):
    """How much LLVM optimises, and how much effort it spends on generating code.

    Interpreters that only move elements are as fast with five passes and quick code generation,
    which take two fifths of the time. Without any passes they run at 0.6 of their speed. Other
    kernels need all passes: with these five, conversions of bf16 to f32 run at 0.86 of their speed.
    """

    MOVES = 1
    FULL = 3


def text_of(emit: Callable[..., None], parameters: int, symbol: str) -> str:
    """Return LLVM's text of a C function of int64; `emit` takes its parameters as numbers."""
    module = ir.Module()
    kind = ir.FunctionType(ir.VoidType(), [I64] * parameters)
    function = ir.Function(module, kind, symbol)
    function.attributes.add("nounwind")
    builder = Builder(function.append_basic_block("entry"))
    arguments: list[Value] = [Number(builder, argument) for argument in function.args]
    emit(*arguments)
    builder.ret_void()
    return str(module)


def compile_text(text: str, symbol: str, effort: Effort) -> bytes:
    """Return the object file of LLVM's text, in which only one function can be called."""
    machine = target_machine(effort.value)
    module = binding.parse_assembly("\n".join(_inlined(text, symbol)))
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    for function in module.functions:
        if not function.is_declaration and function.name != symbol:
            function.linkage = "internal"
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
    options = binding.create_pipeline_tuning_options(speed_level=effort.value)
    passes = binding.create_pass_builder(machine, options)
    _passes(passes, effort).run(module, passes)
    compiled: bytes = machine.emit_object(module)
    return compiled


def _inlined(text: str, symbol: str) -> Iterator[str]:
    """Yield the lines of LLVM's text, in which all functions but one become part of their callers.

    llvmlite 0.45 adds attributes of functions to their results.
    """
    for line in text.splitlines():
        if line.startswith("define ") and _defined(line) != symbol:
            yield line.removesuffix("{") + "alwaysinline {"
        else:
            yield line


def _defined(line: str) -> str:
    """Return the name of the function that a line of LLVM's text defines."""
    return line.partition("@")[2].partition("(")[0].strip('"')


def _passes(builder: Any, effort: Effort) -> Any:
    if effort is Effort.FULL:
        return builder.getModulePassManager()
    passes = binding.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_loop_rotate_pass()
    passes.add_jump_threading_pass()
    passes.add_simplify_cfg_pass()
    return passes
