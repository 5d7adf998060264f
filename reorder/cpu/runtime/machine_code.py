"""Load machine code: object files of kernels, by LLVM.

LLVM holds a lock during every call, and a fork waits for it. That lock is not part of llvmlite's
public API, which has callbacks that tell when it is held, but no way to hold it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import llvmlite
from llvmlite import binding

from memdesc.errors import MemdescError
from reorder.cpu.target import processor
from reorder.forks import at_fork

try:
    _llvm_lock: Any = binding.ffi.lib._lock._lock  # noqa: SLF001 - see above
except AttributeError as error:
    msg = (
        f"kernels cannot be loaded by llvmlite {llvmlite.__version__}: {error}; install a version "
        "that memdesc knows: pip install 'llvmlite>=0.45,<0.51'"
    )
    raise MemdescError(msg) from error


@cache
def target_machine(level: int) -> Any:
    """Return LLVM's description of the processor, which generates code with a level of effort."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_triple(binding.get_process_triple())
    chosen = processor()
    # static where LLVM loads code: on x86
    reloc = "static" if target.name.startswith("x86") else "default"
    return target.create_target_machine(
        cpu=chosen.name,
        features=chosen.features,
        opt=level,
        reloc=reloc,
        codemodel="jitdefault",
        jit=True,
    )


def load(compiled: bytes, symbol: str) -> int:
    """Load an object file for the rest of the process; returns the address of a function in it."""
    engine = _engine()
    engine.add_object_file(binding.ObjectFileRef.from_data(compiled))
    engine.finalize_object()
    address: int = engine.get_function_address(symbol)
    return address


@cache
def _engine() -> Any:
    """Return what loads all kernels; never freed: threads may run them."""
    return binding.create_mcjit_compiler(binding.parse_assembly(""), target_machine(0))


# a child forked while another thread holds LLVM's lock would wait for it forever
at_fork(_llvm_lock.acquire, _llvm_lock.release, _llvm_lock.release)
