from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import memdesc
from memdesc import (
    Axis,
    Block,
    Layout,
    MemdescError,
    MemoryDesc,
    NotBlockedError,
    OverlapError,
    UnsupportedFormatError,
    array_desc,
    data_type,
    memory_desc,
    parse_tag,
)
from memdesc.errors import short_repr
from memdesc.int64 import checked_int, checked_ints

if TYPE_CHECKING:
    from collections.abc import Callable


def fields(desc: MemoryDesc) -> dict[str, object]:
    names = (
        "dims",
        "padded_dims",
        "strides",
        "inner_blks",
        "inner_idxs",
        "offset0",
        "nbytes",
        "min_nbytes",
    )
    return {name: getattr(desc, name) for name in names}


# The asserts at the end of the seed page of oneDNN.


def test_the_seed_pages_17_channels_in_blocks_of_8_have_the_fields_it_asserts() -> None:
    n, c, h, w = 2, 17, 5, 4
    c_padded = 24
    desc = memory_desc((n, c, h, w), "f32", "nChw8c")
    assert desc.ndims == 4
    assert desc.dims == (n, c, h, w)
    assert desc.padded_dims == (n, c_padded, h, w)
    assert desc.strides == (c_padded * h * w, h * w * 8, w * 8, 8)
    assert (desc.inner_blks, desc.inner_idxs) == ((8,), (1,))
    assert desc.nbytes == desc.min_nbytes == 4 * n * c_padded * h * w
    assert desc == memory_desc(
        (n, c, h, w), "f32", strides=desc.strides, inner_blks=(8,), inner_idxs=(1,)
    )


def test_the_seed_pages_offset_functions_are_those_of_its_formats() -> None:
    n_, c_, h_, w_ = 2, 16, 5, 4
    formulas: dict[str, Callable[[int, int, int, int], int]] = {
        "nchw": lambda n, c, h, w: n * c_ * h_ * w_ + c * h_ * w_ + h * w_ + w,
        "nhwc": lambda n, c, h, w: n * h_ * w_ * c_ + h * w_ * c_ + w * c_ + c,
        "chwn": lambda n, c, h, w: c * h_ * w_ * n_ + h * w_ * n_ + w * n_ + n,
        "nChw8c": lambda n, c, h, w: (
            n * c_ * h_ * w_ + c // 8 * h_ * w_ * 8 + h * w_ * 8 + w * 8 + c % 8
        ),
    }
    for name, formula in formulas.items():
        desc = memory_desc((n_, c_, h_, w_), "f32", name)
        assert all(desc.offset(index) == formula(*index) for index in np.ndindex(n_, c_, h_, w_))


# Examples that the specification marks as run on the real library.


def test_several_blocks_of_a_dim_multiply_for_padding_and_strides() -> None:
    desc = memory_desc((2, 9, 3, 2), "f32", "ABcd4b16a4b")
    assert fields(desc) == {
        "dims": (2, 9, 3, 2),
        "padded_dims": (16, 16, 3, 2),
        "strides": (1536, 1536, 512, 256),
        "inner_blks": (4, 16, 4),
        "inner_idxs": (1, 0, 1),
        "offset0": 0,
        "nbytes": 6144,
        "min_nbytes": 6144,
    }


def test_a_tag_with_adjacent_blocks_of_one_dim_is_a_layout() -> None:
    desc = memory_desc((25, 2), "f32", "A4a2a3ab")
    assert desc.padded_dims == (48, 2)
    assert [desc.offset((i, 0)) for i in (0, 1, 2, 3, 6, 24)] == [0, 2, 4, 6, 12, 48]


def test_a_dim_of_zero_gives_size_zero_and_strides_that_it_does_not_multiply() -> None:
    desc = memory_desc((2, 0, 3, 4), "f32", "nChw16c")
    assert (desc.padded_dims, desc.strides, desc.nbytes, desc.min_nbytes) == (
        (2, 0, 3, 4),
        (192, 192, 64, 16),
        0,
        0,
    )
    assert (
        memory_desc((2, 0, 3), "f32", "abc").strides
        == memory_desc((2, 0, 3), "f32").strides
        == (3, 3, 1)
    )
    assert memory_desc((2, 0, 3), "f32", "abc") != memory_desc((2, 0, 3), "f32", strides=(0, 3, 1))


