"""The parts of numba that this library uses and that are not its public API.

The module that needs them imports them from here. All of them exist in the versions that
pyproject.toml admits; a nightly job (.github/workflows/newest.yml) tries later ones.
"""

import llvmlite
import numba

from memdesc.errors import MemdescError

__all__ = [
    "AOTCPUCodegen",
    "AOTCodeLibrary",
    "CPUContext",
    "Flags",
    "TypingContext",
    "compile_extra",
]

try:
    from numba.core.base import BaseContext
    from numba.core.codegen import AOTCodeLibrary, AOTCPUCodegen
    from numba.core.compiler import Flags, compile_extra
    from numba.core.cpu import CPUContext
    from numba.core.typing.context import BaseContext as BaseTypingContext
    from numba.core.typing.context import Context as TypingContext

    # What is called, set or overridden. A method that overrides nothing would never be called
    _MEMBERS: dict[type, tuple[str, ...]] = {
        AOTCPUCodegen: ("_library_class",),
        AOTCodeLibrary: (
            "_optimize_final_module",
            "_optimize_functions",
            "finalize",
            "get_llvm_str",
        ),
        BaseContext: ("call_internal", "compile_subroutine", "get_dummy_value"),
        BaseTypingContext: ("load_additional_registries",),
        CPUContext: ("init", "load_additional_registries"),
        Flags: ("error_model", "no_compile", "no_cfunc_wrapper", "no_cpython_wrapper"),
    }
    for _owner, _names in _MEMBERS.items():
        for _name in _names:
            if not hasattr(_owner, _name):
                raise AttributeError(f"{_owner.__qualname__} has no {_name}")  # noqa: TRY301 - one message, below
except (ImportError, AttributeError) as error:
    raise MemdescError(
        f"kernels cannot be compiled by numba {numba.__version__} with llvmlite "
        f"{llvmlite.__version__}: {error}; install versions that memdesc knows: "
        "pip install 'numba>=0.62,<0.69' 'llvmlite>=0.45,<0.51'"
    ) from error
