"""How kernels are compiled: no GIL, kept on disk where a folder can be written."""

from __future__ import annotations

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
            compiled: Callable[..., None] = numba.njit(cache=True, **options)(function)
        except RuntimeError:
            # no folder to keep compiled code in: a slower start, not a failure
            compiled = numba.njit(**options)(function)
        return compiled

    return decorate
