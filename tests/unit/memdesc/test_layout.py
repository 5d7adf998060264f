"""Layouts: where elements lie, and what a layout answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memdesc import Axis, Block, Layout, MemdescError, NotBlockedError, memory_desc, parse_tag
from memdesc.layout import dim_name, layout_by_strides, layout_by_tag, memory_order

INT64_MAX = 2**63 - 1


def by_tag(dims: tuple[int, ...], tag: str) -> Layout:
    return layout_by_tag(parse_tag(tag), dims)


def plain(*strides: int, dims: tuple[int, ...], offset0: int = 0) -> Layout:
    return layout_by_strides(dims, strides, offset0=offset0)


def test_a_dim_is_named_by_letter_and_index() -> None:
    assert dim_name(11) == "l (dim 11)"


def test_a_tag_pads_to_whole_blocks_and_alignments() -> None:
    layout = by_tag((2, 9, 3), "aBc4b__b6__c2")
    assert layout.axes == (Axis((0,), 2), Axis((1,), 12), Axis((2,), 4))
    assert layout.padded_dims() == (2, 12, 4)
    assert layout.blocks == (
        Block(0, 1, 2, 48),
        Block(1, 4, 3, 16),
        Block(1, 1, 4, 1),
        Block(2, 1, 4, 4),
    )
    assert layout.last == 95
    assert layout.has_padding
    assert not by_tag((2, 8, 3), "aBc4b").has_padding


def test_a_size_of_zero_does_not_multiply_the_strides() -> None:
    layout = by_tag((2, 0, 3, 4), "aBcd16b")
    assert layout.strides() == (192, 192, 64, 16)
    assert (layout.nelems, layout.padded_nelems, layout.span, layout.last) == (0, 0, 0, 0)


def test_dims_that_are_one_axis_are_padded_together_and_have_no_strides() -> None:
    layout = by_tag((2, 3, 5, 7), "aB(CD)8b16(cd)")
    assert layout.axes == (Axis((0,), 2), Axis((1,), 8), Axis((2, 3), 48))
    assert layout.padded_dims() == (2, 8, 5, 7)
    assert layout.fused() == Axis((2, 3), 48)
    for ask in (layout.strides, layout.tile):
        with pytest.raises(
            NotBlockedError,
            match=(
                r"dims c \(dim 2\), d \(dim 3\) are fused into one index, "
                r"so they have no strides; see \.blocks"
            ),
        ):
            ask()
    assert by_tag((2, 3), "ab").fused() is None


def test_the_offset_of_an_index_follows_the_blocks_of_its_axes() -> None:
    assert (
        by_tag((2, 17, 5, 4), "aBcd8b").offset((1, 9, 2, 3))
        == 1 * 480 + 1 * 160 + 2 * 32 + 3 * 8 + 1
    )
    fused = by_tag((2, 3, 5, 7), "aB(CD)8b16(cd)")
    yx = 3 * 7 + 4
    assert fused.offset((1, 2, 3, 4)) == 8 * 48 + yx // 16 * 128 + 2 * 16 + yx % 16


def test_the_tables_of_the_axes_add_up_to_the_offset() -> None:
    layout = by_tag((2, 9, 3), "aBc4b")
    a, b, c = layout.tables()
    assert a[1] + b[6] + c[2] == layout.offset((1, 6, 2))
    assert [table.shape for table in layout.tables(padded=True)] == [(2,), (12,), (3,)]
    assert [table.dtype for table in layout.tables()] == [np.int64] * 3
    assert [table.shape for table in by_tag((2, 0), "ab").tables()] == [(2,), (0,)]


@pytest.mark.parametrize("tag", ["aBcd8b", "ABdc4b2a2b", "aB(CD)8b16(cd)"])
def test_offsets_are_those_of_every_index(tag: str) -> None:
    layout = by_tag((2, 9, 3, 5), tag)
    offsets = layout.offsets()
    assert offsets.shape == layout.dims
    assert all(offsets[index] == layout.offset(index) for index in np.ndindex(layout.dims))
    padded = layout.offsets(padded=True)
    assert padded.size == layout.padded_nelems
    assert sorted(padded.ravel()) == list(range(layout.padded_nelems))


def test_an_axis_has_partial_blocks_where_it_ends_inside_one() -> None:
    whole = memory_desc((2, 17), "f32", "aB8b")
    view = whole.submemory((2, 5), (0, 0))
    assert not whole.layout.has_partial_blocks
    assert view.layout.has_partial_blocks


@pytest.mark.parametrize("axis", ["a", True, 1.0, -1, 2])
def test_an_axis_that_a_layout_does_not_have_is_refused(axis: int) -> None:
    layout = by_tag((2, 3), "ab")
    for ask in (layout.axis_size, layout.axis_blocks, layout.outer):
        with pytest.raises(MemdescError, match=r"^axis "):
            ask(axis)


def test_blocks_sort_as_they_lie_in_memory() -> None:
    layout = by_tag((2, 9, 1, 5), "aBcd4b")
    order = sorted(layout.blocks, key=memory_order)
    assert [(block.axis, block.extent) for block in order] == [
        (0, 2),
        (1, 3),
        (2, 1),
        (3, 5),
        (1, 4),
    ]
    back = plain(-20, 1, 5, dims=(2, 5, 4), offset0=20)
    assert [block.axis for block in sorted(back.blocks, key=memory_order)] == [0, 2, 1]
    # two blocks of one axis that share elements, as a layout that is only read may
    wide, narrow = Block(0, 2, 2, 1), Block(0, 1, 2, 1)
    assert sorted([narrow, wide], key=memory_order) == [wide, narrow]


def test_the_tile_lists_the_inner_blocks_outermost_first() -> None:
    layout = by_tag((2, 9, 3, 2), "ABcd4b16a4b")
    assert [(block.axis, block.extent) for block in layout.tile()] == [(1, 4), (0, 16), (1, 4)]
    assert [(block.axis, block.extent) for block in layout.inner()] == [(0, 16), (1, 4), (1, 4)]
    assert by_tag((2, 9), "ba").tile() == ()


def test_swizzled_blocks_are_no_tile() -> None:
    with pytest.raises(
        NotBlockedError,
        match=(
            r"blocks of a \(dim 0\) are swizzled: block Block\(.*\) lies outside one of a "
            r"larger step; see"
        ),
    ):
        by_tag((32, 4), "AB2a/1.16a/2.4b").tile()


def test_a_block_outside_of_an_outer_letter_is_no_tile() -> None:
    with pytest.raises(
        NotBlockedError,
        match=r"not a dense tile: block Block\(.*\) has stride 3, not 1; see \.blocks",
    ):
        by_tag((8, 3), "A4ab").tile()


def test_the_span_counts_the_last_row_in_full_and_a_broadcast_once() -> None:
    assert plain(10, 1, dims=(4, 5)).span == 40
    assert plain(5, 1, dims=(2, 3)).span == 10
    assert plain(0, 1, dims=(4, 5)).span == 5
    assert plain(0, 0, dims=(4, 5)).span == 1
    assert plain(7, 1, dims=(1, 5)).span == 5


def test_the_last_offset_is_exact_where_an_axis_ends_inside_a_block() -> None:
    # a view of 3 in a block of 8: the free digits would reach 7
    view = Layout(
        (2, 3),
        (Axis((0,), 2), Axis((1,), 3)),
        (Block(0, 1, 2, 8), Block(1, 8, 1, 16), Block(1, 1, 8, 1)),
    )
    assert view.last == 8 + 2
    # 11 of blocks of 2 in blocks of 4: index 10 ends it, index 7 reaches farthest
    cut = Layout(
        (11,), (Axis((0,), 11),), (Block(0, 4, 3, 1), Block(0, 2, 2, 100), Block(0, 1, 2, 50))
    )
    assert cut.last == max(i // 4 + i // 2 % 2 * 100 + i % 2 * 50 for i in range(11))
    back = Layout(
        (11,),
        (Axis((0,), 11),),
        (Block(0, 4, 3, -9), Block(0, 2, 2, 4), Block(0, 1, 2, 2)),
        offset0=18,
    )
    assert back.last == max(18 - i // 4 * 9 + i // 2 % 2 * 4 + i % 2 * 2 for i in range(11))


def test_a_negative_stride_is_legal_where_offset0_is_large_enough() -> None:
    assert plain(-3, 1, dims=(2, 3), offset0=3).last == 5
    with pytest.raises(
        MemdescError,
        match=r"the layout reaches offset -3, before its buffer; offset0 must be at least 3$",
    ):
        plain(-3, 1, dims=(2, 3))
    with pytest.raises(
        MemdescError,
        match=r"the layout reaches offset -1, before its buffer; offset0 must be at least 0$",
    ):
        plain(3, 1, dims=(2, 3), offset0=-1)


def test_strides_with_an_inner_tile_pad_to_whole_blocks_by_default() -> None:
    layout = layout_by_strides((2, 17), (24, 8), ((8, 1),))
    assert layout == by_tag((2, 17), "aB8b")
    assert layout_by_strides((2, 17), (40, 8), ((8, 1),), (2, 40)).padded_dims() == (2, 40)


def test_equality_ignores_the_stride_of_a_dim_of_one_that_is_not_padded() -> None:
    assert plain(9, 1, dims=(1, 5)).key() == plain(5, 1, dims=(1, 5)).key()
    assert plain(9, 1, dims=(2, 4)).key() != plain(4, 1, dims=(2, 4)).key()
    padded = [layout_by_strides((1, 5), (stride, 8), ((8, 0),)).key() for stride in (40, 80)]
    assert padded[0] != padded[1]


@pytest.mark.parametrize(
    ("dims", "reason"),
    [
        ((), r"dims \(\) have 0 sizes; a descriptor has 1 to 12"),
        ((1,) * 13, r"have 13 sizes; a descriptor has 1 to 12"),
        ((2, -1), r"dim b \(dim 1\) has size -1; sizes are 0 to 9223372036854775807"),
        ((2**63, 1), "9223372036854775807"),
        ((INT64_MAX, -1), r"dim b \(dim 1\) has size -1"),
    ],
)
def test_sizes_that_no_tensor_has_are_refused(dims: tuple[int, ...], reason: str) -> None:
    with pytest.raises(MemdescError, match=reason):
        Layout(dims, (), ())
    with pytest.raises(MemdescError, match=reason):
        layout_by_strides(dims, (1,) * len(dims))


def test_a_tag_of_another_number_of_dims_is_refused_by_the_name_it_was_given() -> None:
    with pytest.raises(MemdescError, match=r"dims \(2, 3\) have 2 sizes, but 'abc' is for 3"):
        by_tag((2, 3), "abc")
    with pytest.raises(MemdescError, match=r"dims \(2, 3\) have 2 sizes, but 'ncw' is for 3"):
        layout_by_tag(parse_tag("abc"), (2, 3), "ncw")
    with pytest.raises(MemdescError, match=r"dims \(\) have 0 sizes; a descriptor has 1 to 12"):
        by_tag((), "abc")


def test_numbers_beyond_int64_are_refused_exactly() -> None:
    assert by_tag((INT64_MAX,), "a").last == INT64_MAX - 1
    assert plain(1, dims=(2,), offset0=INT64_MAX - 1).last == INT64_MAX
    assert plain(INT64_MAX, 1, dims=(2, 1)).last == INT64_MAX
    assert plain(-INT64_MAX, 1, dims=(2, 1), offset0=INT64_MAX).last == INT64_MAX
    with pytest.raises(
        MemdescError,
        match=(
            rf"padded to \({2**62}, 16\) make {2**66} elements, "
            rf"more than int64 holds \({INT64_MAX}\)"
        ),
    ):
        by_tag((2**62, 1), "AB16a16b")
    with pytest.raises(
        MemdescError, match=rf"dims \(0, {2**40}, {2**40}\) padded to .* make {2**80} elements"
    ):
        by_tag((0, 2**40, 2**40), "abc")
    with pytest.raises(MemdescError, match=rf"dim a \(dim 0\) has size {2**63}; sizes are 0 to"):
        plain(1, 1, dims=(2**63, 1))
    with pytest.raises(
        MemdescError, match=rf"stride {2**63} of a \(dim 0\) exceeds the range of int64"
    ):
        plain(2**63, 1, dims=(2, 3))
    with pytest.raises(
        MemdescError,
        match=rf"the layout reaches offset {2**63}, more than int64 holds \({INT64_MAX}\)",
    ):
        plain(1, dims=(0,), offset0=2**63)


def test_the_repr_of_a_layout_makes_it_again() -> None:
    layout = by_tag((2, 3, 5, 7), "aB(CD)8b16(cd)")
    names = {"Layout": Layout, "Axis": Axis, "Block": Block}
    assert eval(repr(layout), names) == layout  # noqa: S307 - of a value of this test


def _raises() -> Any:
    yield 1
    raise RuntimeError


def test_an_axis_or_a_block_whose_iterator_raises_is_refused() -> None:
    axis, block = Axis((0,), 2), Block(0, 1, 2, 1)
    with pytest.raises(MemdescError, match="axes must be a tuple of Axis"):
        Layout((2,), (_raises(),), (block,))
    with pytest.raises(MemdescError, match="blocks must be a tuple of Block"):
        Layout((2,), (axis,), (_raises(),))
