from __future__ import annotations

import numpy as np
import pytest

from memdesc import MemdescError, MemoryDesc, memory_desc


def desc(dims: tuple[int, ...], tag: str) -> MemoryDesc:
    return memory_desc(dims, "f32", tag)


# Sub-memory: the examples of the specification, of (2, 20) with blocks of 8 on dim 1.


@pytest.mark.parametrize(
    ("size", "at", "padded", "offset0"),
    [
        (4, 16, 8, 16),
        (3, 8, 3, 8),
        (8, 8, 8, 8),
        (20, 0, 24, 0),
        (12, 8, 16, 8),
        (0, 8, 0, 8),
        (0, 16, 0, 16),
    ],
)
def test_a_view_is_padded_at_the_parents_end_only(
    size: int, at: int, padded: int, offset0: int
) -> None:
    view = desc((2, 20), "aB8b").submemory((2, size), (0, at))
    assert (view.dims, view.padded_dims, view.offset0) == ((2, size), (2, padded), offset0)
    assert (view.strides, view.inner_blks) == ((24, 8), (8,))


@pytest.mark.parametrize(
    ("size", "at", "reason"),
    [
        (9, 8, r"b \(dim 1\): size 9 at 8 ends inside a block of 8 before the parent's end 20"),
        (4, 4, r"b \(dim 1\): offset 4 is not a multiple of the block 8"),
        (0, 20, r"b \(dim 1\): offset 20 is not a multiple of the block 8"),
        (0, 21, r"b \(dim 1\): a view of 0 at 21 leaves the parent's size 20"),
        (21, 0, r"b \(dim 1\): a view of 21 at 0 leaves the parent's size 20"),
        (-1, 8, r"b \(dim 1\): a view of -1 at 8 leaves the parent's size 20"),
        (8, -8, r"b \(dim 1\): a view of 8 at -8 leaves the parent's size 20"),
    ],
)
def test_a_view_that_leaves_the_parent_or_cuts_a_block_is_refused(
    size: int, at: int, reason: str
) -> None:
    with pytest.raises(MemdescError, match=reason):
        desc((2, 20), "aB8b").submemory((2, size), (0, at))


@pytest.mark.parametrize(
    ("dims", "offsets"), [((2,), (0, 0)), ((2, 8), (0,)), ((2, 8, 1), (0, 0, 0)), ((), ())]
)
def test_a_view_has_as_many_sizes_and_offsets_as_the_parent(
    dims: tuple[int, ...], offsets: tuple[int, ...]
) -> None:
    with pytest.raises(MemdescError, match="a view of 2 dims needs as many sizes and offsets, not"):
        desc((2, 20), "aB8b").submemory(dims, offsets)


def test_a_view_of_what_is_no_number_is_refused() -> None:
    with pytest.raises(
        MemdescError, match=r"offsets must be a sequence of integers, not \(0, None\)"
    ):
        desc((2, 20), "aB8b").submemory((2, 8), (0, None))  # type: ignore[arg-type]


def test_views_of_views_accumulate() -> None:
    parent = desc((4, 40), "aB8b")
    view = parent.submemory((3, 24), (1, 8)).submemory((2, 8), (1, 16))
    assert view == parent.submemory((2, 8), (2, 24))
    assert view.offset((1, 3)) == parent.offset((3, 27))


def test_an_empty_view_keeps_no_padding() -> None:
    view = desc((2, 20), "aB8b").submemory((0, 20), (1, 0))
    assert (view.padded_dims, view.nbytes) == ((0, 24), 0)


def test_dims_that_are_one_axis_stay_whole_in_a_view() -> None:
    parent = desc((4, 20, 5, 7), "aB(CD)8b16(cd)")
    view = parent.submemory((2, 8, 5, 7), (1, 8, 0, 0))
    assert view.offset((1, 3, 2, 4)) == parent.offset((2, 11, 2, 4))
    with pytest.raises(
        MemdescError,
        match=(
            r"dims c \(dim 2\), d \(dim 3\) are fused into one index; "
            r"a view must keep them whole"
        ),
    ):
        parent.submemory((4, 20, 5, 6), (0, 0, 0, 0))


def test_a_view_of_swizzled_blocks_starts_at_whole_blocks() -> None:
    parent = desc((64, 8), "AB2a/1.16a/2.4b")
    view = parent.submemory((32, 8), (32, 0))
    assert [view.offset((i, 5)) for i in range(32)] == [
        parent.offset((32 + i, 5)) for i in range(32)
    ]


