from typing import Any

import numpy as np
import pytest

from memdesc import RUNTIME, MemdescError, memory_desc, runtime_desc
from memdesc.errors import short_repr


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError


class Lines:
    def __repr__(self) -> str:
        return "a\nb"


def test_a_value_is_shown_by_its_repr_or_where_that_is_long_by_its_type() -> None:
    for value, shown in (
        ((2, "abc"), "(2, 'abc')"),
        ("x" * 118, repr("x" * 118)),
        ("x" * 119, "'" + "x" * 59 + "... (121 characters)"),
        # an array longer than a line is described by its shape and dtype
        (np.zeros((2, 3), np.float32), "an ndarray of shape (2, 3) and dtype float32"),
        (np.zeros(1000, "S3"), "an ndarray of shape (1000,) and dtype |S3"),
        (np.ma.zeros((9, 9)), "a MaskedArray of shape (9, 9) and dtype float64"),
        (np.array(1.5), "array(1.5)"),
        (np.array([2, 3]), "array([2, 3])"),
        (np.float32(1.5), "np.float32(1.5)"),
        ((10**5000,), "a tuple with a number too long to print"),
        (Lines(), "a\nb"),
        (Broken(), "a Broken that cannot be printed"),
    ):
        assert short_repr(value) == shown


def test_a_hint_is_left_out_where_it_does_not_help() -> None:
    given: Any
    for given in (np.arange(60000), [], ()):
        with pytest.raises(MemdescError) as refused:
            memory_desc((2, 3), "f32", given)
        assert "strides" not in str(refused.value)
    with pytest.raises(MemdescError) as refused:
        runtime_desc((RUNTIME, 2**63), "f32")
    assert "runtime_desc" not in str(refused.value)
