"""What a Layout made by hand must keep: axes and blocks that cover its dims exactly."""

from __future__ import annotations

import pytest

from memdesc import Axis, Block, Layout, MemdescError


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
def test_axes_that_are_no_partition_of_the_dims_are_refused(axes: tuple[Axis, ...]) -> None:
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