def test_no_stride_is_checked_where_a_dim_is_zero() -> None:
    assert memory_desc((2, 0), "f32", strides=(-3, -1)).strides == (-3, -1)


@pytest.mark.parametrize(
    ("strides", "nbytes", "min_nbytes"),
    # (0, 0) is 0 bytes in oneDNN, although an element is read
    [
        ((10, 1), 160, 140),
        ((0, 1), 20, 20),
        ((0, 0), 4, 4),
        ((1, 4), 80, 80),
        ((1, 0), 16, 16),
        ((1, 7), 140, 128),
    ],
)
def test_the_bytes_to_allocate_count_the_last_row_in_full_and_the_least_bytes_do_not(
    strides: tuple[int, int], nbytes: int, min_nbytes: int
) -> None:
    desc = memory_desc((4, 5), "f32", strides=strides)
    assert (desc.nbytes, desc.min_nbytes) == (nbytes, min_nbytes)


def test_the_stride_of_a_dim_with_one_outer_block_is_ignored_in_the_size() -> None:
    assert memory_desc((1, 5), "f32", strides=(1000, 1)).nbytes == 20


def test_what_offset0_skips_counts_in_the_bytes() -> None:
    desc = memory_desc((2, 3), "f32", strides=(3, 1), offset0=5)
    assert (desc.offset0, desc.nbytes, desc.min_nbytes) == (5, 44, 44)


@pytest.mark.parametrize(("dims", "nbytes"), [((3, 6), 9), ((1, 5), 3), ((5,), 3)])
def test_two_elements_of_four_bits_share_a_byte_and_an_odd_end_takes_a_whole_one(
    dims: tuple[int, ...], nbytes: int
) -> None:
    assert memory_desc(dims, "s4").nbytes == nbytes


def test_four_bit_strides_count_elements() -> None:
    assert memory_desc((2, 3), "s4", strides=(4, 1)).nbytes == 4
    assert memory_desc((3,), "s4", strides=(2,)).nbytes == 3


def test_descriptors_that_differ_in_strides_of_unit_dims_only_are_equal() -> None:
    assert memory_desc((1, 4), "f32", "nc") == memory_desc((1, 4), "f32", "cn")
    assert memory_desc((2, 1, 1, 5), "f32", "nchw") == memory_desc((2, 1, 1, 5), "f32", "nhwc")
    assert hash(memory_desc((1, 4), "f32", "nc")) == hash(memory_desc((1, 4), "f32", "cn"))


def test_the_stride_of_a_padded_unit_dim_and_of_a_zero_dim_is_compared() -> None:
    assert memory_desc((1, 4), "f32", "Ab8a") != memory_desc(
        (1, 4), "f32", strides=(64, 8), inner_blks=(8,), inner_idxs=(0,)
    )
    assert memory_desc((0, 4), "f32", "ab") != memory_desc((0, 4), "f32", strides=(7, 1))


@pytest.mark.parametrize(
    "other",
    [
        memory_desc((2, 17), "s32", "aB8b"),
        memory_desc((2, 18), "f32", "aB8b"),
        memory_desc((2, 17), "f32", "aB4b"),
        memory_desc((2, 17), "f32", "Ba8b"),
        memory_desc((2, 17), "f32", strides=(40, 8), inner_blks=(8,), inner_idxs=(1,)),
        memory_desc((2, 17), "f32", strides=(24, 8), inner_blks=(8,), inner_idxs=(1,), offset0=8),
        memory_desc(
            (2, 17), "f32", strides=(32, 8), inner_blks=(8,), inner_idxs=(1,), padded_dims=(2, 32)
        ),
        (2, 17),
        None,
    ],
)
def test_each_field_counts_in_equality(other: object) -> None:
    desc = memory_desc((2, 17), "f32", "aB8b")
    assert desc != other
    assert desc == desc  # noqa: PLR0124 - identity is a path of its own