@pytest.mark.parametrize(
    ("dims", "tag", "new"),
    [
        ((3, 2, 7, 3), "(AD)bc4(ad)", (3, 14, 3)),
        ((2, 3, 5, 6), "(ac)bd", (2, 3, 5, 2, 3)),
        ((2, 1, 3), "(AC)b4(ac)", (2, 3)),
        ((1, 1, 3), "(ab)c", (3,)),
        ((2, 1, 3), "(AB)c4(ab)", (1, 2, 1, 3)),
    ],
)
def test_dims_that_are_one_axis_stay_it_while_others_are_regrouped(
    dims: tuple[int, ...], tag: str, new: tuple[int, ...]
) -> None:
    old, reshaped = desc(dims, tag), desc(dims, tag).reshape(new)
    assert [reshaped.offset(index) for index in np.ndindex(new)] == [
        old.offset(index) for index in np.ndindex(dims)
    ]


# Permutation


def test_old_dim_d_becomes_dim_perm_d() -> None:
    assert desc((2, 3, 4), "abc").permute_axes((2, 0, 1)) == memory_desc(
        (3, 4, 2), "f32", strides=(4, 1, 12)
    )


def test_a_permutation_undoes_numpys_transpose() -> None:
    perm = (2, 0, 3, 1)
    x = np.zeros((2, 3, 4, 5), np.float32)
    y = x.transpose(perm)
    transposed = memory_desc(y.shape, "f32", strides=[stride // 4 for stride in y.strides])
    assert transposed.permute_axes(perm) == memory_desc(x.shape, "f32")


def test_dims_that_are_one_axis_keep_their_row_major_order_when_permuted() -> None:
    parent = desc((2, 3, 5, 7), "aB(CD)8b16(cd)")
    permuted = parent.permute_axes((0, 1, 3, 2))
    assert permuted == desc((2, 3, 7, 5), "aB(DC)8b16(dc)")
    assert permuted.offset((1, 2, 6, 4)) == parent.offset((1, 2, 4, 6))


@pytest.mark.parametrize("perm", [(0, 1), (0, 1, 1), (0, 1, 3), (0, 1, -1), (), (0, 1, 2, 3)])
def test_what_is_no_permutation_is_refused(perm: tuple[int, ...]) -> None:
    with pytest.raises(MemdescError, match=r"is no permutation of the dims 0 to 2$"):
        desc((2, 3, 4), "abc").permute_axes(perm)


# Reshape


def test_a_single_dim_splits_under_any_stride() -> None:
    assert desc((6, 2), "ba").reshape((2, 3, 2)) == memory_desc((2, 3, 2), "f32", strides=(3, 1, 6))


@pytest.mark.parametrize(
    ("dims", "tag", "new", "new_tag"),
    [
        ((2, 3, 4), "abc", (24,), "a"),
        ((2, 3, 4), "abc", (6, 4), "ab"),
        ((2, 3, 4), "abc", (2, 2, 6), "abc"),
        ((2, 17, 5, 4), "aBcd8b", (2, 17, 20), "aBc8b"),
        ((2, 17, 20), "aBc8b", (2, 17, 5, 4), "aBcd8b"),
        ((2, 17, 20), "aBc8b", (2, 1, 17, 20, 1), "abCde8c"),
        ((2, 1, 17, 1), "abCd8c", (2, 17), "aB8b"),
        ((17, 3), "ba", (17, 3, 1, 1), "cbad"),
        ((1, 1), "ab", (1,), "a"),
        ((2, 17), "aB8b", (2, 17), "aB8b"),
        ((32, 8, 5, 4), "ABcd2a/1.16a/2.4b", (32, 8, 20), "ABc2a/1.16a/2.4b"),
        ((2, 3, 5, 7), "aB(CD)8b16(cd)", (2, 1, 3, 5, 7), "abC(DE)8c16(de)"),
        ((2, 3, 5, 7), "aB(CD)8b16(cd)", (2, 3, 5, 1, 7), "aB(CE)d8b16(ce)"),
        ((2, 0, 4), "abc", (2, 0, 4), "abc"),
        ((2, 0, 4), "abc", (2, 0, 2, 2), "abcd"),
        ((0, 4), "ab", (0, 1, 4), "abc"),
    ],
)
def test_dims_are_regrouped_where_no_data_moves(
    dims: tuple[int, ...], tag: str, new: tuple[int, ...], new_tag: str
) -> None:
    assert desc(dims, tag).reshape(new) == desc(new, new_tag)


def test_a_padded_dim_of_one_pairs_with_another_of_one() -> None:
    assert desc((2, 1), "aB8b").reshape((2, 1)).padded_dims == (2, 8)
    assert desc((2, 1), "aB8b").reshape((1, 2, 1)).padded_dims == (1, 2, 8)


def test_a_blocked_dim_of_one_that_is_not_padded_can_be_dropped_with_its_blocks() -> None:
    # oneDNN leaves inner_idxs pointing at the missing dim
    view = desc((3, 16), "AB8a8b").submemory((3, 1), (0, 8))
    assert view.padded_dims == (8, 1)
    dropped = view.reshape((3,))
    assert (
        [dropped.offset((i,)) for i in range(3)]
        == [view.offset((i, 0)) for i in range(3)]
        == [64, 72, 80]
    )
    assert len(dropped.axes) == 1


def test_a_view_keeps_its_offset_when_reshaped() -> None:
    view = desc((4, 6), "ab").submemory((2, 6), (2, 0)).reshape((2, 2, 3))
    assert view == memory_desc((2, 2, 3), "f32", strides=(6, 3, 1), offset0=12)


@pytest.mark.parametrize(
    ("dims", "tag", "new", "reason"),
    [
        ((2, 3), "ab", (7,), r"dims \(2, 3\) hold 6 elements, dims \(7,\) hold 7"),
        ((2, 3), "ab", (-1, 6), r"dims \(2, 3\) hold 6 elements, dims \(-1, 6\) hold -6"),
        ((2, 3), "ab", (-2, -3), r"dim a \(dim 0\) has size -2; sizes are 0 to"),
        ((2, 3), "ab", (2, 3, *(1,) * 11), "have 13 sizes; a descriptor has 1 to 12"),
        ((1, 1), "ab", (), r"dims \(\) have 0 sizes; a descriptor has 1 to 12"),
        (
            (2, 0, 5),
            "abc",
            (0,),
            (
                r"dims \(2, 0, 5\) cannot become \(0,\): oneDNN's rule is that the sizes "
                r"other than 0 multiply"
            ),
        ),
        (
            (2, 0, 5),
            "abc",
            (0, 10),
            r"dims \(2, 0, 5\) cannot be regrouped into \(0, 10\) where one of them is 0",
        ),
        (
            (2, 0, 5),
            "abc",
            (10, 0),
            r"dims \(2, 0, 5\) cannot be regrouped into \(10, 0\) where one of them is 0",
        ),
        (
            (2, 17, 4),
            "aBc8b",
            (34, 4),
            (
                r"b \(dim 1\) is blocked or padded, so it must keep its size 17; "
                r"reorder to a plain layout first"
            ),
        ),
        (
            (2, 16, 4),
            "aBc8b",
            (2, 64),
            r"b \(dim 1\) is blocked or padded, so it must keep its size 16",
        ),
        ((2, 3), "ab__b8", (6,), r"b \(dim 1\) is blocked or padded, so it must keep its size 3"),
        (
            (2, 3, 5, 7),
            "aB(CD)8b16(cd)",
            (2, 3, 35),
            r"c \(dim 2\) is blocked or padded, so it must keep its size 5",
        ),
        (
            (2, 3, 4),
            "acb",
            (6, 4),
            (
                r"a \(dim 0\) has stride 12, but b \(dim 1\) inside it spans 3 \* 1 elements; "
                r"reorder to a contiguous"
            ),
        ),
        (
            (2, 1),
            "aB8b",
            (2,),
            (
                r"b \(dim 1\) of size 1 is padded or fused with others, "
                r"so it cannot be dropped"
            ),
        ),
        (
            (2, 3, 1, 7),
            "aB(CD)8b16(cd)",
            (2, 3, 7),
            r"c \(dim 2\) of size 1 is padded or fused with others",
        ),
        ((2, 3, 4), "(ac)b", (2, 3, 2, 2), r"c \(dim 2\) is blocked or padded"),
        ((2, 3, 4), "(ac)b", (6, 4), r"a \(dim 0\) is blocked or padded"),
    ],
)
def test_a_reshape_that_would_move_data_is_refused_with_the_dim_and_the_reason(
    dims: tuple[int, ...], tag: str, new: tuple[int, ...], reason: str
) -> None:
    with pytest.raises(MemdescError, match=reason):
        desc(dims, tag).reshape(new)


def test_an_empty_view_does_not_start_in_front_of_its_parent() -> None:
    desc = memory_desc((0, 5), "f32", strides=(5, -1))
    assert desc.submemory((0, 4), (0, 1)).offset0 == 0
