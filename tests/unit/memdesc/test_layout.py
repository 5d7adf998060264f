"""Layouts: what they refuse, and the edges of int64. Laws say what legal ones answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from memdesc import Axis, Block, Layout, MemdescError, memory_desc
from memdesc.errors import NotBlockedError
from memdesc.layout import layout_by_strides, memory_order

if TYPE_CHECKING:
    from collections.abc import Callable

INT64_MAX = 2**63 - 1


def by_tag(dims: tuple[int, ...], tag: str) -> Layout:
    return memory_desc(dims, "u8", tag).layout


def plain(*strides: int, dims: tuple[int, ...], offset0: int = 0) -> Layout:
    return layout_by_strides(dims, strides, offset0=offset0)


def test_fused_dims_are_padded_together_and_have_no_strides() -> None:
    layout = by_tag((2, 3, 5, 7), "aB(CD)8b16(cd)")
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


@pytest.mark.parametrize(
    ("dims", "tag", "reason"),
    [
        (
            (32, 4),
            "AB2a/1.16a/2.4b",
            r"blocks of a \(dim 0\) are swizzled: block Block\(.*\) lies outside one of a larger",
        ),
        ((8, 3), "A4ab", r"not a dense tile: block Block\(.*\) has stride 3, not 1; see \.blocks"),
    ],
)
def test_other_inner_blocks_are_not_a_tile(dims: tuple[int, ...], tag: str, reason: str) -> None:
    with pytest.raises(NotBlockedError, match=reason):
        by_tag(dims, tag).tile()


@pytest.mark.parametrize("axis", ["a", True, 1.0, -1, 2])
def test_an_axis_that_a_layout_does_not_have_is_refused(axis: int) -> None:
    layout = by_tag((2, 3), "ab")
    for ask in (layout.axis_size, layout.axis_blocks, layout.outer):
        with pytest.raises(MemdescError, match=r"^axis "):
            ask(axis)


def test_blocks_sort_as_they_lie_in_memory() -> None:
    order = sorted(by_tag((2, 9, 1, 5), "aBcd4b").blocks, key=memory_order)
    assert [(block.axis, block.extent) for block in order] == [
        *((0, 2), (1, 3), (2, 1), (3, 5), (1, 4))
    ]
    back = plain(-20, 1, 5, dims=(2, 5, 4), offset0=20)
    assert [block.axis for block in sorted(back.blocks, key=memory_order)] == [0, 2, 1]
    # two blocks of one axis that share elements, as a layout that is only read may
    wide, narrow = Block(0, 2, 2, 1), Block(0, 1, 2, 1)
    assert sorted([narrow, wide], key=memory_order) == [wide, narrow]


def test_strides_with_an_inner_tile_pad_to_whole_blocks_by_default() -> None:
    assert layout_by_strides((2, 17), (24, 8), ((8, 1),)) == by_tag((2, 17), "aB8b")
    assert layout_by_strides((2, 17), (40, 8), ((8, 1),), (2, 40)).padded_dims() == (2, 40)


def test_equality_counts_the_stride_of_a_padded_dim_of_one() -> None:
    padded = [layout_by_strides((1, 5), (stride, 8), ((8, 0),)).key() for stride in (40, 80)]
    assert padded[0] != padded[1]


def test_numbers_beyond_int64_are_refused_exactly() -> None:
    assert by_tag((INT64_MAX,), "a").last == INT64_MAX - 1
    assert plain(1, dims=(2,), offset0=INT64_MAX - 1).last == INT64_MAX
    assert plain(INT64_MAX, 1, dims=(2, 1)).last == INT64_MAX
    assert plain(-INT64_MAX, 1, dims=(2, 1), offset0=INT64_MAX).last == INT64_MAX
    make: Callable[[], Layout]
    for make, reason in (
        (lambda: by_tag((2**62, 1), "AB16a16b"), rf"padded to \({2**62}, 16\) make {2**66} elem"),
        (lambda: by_tag((0, 2**40, 2**40), "abc"), rf"dims \(0, {2**40}, .* make {2**80} elements"),
        (
            lambda: plain(1, 1, dims=(2**63, 1)),
            rf"dim a \(dim 0\) has size {2**63}; sizes are 0 to",
        ),
        (
            lambda: plain(2**63, 1, dims=(2, 3)),
            rf"stride {2**63} of a \(dim 0\) exceeds the range of int64",
        ),
        (
            lambda: plain(1, dims=(0,), offset0=2**63),
            rf"the layout reaches offset {2**63}, more than int64 holds \({INT64_MAX}\)",
        ),
    ):
        with pytest.raises(MemdescError, match=reason):
            make()


def _raises() -> Any:
    yield 1
    raise RuntimeError


def test_an_axis_or_a_block_whose_iterator_raises_is_refused() -> None:
    axis, block = Axis((0,), 2), Block(0, 1, 2, 1)
    with pytest.raises(MemdescError, match="axes must be a tuple of Axis"):
        Layout((2,), (_raises(),), (block,))
    with pytest.raises(MemdescError, match="blocks must be a tuple of Block"):
        Layout((2,), (axis,), (_raises(),))


@pytest.mark.parametrize(
    "axes",
    [
        (),
        (Axis((0,), 2),),
        (Axis((0,), 2), Axis((0,), 2)),
        (Axis((0,), 2), Axis((0,), 1)),
        (Axis((0,), 2), Axis((1, 2), 3)),
        (Axis((1,), 3), Axis((0,), 2)),
        (Axis((0,), 2), Axis((2,), 3)),
        (Axis((0,), 2), Axis((1, -5), 3)),
    ],
)
def test_axes_that_are_not_a_partition_of_the_dims_are_refused(axes: tuple[Axis, ...]) -> None:
    blocks = tuple(Block(k, 1, axis.padded, 10**k) for k, axis in enumerate(axes))
    with pytest.raises(
        MemdescError, match="are not a partition of dims 0 to 1, ordered by their first dims"
    ):
        Layout((2, 3), axes, blocks)


def test_an_axis_without_dims_is_refused_wherever_it_stands() -> None:
    for axes in (
        (Axis((), 2), Axis((0,), 2), Axis((1,), 3)),
        (Axis((0,), 2), Axis((1,), 3), Axis((), 2)),
    ):
        with pytest.raises(MemdescError, match="are not a partition"):
            Layout((2, 3), axes, (Block(0, 1, 2, 3), Block(1, 1, 3, 1), Block(2, 1, 2, 9)))


@pytest.mark.parametrize(
    ("size", "padded", "reason"),
    [
        (3, 2, "padded extent 2 of b .dim 1. must be at least its size 3"),
        (0, 4, "padded extent 4 of b .dim 1. must be 0, as its size is"),
    ],
)
def test_a_padded_extent_that_does_not_hold_its_size_is_refused(
    size: int, padded: int, reason: str
) -> None:
    with pytest.raises(MemdescError, match=reason):
        Layout((2, size), (Axis((0,), 2), Axis((1,), padded)), ())


@pytest.mark.parametrize(
    "blocks",
    [
        (Block(1, 1, 3, 1),),  # starts with another axis
        (Block(0, 1, 2, 3), Block(2, 1, 3, 1)),  # leaves one out
        (Block(0, 1, 2, 3), Block(1, 1, 3, 1), Block(2, 1, 1, 1)),  # one too many
        (Block(0, 1, 2, 3), Block(1, 1, 4, 1)),  # counts 4 of 3
        (Block(0, 1, 2, 3), Block(1, 0, 3, 1)),  # step of zero
        (Block(0, 1, 2, 3), Block(1, 2, 2, 1), Block(1, 1, 1, 1)),  # an inner block too small
        (Block(0, 1, 2, 3), Block(1, 1, 3, 1), Block(1, 1, 1, 1)),  # an inner block of one
        (Block(0, 1, 2, 3), Block(1, 2, 2, 1), Block(1, 1, 3, 1)),  # an inner block too large
        (Block(0, 1, 2, 3), Block(1, 2, 2, 2), Block(1, 1, 2, 0)),  # an inner stride of zero
        (Block(0, 2, 1, 3), Block(1, 1, 3, 1)),  # the next axis before step 1
    ],
)
def test_blocks_that_do_not_cut_their_axis_are_refused(blocks: tuple[Block, ...]) -> None:
    with pytest.raises(
        MemdescError,
        match=(
            r"Block\(.*\) breaks a rule: blocks go axis by axis, "
            r"divide the step before them exactly, "
            r"and count the padded"
        ),
    ):
        Layout((2, 3), (Axis((0,), 2), Axis((1,), 3)), blocks)


@pytest.mark.parametrize(
    "blocks", [(), (Block(0, 1, 2, 3),), (Block(0, 1, 2, 3), Block(1, 2, 2, 1))]
)
def test_blocks_that_stop_before_the_last_step_are_refused(blocks: tuple[Block, ...]) -> None:
    with pytest.raises(MemdescError, match="must lead down to step 1 in each of the axes"):
        Layout((2, 3), (Axis((0,), 2), Axis((1,), 3)), blocks)
