"""Compilation of kernels, with a cache on disk if a folder is writable.

Each file of the cache begins with a digest of the rest, which is checked before it is used: numba
would raise on a damaged pickle, and the process would crash in damaged machine code. Such files,
and those of other versions, count as missing: the kernel is compiled and replaces them. Code also
carries the digest of its sources and its key, since two processes that compile different kernels at
the same time may give their files the same name.

    index  sha256 of the rest, pickle of (version of numba, stamp, {key: name of a code file})
    code   sha256 of the rest, pickle of (version of numba, stamp, key, what numba restores)
"""

from __future__ import annotations

import hashlib
import logging
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ctypes import CFUNCTYPE, c_int64
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

from numba import types

from reorder.cpu.runtime.internals import (
    CFunc,
    Compiler,
    CPUDispatcher,
    FunctionCache,
    FunctionCompiler,
    IndexDataCacheFile,
    JITCodeLibrary,
    cpu_target,
    global_compiler_lock,
    llvm_lock,
)
from reorder.forks import at_fork, uninterrupted
from reorder.stack import on_enough_stack

_PACKAGE = Path(__file__).parents[2]
_DIGEST_NBYTES = hashlib.sha256().digest_size
# What kernels depend on outside of `cpu`, in this order: the position of the data in an array
# object, the value of `NOWHERE`, the formats of types, and the order of types, since their
# indices are compiled in.
_SOURCES = ("memory/buffers.py", "plan/nodes.py", "values/formats.py", "../memdesc/dtypes.py")

_LOG = logging.getLogger("reorder")

# without numba's reference counts: all values are integers
_OPTIONS = {"nopython": True, "_nrt": False}

# the functions for C, by name, and the seconds that each took: compiled, or loaded from the cache
_callbacks: dict[str, Any] = {}
_made: list[dict[str, Any]] = []
# the start times of the compilations that run now
_running: list[float] = []


def compiled_kernels() -> list[dict[str, Any]]:
    """Return the kernels that this process has compiled or loaded from disk, with the seconds."""
    return [*_made]


def compiling_seconds() -> float:
    """Return how long this process has spent compiling, if it compiles right now; else 0."""
    began = [*_running]
    if not began:
        return 0.0
    past: float = sum(kernel["seconds"] for kernel in [*_made])
    return past + perf_counter() - began[0]


def compile_callback(function: Callable[..., int | None], signature: Any, name: str) -> Any:
    """Compile a function to code that C may call; the result has its `address`.

    The function of a name is compiled once. `compiled_kernels` lists it by this name.
    """
    if name not in _callbacks:
        with uninterrupted:
            on_enough_stack(lambda: _compile_callback(function, signature, name))
    return _callbacks[name]


@cache
def c_function(function: Callable[[int, int, int], int], name: str, kind: Any = CFUNCTYPE) -> Any:
    """Compile a function of three integers; returns it as a ctypes function of the given kind."""
    compiled = compile_callback(function, types.int64(*[types.int64] * 3), name)
    return kind(c_int64, *[c_int64] * 3)(compiled.address)


def _compile_callback(function: Callable[..., int | None], signature: Any, name: str) -> None:
    # numba's own lock; `_before_fork` waits for it
    with global_compiler_lock:
        if name in _callbacks:
            return
        start = perf_counter()
        _running.append(start)
        compiled: Any
        try:
            compiled = CFunc(function, (signature.args, signature.return_type), {}, _OPTIONS)
            compiled._cache = _Cache(function)  # noqa: SLF001 - as enable_caching does
            with _modules_optimized_once():
                compiled.compile()
            why = f"{compiled._cache.cache_path} had no code for it"  # noqa: SLF001 - numba has no public name for it
        except (RuntimeError, OSError):
            # compile without a cache
            compiled = CFunc(function, (signature.args, signature.return_type), {}, _OPTIONS)
            with _modules_optimized_once():
                compiled.compile()
            why = "there is no folder for compiled code, or no source"
        finally:
            _running.remove(start)
        seconds = perf_counter() - start
        if not compiled.cache_hits:
            _LOG.info("compiled the kernel %r in %.2f s: %s", name, seconds, why)
        _made.append({"kernel": name, "seconds": seconds, "is_loaded": bool(compiled.cache_hits)})
        _callbacks[name] = compiled


class _Library(JITCodeLibrary):  # type: ignore[misc] # numba ships no types
    def _optimize_functions(self, ll_module: Any) -> None:
        # all that is left of numba's method: the passes over the whole module come later
        ll_module.data_layout = self._codegen._data_layout  # noqa: SLF001 - as numba does


