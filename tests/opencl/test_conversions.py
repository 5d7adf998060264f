"""Conversions on devices equal the definition, bit for bit: all codes, runtime dims, sums."""

from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from numpy.typing import NDArray

from memdesc import RUNTIME, Extra, image_desc, memory_desc, runtime_desc
from memdesc.dtypes import DATA_TYPES
from memdesc.names.images import is_image
from reorder import Attr, opencl, reorder
from reorder.opencl import DeviceMemory
from reorder.opencl.execution import device_traits
from reorder.opencl.kernel import formula
from reorder.opencl.kernel.formula import CONVERSIONS, TRIED, conversion_trial
from reorder.opencl.runtimes import try_program
from reorder.plan import plan_runtime
from tests.conversions import every_code, random_codes
from tests.opencl.runtimes import TILES, Planned, Runtime, check, refused


def test_kernels_that_write_padding_take_no_zero_points(first: Runtime) -> None:
    dims = (3, 1, 1, 2, 4)
    src, dst = memory_desc(dims, "s8", "abCdE5e4c"), memory_desc(dims, "s32", "dbCae2c8c")
    attr = Attr(src_zero_point=[3, -5], src_zero_point_mask=8)
    check(first, (src, dst, attr), planned=Planned(1 << 16))


def check_codes(
    runtime: Runtime,
    src: str,
    dst: str,
    attr: Attr | None = None,
    codes: Any = None,
    planned: Planned | None = None,
) -> None:
    """Compare some codes, all of a type, or many of a wide one."""
    if codes is None:
        codes = every_code(src) if DATA_TYPES[src].bits <= 16 else random_codes(src, 1 << 14)
    one, other = (memory_desc((codes.size,), name, "a") for name in (src, dst))
    packed = codes[0::2] | codes[1::2] << 4 if one.dtype.is_packed else codes
    check(runtime, (one, other, attr), source=packed, planned=planned)


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


def test_conversions_of_a_device_are_taken_if_they_are_those_of_elements(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, is_processor = runtime.device.device, runtime.device.is_processor
    assert not try_program((runtime.context, device), conversion_trial(), TRIED).any()
    one, other = (memory_desc((1 << 16,), dtype, "a") for dtype in ("f16", "s8"))
    (text,) = opencl.kernel_texts(one, other, device=device)
    assert ("convert_char_sat_rte" in text) is not is_processor
    # as a device that is no processor, tried once for each context
    monkeypatch.setattr(cl.device_type, "CPU", 0)
    assert device_traits(cl.Context([device]), device).floats.has_conversions
    # one that makes NaN another number, for example
    wrong = "(uchar)(isnan(value) ? -128 : convert_char_sat_rte(value))"
    monkeypatch.setitem(formula.CONVERSIONS, "s8", wrong)
    numbers = (np.arange(TRIED, dtype=np.uint32) << 14).view(np.float32)
    place = runtime.context, device
    assert np.array_equal(try_program(place, conversion_trial(), TRIED), np.isnan(numbers))
    # and one that does not build the program
    for text in (wrong, "no such conversion"):
        monkeypatch.setitem(formula.CONVERSIONS, "s8", text)
        assert not device_traits(cl.Context([device]), device).floats.has_conversions


def test_texts_for_a_device_share_a_context(
    first: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[list[cl.Device]] = []
    make = cl.Context

    def counted(devices: list[cl.Device]) -> cl.Context:
        made.append(devices)
        return make(devices)

    monkeypatch.setattr(cl, "Context", counted)
    one, other = (memory_desc((8,), dtype, "a") for dtype in ("f16", "s8"))
    for _ in range(3):
        opencl.kernel_texts(one, other, device=first.device.device)
    assert len(made) <= 1


@pytest.mark.parametrize("dst", CONVERSIONS)
def test_conversions_of_a_device_write_the_same_codes(dst: str, runtime: Runtime) -> None:
    for src in ("f16", "bf16", "f32"):
        check_codes(runtime, src, dst, planned=Planned(has_conversions=True))
    attr = Attr(dst_scale=0.0187, dst_zero_point=3)
    check_codes(runtime, "f16", dst, attr, planned=Planned(has_conversions=True))


# scales, a zero point, and whether the inverse of the quotient has the same results for all halves
@pytest.mark.parametrize(
    ("scales", "point", "is_product"),
    [
        ((1, 0.0187), 3, True),
        ((0.5, -7.3), -100, True),
        # 2.25 / 0.3 is less than 7.5, and 2.25 times the inverse is not
        ((1, 0.3), 0, False),
        # large products are infinite before they are divided
        ((3e38, 1e38), 0, False),
    ],
)
def test_quotients_are_products_where_no_half_becomes_another_integer(
    scales: tuple[float, float], point: int, is_product: bool, first: Runtime
) -> None:
    attr = Attr(src_scale=scales[0], dst_scale=scales[1], dst_zero_point=point)
    check_codes(first, "f16", "s8", attr)
    one, other = (memory_desc((1 << 16,), name, "a") for name in ("f16", "s8"))
    (text,) = opencl.kernel_texts(one, other, attr)
    assert ("dst_scale" not in text) is is_product


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dst_scale": np.ones(1) / 2, "dst_scale_mask": 2}, "mask 2 over dims (4, 3) needs 3"),
        ({"dst_scale": np.ones(1) / 2, "dst_scale_mask": 64}, "dst_scale_mask 64 names g (dim 6)"),
        ({"src_scale": np.ones(1) / 2, "src_scale_mask": 1}, "mask 1 over dims (4, 3) needs 4"),
        ({"dst_zero_point": np.ones(1, int), "dst_zero_point_mask": 2}, "over dims (4, 3) needs 3"),
        ({"src_zero_point": 3}, "src_zero_point is for integers, but src is f16"),
        ({"src_scale": 1e40}, "src_scale 1e+40 is 0 or infinite in f32"),
    ],
)
def test_parameters_beside_a_quotient_are_checked(given: dict[str, Any], message: str) -> None:
    src, dst = (memory_desc((4, 3), name, "ab") for name in ("f16", "s8"))
    with refused(message):
        opencl.kernel_texts(src, dst, Attr(**{"dst_scale": 0.25} | given))


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
        pytest.param("bacd", {"asymmetric_mask": 3, "s8s8_mask": 1}, marks=pytest.mark.campaign),
    ],
)
def test_compensation_is_written_behind_int8_weights(
    tag: str, masks: dict[str, int], runtime: Runtime
) -> None:
    for dims, source in (((5, 19, 3, 2), "abcd"), ((20, 8, 3, 2), "conv2d_filter")):
        desc = memory_desc(dims, "s8", tag).with_extra(Extra(**masks))
        for dtype, attr in (("f32", Attr(src_scale=0.9)), ("s8", None)):
            src = (image_desc if is_image(source) else memory_desc)(dims, dtype, source)
            check(runtime, (src, desc, attr), 2)
    wanted, given = reorder(np.ones(dims, np.float32), desc), memory_desc(dims, "f32")
    source_of, whole = runtime.buffer(np.ones(dims, np.float32)), np.full(desc.nbytes + 4, 7)
    array = cl_array.to_device(runtime.queue, whole.astype(np.uint8))
    opencl.enqueue_reorder(runtime.queue, source_of, array[4:], src=given, dst=desc).wait()
    assert array[4:].get()[: desc.nbytes].tobytes() == wanted.data.tobytes()
    with refused("not a multiple of the 4 bytes of a compensation; copy it"):
        opencl.enqueue_reorder(runtime.queue, source_of, array[2:], src=given, dst=desc)


