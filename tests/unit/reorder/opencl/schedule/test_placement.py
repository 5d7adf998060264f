from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from memdesc import image_desc, memory_desc
from reorder import plan_reorder
from reorder.opencl.schedule.placement import Lane, Loop, Raster, place_box
from reorder.opencl.schedule.stages import Side, plan_stages
from tests.opencl.test_laws import image_cases
from tests.reorders import box_map

if TYPE_CHECKING:
    from memdesc import ImageDesc, MemoryDesc
    from reorder.opencl.schedule.placement import Place, Task


def linear(place: Place, lane: int, raster: Raster | None) -> int:
    """Return the offset of a lane in the linear buffer of an image."""
    if raster is None:
        return place[0] + lane
    assert 0 <= place[0] < raster.width
    assert 0 <= lane < raster.channels
    return (place[1] * raster.width + place[0]) * raster.channels + lane


def element_map(task: Task, rasters: tuple[Raster | None, Raster | None]) -> list[tuple[int, int]]:
    """Return what a task writes: offsets of dst, and of src (-1: zero), step by step and lane by lane."""
    found = []
    for index in product(*(range(loop.extent) for loop in task.loops)):
        is_data = all(i < loop.valid for i, loop in zip(index, task.loops, strict=True))
        for lane in task.lanes:
            sides = []
            for side, own in enumerate((task.src, task.dst)):
                steps = [loop.dst if side else loop.src for loop in task.loops]
                place = tuple(
                    at + sum(i * step[c] for i, step in zip(index, steps, strict=True))
                    for c, at in enumerate(own)
                )
                sides.append((place, lane[side]))
            src = linear(*sides[0], rasters[0]) if is_data and lane.is_valid else -1
            found.append((linear(*sides[1], rasters[1]), src))
    return found


def check_law(
    src: MemoryDesc, dst: MemoryDesc, rasters: tuple[Raster | None, Raster | None]
) -> bool:
    plan = plan_reorder(src, dst)
    tasks = [place_box(box, rasters) for box in plan.boxes]
    if any(placed is None for placed in tasks):
        return False
    to, fro = box_map(plan.boxes)
    found = sorted(
        entry for placed in tasks for task in placed or () for entry in element_map(task, rasters)
    )
    assert found == sorted(zip(to.tolist(), fro.tolist(), strict=True))
    return True


@settings(max_examples=300, deadline=None)
@given(image_cases(max_nelems=256))
def test_loops_over_pixels_move_what_the_boxes_of_a_plan_move(
    case: tuple[MemoryDesc, ImageDesc, MemoryDesc],
) -> None:
    src, image, dst = case
    raster = Raster.of(image)
    check_law(src, image.desc, (None, raster))
    check_law(image.desc, dst, (raster, None))
    # pixel by pixel is always possible
    assert check_law(image.desc, image.desc, (None, raster))
    assert check_law(image.desc, image.desc, (raster, None))


@given(image_cases(max_nelems=256), st.booleans())
def test_there_are_stages_for_every_reorder(
    case: tuple[MemoryDesc, ImageDesc, MemoryDesc], is_aligned: bool
) -> None:
    src, image, dst = case
    name = image.dtype.name
    pixels = Side(image.desc, Raster.of(image), name)
    for one, other in ((Side(src, None, name), pixels), (pixels, Side(dst, None, name))):
        stages = plan_stages(one, other, 256, is_aligned=is_aligned)
        assert stages[-1].dst == other
        assert len(stages) <= 3


def test_lanes_are_loops_inside_of_a_pixel() -> None:
    image = image_desc((1, 5, 2, 3), "f32", "in_out_channel")
    plan = plan_reorder(memory_desc((1, 5, 2, 3), "f32", "nhwc"), image.desc)
    (whole,), (tail,) = (place_box(box, (None, Raster.of(image))) or () for box in plan.boxes)
    assert whole.lanes == tuple(Lane(k, k, is_valid=True) for k in range(4))
    assert tail.lanes == tuple(Lane(k, k, is_valid=k < 1) for k in range(4))
    assert (tail.src, tail.dst) == ((4,), (3, 0))
    assert whole.loops == (Loop(2, 2, (15,), (0, 1)), Loop(3, 3, (5,), (1, 0)))


def test_fused_loops_are_cut_at_the_ends_of_pixels_and_rows() -> None:
    image = image_desc((2, 4, 3, 5), "f32", "in_out_channel")
    (box,) = plan_reorder(image.desc, image.desc).boxes
    assert [node.extent for node in box.nodes] == [120]
    (task,) = place_box(box, (None, Raster.of(image))) or ()
    assert task.loops == (Loop(6, 6, (20,), (0, 1)), Loop(5, 5, (4,), (1, 0)))
    assert len(task.lanes) == 4


def test_blocks_that_cut_pixels_apart_are_staged() -> None:
    image = image_desc((1, 7, 2, 2), "f32", "in_out_channel")
    threes = memory_desc((1, 7, 2, 2), "f32", "aBcd3b")
    twos = memory_desc((1, 7, 2, 2), "f32", "aBcd2b")
    raster = Raster.of(image)
    for desc in (threes, twos):
        assert not check_law(desc, image.desc, (None, raster))
        stages = plan_stages(
            Side(desc, None, "f32"), Side(image.desc, raster, "f32"), 256, is_aligned=True
        )
        assert [stage.dst.image for stage in stages] == [None, raster]
