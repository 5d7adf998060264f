import pytest

from memdesc import MemoryDesc, memory_desc


def desc(dims: tuple[int, ...], tag: str) -> MemoryDesc:
    return memory_desc(dims, "f32", tag)


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
        ((2, 3, 4), "acb", (6, 4), "Ab3a"),
        ((6, 4), "Ab3a", (2, 3, 4), "acb"),
        ((2, 3, 5, 16, 8), "abcde", (2, 3, 80, 8), "abcd"),
        ((5, 6, 4), "aBc2b", (5, 3, 2, 4), "abdc"),
        ((3, 16), "aB8b", (3, 2, 8), "abc"),
        ((2, 0, 4), "abc", (2, 0, 4), "abc"),
        ((2, 0, 4), "abc", (2, 0, 2, 2), "abcd"),
        ((0, 4), "ab", (0, 1, 4), "abc"),
    ],
)
def test_dims_are_regrouped_where_no_data_moves(
    dims: tuple[int, ...], tag: str, new: tuple[int, ...], new_tag: str
) -> None:
    assert desc(dims, tag).reshape(new) == desc(new, new_tag)


def test_the_first_dim_of_those_that_are_merged_may_be_padded() -> None:
    merged = desc((3, 4), "Ab8a").reshape((12,))
    assert (merged.dims, merged.padded_dims) == ((12,), (32,))
    split = merged.reshape((6, 2))
    assert split.padded_dims == (16, 2)
    assert split.reshape((3, 4)) == desc((3, 4), "ba__a8")


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
