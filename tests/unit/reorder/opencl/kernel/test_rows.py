"""Which reorders take the kernels for rows that start at any byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memdesc import memory_desc
from reorder.opencl.kernel.profile import GPU
from reorder.opencl.kernel.rows import Rows
from reorder.opencl.kernel.skewed import Skewed
from reorder.opencl.kernel.transfers import OperandSpec
from tests.unit.reorder.opencl.launches import check_source, launches

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from reorder.opencl.kernel.launch import Launch


def launch_of(src: MemoryDesc, dst: MemoryDesc, max_work_items: int = 256) -> Launch:
    """Return the launch of a reorder that has one."""
    one, other = (OperandSpec(desc) for desc in (src, dst))
    (launch,) = launches(one, other, max_work_items, GPU)
    check_source(launch)
    return launch


def swap(dtype: str, row: int, most: int = 256) -> Launch:
    dims = (40, 50, 20, row)
    return launch_of(memory_desc(dims, dtype, "abcd"), memory_desc(dims, dtype, "acbd"), most)


@pytest.mark.parametrize(
    ("dtype", "row"), [("u8", 111), ("u8", 17), ("f16", 11), ("u8", 1026), ("f32", 11)]
)
def test_rows_of_odd_lengths_are_copied_in_vectors(dtype: str, row: int) -> None:
    assert isinstance(swap(dtype, row).pattern.body, Rows)


@pytest.mark.parametrize(("most", "work_items"), [(256, 128), (100, 64)])
def test_groups_are_those_of_the_profile_or_of_a_smaller_device(most: int, work_items: int) -> None:
    pattern = swap("u8", 111, most).pattern
    assert isinstance(pattern.body, Rows)
    assert pattern.work_items == work_items


@pytest.mark.parametrize(
    ("dtype", "row"),
    [
        ("u8", 112),  # whole vectors
        ("f64", 111),  # elements are as fast
        ("u8", 13),  # a vector may have more than two rows
    ],
)
def test_other_rows_are_copied_by_elements(dtype: str, row: int) -> None:
    assert not isinstance(swap(dtype, row).pattern.body, Rows)


def test_as_few_loops_follow_one_another_as_have_enough_bytes() -> None:
    # 50 rows of 1026 bytes are enough; 50 of 111 are not
    bodies = [swap("u8", row).pattern.body for row in (1026, 111)]
    assert bodies == [Rows(2), Rows(3)]


def test_rows_with_gaps_that_are_short_are_copied_by_elements() -> None:
    src = memory_desc((700, 111), "u8", "ab")
    dst = memory_desc((700, 111), "u8", strides=(113, 1))
    assert not isinstance(launch_of(src, dst).pattern.body, Rows)


@pytest.mark.parametrize(
    ("dtype", "dims", "align"),
    [
        ("u8", (1001, 999), 32),
        ("f16", (1000, 999), 0),  # rows of dst are whole vectors
        ("f32", (999, 1000), 32),
        ("f32", (1000, 1000), None),
        ("f64", (999, 999), None),
        ("u8", (1001, 65), None),  # rows of src are too short
    ],
)
def test_rows_in_dst_end_where_sectors_do_unless_they_are_whole_vectors(
    dtype: str, dims: tuple[int, int], align: int | None
) -> None:
    body = launch_of(memory_desc(dims, dtype, "ab"), memory_desc(dims, dtype, "ba")).pattern.body
    assert (body.align if isinstance(body, Skewed) else None) == align
