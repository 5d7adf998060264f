"""How kernels are compiled: no GIL, kept on disk where a folder can be written."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["jit"]


def jit(*, parallel: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Compile a function with numba when it is first called."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        options: dict[str, Any] = {"nogil": True, "parallel": parallel}
        try:
            compiled = numba.njit(cache=True, **options)(function)
            # numba looks for changes in the file of the function alone, not in what it is made of
            compiled._cache._cache_file._source_stamp = _digest()  # noqa: SLF001 - numba offers no other way
        except (RuntimeError, OSError, AttributeError):
            # no folder to keep compiled code in, no sources: a slower start, not a failure
            compiled = numba.njit(**options)(function)
        walker: Callable[..., None] = compiled
        return walker

    return decorate


@cache
def _digest() -> str:
    """Return a hash of all sources that kernels are made of."""
    digest = hashlib.sha256()
    for file in sorted((*Path(__file__).parent.glob("*.py"), Path(__file__).parent.parent / "nodes.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()
