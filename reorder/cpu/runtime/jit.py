"""Compilation of kernels, with a cache on disk if a folder is writable."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numba
from numba.core.ccallback import CFunc
from numba.core.registry import CPUDispatcher

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["compile_callback", "compiled_kernels", "digest_of", "inner", "jit_parallel"]

_PACKAGE = Path(__file__).parents[2]
# What kernels depend on outside of `cpu`, in this order: the position of the data in an array
# object, the value of `NOWHERE`, the formats of types, and the order of types, since their
# indices are compiled in.
_SOURCES = (
    "memory/buffers.py",
    "plan/nodes.py",
    "values/formats.py",
    "../memdesc/dtypes.py",
)


# what this process has compiled, or loaded from its cache
_made: list[dict[str, Any]] = []


def compiled_kernels() -> list[dict[str, Any]]:
    """Return the name and seconds of each kernel that this process has compiled or loaded."""
    return [*_made]


def compile_callback(function: Callable[..., int | None], signature: Any, name: str) -> Any:
    """Compile a function to code that C may call; the result has its `address`.

    `compiled_kernels` lists it by its name.
    """
    start = perf_counter()
    compiled = _from_cache(function, signature)
    if compiled is None:
        compiled = _new_callback(function, signature)
        compiled.compile()
    _made.append({"kernel": name, "seconds": perf_counter() - start})
    return compiled


def _new_callback(function: Callable[..., int | None], signature: Any) -> Any:
    return CFunc(function, (signature.args, signature.return_type), {}, {"nopython": True})


def _from_cache(function: Callable[..., int | None], signature: Any) -> Any:
    """Return compiled code that is kept on disk; None where no cache can be used."""
    try:
        compiled = _new_callback(function, signature)
        compiled.enable_caching()
        _stamp(compiled)
    except (RuntimeError, OSError, AttributeError):
        return None  # no writable folder for compiled code, or no sources
    # files of the cache may be damaged: the second attempt has an empty index, and writes anew
    for _ in range(2):
        try:
            compiled.compile()
        except Exception:  # noqa: BLE001 - reading a damaged pickle may raise anything
            with suppress(Exception):
                compiled._cache.flush()  # noqa: SLF001 - numba offers no other way
        else:
            return compiled
    return None


def inner(function: Callable[..., Any]) -> Any:
    """Compile a function for calls by compiled functions, even if NUMBA_DISABLE_JIT is set."""
    return CPUDispatcher(function, targetoptions={"nopython": True})


def jit_parallel(function: Callable[..., None]) -> Any:
    """Compile a function with loops over threads, when it is first called."""
    try:
        compiled = numba.njit(cache=True, parallel=True, nogil=True)(function)
        _stamp(compiled)
    except (RuntimeError, OSError, AttributeError):
        compiled = numba.njit(parallel=True, nogil=True)(function)
    return compiled


def _stamp(compiled: Any) -> None:
    """Let changes in any source of kernels invalidate the cache: numba checks only one file."""
    compiled._cache._cache_file._source_stamp = _digest()  # noqa: SLF001 - numba offers no other way


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
