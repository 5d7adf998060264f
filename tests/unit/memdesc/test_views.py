from __future__ import annotations

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


def test_an_empty_view_keeps_no_padding() -> None:
    view = desc((2, 20), "aB8b").submemory((0, 20), (1, 0))
    assert (view.padded_dims, view.nbytes) == ((0, 24), 0)
    assert desc((2, 16), "ab__b24").submemory((2, 0), (0, 16)).padded_dims == (2, 0)


def test_fused_dims_stay_whole_in_a_view() -> None:
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


@pytest.mark.parametrize("perm", [(0, 1), (0, 1, 1), (0, 1, 3), (0, 1, -1), (), (0, 1, 2, 3)])
def test_only_permutations_of_the_dims_are_taken(perm: tuple[int, ...]) -> None:
    with pytest.raises(MemdescError, match=r"is not a permutation of the dims 0 to 2$"):
        desc((2, 3, 4), "abc").permute_axes(perm)


def test_an_empty_view_does_not_start_in_front_of_its_parent() -> None:
    desc = memory_desc((0, 5), "f32", strides=(5, -1))
    assert desc.submemory((0, 4), (0, 1)).offset0 == 0
