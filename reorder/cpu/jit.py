"""How kernels are compiled: no GIL, kept on disk where a folder can be written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["jit"]

F = TypeVar("F", bound="Callable[..., Any]")


def jit(*, parallel: bool = False) -> Callable[[F], F]:
    """Compile a function with numba when it is first called."""

    def decorate(function: F) -> F:
        options = {"nogil": True, "parallel": parallel}
        try:
            return cast("F", numba.njit(cache=True, **options)(function))
        except RuntimeError:
            # no folder to keep compiled code in: a slower start, not a failure
            return cast("F", numba.njit(**options)(function))

    return decorate