@contextmanager
def _modules_optimized_once() -> Iterator[None]:
    """Compile without numba's passes over single functions: a fourth of the time.

    numba's compiler lock is held, so that no other code is compiled meanwhile.
    """
    codegen = cpu_target.target_context.codegen()
    codegen._library_class = _Library  # noqa: SLF001 - numba has no way to choose passes
    try:
        yield
    finally:
        del codegen._library_class  # noqa: SLF001 - numba has no public name for it


def inner(function: Callable[..., Any]) -> Any:
    """Compile a function for calls by compiled functions, even if NUMBA_DISABLE_JIT is set.

    It becomes part of its callers: it has no machine code of its own, and no wrapper for Python.
    """
    return _Inner(function)


class _Inner(CPUDispatcher):  # type: ignore[misc] # numba ships no types
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, targetoptions=_OPTIONS)
        self._compiler = _InnerCompiler(function, self.targetdescr, _OPTIONS, {}, Compiler)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        # treat constants like other arguments: numba would compile a version for each
        return super().get_call_template(tuple(map(types.unliteral, args)), kws)


class _InnerCompiler(FunctionCompiler):  # type: ignore[misc] # numba ships no types
    def _customize_flags(self, flags: Any) -> Any:
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
        return flags

    def compile(self, args: Any, return_type: Any) -> Any:
        result = super().compile(args, return_type)
        # numba identifies a function by what Python would call: any object of that kind
        key: Any = [].append
        context = self.targetdescr.target_context
        context.insert_user_function(key, result.fndesc, [result.library])
        return result._replace(entry_point=key)


def cache_folder() -> str | None:
    """Return where compiled kernels are kept, or None if no folder can be written."""
    try:
        folder: str = _Cache(compile_callback).cache_path
    except (RuntimeError, OSError):
        return None
    return folder


class _CacheFile(IndexDataCacheFile):  # type: ignore[misc] # numba ships no types
    """The files of one function, with digests."""

    def load(self, key: Any) -> Any:
        name = self._load_index().get(key)
        content = None if name is None else self._read(self._data_path(name))
        if content is None or len(content) != 4:  # noqa: PLR2004 - see above
            return None
        version, stamp, stored, data = content
        fresh = (version, stamp, stored) == (self._version, self._source_stamp, key)
        return data if fresh else None

    def save(self, key: Any, data: Any) -> None:
        # a full disk, or a folder in the place of a file: the kernel is not kept
        with suppress(OSError):
            super().save(key, (self._version, self._source_stamp, key, data))

    def _load_index(self) -> dict[Any, str]:
        content = self._read(self._index_path)
        if content is None or content[:2] != (self._version, self._source_stamp):
            return {}
        index: dict[Any, str] = content[2]
        return index

    def _save_index(self, overloads: dict[Any, str]) -> None:
        self._write(self._index_path, (self._version, self._source_stamp, overloads))

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), data)

    @staticmethod
    def _read(path: str) -> Any:
        """Return what a file holds, or None if it is damaged or cannot be read."""
        try:
            content = Path(path).read_bytes()
        except OSError:
            return None
        digest, content = content[:_DIGEST_NBYTES], content[_DIGEST_NBYTES:]
        if hashlib.sha256(content).digest() != digest:
            return None
        with suppress(Exception):  # another version of numba may have written it
            return pickle.loads(content)  # noqa: S301 - the folder of compiled code must be trusted
        return None

    def _write(self, path: str, content: Any) -> None:
        pickled = self._dump(content)
        with self._open_for_write(path) as file:
            file.write(hashlib.sha256(pickled).digest() + pickled)


class _Cache(FunctionCache):  # type: ignore[misc] # numba ships no types
    """The cache of one function. Its stamp covers all sources: numba's covers one file."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        base = self._impl.filename_base
        self._cache_file = _CacheFile(self._cache_path, base, _digest())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        # numba would fill the tables of its compiler first, which takes a third of the time of a
        # first reorder; code that is loaded needs them only to count references, which ours does
        # not (`_OPTIONS`). numba and LLVM raise exceptions of many classes for code that they
        # cannot restore
        with suppress(Exception):
            return self._load_overload(sig, target_context)
        return None


@cache
def _digest() -> str:
    return digest_of(_PACKAGE)


def digest_of(package: Path) -> str:
    """Return a hash of all sources that the kernels of a package depend on."""
    digest = hashlib.sha256()
    files = [*package.joinpath("cpu").rglob("*.py"), *(package / name for name in _SOURCES)]
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _before_fork() -> None:
    # a child forked while another thread holds one of these would wait for it forever
    global_compiler_lock.acquire()
    llvm_lock.acquire()


def _after_fork() -> None:
    llvm_lock.release()
    global_compiler_lock.release()


at_fork(_before_fork, _after_fork, _after_fork)
