from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from memdesc import MemdescError, memory_desc
from memdesc.errors import OutOfRangeError
from reorder import Memory, reorder

X = np.arange(2 * 17 * 5 * 4, dtype=np.float32).reshape(2, 17, 5, 4)
BLOCKED = reorder(X, "nChw8c")


def test_a_memory_has_the_shape_the_type_and_the_length_of_its_dims() -> None:
    assert (BLOCKED.shape, BLOCKED.ndim, len(BLOCKED)) == (X.shape, 4, 2)
    assert BLOCKED.dtype == BLOCKED.desc.dtype
    assert f"{BLOCKED:>70}" == repr(BLOCKED).rjust(70)
    empty = Memory(memory_desc((0, 3), "f32"))
    assert len(empty) == 0
    assert empty  # whether there is one, not whether it has elements
    assert empty[:, 1].shape == (0,)


def test_elements_and_slices_are_read_by_logical_index() -> None:
    assert BLOCKED[1, 16, 4, 3] == X[1, 16, 4, 3]
    assert type(BLOCKED[-1, 16, 4, 3]) is np.float32
    for key in (np.s_[1], np.s_[..., 2], np.s_[:, 3:9:2], np.s_[::-1, -1, ..., 0], np.s_[...], ()):
        assert np.array_equal(BLOCKED[key], X[key])
    assert [row.shape for row in BLOCKED] == [(17, 5, 4)] * 2
    y = np.arange(-6, 6).reshape(3, 4).astype(ml_dtypes.int4)
    four = reorder(y, "Ab2a")
    assert [int(four[i, 3]) for i in range(3)] == [-3, 1, 5]
    assert type(four[0, 0]) is ml_dtypes.int4


def test_a_slice_is_a_copy_that_cannot_be_written() -> None:
    plain = reorder(X, "nchw")
    part = plain[0]
    assert not np.may_share_memory(part, plain.data)
    with pytest.raises(ValueError, match="read-only"):
        part[0] = 1
    with pytest.raises(TypeError, match="does not support item assignment"):
        plain[0] = 1  # type: ignore[index] # the mistake


@pytest.mark.parametrize(
    ("key", "error", "reason"),
    [
        ((0, 17), OutOfRangeError, r"index 17 of c \(dim 1\) is not in -17 to 16"),
        (-3, OutOfRangeError, r"index -3 of n \(dim 0\) is not in -2 to 1"),
        ((0, 0, 0, 0, 0), OutOfRangeError, r"has 5 entries, but .* has 4 dims"),
        ((..., 0, ...), IndexError, r"has more than one \.\.\."),
        ((0, None), MemdescError, r"index None of c \(dim 1\) is neither an integer nor a slice"),
        ((0, [1, 2]), MemdescError, r"by arrays or masks, use \.numpy\(\)"),
        (True, MemdescError, "index True of n"),
        (0.5, MemdescError, "index 0.5 of n"),
        (slice(0, 4, 0), MemdescError, "slice step cannot be zero"),
        (slice("a"), MemdescError, "slice indices must be integers"),
    ],
)
def test_other_keys_are_refused(key: Any, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        BLOCKED[key]


def test_a_dim_of_size_0_has_no_index() -> None:
    with pytest.raises(OutOfRangeError, match=r"b \(dim 1\) has no index: its size is 0"):
        Memory(memory_desc((2, 0), "f32"))[0, 0]