def test_a_permutation_maps_the_inner_dims_too() -> None:
    desc = memory_desc((2, 9, 3, 2), "f32", "ABcd4b16a4b").permute_axes((1, 0, 3, 2))
    assert (desc.dims, desc.inner_blks, desc.inner_idxs) == ((9, 2, 2, 3), (4, 16, 4), (0, 1, 0))
    assert desc == memory_desc((9, 2, 2, 3), "f32", "BAdc4a16b4a")


# Construction


def test_without_tag_and_strides_the_layout_is_row_major() -> None:
    assert memory_desc((2, 3, 4), "f32") == memory_desc((2, 3, 4), "f32", "abc")


def test_a_tag_may_be_given_as_a_value() -> None:
    assert memory_desc((2, 17), "f32", parse_tag("aB8b")) == memory_desc((2, 17), "f32", "aB8b")


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


def test_the_inner_blocks_come_outermost_first() -> None:
    by_hand = memory_desc(
        (9, 33), "f32", strides=(768, 256), inner_blks=(8, 16, 2), inner_idxs=(1, 0, 1)
    )
    assert by_hand == memory_desc((9, 33), "f32", "AB8b16a2b")


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
        ({"dims": None}, "dims must be a sequence of integers, not None"),
        ({"dims": "23"}, "dims must be a sequence of integers, not '23'"),
        ({"dims": (2.0, 3)}, "dims must be a sequence of integers, not (2.0, 3)"),
        ({"dims": (2, float("nan"))}, "dims must be a sequence of integers, not (2, nan)"),
        ({"dims": (2, [3])}, "dims must be a sequence of integers, not (2, [3])"),
        ({"dims": np.array([2.5])}, "dims must be a sequence of integers, not array([2.5])"),
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
        ({"tag": 5}, "a tag is a name or a FormatTag, not 5"),
        ({"tag": b"ab"}, "a tag is a name or a FormatTag, not b'ab'"),
        ({"tag": "abc"}, "dims (2, 3) have 2 sizes, but 'abc' is for 3"),
        ({"tag": "nchw"}, "dims (2, 3) have 2 sizes, but 'nchw' is for 4"),
        (
            {"tag": "ab", "strides": (3, 1)},
            "give a tag or strides, not both: tag='ab' and strides=(3, 1)",
        ),
        ({"tag": "ab", "strides": 5}, "give a tag or strides, not both: tag='ab' and strides=5"),
        (
            {"tag": "ab", "offset0": 3},
            "inner_blks, inner_idxs, padded_dims and offset0 go with strides=, not with a tag",
        ),
        (
            {"offset0": 3},
            "inner_blks, inner_idxs, padded_dims and offset0 go with strides=, not with a tag",
        ),
        (
            {"inner_blks": (8,)},
            "inner_blks, inner_idxs, padded_dims and offset0 go with strides=, not with a tag",
        ),
        (
            {"inner_idxs": (0,)},
            "inner_blks, inner_idxs, padded_dims and offset0 go with strides=, not with a tag",
        ),
        ({"inner_idxs": 5}, "inner_idxs must be a sequence of integers, not 5"),
        (
            {"offset0": np.array([1, 2])},
            "offset0 must be an integer that int64 holds, not array([1, 2])",
        ),
        (
            {"padded_dims": (2, 8)},
            "inner_blks, inner_idxs, padded_dims and offset0 go with strides=, not with a tag",
        ),
        ({"strides": 5}, "strides must be a sequence of integers, not 5"),
        ({"strides": (3,)}, "strides (3,) must be 2 numbers, one for each dim"),
        (
            {"strides": (2**63, 1)},
            f"strides must be integers that int64 holds (up to {2**63 - 1}), not ({2**63}, 1)",
        ),
        (
            {"strides": (-(2**63), 1)},
            f"strides must be integers that int64 holds (up to {2**63 - 1}), not ({-(2**63)}, 1)",
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
            "the layout reaches offset -3, in front of its buffer; offset0 must be at least 3",
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
            {"strides": (3, 1), "padded_dims": (2, -3)},
            "padded extent -3 of b (dim 1) must be at least its size 3",
        ),
        (
            {"strides": (3, 1), "inner_blks": None},
            "inner_blks must be a sequence of integers, not None",
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
            f"inner_blks ({2**62}, 2) make a tile of more elements than int64",
        ),
        (
            {"strides": (3, 1), "offset0": -1},
            "the layout reaches offset -1, in front of its buffer; offset0 must be at least 0",
        ),
        (
            {"strides": (3, 1), "offset0": "a"},
            "offset0 must be an integer that int64 holds, not 'a'",
        ),
        (
            {"strides": (3, 1), "offset0": None},
            "offset0 must be an integer that int64 holds, not None",
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
def test_what_breaks_a_rule_is_refused_with_the_rule_and_the_numbers(
    options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(MemdescError) as caught:
        memory_desc(options.pop("dims", (2, 3)), options.pop("dtype", "f32"), **options)
    assert reason in str(caught.value)


def test_strict_refuses_what_onednn_refuses_by_tag_too() -> None:
    assert memory_desc((3, 5), "s4", "ab").nbytes == 8
    with pytest.raises(OverlapError, match=r"strict: stride 5 of a \(dim 0\) is odd"):
        memory_desc((3, 5), "s4", "ab", strict=True)
    assert memory_desc((3, 6), "s4", "ab", strict=True).nbytes == 9


def test_strict_has_no_answer_for_a_layout_outside_of_onednns_fields() -> None:
    with pytest.raises(NotBlockedError, match="are fused into one index"):
        memory_desc((2, 3, 4, 5), "f32", "bf8_xy16", strict=True)


def test_padded_offsets_other_than_0_are_refused() -> None:
    desc = memory_desc((2, 3), "f32")
    assert (desc.padded_offsets, desc.extra) == ((0, 0), None)
    assert MemoryDesc(desc.dtype, desc.layout, (0, 0)) == desc
    with pytest.raises(
        UnsupportedFormatError, match=r"padded_offsets \(0, 1\) are not supported; only 0 is"
    ):
        MemoryDesc(desc.dtype, desc.layout, (0, 1))
    with pytest.raises(MemdescError, match=r"extra must be an Extra or None, not 'x'"):
        MemoryDesc(desc.dtype, desc.layout, (0, 0), "x")  # type: ignore[arg-type]
    with pytest.raises(
        MemdescError, match=r"padded_offsets \(0,\) must be 2 numbers, one for each dim"
    ):
        MemoryDesc(desc.dtype, desc.layout, (0,))


# Questions


def test_a_layout_outside_of_onednns_fields_has_no_inner_blocks_and_gives_the_reason() -> None:
    desc = memory_desc((32, 8, 2, 2), "f32", "os_is_yx_osv32_isv4_swizzled_by_2")
    assert desc.strides == (1024, 512, 256, 128)
    for name in ("inner_blks", "inner_idxs"):
        with pytest.raises(NotBlockedError, match=r"the blocks of a \(dim 0\) are swizzled"):
            getattr(desc, name)
    assert desc.blocks[:3] == (Block(0, 32, 1, 1024), Block(0, 2, 16, 4), Block(0, 1, 2, 64))


def test_the_axes_and_blocks_are_the_layout_as_data() -> None:
    desc = memory_desc((2, 3, 5, 7), "f32", "bf8_xy16")
    assert desc.axes == (Axis((0,), 2), Axis((1,), 8), Axis((2, 3), 48))
    assert [tuple(block) for block in desc.blocks] == [
        (0, 1, 2, 384),
        (1, 8, 1, 384),
        (1, 1, 8, 16),
        (2, 16, 3, 128),
        (2, 1, 16, 1),
    ]
    assert desc.padded_dims == (2, 8, 5, 7)


def test_padding_is_counted() -> None:
    desc = memory_desc((2, 17, 5, 4), "f32", "nChw8c")
    assert (desc.nelems, desc.padded_nelems, desc.has_padding) == (680, 960, True)
    assert desc.padding_overhead == 960 / 680
    assert (
        memory_desc((2, 3), "f32").padding_overhead
        == memory_desc((0, 3), "f32").padding_overhead
        == 1.0
    )


@pytest.mark.parametrize(
    ("strides", "offset0", "words"),
    [
        ((3, 1), 0, "dense"),
        ((1, 2), 0, "dense"),
        ((4, 1), 0, ""),
        ((0, 1), 0, "broadcast"),
        ((3, 1), 7, "dense"),
        ((3, -1), 2, ""),
        ((-100, 2), 100, ""),
    ],
)
def test_a_layout_is_dense_where_it_fills_its_bytes_in_order(
    strides: tuple[int, int], offset0: int, words: str
) -> None:
    desc = memory_desc((2, 3), "f32", strides=strides, offset0=offset0)
    assert (desc.is_dense, desc.has_broadcast) == (words == "dense", words == "broadcast")


def test_the_unit_dims_and_the_empty_tensors_do_not_count_for_density() -> None:
    assert memory_desc((1, 3), "f32", strides=(0, 1)).is_dense
    assert not memory_desc((1, 3), "f32", strides=(0, 1)).has_broadcast
    assert memory_desc((0, 3), "f32", strides=(-5, 9)).is_dense


def test_an_offset_is_asked_for_an_index_of_all_dims_within_their_sizes() -> None:
    desc = memory_desc((2, 17, 5, 4), "f32", "nChw8c")
    assert desc.offset((1, 9, 2, 3)) == 729
    assert desc.offset(np.array([1, 9, 2, 3])) == 729
    for index, reason in (
        ((1, 2, 3), r"index \(1, 2, 3\) must be 4 numbers, one for each dim"),
        ((1, 17, 2, 3), r"index 17 of b \(dim 1\) is not in 0 to 16"),
        ((-1, 0, 0, 0), r"index -1 of a \(dim 0\) is not in 0 to 1"),
        ((0.5, 0, 0, 0), r"index must be a sequence of integers, not \(0.5, 0, 0, 0\)"),
    ):
        with pytest.raises(MemdescError, match=reason):
            desc.offset(index)
    with pytest.raises(MemdescError, match=r"b \(dim 1\) has no index: its size is 0"):
        memory_desc((2, 0), "f32").offset((0, 0))


def test_another_data_type_keeps_the_layout_in_elements() -> None:
    desc = memory_desc((2, 17), "f32", "aB8b").with_dtype("bf16")
    assert desc == memory_desc((2, 17), "bf16", "aB8b")
    assert desc.nbytes == 96
    with pytest.raises(MemdescError, match="unknown data type 'x'"):
        desc.with_dtype("x")


# Names


def names_of(desc: MemoryDesc) -> list[str]:
    return [name.text for name in desc.tags()]


def test_the_tags_are_all_names_of_the_layout_in_all_vocabularies() -> None:
    found = names_of(memory_desc((2, 17, 5, 4), "f32", "nChw16c"))
    assert set(found) == {
        "aBcd16b",
        "gOiw16o",
        "nChw16c",
        "NC1HWC0",
        "b_fs_yx_fsv16",
        "o_is_yx_isv16",
        "bfyx_f16",
        "mlas_nchwc16",
    }
    assert found[0] == "aBcd16b"
    assert set(names_of(memory_desc((2, 17, 5, 4), "f32", "nhwc"))) == {
        "acdb",
        "nhwc",
        "ohwi",
        "byxf",
        "oyxi",
        "NHWC",
        "kHWC",
        "OHWI",
    }


def test_dims_of_one_have_no_order_so_more_tags_fit() -> None:
    found = names_of(memory_desc((2, 1, 1, 5), "f32", "nchw"))
    assert {"abcd", "acdb", "nchw", "nhwc", "bfyx", "byxf", "NCHW", "NHWC"} <= set(found)
    assert "dcba" not in found


def test_a_tag_that_onednn_does_not_enumerate_comes_in_its_notation() -> None:
    assert names_of(memory_desc((2, 17), "f32", "aB3b")) == ["aB3b"]
    assert memory_desc((2, 17), "f32", "aB3b").tags()[0] == ("onednn", "aB3b", "any")


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("ABcd2a/1.16a/2.4b", (32, 32, 2, 2)),
        ("aB(CD)8b16(cd)", (1, 17, 5, 5)),
        ("acdb__b32", (1, 17, 2, 2)),
    ],
)
def test_notation_that_onednn_cannot_read_is_a_name_of_memdesc(
    name: str, dims: tuple[int, ...]
) -> None:
    assert memory_desc(dims, "s8", name).tags()[0] == ("memdesc", name, "any")
    assert "aB(CD)8b16(cd)" in names_of(memory_desc((2, 3, 4, 5), "f32", "bf8_xy16"))


