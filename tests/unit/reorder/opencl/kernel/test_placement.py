from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from hypothesis import given, settings

from memdesc import image_desc, memory_desc
from reorder import plan_reorder
from reorder.opencl.kernel.placement import ImageShape, place_box
from tests.opencl.test_laws import image_cases
from tests.reorders import box_map

if TYPE_CHECKING:
    from memdesc import ImageDesc, MemoryDesc
    from reorder.opencl.kernel.placement import Coords, Nest


def linear(coords: Coords, lane: int, shape: ImageShape | None) -> int:
    """Return the offset of a lane in the linear buffer of an image."""
    if shape is None:
        return coords[0] + lane
    assert 0 <= coords[0] < shape.width
    assert 0 <= lane < shape.channels
    return (coords[1] * shape.width + coords[0]) * shape.channels + lane


def element_map(
    nest: Nest, shapes: tuple[ImageShape | None, ImageShape | None]
) -> list[tuple[int, int]]:
    """Return what a nest writes, lane by lane: offsets of dst, and of src (-1: zero)."""
    found = []
    for index in product(*(range(loop.extent) for loop in nest.loops)):
        is_data = all(i < loop.valid for i, loop in zip(index, nest.loops, strict=True))
        for lane in nest.lanes:
            lanes = []
            for operand, start in enumerate(nest.starts):
                strides = [loop.strides[operand] for loop in nest.loops]
                coords = tuple(
                    first + sum(i * stride[c] for i, stride in zip(index, strides, strict=True))
                    for c, first in enumerate(start)
                )
                lanes.append((coords, lane.offsets[operand]))
            src = linear(*lanes[0], shapes[0]) if is_data and lane.is_valid else -1
            found.append((linear(*lanes[1], shapes[1]), src))
    return found


def check_law(
    src: MemoryDesc, dst: MemoryDesc, shapes: tuple[ImageShape | None, ImageShape | None]
) -> bool:
    plan = plan_reorder(src, dst)
    nests = [place_box(box, shapes) for box in plan.boxes]
    if any(placed is None for placed in nests):
        return False
    dst_offsets, src_offsets = box_map(plan.boxes)
    found = sorted(
        entry for placed in nests for nest in placed or () for entry in element_map(nest, shapes)
    )
    assert found == sorted(zip(dst_offsets.tolist(), src_offsets.tolist(), strict=True))
    return True


@settings(max_examples=150, deadline=None)
@given(image_cases(max_nelems=256))
def test_loops_over_pixels_move_what_the_boxes_of_a_plan_move(
    case: tuple[MemoryDesc, ImageDesc, MemoryDesc],
) -> None:
    src, image, dst = case
    shape = ImageShape.of(image)
    check_law(src, image.desc, (None, shape))
    check_law(image.desc, dst, (shape, None))
    # pixel by pixel is always possible
    assert check_law(image.desc, image.desc, (None, shape))
    assert check_law(image.desc, image.desc, (shape, None))


def test_blocks_that_cut_pixels_apart_have_no_nest() -> None:
    image = image_desc((1, 7, 2, 2), "f32", "in_out_channel")
    for tag in ("aBcd3b", "aBcd2b"):
        desc = memory_desc((1, 7, 2, 2), "f32", tag)
        assert not check_law(desc, image.desc, (None, ImageShape.of(image)))
