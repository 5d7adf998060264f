"""Words that Python publishes to compiled code on other threads.

Python writes words by plain stores. A processor with a weak memory order may show them to other
threads earlier than what was written before, so a word that leads to others is stored here.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numba

from reorder.cpu.runtime.intrinsics import store_shared
from reorder.cpu.runtime.jit import compile_callback

__all__ = ["compile_publish", "publish"]


def publish(block: int, field: int, value: int) -> None:
    """Write a word of a block after all earlier writes (release)."""
    compile_publish()(block, field, value)


def _store(block: int, field: int, value: int) -> None:
    store_shared(block, field, value)


@cache
def compile_publish() -> Any:
    """Return the function that writes a word, compiled or loaded."""
    signature = numba.void(*[numba.int64] * 3)
    compiled = compile_callback(_store, signature, "thread pool: publish")
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(compiled.address)