def test_a_name_that_exists_for_some_sizes_only_is_among_the_tags_of_those_sizes() -> None:
    assert "iy_xs_os_xsv2_osv8__ao32" not in names_of(memory_desc((8, 2, 3, 4), "f32", "bcDA2d8a"))
    assert "iy_xs_os_xsv2_osv8__ao32" not in names_of(
        memory_desc((8, 2, 3, 3), "f32", "bcDA2d8a__a32")
    )
    assert "iy_xs_os_xsv2_osv8__ao32" in names_of(
        memory_desc((8, 2, 3, 4), "f32", "iy_xs_os_xsv2_osv8__ao32")
    )
    assert "os_is_osv32_isv32_swizzled_by_4" not in names_of(
        memory_desc((32, 32, 1, 2), "s8", "os_is_yx_osa4_isa8_osv8_isv4_swizzled_by_4")
    )
    assert "os_is_osv32_isv32_swizzled_by_4" in names_of(
        memory_desc((32, 32, 1, 1), "s8", "os_is_yx_osa4_isa8_osv8_isv4_swizzled_by_4")
    )


def test_names_that_pack_four_bits_differently_are_tags_of_that_layout_only() -> None:
    assert "os_iyx_osv16" in names_of(memory_desc((17, 3, 2, 3), "s4", "os_iyx_osv16"))
    assert "os_iyx_osv16" not in names_of(
        memory_desc((17, 3, 2, 3), "s8", "os_iyx_osv16").with_dtype("s4")
    )


