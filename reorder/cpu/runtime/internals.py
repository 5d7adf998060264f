"""The parts of numba and llvmlite that this library uses and that are not their public API.

Modules that need one import it from here. All of them exist in the versions that pyproject.toml
admits; a nightly job (.github/workflows/newest.yml) tries later ones.
"""

from __future__ import annotations

from typing import Any

import llvmlite
import numba

from memdesc import MemdescError

__all__ = [
    "CFunc",
    "CPUDispatcher",
    "Compiler",
    "FunctionCache",
    "FunctionCompiler",
    "IndexDataCacheFile",
    "JITCodeLibrary",
    "cpu_target",
    "global_compiler_lock",
    "llvm_lock",
]

try:
    from llvmlite.binding import ffi
    from llvmlite.ir import HalfType
    from numba.core.caching import CacheImpl, FunctionCache, IndexDataCacheFile
    from numba.core.ccallback import CFunc
    from numba.core.codegen import CPUCodegen, JITCodeLibrary, JITCPUCodegen
    from numba.core.compiler import Compiler, Flags
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.dispatcher import (  # type: ignore[attr-defined] # there is no public one
        _FunctionCompiler as FunctionCompiler,
    )
    from numba.core.registry import CPUDispatcher, cpu_target

    # llvmlite holds this lock during every call of LLVM, even outside of numba's compiler lock. It
    # has callbacks that tell when, but no public way to hold the lock
    llvm_lock: Any = ffi.lib._lock._lock  # noqa: SLF001 - see above

    # What is called, set or overridden. A method that overrides nothing would never be called
    _MEMBERS: dict[Any, tuple[str, ...]] = {
        CFunc: ("_cache", "address", "cache_hits", "compile"),
        CPUCodegen: ("_data_layout",),
        CPUDispatcher: ("_compiler", "get_call_template", "targetdescr"),
        CacheImpl: ("filename_base",),
        Flags: ("no_compile", "no_cfunc_wrapper", "no_cpython_wrapper"),
        FunctionCache: ("_cache_file", "_cache_path", "_impl", "_load_overload", "load_overload"),
        FunctionCompiler: ("_customize_flags", "compile", "targetdescr"),
        HalfType: ("_create_instance",),
        IndexDataCacheFile: (
            *("_data_path", "_dump", "_index_path", "_open_for_write", "_source_stamp", "_version"),
            *("_load_index", "_save_data", "_save_index", "load", "save"),
        ),
        JITCPUCodegen: ("_library_class",),
        JITCodeLibrary: ("_codegen", "_optimize_functions"),
    }
    for _owner, _names in _MEMBERS.items():
        for _name in _names:
            # instances get members in `__init__`, so look there too
            if not hasattr(_owner, _name) and _name not in _owner.__init__.__code__.co_names:
                raise AttributeError(f"{_owner.__qualname__} has no {_name}")  # noqa: TRY301, TRY003, EM102 - one message, below
except (ImportError, AttributeError) as error:
    msg = (
        f"kernels cannot be compiled by numba {numba.__version__} with llvmlite "
        f"{llvmlite.__version__}: {error}; install versions that memdesc knows: "
        "pip install 'numba>=0.62,<0.69' 'llvmlite>=0.45,<0.51'"
    )
    raise MemdescError(msg) from error
