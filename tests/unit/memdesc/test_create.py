"""Descriptors made by names and by strides, and what is refused."""

from typing import Any

import numpy as np
import pytest

from memdesc import memory_desc


@pytest.mark.parametrize(
    "dims",
    [
        [2, 3],
        (n for n in (2, 3)),
        np.array([2, 3]),
        np.array([2, 3], np.uint8),
        (np.int64(2), np.int8(3)),
        {2: 0, 3: 0}.keys(),
    ],
)
def test_sizes_may_be_any_integers_in_any_iterable(dims: Any) -> None:
    desc = memory_desc(dims, "f32")
    assert desc.dims == (2, 3)
    assert {type(size) for size in desc.dims} == {int}


def test_an_array_without_dims_is_one_size() -> None:
    assert memory_desc(np.array(3), "f32").dims == (3,)


def test_empty_blocks_and_an_offset_of_0_may_go_with_a_tag() -> None:
    desc = memory_desc(
        (2, 3),
        "f32",
        "ab",
        inner_blks=[],
        inner_idxs=np.array([], int),
        offset0=np.int64(0),  # type: ignore[arg-type] # any integer is taken
    )
    assert desc == memory_desc((2, 3), "f32")


def test_blocks_of_one_among_the_inner_blocks_are_dropped() -> None:
    assert memory_desc(
        (2, 17), "f32", strides=(24, 8), inner_blks=(1, 8, 1), inner_idxs=(0, 1, 1)
    ) == memory_desc((2, 17), "f32", "aB8b")