def test_gaps_and_views_have_no_name() -> None:
    assert names_of(memory_desc((2, 3), "f32", strides=(4, 1))) == []
    assert names_of(memory_desc((4, 3), "f32").submemory((2, 3), (2, 0))) == []


def test_a_tensor_that_other_tags_would_pad_beyond_int64_still_has_tags() -> None:
    assert names_of(memory_desc((2**59, 1, 1), "u8", "Abc16a"))[0] == "Abc16a"


# Text


@pytest.mark.parametrize(
    ("desc", "text"),
    [
        (memory_desc((2, 17), "f32", "nC8c"), "memory_desc((2, 17), 'f32', 'aB8b')"),
        (memory_desc((2, 3), "s8", strides=(4, 1)), "memory_desc((2, 3), 's8', strides=(4, 1))"),
        (
            memory_desc((2, 3), "s8", strides=(-3, 0), offset0=3),
            "memory_desc((2, 3), 's8', strides=(-3, 0), offset0=3)",
        ),
        (
            memory_desc((2, 17), "f32", "aB8b").submemory((2, 3), (0, 8)),
            (
                "memory_desc((2, 3), 'f32', strides=(24, 8), inner_blks=(8,), "
                "inner_idxs=(1,), padded_dims=(2, 3), offset0=8)"
            ),
        ),
        (
            memory_desc((2, 3), "f32", strides=(9, 1), padded_dims=(2, 8)),
            "memory_desc((2, 3), 'f32', strides=(9, 1), padded_dims=(2, 8))",
        ),
        (
            memory_desc((2, 3), "f32", strides=(8, 1), padded_dims=(2, 8)),
            "memory_desc((2, 3), 'f32', 'ab__b8')",
        ),
        (
            memory_desc((2, 3, 4, 5), "f32", "bf8_xy16"),
            "memory_desc((2, 3, 4, 5), 'f32', 'aB(CD)8b16(cd)')",
        ),
        (memory_desc((0, 3), "f32", strides=(0, 1)), "memory_desc((0, 3), 'f32', strides=(0, 1))"),
    ],
)
def test_the_repr_is_the_shortest_call_that_makes_the_same(desc: MemoryDesc, text: str) -> None:
    assert repr(desc) == text
    assert eval(text) == desc  # noqa: S307 - repr is meant to be evaluated


