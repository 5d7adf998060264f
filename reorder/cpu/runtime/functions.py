"""Compile Python functions of integers with numba: the pool and the fast call.

This module is imported when such a function has no file yet; nothing else imports numba. Numba
turns the function into LLVM's text, and all else is as for other kernels. What a function calls
becomes part of it: our other functions, and intrinsics, with the types that their signatures
declare.

Numba's own tables list what it can compile, and filling them takes as long as importing numba. So
these functions have contexts of their own, with the tables of integers, ranges and tuples.

What is not numba's public API exists in the versions that pyproject.toml admits; a nightly job
(.github/workflows/newest.yml) tries later ones.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from types import FunctionType
from typing import Any

import llvmlite
import numba
from numba import types
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import lower_builtin, type_callable

from memdesc.errors import MemdescError
from reorder.cpu.llvm.emit import Builder, IRValue, Value
from reorder.cpu.runtime import intrinsics
from reorder.forks import at_fork

try:
    from numba.core.base import BaseContext
    from numba.core.codegen import AOTCodeLibrary, AOTCPUCodegen
    from numba.core.compiler import Flags, compile_extra
    from numba.core.cpu import CPUContext
    from numba.core.typing.context import BaseContext as BaseTypingContext
    from numba.core.typing.context import Context as TypingContext

    # What is called, set or overridden here. A method that overrides nothing would never be called
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
        Flags: (
            *("error_model", "forceinline"),
            *("no_compile", "no_cfunc_wrapper", "no_cpython_wrapper"),
        ),
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

_RESULTS = {int: types.int64, bool: types.boolean, None: types.void}


def text_of(function: Callable[..., int | None]) -> tuple[str, str]:
    """Return LLVM's text of a function of int64, and the name of the C function in it."""
    # a fork waits for this lock; numba requires it
    with global_compiler_lock:
        _register_called(function)
        count = len(inspect.signature(function).parameters)
        flags = _flags()
        flags.no_cfunc_wrapper = False
        arguments, result = (types.int64,) * count, _result_of(function)
        compiled = compile_extra(*_contexts(), function, arguments, result, flags, {})
        # link the functions that it calls
        compiled.library.finalize()
        return compiled.library.get_llvm_str(), compiled.fndesc.llvm_cfunc_wrapper_name


class _Library(AOTCodeLibrary):  # type: ignore[misc] # numba ships no types
    """LLVM's text as numba writes it; all passes come later."""

    def _optimize_functions(self, ll_module: Any) -> None:
        pass

    def _optimize_final_module(self) -> None:
        pass


class _Codegen(AOTCPUCodegen):  # type: ignore[misc] # numba ships no types
    _library_class = _Library


class _Types(TypingContext):  # type: ignore[misc] # numba ships no types
    def load_additional_registries(self) -> None:
        """Add no tables to those of what is built in."""


class _Context(CPUContext):  # type: ignore[misc] # numba ships no types
    def init(self) -> None:
        self.is32bit = False
        self._internal_codegen = _Codegen("memdesc")

    def load_additional_registries(self) -> None:
        """Import the modules that say how integers, ranges and tuples are compiled."""
        from numba.cpython import builtins, numbers, rangeobj, tupleobj  # noqa: F401 - they fill tables


@cache
def _contexts() -> tuple[_Types, _Context]:
    typing = _Types()
    return typing, _Context(typing)


def _flags() -> Any:
    """Return how functions are compiled: as part of their callers, and with no exceptions."""
    flags = Flags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.forceinline = True
    # a division by 0 is not checked
    flags.error_model = "numpy"
    return flags


def _result_of(function: Callable[..., Any]) -> Any:
    return _RESULTS[inspect.signature(function, eval_str=True).return_annotation]


def _register_called(function: Any) -> None:
    """Tell numba about all functions that a function calls."""
    for name in function.__code__.co_names:
        called = function.__globals__.get(name)
        if isinstance(called, FunctionType):
            _register(called)


@cache
def _register(function: Any) -> None:
    """Tell numba the types of a function, and how a call of it is emitted."""
    signature, result = inspect.signature(function), _result_of(function)

    @type_callable(function)  # type: ignore[untyped-decorator] # numba ships no types
    def _(_context: Any) -> Any:
        def typed(*arguments: Any) -> Any:
            given = [own if isinstance(own, types.BaseTuple) else types.int64 for own in arguments]
            return result(*given)

        typed.pysig = signature  # type: ignore[attr-defined] # numba asks for the parameters
        return typed

    is_intrinsic = function.__module__ == intrinsics.__name__
    if not is_intrinsic:
        _register_called(function)

    @lower_builtin(function, types.VarArg(types.Any))  # type: ignore[untyped-decorator] # numba ships no types
    def _(context: Any, builder: Builder, called: Any, arguments: Sequence[Value]) -> Value:
        if not is_intrinsic:
            made = context.compile_subroutine(builder, function, called, flags=_flags())
            return context.call_internal(builder, made.fndesc, called, arguments)
        numbers = [
            [IRValue(builder, value) for value in cgutils.unpack_tuple(builder, argument)]
            if isinstance(own, types.BaseTuple)
            else IRValue(builder, argument)
            for own, argument in zip(called.args, arguments, strict=True)
        ]
        compiled = function(*numbers)
        return context.get_dummy_value() if compiled is None else compiled.raw


at_fork(global_compiler_lock.acquire, global_compiler_lock.release, global_compiler_lock.release)
