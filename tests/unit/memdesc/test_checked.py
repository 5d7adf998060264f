"""Copies and pickles of values go through their constructors."""

import pickle
from typing import Any

import numpy as np
import pytest

from memdesc import MemdescError, memory_desc
from memdesc.checked import Checked, remade
from memdesc.errors import OutOfMemoryError, allocates

DESC = memory_desc((2, 17, 5, 4), "f32", "nChw8c")


class Numbers(Checked):
    """A value that holds an array and a scalar."""

    def __init__(self, array: Any, scalar: Any) -> None:
        self.array, self.scalar = array, scalar

    def _arguments(self) -> tuple[Any, ...]:
        return self.array, (self.scalar,)


def _pickled(value: Any, protocol: int = pickle.HIGHEST_PROTOCOL) -> Any:
    return pickle.loads(pickle.dumps(value, protocol))


def test_arrays_are_pickled_as_bytes() -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    found = _pickled(Numbers(array, np.float32(0.5)))
    assert np.array_equal(found.array, array)
    assert found.array.dtype == array.dtype
    (scalar,) = found.scalar
    assert type(scalar) is np.float32
    assert scalar == np.float32(0.5)


def test_only_values_are_made_and_only_by_their_constructors() -> None:
    make, arguments = remade(type(DESC), DESC.dtype, DESC.layout)
    assert make(*arguments) == DESC
    with pytest.raises(MemdescError, match="'pathlib:Path' is a value of memdesc, which it is not"):
        make("pathlib:Path", "x")
    with pytest.raises(MemdescError, match="sets fields without its constructor: it is damaged"):
        DESC.layout.__setstate__((None, {"offset0": -1}))


def test_too_little_memory_says_so_once() -> None:
    @allocates
    def fail(error: Exception) -> None:
        raise error

    with pytest.raises(
        OutOfMemoryError, match=r"fail\(\) needs more memory than is available: 9 EiB"
    ):
        fail(MemoryError("9 EiB"))
    with pytest.raises(OutOfMemoryError, match=r"^all is taken$"):
        fail(OutOfMemoryError("all is taken"))
