"""Conversions on devices equal the definition, bit for bit."""

from dataclasses import fields
from typing import Any

import numpy as np
import pyopencl.array as cl_array
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdesc import RUNTIME, Extra, ImageDesc, MemoryDesc, image_desc, memory_desc, runtime_desc
from memdesc.dtypes import DATA_TYPES
from reorder import Attr, opencl, reorder
from reorder.opencl import DeviceMemory
from reorder.plan import plan_runtime
from reorder.reference import execute_reference
from tests.attributes import attrs, conversions
from tests.conversions import every_code, random_codes, run
from tests.opencl.runtimes import (
    Runtime,
    check_buffers,
    check_image,
    check_reorder,
    examples,
    refused,
)
from tests.opencl.test_laws import image_cases

MAX_NELEMS = 512


@examples(1)
@given(case=conversions(MAX_NELEMS), seed=st.integers(0, 2**20))
def test_any_types_layouts_and_attributes_equal_the_definition(
    runtime: Runtime, case: tuple[MemoryDesc, MemoryDesc, Attr | None], seed: int
) -> None:
    check_reorder(runtime, case, seed)
    # in work-groups of at most 256 work items; half of the cases in tiles
    check_buffers(runtime, case, 0 if seed % 2 else 1 << 16)


def test_kernels_that_write_padding_take_no_zero_points(first: Runtime) -> None:
    dims = (3, 1, 1, 2, 4)
    src, dst = memory_desc(dims, "s8", "abCdE5e4c"), memory_desc(dims, "s32", "dbCae2c8c")
    attr = Attr(src_zero_point=[3, -5], src_zero_point_mask=8)
    check_buffers(first, (src, dst, attr))


def check_codes(
    runtime: Runtime, src: str, dst: str, attr: Attr | None = None, codes: Any = None
) -> None:
    """Compare some codes, all of a type, or many of a wide one."""
    if codes is None:
        codes = every_code(src) if DATA_TYPES[src].bits <= 16 else random_codes(src, 1 << 14)
    one, other = (memory_desc((codes.size,), name, "a") for name in (src, dst))
    packed = codes[0::2] | codes[1::2] << 4 if one.dtype.is_packed else codes
    buffer = runtime.buffer(np.full(other.nbytes, 0xA5, np.uint8))
    event = opencl.enqueue_reorder(
        runtime.queue, runtime.buffer(packed), buffer, src=one, dst=other, attr=attr
    )
    found = runtime.read(buffer, event)
    wanted = run(codes, src, dst, attr, by="definition")
    if other.dtype.is_packed:
        found = np.stack([found & 15, found >> 4], axis=1).reshape(-1)
    assert found.view(wanted.dtype).tobytes() == wanted.tobytes(), (src, dst)


@pytest.mark.parametrize(
    ("src", "dst", "attr"),
    [
        ("f16", "s4", None),
        ("f32", "f8_e4m3fnuz", None),
        ("f8_e4m3fnuz", "f32", None),
        ("f32", "s32", None),
        ("s8", "f16", None),
        ("u4", "f8_e4m3", None),
        ("f4_e2m1", "s4", None),
        # the sign and payload of a NaN stay; what comes out of arithmetic has none
        ("f16", "f8_e5m2", Attr(saturate=True)),
        ("bf16", "f16", Attr(src_scale=0.5, saturate=True)),
    ],
)
def test_all_codes_of_a_type_become_those_of_another(
    src: str, dst: str, attr: Attr | None, runtime: Runtime
) -> None:
    check_codes(runtime, src, dst, attr)


@st.composite
def image_conversions(
    draw: st.DrawFn,
) -> tuple[MemoryDesc, ImageDesc, MemoryDesc, tuple[Attr | None, Attr | None]]:
    """Draw what becomes an image of another type, what it becomes then, and attributes of both."""
    src, image, dst = draw(image_cases(256))
    names = st.sampled_from(list(DATA_TYPES))
    src, dst = src.with_dtype(draw(names)), dst.with_dtype(draw(names))
    into, out = draw(attrs(src, image.desc)), draw(attrs(image.desc, dst))
    given_ = {field.name: getattr(into, field.name) for field in fields(into) if field.init}
    into = Attr(**given_ | {"beta": 0.0})
    chosen = [draw(st.sampled_from([None, attr])) for attr in (into, out)]
    return src, image, dst, (chosen[0], chosen[1])


