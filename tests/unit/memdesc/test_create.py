"""Descriptors made by names and by strides, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memdesc import (
    MemdescError,
    UnsupportedFormatError,
    memory_desc,
)
from memdesc.errors import short_repr


def test_without_tag_and_strides_the_layout_is_row_major() -> None:
    assert memory_desc((2, 3, 4), "f32") == memory_desc((2, 3, 4), "f32", "abc")


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


def test_padded_dims_may_be_larger_than_whole_blocks_or_cut_one_short() -> None:
    desc = memory_desc(
        (2, 3), "f32", strides=(8, 8), inner_blks=(8,), inner_idxs=(1,), padded_dims=(2, 3)
    )
    assert (desc.padded_dims, desc.min_nbytes, desc.has_padding) == ((2, 3), 44, False)


def test_the_widest_tensor_of_bytes_has_int64_max_elements() -> None:
    assert memory_desc((2**63 - 1,), "u8").nbytes == 2**63 - 1
    with pytest.raises(
        MemdescError, match=rf"dims \({2**61}, 1\) of f32 take {2**63} bytes, more than int64 holds"
    ):
        memory_desc((2**61, 1), "f32")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dims": ()}, "dims () have 0 sizes; a descriptor has 1 to 12"),
        (
            {"dims": (1,) * 13},
            "dims (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1) have 13 sizes; a descriptor has 1 to 12",
        ),
        ({"dims": (2, -3)}, "dim b (dim 1) has size -3; sizes are 0 to 9223372036854775807"),
        ({"dims": 2}, "dims must be a sequence of integers, not 2"),
        ({"dims": (2.0, 3)}, "dims must be a sequence of integers, not (2.0, 3)"),
        ({"dims": np.array(2.5)}, "dims must be a sequence of integers, not array(2.5)"),
        (
            {"dims": (2**63, 3)},
            f"dims must be integers that int64 holds (up to {2**63 - 1}), not ({2**63}, 3)",
        ),
        (
            {"dims": (10**5000, 3)},
            (
                f"dims must be integers that int64 holds (up to {2**63 - 1}), "
                "not a tuple with a number too long to print"
            ),
        ),
        (
            {"dims": (2**32, 2**32)},
            (
                f"padded to ({2**32}, {2**32}) make {2**64} elements, "
                f"more than int64 holds ({2**63 - 1})"
            ),
        ),
        ({"dtype": "f33"}, "unknown data type 'f33'; the types are"),
        ({"layout": 5}, "a layout is a name, a FormatTag or a torch.memory_format, not 5"),
        ({"layout": "abc"}, "dims (2, 3) have 2 sizes, but 'abc' is for 3"),
        (
            {"layout": "ab", "strides": (3, 1)},
            "give a layout or strides, not both: layout='ab' and strides=(3, 1)",
        ),
        *(
            (
                option,
                "padded_dims and offset0 go with strides=, not with a layout",
            )
            for option in (
                {"layout": "ab", "offset0": 3},
                {"inner_blks": (8,)},
                {"inner_idxs": (0,)},
                {"padded_dims": (2, 8)},
            )
        ),
        ({"strides": 5}, "strides must be a sequence of integers, not 5"),
        ({"strides": (3,)}, "strides (3,) must be 2 numbers, one for each dim"),
        (
            {"strides": (2**63, 1)},
            f"strides must be integers that int64 holds (up to {2**63 - 1}), not ({2**63}, 1)",
        ),
        (
            {"strides": (2, 1)},
            (
                "two indices share one element, (0, 2) and (1, 0): "
                "the differences +1 in a (dim 0) (stride 2), "
                "-2 in b (dim 1) (stride 1) add up to offset 0"
            ),
        ),
        (
            {"strides": (-3, 1)},
            "the layout reaches offset -3, before its buffer; offset0 must be at least 3",
        ),
        (
            {"strides": (3, 1), "padded_dims": (2, 3, 4)},
            "padded_dims (2, 3, 4) must be 2 numbers, one for each dim",
        ),
        (
            {"strides": (3, 1), "padded_dims": (2, 2)},
            "padded extent 2 of b (dim 1) must be at least its size 3",
        ),
        (
            {"strides": (3, 1), "inner_blks": (2,)},
            (
                "inner_blks (2,) and inner_idxs () must be sizes of 1 or more, "
                "each with a dim of 0 to 1"
            ),
        ),
        (
            {"strides": (3, 1), "inner_blks": (0,), "inner_idxs": (1,)},
            "inner_blks (0,) and inner_idxs (1,) must be sizes of 1 or more",
        ),
        (
            {"strides": (3, 1), "inner_blks": (2,), "inner_idxs": (2,)},
            "inner_blks (2,) and inner_idxs (2,) must be sizes of 1 or more",
        ),
        (
            {"strides": (3, 1), "inner_blks": (2**62, 2), "inner_idxs": (0, 1)},
            f"inner_blks ({2**62}, 2) multiply to more elements than int64",
        ),
        (
            {"strides": (3, 1), "offset0": -1},
            "the layout reaches offset -1, before its buffer; offset0 must be at least 0",
        ),
        (
            {"strides": (3, 1), "offset0": 2**63},
            f"offset0 must be an integer that int64 holds, not {2**63}",
        ),
        (
            {"strides": (3, 1), "offset0": 2**62},
            f"dims (2, 3) of f32 take {2**64 + 24} bytes, more than int64 holds ({2**63 - 1})",
        ),
    ],
    ids=short_repr,
)
def test_arguments_that_break_a_rule_are_refused_with_the_rule_and_the_numbers(
    options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(MemdescError) as caught:
        memory_desc(options.pop("dims", (2, 3)), options.pop("dtype", "f32"), **options)
    assert reason in str(caught.value)


@pytest.mark.parametrize("dtype", ["f32", np.float32, "torch.float32"])
def test_a_data_type_in_the_place_of_the_tag_is_refused_with_the_order(dtype: Any) -> None:
    with pytest.raises(MemdescError, match=r"^dtype comes before layout: dtype is 'nchw' here"):
        memory_desc((2, 3, 4, 5), "nchw", dtype)
    with pytest.raises(MemdescError, match="unknown data type 'nchw'"):
        memory_desc((2, 3, 4, 5), "nchw")


def test_the_name_of_a_record_is_refused_as_a_layout() -> None:
    with pytest.raises(UnsupportedFormatError, match=r"record_desc\(dims, 'q4_0'\) describes it"):
        memory_desc((4, 32), "u8", "q4_0")