def test_the_repr_of_a_layout_that_no_call_makes_is_the_constructor() -> None:
    desc = memory_desc((4, 3, 4, 5), "f32", "bf8_xy16").submemory((2, 3, 4, 5), (1, 0, 0, 0))
    assert repr(desc).startswith(
        "MemoryDesc(data_type('f32'), Layout(dims=(2, 3, 4, 5), axes=(Axis(dims=(0,), padded=2), "
    )
    scope = {
        "MemoryDesc": MemoryDesc,
        "data_type": data_type,
        "Layout": Layout,
        "Axis": Axis,
        "Block": Block,
    }
    assert eval(repr(desc), scope) == desc  # noqa: S307 - repr is meant to be evaluated


def test_the_repr_of_a_broadcast_that_no_dense_tag_could_hold_is_written() -> None:
    desc = memory_desc((2**20, 2**20), "f64", strides=(0, 0), padded_dims=(2**31, 2**31))
    assert (
        repr(desc)
        == f"memory_desc(({2**20}, {2**20}), 'f64', strides=(0, 0), padded_dims=({2**31}, {2**31}))"
    )


# Copies


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_descriptor_survives_pickle_and_copy(protocol: int) -> None:
    desc = memory_desc((2, 17, 5, 4), "bf16", "nChw8c").submemory((1, 8, 5, 4), (1, 8, 0, 0))
    for copied in (
        pickle.loads(pickle.dumps(desc, protocol)),  # noqa: S301 - made here
        copy.copy(desc),
        copy.deepcopy(desc),
    ):
        assert copied == desc
        assert hash(copied) == hash(desc)