def floats_around_halves() -> NDArray[np.uint32]:
    """Return the bits of every half as f32, of numbers between two, and of small ones."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    bits = halves.view(np.uint32)
    rng = np.random.default_rng(3)
    small = np.ldexp(rng.standard_normal(1 << 13), rng.integers(-28, -12, 1 << 13))
    steps = np.ldexp(rng.integers(-4096, 4096, 1 << 13), -26)
    between = [bits | more for more in (0x0FFF, 0x1000, 0x1001)]
    numbers = [part.astype(np.float32).view(np.uint32) for part in (small, steps)]
    return np.concatenate([bits, *between, *numbers, random_codes("f32", 1 << 13)])


@pytest.mark.parametrize("dst", ["f16", pytest.param("bf16", marks=pytest.mark.campaign)])
def test_the_instructions_of_gpus_for_halves_write_the_same_bits(
    dst: str, runtime: Runtime
) -> None:
    check_codes(runtime, "f32", dst, codes=floats_around_halves())
    check_codes(runtime, "f16", "f32" if dst == "f16" else dst)


@pytest.mark.parametrize(
    "layout", ["nhwc", "nChw16c", pytest.param("nchw", marks=pytest.mark.campaign)]
)
def test_images_of_halves_are_written_with_the_same_numbers(layout: str, runtime: Runtime) -> None:
    codes = np.resize(floats_around_halves(), (1, 64, 65, 67))
    src = memory_desc(codes.shape, "f32", layout)
    dst = image_desc(codes.shape, "f16", "in_out_channel")
    check(runtime, (src, dst, None), source=codes, planned=TILES)


@pytest.mark.campaign
@pytest.mark.parametrize("dst", DATA_TYPES)
@pytest.mark.parametrize("src", DATA_TYPES)
def test_all_pairs_of_types_convert(src: str, dst: str, runtime: Runtime) -> None:
    check_codes(runtime, src, dst)