@examples(3)
@given(case=image_conversions(), seed=st.integers(0, 2**20))
def test_images_convert_as_the_definition_says(
    runtime: Runtime,
    case: tuple[MemoryDesc, ImageDesc, MemoryDesc, tuple[Attr | None, Attr | None]],
    seed: int,
) -> None:
    check_image(runtime, case[:3], seed, case[3], 0 if seed // 3 % 2 else None)


def test_plans_with_runtime_dims_run_on_devices(first: Runtime) -> None:
    unknown = (RUNTIME, 6)
    plan = plan_runtime(runtime_desc(unknown, "f32", "ab"), runtime_desc(unknown, "s8", "aB4b"))
    x = np.arange(18, dtype=np.float32).reshape(3, 6) * 0.4
    dst = DeviceMemory(first.queue, first.buffer(np.zeros(24, np.uint8)), plan.dst.resolve((3, 6)))
    plan(reorder(x, "ab", queue=first.queue), dst)
    assert (dst.get().numpy() == np.rint(x)).all()
    plan(reorder(x + 1, "ab"), dst)
    assert (dst.get().numpy() == np.rint(x + 1)).all()
    for threads in (-5, "x"):
        with refused("threads must be an integer of 1 or more"):
            plan(reorder(x, "ab"), dst, threads=threads)  # type: ignore[arg-type] # the mistake
    assert (dst.get().numpy() == np.rint(x + 1)).all()
    with refused("a plan with runtime dims takes Memory and reorder.opencl.DeviceMemory"):
        plan(first.buffer(x), dst)  # type: ignore[arg-type] # the mistake


@pytest.mark.parametrize(
    ("tag", "masks"),
    [
        ("ABcd4b16a4b", {"s8s8_mask": 1}),
        pytest.param("ba", {"asymmetric_mask": 3, "s8s8_mask": 1}, marks=pytest.mark.campaign),
    ],
)
def test_compensation_is_written_behind_int8_weights(
    tag: str, masks: dict[str, int], runtime: Runtime
) -> None:
    dims = (5, 19, 3, 2)[: len(tag) if len(tag) < 3 else 4]
    desc, src = memory_desc(dims, "s8", tag).with_extra(Extra(**masks)), memory_desc(dims, "f32")
    source = np.random.default_rng(1).normal(0, 40, dims).astype(np.float32)
    given: dict[str, Any] = {"src": src, "dst": desc, "attr": Attr(src_scale=0.9)}
    wanted = np.full(desc.nbytes, 0xA5, np.uint8)
    execute_reference(src, desc, source, wanted, given["attr"])
    for start in (0, 4):
        whole = cl_array.to_device(runtime.queue, np.full(desc.nbytes + 4, 0xA5, np.uint8))
        array = whole[start:]
        opencl.enqueue_reorder(runtime.queue, runtime.buffer(source), array, **given).wait()
        assert array.get()[: desc.nbytes].tobytes() == wanted.tobytes()
    with refused("not a multiple of the 4 bytes of a compensation; copy it"):
        opencl.enqueue_reorder(runtime.queue, runtime.buffer(source), whole[2:], **given)


@pytest.mark.parametrize("dtype", ["s8", "f32"])
def test_compensation_is_written_behind_weights_from_an_image(dtype: str, runtime: Runtime) -> None:
    image = image_desc((20, 8, 3, 2), dtype, "conv2d_filter")
    desc = memory_desc(image.dims, "s8", "ABcd4b16a4b").with_extra(Extra(s8s8_mask=1))
    x = np.random.default_rng(1).integers(-99, 99, image.dims).astype(image.dtype.numpy)
    wanted = np.full(desc.nbytes, 0xA5, np.uint8)
    execute_reference(memory_desc(image.dims, dtype), desc, x, wanted)
    pixels, packed = opencl.pack(runtime.queue, x, image)
    buffer, event = opencl.unpack(runtime.queue, pixels, desc, image, wait_for=[packed])
    assert runtime.read(buffer, event).tobytes() == wanted.tobytes()


@pytest.mark.campaign
@pytest.mark.parametrize("dst", DATA_TYPES)
@pytest.mark.parametrize("src", DATA_TYPES)
def test_all_pairs_of_types_convert(src: str, dst: str, runtime: Runtime) -> None:
    check_codes(runtime, src, dst)
