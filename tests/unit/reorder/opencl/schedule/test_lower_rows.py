"""Which reorders take the kernels for rows that start at any byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memdesc import memory_desc
from reorder.opencl.schedule.profile import GPU
from reorder.opencl.schedule.transfers import OperandSpec
from tests.unit.reorder.opencl.launches import check_source, launches

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from reorder.opencl.schedule.lower import Launch


def launch_of(src: MemoryDesc, dst: MemoryDesc, max_work_items: int = 256) -> Launch:
    """Return the launch of a reorder that has one."""
    one, other = (OperandSpec(desc, None, f"b{desc.dtype.bits}") for desc in (src, dst))
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
    assert swap(dtype, row).pattern.rows is not None


@pytest.mark.parametrize(("most", "work_items"), [(256, 128), (100, 64)])
def test_groups_are_those_of_the_profile_or_of_a_smaller_device(most: int, work_items: int) -> None:
    pattern = swap("u8", 111, most).pattern
    assert pattern.rows is not None
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
    assert swap(dtype, row).pattern.rows is None


def test_as_few_loops_follow_one_another_as_have_enough_bytes() -> None:
    # 50 rows of 1026 bytes are enough; 50 of 111 are not
    shapes = [swap("u8", row).pattern.rows for row in (1026, 111)]
    assert [shape.depth for shape in shapes if shape is not None] == [2, 3]


def test_rows_with_gaps_that_are_short_are_copied_by_elements() -> None:
    src = memory_desc((700, 111), "u8", "ab")
    dst = memory_desc((700, 111), "u8", strides=(113, 1))
    assert launch_of(src, dst).pattern.rows is None


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
    tile = launch_of(memory_desc(dims, dtype, "ab"), memory_desc(dims, dtype, "ba")).pattern.skewed
    assert (None if tile is None else tile.align) == align
