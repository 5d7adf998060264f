"""Compile LLVM's text of a kernel to an object file. Imported when a kernel has no file yet.

LLVM holds a lock during every call, and a fork waits for it. That lock is not part of llvmlite's
public API, which has callbacks that report when it is held, but no way to hold it.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite
from llvmlite import binding, ir

from memdesc.errors import MemdescError
from reorder.cpu.llvm.emit import I64, Builder, IRValue, Value
from reorder.cpu.runtime.machine_code import RUNS_IMAGES
from reorder.cpu.target import processor
from reorder.forks import at_fork
from reorder.system import is_x86

try:
    _llvm_lock: Any = binding.ffi.lib._lock._lock  # noqa: SLF001 - see above
except AttributeError as error:
    raise MemdescError(
        f"kernels cannot be compiled by llvmlite {llvmlite.__version__}: {error}; install a "
        "version that memdesc knows: pip install 'llvmlite>=0.45,<0.51'"
    ) from error


# How much LLVM optimises, and how much effort it spends on generating code. Interpreters that only
# move elements are as fast with four passes and quick code generation, which take two fifths of the
# time; without any passes they run at 0.6 times that speed. Other kernels need all passes: with
# only these four, conversions of bf16 to f32 run at 0.86 times their speed.
_MOVES, _FULL = 1, 3


@cache
def _target_machine(level: int) -> Any:
    """Return LLVM's description of the processor, which generates code with a level of effort."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    triple = binding.get_process_triple()
    chosen = processor()
    return binding.Target.from_triple(triple).create_target_machine(
        cpu=chosen.name,
        features=chosen.features,
        opt=level,
        reloc="pic" if RUNS_IMAGES else "static" if is_x86() else "default",
        codemodel="small" if RUNS_IMAGES else "jitdefault",
        jit=True,
    )


def load_object(compiled: bytes, symbol: str) -> int:
    """Load an object file for the rest of the process; return the address of a function in it."""
    engine = _engine()
    engine.add_object_file(binding.ObjectFileRef.from_data(compiled))
    engine.finalize_object()
    address: int = engine.get_function_address(symbol)
    return address


@cache
def _engine() -> Any:
    """Return what loads objects; never freed: threads may run them."""
    return binding.create_mcjit_compiler(binding.parse_assembly(""), _target_machine(0))


def text_of(emit: Callable[..., None], parameters: int, symbol: str) -> str:
    """Return LLVM's text of a C function of int64; `emit` takes its parameters as numbers."""
    module = ir.Module()
    signature = ir.FunctionType(ir.VoidType(), [I64] * parameters)
    function = ir.Function(module, signature, symbol)
    function.attributes.add("nounwind")
    builder = Builder(function.append_basic_block("entry"))
    arguments: list[Value] = [IRValue(builder, argument) for argument in function.args]
    emit(*arguments)
    builder.ret_void()
    return str(module)


def compile_text(text: str, symbol: str, *, moves: bool) -> bytes:
    """Return the object file of LLVM's text, in which only one function can be called."""
    level = _MOVES if moves else _FULL
    machine = _target_machine(level)
    module = binding.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name != symbol:
            value.linkage = "internal"
    options = binding.create_pipeline_tuning_options(speed_level=level)
    builder = binding.create_pass_builder(machine, options)
    if moves:
        passes = binding.create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_jump_threading_pass()
        passes.add_simplify_cfg_pass()
    else:
        passes = builder.getModulePassManager()
    passes.run(module, builder)
    compiled: bytes = machine.emit_object(module)
    return compiled


# a child forked while another thread holds LLVM's lock would wait for it forever
at_fork(_llvm_lock.acquire, _llvm_lock.release, _llvm_lock.release)
