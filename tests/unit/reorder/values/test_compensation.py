"""The layout of sums of int8 weights."""

import memdesc
from reorder.values.compensation import compensation_layout


def test_sums_lie_as_the_layout_trimmed_to_the_dims_of_the_mask() -> None:
    blocked = memdesc.memory_desc((19, 5, 6), "s8", "Abc16a").layout
    assert compensation_layout(blocked, 3).blocks == (
        memdesc.Block(0, 16, 2, 80),
        memdesc.Block(0, 1, 16, 1),
        memdesc.Block(1, 1, 5, 16),
    )
    view = memdesc.memory_desc((8, 20), "s8", "aB16b").submemory((8, 3), (0, 0)).layout
    assert compensation_layout(view, 3).strides() == (3, 1)