def test_a_descriptor_from_another_process_hashes_as_in_this_one() -> None:
    make = (
        "import pickle, sys, memdesc; "
        "sys.stdout.buffer.write(pickle.dumps(memdesc.memory_desc((2, 17), 'f32', 'aB8b')))"
    )
    output = subprocess.run([sys.executable, "-c", make], capture_output=True, check=True).stdout
    received = pickle.loads(output)  # noqa: S301 - our own bytes
    assert hash(received) == hash(memory_desc((2, 17), "f32", "aB8b"))
    assert {memory_desc((2, 17), "f32", "aB8b"): "found"}[received] == "found"


def test_a_descriptor_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        memory_desc((2, 3), "f32").dtype = data_type("s8")  # type: ignore[misc]


# Arrays


def test_an_array_is_described_where_it_lies() -> None:
    x = np.zeros((4, 6), np.float32)
    assert array_desc(x) == memory_desc((4, 6), "f32", "ab")
    assert array_desc(x.T) == memory_desc((6, 4), "f32", "ba")
    assert array_desc(x[1:3, ::2]) == memory_desc((2, 3), "f32", strides=(6, 2))
    assert array_desc(x[::-1, ::-2]) == memory_desc((4, 3), "f32", strides=(-6, -2), offset0=22)
    assert array_desc(np.broadcast_to(x[:1], (3, 6))) == memory_desc((3, 6), "f32", strides=(0, 1))
    assert array_desc(x.astype(ml_dtypes.bfloat16)).dtype.name == "bf16"


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 4)])
def test_an_empty_array_is_described_whatever_its_strides(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, [("a", "f4"), ("b", "u1")])["a"]
    for array in (x[::-1], np.zeros(shape, "f4")[::-1]):
        assert (array_desc(array).nbytes, array_desc(array).offset0) == (0, 0)


