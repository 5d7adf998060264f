"""Functions of Python's integers do the same when they are compiled."""

from __future__ import annotations

import ctypes
import inspect
from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from reorder.cpu.runtime import jit
from reorder.cpu.runtime.functions import text_of
from reorder.cpu.runtime.intrinsics import call_c, exchange_shared, load_int, store_int
from reorder.cpu.runtime.jit import Kernel, compiled_at, kernel_at

if TYPE_CHECKING:
    from collections.abc import Callable

_SEVEN = 7
_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)
_TABLE = SimpleNamespace(first=3, inner=SimpleNamespace(second=-5))


def _arithmetic(a: int, b: int) -> int:
    c = a + b * 3 - -a
    c -= b
    found: int = c * _SEVEN + _TABLE.first * _TABLE.inner.second
    return found


def _division(a: int, b: int) -> int:
    if a < 0 or b < 0:
        return -1
    return (a // 4) * 100 + a % 4 + (b // (a + 1)) * 1000 + b % (a + 1)


def _bits(a: int, b: int) -> int:
    return (a >> 2) * 64 + (b & 15)


def _comparisons(a: int, b: int) -> int:
    found = 0
    if a < b:
        found += 1
    if a <= b:
        found += 2
    if a > b:
        found += 4
    if a >= b:
        found += 8
    if a == b:
        found += 16
    if a != b:
        found += 32
    if -3 < a <= b < 5:
        found += 64
    return found


def _is_between(a: int, b: int) -> bool:
    return bool(a > 0 and not b - 2)


def _logic(a: int, b: int) -> int:
    found = 0
    if a and b:
        found += 1
    if a or b:
        found += 2
    if not a:
        found += 4
    if (a > 0 and b > 0 and a + b > 4) or (a < 0 and not b):
        found += 8
    is_odd = a & 1 == 1
    if is_odd:
        found += 16
    return found + (32 if _is_between(a, b) else 64)


def _branches(a: int, b: int) -> int:
    if a > 3:
        c = 1
    elif a > 0:
        c = 2
        if b:
            return c * 10
    else:
        c = b
    return c


def _swapped(a: int, b: int) -> int:
    for _ in range(3):
        a, b = b, a + 1
    c: int = a * 100
    return c + b


def _loops(a: int, b: int) -> int:
    found = 0
    for k in range(a):
        for j in range(k, b):
            if j == 5:
                return found * 1000
            found += k * j + 1
        k = 9  # the loop goes on with its next number  # noqa: PLW2901
    return found


def _search(a: int, b: int) -> int:
    k = 0
    while True:
        k += 1
        while k % 3 and k < 40:
            k += 2
        if k > a * b:
            return k


_FUNCTIONS: tuple[Callable[[int, int], int], ...] = (
    _arithmetic,
    _division,
    _bits,
    _comparisons,
    _logic,
    _branches,
    _swapped,
    _loops,
    _search,
)


def _compiled(function: Callable[..., Any], *, has_result: bool = True) -> Any:
    # a name of its own: what another version of this file has compiled is another function
    name = f"{function.__name__}: {inspect.getsource(function)}"
    address = kernel_at(Kernel(name, lambda: text_of(function)))
    count = len(inspect.signature(function).parameters)
    kind = ctypes.CFUNCTYPE(ctypes.c_int64 if has_result else None, *[ctypes.c_int64] * count)
    return kind(address)


@pytest.mark.parametrize("function", _FUNCTIONS, ids=lambda function: function.__name__)
def test_a_compiled_function_does_what_it_does_in_python(
    function: Callable[[int, int], int],
) -> None:
    call = _compiled(function)
    for a, b in product(range(-6, 9), repeat=2):
        assert call(a, b) == function(a, b), (a, b)


def _wrapped(a: int) -> int:
    return a * _FACTOR


def test_numbers_wrap_at_64_bits() -> None:
    call = _compiled(_wrapped)
    for a in (0, 1, -1, 12345678901, 1 << 62, -(1 << 63)):
        wanted = (a * _FACTOR + (1 << 63)) % (1 << 64) - (1 << 63)
        assert call(a) == wanted


def _first_of(words: int) -> int:
    for k in range(3):
        if load_int(words, k) and load_int(words, k) > 0:
            return load_int(words, k) // 2 - k % 2
    return -1


def test_functions_read_memory_and_are_compiled_once_by_their_name() -> None:
    address = compiled_at(_first_of, "the first positive number")
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)
    for words in ([7, 1, 1], [0, 9, 0], [-5, -7, 3], [0, 0, 0]):
        positive = [(k, word) for k, word in enumerate(words) if word > 0]
        wanted = positive[0][1] // 2 - positive[0][0] % 2 if positive else -1
        assert call(np.array(words, np.int64).ctypes.data) == wanted
    assert compiled_at(_first_of, "the first positive number") == address


def _tries(words: int, a: int, b: int) -> None:
    if a and exchange_shared(words, 0, 0, 1):
        store_int(words, 2, 5)
        return
    if b or exchange_shared(words, 1, 0, 1):
        store_int(words, 3, 6 if a else load_int(words, 1))


def test_the_second_of_two_conditions_is_asked_only_if_the_first_leaves_it_open() -> None:
    call = _compiled(_tries, has_result=False)
    for (a, b), wanted in {
        (0, 0): [0, 1, 0, 1],
        (0, 1): [0, 0, 0, 0],
        (1, 0): [1, 0, 5, 0],
        (1, 1): [1, 0, 5, 0],
    }.items():
        words = np.zeros(4, np.int64)
        call(words.ctypes.data, a, b)
        assert words.tolist() == wanted


def _called_back(function: int, a: int, b: int) -> int:
    return call_c(function, (a + 1, b)) * 2


def test_functions_of_c_are_called_with_integers() -> None:
    function = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 2)(lambda a, b: a * 10 - b)
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert _compiled(_called_back)(address, 3, 4) == 72


def test_intrinsics_have_no_code_in_python() -> None:
    with pytest.raises(NotImplementedError):
        load_int(0, 0)


def _shifted(a: int) -> int:
    return a << 1


def test_what_is_not_known_is_not_compiled() -> None:
    with pytest.raises(KeyError):
        text_of(_shifted)
    assert "_shifted" not in str(jit.compiled_kernels())
