"""Kernels for devices that no machine here has: their parameters, their limits, their text."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from memdesc import ImageDesc, MemdescError, MemoryDesc, image_desc, memory_desc
from reorder import Attr
from reorder.bench.cases import Problem
from reorder.bench.device import CASES
from reorder.opencl import kernel_texts
from reorder.opencl.kernel.formula import Floats
from reorder.opencl.kernel.launch import MAX_LOCAL, DeviceTraits, Launch, kernel_source
from reorder.opencl.kernel.staged import Staged
from reorder.opencl.kernel.transfers import OperandSpec, Transfer, plan_transfers
from tests.opencl.test_laws import image_cases
from tests.strategies import desc_pairs

GPU_LIKE = DeviceTraits(1024)
ROWS = np.linspace(1, 2, 64)
IMAGES = [case for case in CASES if any(isinstance(desc, ImageDesc) for desc in case.descs)]
# an operand of `&&` or `||` that is one name or number, behind what may stand before an operand
_OPERAND = re.compile(
    r"(?:(?:&&|\|\|) |\(|[^<>=!]= )(\w+)(?= (?:&&|\|\|))"
    r"|(?:&&|\|\|) (\w+)(?= (?:&&|\|\||\?)|[);])"
)
_CONSTANT = re.compile(r"\bconst \w+ (\w+) = \d+u?;")


def planned(
    src: MemoryDesc | ImageDesc,
    dst: MemoryDesc | ImageDesc,
    device: DeviceTraits = GPU_LIKE,
    attr: Attr | None = None,
) -> tuple[Transfer, ...]:
    one, other = map(OperandSpec.of, (src, dst))
    return plan_transfers(one, other, device, attr, is_aligned=True)


def check(
    transfers: tuple[Transfer, ...], most: int = 1024, max_local: int = MAX_LOCAL
) -> list[Launch]:
    """Check the parameters and limits of all launches, and return them."""
    launches = [launch for transfer in transfers for launch in transfer.launches]
    for launch in launches:
        source, names = kernel_source(launch.pattern), list(launch.pattern.params)
        assert len(names) == len(set(names)) == len(launch.params)
        # every parameter that is used is passed, and every one that is passed is declared
        assert set(re.findall(r"\bp\.(\w+)", source)) <= set(names)
        head = source[: source.index("params_t;")]
        struct = head[head.index("{") : head.index("}")]
        assert re.findall(r"\w+", struct.replace("index_t ", "")) == names
        assert source.count("{") == source.count("}")
        assert source.count("(") == source.count(")")
        assert not constant_operands(source), source
        limit = 2**63 if launch.pattern.is_wide else 2**31
        assert all(-limit <= value < limit for value in launch.params)
        assert 0 < launch.groups[0] < 2**31
        assert all(0 < count <= 65535 for count in launch.groups[1:])
        assert launch.pattern.work_items <= most
        body = launch.pattern.body
        if isinstance(body, Staged):
            assert body.local_nbytes <= max_local
            check_local_memory(body)
    return launches


def check_local_memory(body: Staged) -> None:
    """Check that elements of a tile have places of their own, side by side within vectors."""
    side: Any = body.src if body.ordered == "src" else body.dst

    def places(loops: tuple[int, ...]) -> np.ndarray[Any, Any]:
        found = np.zeros(1, np.int64)
        for k in loops:
            steps = np.array([body.local.offset(k, i) for i in range(body.loaded(k))])
            found = (steps[:, None] + found).ravel()
        return found

    run = places(side.run)
    every = (places(side.rest)[:, None] + run).ravel()
    assert np.unique(every).size == every.size
    assert every.max() < body.local.nbytes
    lanes = run.size if side.is_shifted else side.lanes
    vectors = run[: run.size // lanes * lanes].reshape(-1, lanes)
    assert (np.diff(vectors) == body.local.element).all()


def constant_operands(source: str) -> set[str]:
    """Return the constants that are operands of logical operators, which NVIDIA refuses."""
    constants = set(_CONSTANT.findall(source))
    operands = {name for match in _OPERAND.findall(source) for name in match if name}
    return {name for name in operands if name in constants or name.isdigit()}


def test_constant_operands_are_found() -> None:
    assert constant_operands("const int one = 1; x = a < 1 && one ? 2 : 3;") == {"one"}
    assert constant_operands("if (a < 1 && 1) x = 2 || b;") == {"1", "2"}
    assert not constant_operands("int one = 1; x = a >= 4 && one && b == 4 || c;")


@settings(max_examples=40, deadline=None)
@given(image_cases())
def test_kernels_of_images_declare_what_they_use(
    case: tuple[MemoryDesc, ImageDesc, MemoryDesc],
) -> None:
    src, image, dst = case
    check(planned(src, image))
    check(planned(image, dst))


@settings(max_examples=40, deadline=None)
@given(desc_pairs(max_ndims=8).filter(lambda pair: pair[0].dtype.bits > 4))
def test_kernels_between_buffers_declare_what_they_use(pair: tuple[MemoryDesc, MemoryDesc]) -> None:
    check(planned(*pair))


@pytest.mark.parametrize(("dtype", "limit"), [("u4", 32), ("f32", 16), ("u8", 8)])
def test_a_tile_that_fits_only_without_gaps_has_none(dtype: str, limit: int) -> None:
    src, dst = (memory_desc((2048, 2048), dtype, tag) for tag in ("ab", "ba"))
    device = DeviceTraits(1024, max_local=limit << 10)
    (launch,) = check(planned(src, dst, device), max_local=limit << 10)
    assert isinstance(launch.pattern.body, Staged)
    assert launch.pattern.body.local_nbytes == limit << 10


def test_tiles_between_buffers_keep_the_limits() -> None:
    for case in CASES:
        check(planned(*case.descs, attr=case.attr))
        small = DeviceTraits(1024, max_local=1 << 15)
        check(planned(*case.descs, small, case.attr), max_local=1 << 15)
    for dtype in ("u8", "f16", "f32"):
        for dims in ((2, 64, 12, 12), (3, 40, 7, 9), (2, 96, 13, 13)):
            plain = memory_desc(dims, dtype, "abcd")
            for tag in ("aBcd16b", "aBcd32b", "ABcd4a16b", "acdb"):
                blocked = memory_desc(dims, dtype, tag)
                check(planned(plain, blocked, DeviceTraits(1024, min_tiled=0)))
                check(planned(blocked, plain, DeviceTraits(1024, min_tiled=0)))


@pytest.mark.parametrize("case", IMAGES)
def test_tiles_of_pixels_keep_the_limits(case: Problem) -> None:
    (launch,) = check(planned(*case.descs))
    assert isinstance(launch.pattern.body, Staged)


@pytest.mark.parametrize("most", [1, 32, 64, 100, 256, 1024])
@pytest.mark.parametrize("dtype", ["u8", "f16", "f32", "f64"])
def test_work_groups_are_no_larger_than_those_of_the_device(dtype: str, most: int) -> None:
    device = DeviceTraits(most, min_tiled=0)
    for dims in ((8, 4096), (64, 64), (81, 20), (9, 300), (300, 9), (1000, 1000), (300, 9, 7)):
        tag = "abc"[: len(dims)]
        src, dst = (memory_desc(dims, dtype, name) for name in (tag, tag[::-1]))
        check(planned(src, dst, device), most)
    image = image_desc((2, 64, 9, 9), "f32", "in_out_channel")
    for tag in ("nhwc", "nchw"):
        side = memory_desc(image.dims, "f32", tag)
        check(planned(side, image, device), most)
        check(planned(image, side, device), most)


@pytest.mark.parametrize(
    ("types", "tags", "attr"),
    [
        (("f32", "s8"), ("ab", "ab"), Attr(dst_scale=0.5, dst_zero_point=3)),
        (("f32", "s8"), ("ab", "ba"), Attr(dst_scale=ROWS, dst_scale_mask=1)),
        (("f64", "u4"), ("ab", "Ba3b"), Attr(src_scale=0.5)),
        (("s8", "f32"), ("ab", "Ab8a"), Attr(src_scale=ROWS, src_scale_mask=1, beta=0.5)),
        (("u4", "u4"), ("ab", "ba"), None),
        (("f16", "e8m0"), ("AB47a31b", "AB31a47b"), None),
    ],
)
def test_kernels_of_conversions_declare_what_they_use(
    types: tuple[str, str], tags: tuple[str, str], attr: Any
) -> None:
    src, dst = (memory_desc((64, 322), *pair) for pair in zip(types, tags, strict=True))
    assert check(planned(src, dst, DeviceTraits(256), attr))


@pytest.mark.parametrize(
    ("types", "dims", "tags"),
    [
        ("u8 u8", (2, 255, 111, 111), "abcd aBcd16b"),
        ("s8 s8", (4093, 4091), "ab BA16a64b4a"),
        ("s8 s8", (2047, 1023, 3, 3), "abcd ABcd4b16a4b"),
        ("f16 f16", (8, 100, 13, 13), "abcd aBcd32b"),
        ("f32 s8", (8, 100, 28, 28), "abcd aBcd16b"),
        ("f32 f16", (1000, 500), "ab AB16b16a"),
    ],
)
def test_tiles_that_are_partly_padding_take_one_launch(
    types: str, dims: tuple[int, ...], tags: str
) -> None:
    src, dst = (memory_desc(dims, *pair) for pair in zip(types.split(), tags.split(), strict=True))
    (launch,) = check(planned(src, dst))
    assert isinstance(launch.pattern.body, Staged)
    assert launch.pattern.sizes


def test_halves_of_bytes_are_written_by_two_launches_one_after_the_other() -> None:
    for dims, count in (((5, 7), 2), ((6, 8), 1)):
        src, dst = memory_desc(dims, "s8", "ab"), memory_desc(dims, "s4", "ba")
        (transfer,) = planned(src, dst)
        assert list(map(len, transfer.stages)) == [1] * count


@pytest.mark.parametrize(
    ("types", "attr", "floats", "reason"),
    [
        (("f64", "f32"), None, Floats(has_f64=False), "f64 to f32 is computed in f64, which"),
        (("f32", "f16"), Attr(src_scale=2), Floats(is_exact=False), "the device flushes denormals"),
        (("f32", "s8"), None, Floats(rounds=False), "the device does not round to nearest"),
        (
            ("f32", "s8"),
            Attr(dst_scale=2),
            Floats(has_f64=False, divides=False),
            "divides by dst_scale, and the device neither rounds quotients of f32 nor has f64",
        ),
    ],
)
def test_what_a_device_does_not_compute_to_the_bit_is_refused_with_the_reason(
    types: tuple[str, str], attr: Attr | None, floats: Floats, reason: str
) -> None:
    src, dst = (memory_desc((4, 6), dtype) for dtype in types)
    with pytest.raises(MemdescError, match=reason):
        planned(src, dst, DeviceTraits(256, floats), attr)


@pytest.mark.parametrize(
    "types", [("f32", "f16"), ("f8_e4m3", "bf16"), ("f32", "s8"), ("s32", "u8")]
)
def test_without_arithmetic_codes_need_no_exact_floats(types: tuple[str, str]) -> None:
    weak = Floats(has_f64=False, is_exact=False, divides=False)
    src, dst = (memory_desc((4, 6), dtype) for dtype in types)
    assert planned(src, dst, DeviceTraits(256, weak))


def test_large_tensors_take_64_bits_and_small_ones_do_not() -> None:
    for rows, is_wide in ((2**15, False), (2**17, True)):
        src, dst = (memory_desc((rows, 2**15), "u8", tag) for tag in ("ab", "ba"))
        (launch,) = check(planned(src, dst))
        assert launch.pattern.is_wide == is_wide


def test_no_comparison_of_floats_changes_a_nan() -> None:
    # NVIDIA's compiler makes minima of them, whose NaN has another sign and payload
    one, other = (memory_desc((64,), dtype, "a") for dtype in ("f16", "bf16"))
    (text,) = kernel_texts(one, other, Attr(saturate=True))
    assert not re.search(r"x [<>] ", text)
    (text,) = kernel_texts(one, other, Attr(src_scale=3.0, saturate=True))
    assert text.index("lowered < -") < text.index("as_float(0x7fc00000u) : saturated")


def test_one_text_serves_all_sizes() -> None:
    # but for tiles, which depend on the sizes of small loops
    device = DeviceTraits(1024, min_tiled=1 << 40)
    sources = set()
    for dims in ((2, 8, 5, 6), (3, 64, 70, 900), (9, 256, 31, 33)):
        image, desc = image_desc(dims, "f32", "in_out_channel"), memory_desc(dims, "f32")
        sources |= {kernel_source(launch.pattern) for launch in check(planned(desc, image, device))}
    assert len(sources) == 1