def test_the_stride_of_a_dim_of_one_may_be_anything() -> None:
    x = np.zeros((1, 3), [("a", "f4"), ("b", "f4"), ("c", "u1")])[:, :1]["a"]
    assert array_desc(x) == memory_desc((1, 1), "f32")


def test_a_stride_that_is_no_multiple_of_the_element_is_refused() -> None:
    x = np.zeros((2, 3), [("a", "f4"), ("b", "u1")])["a"]
    with pytest.raises(
        MemdescError,
        match=(
            r"a \(dim 0\) has a stride of 15 bytes, no multiple of the 4-byte element; "
            r"copy the array"
        ),
    ):
        array_desc(x)


def test_elements_that_overlap_in_an_array_are_refused() -> None:
    x = np.lib.stride_tricks.sliding_window_view(np.zeros(9, np.float32), 3)
    with pytest.raises(
        OverlapError,
        match=r"the differences \+(.) in a \(dim 0\) \(stride 1\), -\1 in b \(dim 1\) ",
    ):
        array_desc(x)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float4_e2m1fn])
def test_an_array_of_four_bit_elements_is_no_memory_of_them(dtype: type) -> None:
    with pytest.raises(
        MemdescError, match=r"holds one element a byte, .* memory two; reorder\(\) packs it"
    ):
        array_desc(np.zeros(4, dtype))


@pytest.mark.parametrize("value", [None, [1.0, 2.0], 3.0, memory_desc((2,), "f32")])
def test_what_is_no_array_is_refused(value: Any) -> None:
    with pytest.raises(MemdescError, match="a numpy array is needed, not "):
        array_desc(value)


def test_an_array_without_dims_or_with_a_foreign_type_is_refused() -> None:
    with pytest.raises(MemdescError, match=r"dims \(\) have 0 sizes; a descriptor has 1 to 12"):
        array_desc(np.array(1.0))
    with pytest.raises(MemdescError, match="unknown data type dtype"):
        array_desc(np.zeros(3, complex))
    with pytest.raises(MemdescError, match="not in native byte order"):
        array_desc(np.zeros(3, ">f4"))


def test_checked_numbers_are_python_ints() -> None:
    assert checked_ints("x", ()) == ()
    assert [
        type(value)
        for value in (
            *checked_ints("x", np.array([True, 2], np.int8)),
            checked_int("x", np.uint64(3)),
        )
    ] == [int] * 3


@pytest.mark.parametrize("dtype", ["f32", np.float32, "torch.float32"])
def test_a_data_type_in_the_place_of_the_tag_is_refused_with_the_order(dtype: Any) -> None:
    with pytest.raises(MemdescError, match=r"^dtype comes before the tag: dtype is 'nchw' here"):
        memory_desc((2, 3, 4, 5), "nchw", dtype)
    with pytest.raises(MemdescError, match="unknown data type 'nchw'"):
        memory_desc((2, 3, 4, 5), "nchw")


def test_values_that_print_as_one_line_take_a_format() -> None:
    for value in (
        memory_desc((2, 17, 5, 4), "f32", "nChw8c"),
        memdesc.image_desc((1, 17, 5, 4), "f16", "in_out_channel"),
        memdesc.runtime_desc((memdesc.RUNTIME, 4), "f32", "ab"),
        memdesc.data_type("bf16"),
        memdesc.parse_tag("aBcd8b"),
    ):
        assert f"{value}" == str(value)
        assert f"{value:>60}" == str(value).rjust(60)
        with pytest.raises(ValueError, match="format code"):
            f"{value:d}"
