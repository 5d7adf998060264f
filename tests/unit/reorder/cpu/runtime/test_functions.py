"""Compiled functions compute what Python computes, and refuse what they cannot have."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdesc import MemdescError
from reorder.cpu.runtime.functions import text_of
from reorder.cpu.runtime.jit import c_function


class _Limits(NamedTuple):
    small: int
    large: int


_LIMITS = _Limits(small=4, large=9)


def _is_small(number: int) -> bool:
    return number < _LIMITS.small


def _steps(one: int, other: int, limit: int) -> int:
    """Use each statement and each operator."""
    total: int = 0
    for k in range(one):
        if k == other:
            return -total
        if (k > 2 and k % 3 != 1) or k == 0:
            total += k * other
        elif not _is_small(k):
            total, other = total - k, other + 1
        else:
            pass
    for k in range(2, limit):
        if 1 < k <= other:
            total = total | (k & 7)
    # the divisor is 0 where the first part does not hold
    is_done = False
    while not is_done:
        is_done = not (limit > 0 and total >= 100 // limit)
        total -= 0 if is_done else limit // 2 + 1
    return (total >> 1) + (one if bool(other) else _LIMITS.large)


@cache
def _compiled() -> Any:
    return c_function(_steps, "steps of a test", ctypes.CFUNCTYPE)


_numbers = st.integers(0, 40)


@given(_numbers, _numbers, _numbers)
def test_a_compiled_function_computes_what_python_computes(
    one: int, other: int, limit: int
) -> None:
    assert _compiled()(one, other, limit) == _steps(one, other, limit)


def _listed(one: int) -> int:
    return sum([one, one])


def _worded(one: int) -> int:
    with memoryview(b""):
        return one


@pytest.mark.parametrize("function", [_listed, _worded])
def test_what_has_no_code_is_refused_by_name(function: Any) -> None:
    with pytest.raises(MemdescError, match=r"compiled functions cannot have .(sum|with)"):
        text_of(function)
