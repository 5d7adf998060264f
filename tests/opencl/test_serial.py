"""Kernels of one work item, as processors get them: any layouts, types and tiles, on any device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdesc import memory_desc
from reorder import Attr, execute_reference
from reorder.opencl.codegen.source import KERNEL, kernel_source
from reorder.opencl.execution import build_transfers, enqueue_transfers
from reorder.opencl.programs import build, floats_of
from reorder.opencl.schedule.profile import CPU, GPU, TileShape
from reorder.opencl.schedule.transfers import DeviceTraits, OperandSpec, plan_transfers
from tests.attributes import conversions
from tests.opencl.test_laws import COMMON
from tests.reorders import random_bytes
from tests.strategies import desc_pairs

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from reorder.opencl.schedule.profile import Profile
    from tests.opencl.runtimes import Runtime

# tiles and runs for every size, of a few elements
SMALL = CPU._replace(tiles=(TileShape(16, 16, 512, 1),) * 4, min_tiled=0, chunk=64)
# what a buffer has beside the tensor, and must keep
BESIDE = 64


def spec(desc: MemoryDesc) -> OperandSpec:
    return OperandSpec(desc, None, f"b{desc.dtype.bits}")


def check(
    runtime: Runtime,
    case: tuple[MemoryDesc, MemoryDesc, Attr | None],
    profile: Profile = SMALL,
    *,
    is_aligned: bool = True,
) -> list[tuple[int, ...]]:
    """Compare a reorder with its definition; return the tile of each launch."""
    src, dst, attr = case
    traits = DeviceTraits(256, floats_of(runtime.device.device), profile)
    transfers = plan_transfers(spec(src), spec(dst), traits, attr, is_aligned=is_aligned)
    source = random_bytes(max(src.nbytes, 1), 1)
    before = random_bytes(dst.nbytes + BESIDE, 2)
    memory = runtime.buffer(source), runtime.buffer(before)
    prepared = build_transfers(runtime.context, runtime.device.device, transfers)
    event = enqueue_transfers(runtime.queue, prepared, memory, None)
    wanted = before.copy()
    if dst.nelems:
        execute_reference(src, dst, source[: src.nbytes], wanted[: dst.nbytes], attr)
    assert np.array_equal(runtime.read(memory[1], event), wanted), (src, dst, attr)
    serial = [launch.pattern.serial for one in transfers for launch in one.launches]
    return [one.tile for one in serial if one is not None]


CASES: list[tuple[str, str, str, str, tuple[int, ...], Attr | None]] = [
    ("u8", "u8", "ab", "ba", (131, 50), None),
    ("f16", "f16", "ab", "ba", (33, 70), None),
    # rows of 4, as the channels of a pixel
    ("f16", "f16", "ab", "ba", (4, 70), None),
    ("f32", "s8", "nchw", "nhwc", (2, 21, 5, 7), Attr(src_scale=0.5)),
    ("u4", "u4", "ab", "ba", (36, 66), None),
    # pixels of 3 channels that follow one another, one of them behind whole vectors
    ("u8", "u8", "nhwc", "nchw", (2, 3, 3, 11), None),
    # converted on the way to dst
    ("s8", "f32", "nchw", "nhwc", (2, 21, 5, 7), Attr(src_scale=0.5, src_zero_point=3)),
]
MORE_CASES: list[tuple[str, str, str, str, tuple[int, ...], Attr | None]] = [
    ("f32", "f32", "ab", "ba", (35, 67), None),
    ("f64", "f64", "ab", "ba", (35, 67), None),
    ("s8", "s8", "oihw", "OIhw4i16o4i", (32, 32, 3, 3), None),
    ("s8", "s8", "OIhw4i16o4i", "oihw", (32, 32, 3, 3), None),
    ("s8", "s8", "ab", "BA16a64b4a", (64, 130), None),
    ("f16", "f16", "ab", "BA8b16a2b", (32, 64), None),
    ("u8", "u8", "nhwc", "nchw", (2, 3, 30, 20), None),
    ("f16", "f16", "nhwc", "nchw", (2, 2, 9, 7), None),
    ("f16", "f16", "nhwc", "nchw", (2, 4, 5, 7), None),
    ("f16", "f16", "hwio", "oihw", (16, 4, 3, 3), None),
    ("s8", "f32", "nhwc", "nchw", (2, 3, 9, 7), Attr(src_scale=0.5)),
    ("f32", "f16", "nhwc", "nchw", (2, 3, 9, 7), None),
    ("f16", "f64", "nchw", "nChw16c", (2, 32, 5, 7), None),
    ("s8", "f32", "ab", "ba", (33, 70), Attr(src_scale=[0.5] * 33, src_scale_mask=1)),
    ("u4", "f32", "ab", "ba", (36, 66), Attr(src_scale=0.25, src_zero_point=8)),
    ("f32", "u4", "ab", "ba", (36, 66), None),
    ("f64", "f32", "nchw", "nChw16c", (2, 32, 5, 7), None),
]


@pytest.mark.parametrize(
    "case", [*CASES, *(pytest.param(case, marks=pytest.mark.campaign) for case in MORE_CASES)]
)
def test_a_tile_is_transposed_by_one_work_item(
    case: tuple[str, str, str, str, tuple[int, ...], Attr | None], runtime: Runtime
) -> None:
    from_dtype, to_dtype, src, dst, dims, attr = case
    descs = memory_desc(dims, from_dtype, src), memory_desc(dims, to_dtype, dst)
    tiles = check(runtime, (*descs, attr), CPU._replace(min_tiled=0))
    assert any(tiles)


def test_a_tile_larger_than_a_stack_is_not_made(first: Runtime) -> None:
    huge = CPU._replace(tiles=(TileShape(1 << 20, 1 << 20, 1 << 20, 1),) * 4, min_tiled=0)
    descs = memory_desc((512, 600), "f32", "ab"), memory_desc((512, 600), "f32", "ba")
    assert check(first, (*descs, None), huge) == [()]


@pytest.mark.parametrize(("dtype", "columns"), [("u8", 2049), ("u8", 2112)])
def test_rows_of_dst_that_start_anywhere_are_written_in_longer_runs(
    dtype: str, columns: int, first: Runtime
) -> None:
    dims = (columns, 2080)
    src, dst = memory_desc(dims, dtype, "ab"), memory_desc(dims, dtype, "ba")
    traits = DeviceTraits(256, floats_of(first.device.device), CPU)
    (transfer,) = plan_transfers(spec(src), spec(dst), traits, is_aligned=True)
    (launch,) = transfer.launches
    assert launch.pattern.serial is not None
    run = launch.pattern.serial.tile[1] * src.dtype.bits // 8
    assert (run == 128) == (columns % 64 == 0)
    if run == 128:
        return
    x = random_bytes(src.nbytes, 1)
    out = first.buffer(np.zeros(dst.nbytes, np.uint8))
    prepared = build_transfers(first.context, first.device.device, (transfer,))
    event = enqueue_transfers(first.queue, prepared, (first.buffer(x), out), None)
    wanted = np.ascontiguousarray(x.view(src.dtype.numpy).reshape(dims).T)
    assert first.read(out, event).tobytes() == wanted.tobytes()


@pytest.mark.parametrize(("src", "dst"), [("f32", "s4"), ("u4", "f16")])
@pytest.mark.parametrize("extent", [2, 34])
def test_short_runs_of_four_bits_are_whole_bytes(
    extent: int, src: str, dst: str, runtime: Runtime
) -> None:
    descs = memory_desc((extent,), src, "a"), memory_desc((extent,), dst, "a")
    check(runtime, (*descs, None), CPU)


@pytest.mark.parametrize("dtype", ["s8", "u4"])
def test_a_group_behind_the_data_clears_its_own_run_only(dtype: str, first: Runtime) -> None:
    padded = 256
    descs = (
        memory_desc((6,), "f32", "a"),
        memory_desc((6,), dtype, strides=(1,), padded_dims=(padded,)),
    )
    traits = DeviceTraits(256, floats_of(first.device.device), SMALL)
    (transfer,) = plan_transfers(spec(descs[0]), spec(descs[1]), traits, is_aligned=True)
    (launch,) = transfer.launches
    groups = launch.groups[0]
    assert groups > 1
    source = kernel_source(launch.pattern).replace("get_group_id(0)", str(groups - 1))
    kernel = build((first.context, first.device.device), source, KERNEL).take()
    before = random_bytes(descs[1].nbytes, 3)
    memory = first.buffer(random_bytes(descs[0].nbytes, 4)), first.buffer(before)
    event = kernel(first.queue, (1, 1, 1), (1, 1, 1), *memory, np.array(launch.params, np.int32))
    run = before.size // groups
    assert np.array_equal(first.read(memory[1], event), [*before[:-run], *bytes(run)])


def test_runs_without_data_read_no_scale() -> None:
    # scales of rows: there are none for the rows of padding
    padded = memory_desc((5, 40), "s8", strides=(40, 1), padded_dims=(16, 40))
    attr = Attr(dst_scale=[0.5] * 5, dst_scale_mask=1)
    descs = spec(memory_desc((5, 40), "f32", "ab")), spec(padded)
    traits = DeviceTraits(256, profile=CPU)
    (transfer,) = plan_transfers(*descs, traits, attr, is_aligned=True)
    (launch,) = transfer.launches
    before, _, reads = kernel_source(launch.pattern).partition("const float dst_scale_all =")
    assert reads
    assert before.rstrip().endswith("if (valid > 0) {")


@pytest.mark.campaign
@pytest.mark.parametrize("_part", range(10))
@COMMON
@given(pair=desc_pairs(max_ndims=6, max_nelems=1024), is_aligned=st.booleans())
def test_a_thousand_moves_equal_the_definition(
    _part: int, runtime: Runtime, pair: tuple[MemoryDesc, MemoryDesc], is_aligned: bool
) -> None:
    check(runtime, (*pair, None), is_aligned=is_aligned)


@pytest.mark.campaign
@pytest.mark.parametrize("_part", range(10))
@COMMON
@given(case=conversions(1024))
def test_a_thousand_conversions_equal_the_definition(
    _part: int, runtime: Runtime, case: tuple[MemoryDesc, MemoryDesc, Attr | None]
) -> None:
    check(runtime, case)


def test_graphics_processors_get_no_kernels_of_one_work_item() -> None:
    src, dst = memory_desc((512, 512), "f32", "ab"), memory_desc((512, 512), "s8", "ba")
    traits = DeviceTraits(256, profile=GPU)
    (transfer,) = plan_transfers(spec(src), spec(dst), traits, is_aligned=True)
    assert all(launch.pattern.work_items > 1 for launch in transfer.launches)
