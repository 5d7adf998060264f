"""Kernels for devices that no machine here has: their parameters, their limits, their text."""

import re
from collections.abc import Iterator
from itertools import islice
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from memdesc import ImageDesc, MemdescError, MemoryDesc, image_desc, memory_desc
from reorder import Attr
from reorder.bench.device import CASES
from reorder.opencl import kernel_texts
from reorder.opencl.kernel.formula import Floats
from reorder.opencl.kernel.launch import DeviceTraits, Launch, kernel_source
from reorder.opencl.kernel.staged import Staged
from reorder.opencl.kernel.transfers import OperandSpec, Transfer, plan_transfers
from tests.opencl.test_laws import image_cases
from tests.strategies import desc_pairs

GPU_LIKE = DeviceTraits(1024)
ROWS = np.linspace(1, 2, 64)
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
    return plan_transfers(one, other, device, attr)


def check(transfers: tuple[Transfer, ...], device: DeviceTraits = GPU_LIKE) -> list[Launch]:
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
        assert launch.pattern.work_items <= device.max_work_items
        body = launch.pattern.body
        if isinstance(body, Staged):
            assert body.local_nbytes <= device.max_local
            check_local_memory(body)
    return launches


def check_local_memory(body: Staged) -> None:
    """Check that elements of a tile have places of their own, side by side within vectors."""
    side: Any = body.ordered_side

    def places(loops: tuple[int, ...]) -> np.ndarray[Any, Any]:
        found = np.zeros(1, np.int64)
        for k in loops:
            steps = np.array([body.local.offset([(k, i)]) for i in range(body.loaded(k))])
            found = (steps[:, None] + found).ravel()
        return found

    run = places(side.run)
    rest = side.rest if side.rows is None else (side.rows,)
    every = (places(rest)[:, None] + run).ravel()
    assert np.unique(every).size == every.size
    assert every.max() < body.local.nbytes
    lanes = run.size if side.is_shifted else side.lanes
    vectors = run[: run.size // lanes * lanes].reshape(-1, lanes)
    assert (np.diff(vectors) == body.element).all()


def constant_operands(source: str) -> set[str]:
    """Return the constants that are operands of logical operators, which NVIDIA refuses."""
    constants = set(_CONSTANT.findall(source))
    operands = {name for match in _OPERAND.findall(source) for name in match if name}
    return {name for name in operands if name in constants or name.isdigit()}


def test_constant_operands_are_found() -> None:
    assert constant_operands("const int one = 1; x = a < 1 && one ? 2 : 3;") == {"one"}
    assert constant_operands("if (a < 1 && 1) x = 2 || b;") == {"1", "2"}
    assert not constant_operands("int one = 1; x = a >= 4 && one && b == 4 || c;")


_CONVERSIONS = """
f32 s8 ab ab | dst_scale=0.5, dst_zero_point=3
f32 s8 ab ba | dst_scale=ROWS, dst_scale_mask=1
f64 u4 ab Ba3b | src_scale=0.5
s8 f32 ab Ab8a | src_scale=ROWS, src_scale_mask=1, beta=0.5
u4 u4 ab ba |
f16 e8m0 AB47a31b AB31a47b |
"""


def pairs() -> Iterator[tuple[Any, Any, Attr | None]]:
    """Yield reorders of every family: sizes that fill groups and tiles, and that do not."""
    yield from ((*case.descs, case.attr) for case in CASES)
    for line in _CONVERSIONS.strip().splitlines():
        words, _, options = line.partition("|")
        one, other, src, dst = words.split()
        attr = eval(f"Attr({options})", {"Attr": Attr, "ROWS": ROWS})
        yield memory_desc((64, 322), one, src), memory_desc((64, 322), other, dst), attr
    for dtype in ("u8", "f16", "f32", "f64"):
        for dims in ((2, 64, 12, 12), (3, 40, 7, 9), (2, 96, 13, 13)):
            for tag in ("aBcd16b", "aBcd32b", "ABcd4a16b", "acdb"):
                plain, blocked = (memory_desc(dims, dtype, name) for name in ("abcd", tag))
                yield from ((plain, blocked, None), (blocked, plain, None))
        for sizes in ((8, 4096), (64, 64), (81, 20), (9, 300), (300, 9), (1000, 1000), (300, 9, 7)):
            tag = "abc"[: len(sizes)]
            yield memory_desc(sizes, dtype, tag), memory_desc(sizes, dtype, tag[::-1]), None
    image = image_desc((2, 64, 9, 9), "f32", "in_out_channel")
    for tag in ("nhwc", "nchw"):
        side = memory_desc(image.dims, "f32", tag)
        yield from ((side, image, None), (image, side, None))


def test_tiles_are_gathered_where_few_loads_share_a_bank() -> None:
    small, many, image = (64, 64, 3, 3), (64, 512, 3, 3), (2, 3, 64, 512)
    for dtype, dims, one, other, expected in (
        ("s8", small, "oihw", "OIhw4i16o4i", True),
        ("f32", small, "oihw", "OIhw2i8o4i", True),
        # elements of dst are nowhere at the same distances, or those of src are already
        ("s8", small, "OIhw4i16o4i", "oihw", False),
        ("s8", many, "oihw", "ohwi", False),
        ("u8", image, "nhwc", "nchw", False),
    ):
        src, dst = memory_desc(dims, dtype, one), memory_desc(dims, dtype, other)
        (launch,) = check(planned(src, dst, DeviceTraits(1024, min_tiled=0)))
        body = launch.pattern.body
        assert isinstance(body, Staged)
        assert body.is_gathered == expected, (dtype, one, other)


def test_tiles_are_hardly_larger_than_what_they_move() -> None:
    for dims, dtypes, one, other in (
        ((64, 129, 63, 63), ("u8", "u8"), "nhwc", "nchw"),
        ((16, 512, 768, 3), ("u8", "u8"), "abcd", "badc"),
        ((16, 48, 149, 149), ("f32", "s8"), "nhwc", "nchw"),
        ((32, 384, 38, 19), ("f16", "f16"), "fs_b_yx_fsv32", "nchw"),
    ):
        src, dst = (memory_desc(dims, *of) for of in zip(dtypes, (one, other), strict=True))
        (launch,) = check(planned(src, dst))
        body = launch.pattern.body
        assert isinstance(body, Staged)
        moved = prod(body.extents) * prod(launch.groups)
        assert 1 <= moved / prod(dims) < 1.2, (dims, body.extents)
        assert prod(body.extents) >= 4096


_SMALL = [DeviceTraits(most, min_tiled=0) for most in (1, 32, 64, 100, 256, 1024)]


@pytest.mark.parametrize("device", [GPU_LIKE, DeviceTraits(1024, max_local=1 << 15), *_SMALL])
def test_launches_declare_what_they_use_and_keep_the_limits(device: DeviceTraits) -> None:
    # small devices share the pairs
    first, step = (_SMALL.index(device), len(_SMALL)) if device in _SMALL else (0, 1)
    for src, dst, attr in islice(pairs(), first, None, step):
        launches = check(planned(src, dst, device, attr), device)
        if device is GPU_LIKE and isinstance(src, ImageDesc) != isinstance(dst, ImageDesc):
            is_large = max(src.nbytes, dst.nbytes) >= device.min_tiled
            assert [isinstance(one.pattern.body, Staged) for one in launches] == [is_large]


@settings(max_examples=40, deadline=None)
@given(image_cases(), desc_pairs(max_ndims=8).filter(lambda pair: pair[0].dtype.bits > 4))
def test_kernels_of_any_layouts_declare_what_they_use(
    case: tuple[MemoryDesc, ImageDesc, MemoryDesc], pair: tuple[MemoryDesc, MemoryDesc]
) -> None:
    src, image, dst = case
    for one, other in ((src, image), (image, dst), pair):
        check(planned(one, other))


@pytest.mark.parametrize(("dtype", "limit"), [("u4", 16), ("f32", 16), ("u8", 8)])
def test_a_tile_that_fits_only_without_gaps_has_none(dtype: str, limit: int) -> None:
    src, dst = (memory_desc((2048, 2048), dtype, tag) for tag in ("ab", "ba"))
    device = DeviceTraits(1024, max_local=limit << 10)
    (launch,) = check(planned(src, dst, device), device)
    assert isinstance(launch.pattern.body, Staged)
    assert launch.pattern.body.local_nbytes == limit << 10


def test_conversions_of_4_bits_take_tiles_in_little_local_memory() -> None:
    # 32 KiB leave no room for gaps, nor for the vector before rows that start at any byte
    for limit, one, other, dims in (
        (16, "s8", "u4", (2048, 2048)),
        (32, "s8", "u4", (2048, 2048)),
        (32, "u4", "u8", (2050, 1026)),
    ):
        device = DeviceTraits(256, max_local=limit << 10)
        src, dst = (memory_desc(dims, *of) for of in ((one, "ab"), (other, "ba")))
        (launch,) = check(planned(src, dst, device), device)
        assert isinstance(launch.pattern.body, Staged)
        assert launch.pattern.body.local_nbytes < 24 << 10


_LITTLE = """
32 f32 f32 11x88x200 abc acb
32 u4 f32 15x88x144 abc cab
32 u8 u8 11x142x190 abc acb
48 u4 f32 69x120x24 abc cba
48 f16 u4 14x80x168 abc cba
16 f16 f16 13x104x144 abc acb
"""


def test_tiles_are_evened_only_if_local_memory_has_room() -> None:
    for line in _LITTLE.strip().splitlines():
        limit, one, other, sizes, *tags = line.split()
        dims = tuple(map(int, sizes.split("x")))
        src, dst = map(memory_desc, (dims, dims), (one, other), tags)
        device = DeviceTraits(256, max_local=int(limit) << 10)
        (launch,) = check(planned(src, dst, device), device)
        assert isinstance(launch.pattern.body, Staged), line


_PADDED = """
u8 u8 2x255x111x111 abcd aBcd16b
u8 u8 2x255x111x111 acdb aBcd16b
f16 f16 4095x4093 ab BA8b16a2b
s8 s8 4093x4091 ab BA16a64b4a
s8 s8 2047x1023x3x3 abcd ABcd4b16a4b
f16 f16 8x100x13x13 abcd aBcd32b
f32 s8 8x100x28x28 abcd aBcd16b
f32 f16 1000x500 ab AB16b16a
f32 f32 8x100x56x56 aBcd16b abcd
s8 s8 20x72x56x56 ABcd16a16b abcd
f32 f32 511x768x3x3 Abcd16a abcd
s8 f32 8x72x56x56 aBcd16b abcd
s8 s8 100x102x5x5 ABcd4b16a4b abcd
f16 f16 4x168x56x56 ABcd16a16b acdb
"""


def test_tiles_that_are_partly_padding_take_one_launch() -> None:
    for line in _PADDED.strip().splitlines():
        one, other, sizes, *tags = line.split()
        dims = tuple(map(int, sizes.split("x")))
        src, dst = map(memory_desc, (dims, dims), (one, other), tags)
        (launch,) = check(planned(src, dst))
        assert isinstance(launch.pattern.body, Staged), line
        assert launch.pattern.sizes, line


# the loops of a run of dst, the bytes at whose multiples its rows end, and what is unpacked
_UNPACKED = """
2 0 s8 s8 4000x4001 BA16a64b4a ab
3 0 s8 s8 1000x1022x5x5 OIhw4i16o4i abcd
3 0 f16 f16 1000x1022x3x3 OIhw16i16o abcd
3 0 bf16 bf16 500x700x7x7 OIhw8i16o2i abcd
1 32 s8 s8 40x72x55x55 ABcd16a16b abcd
1 32 f16 s8 40x200x27x27 ABcd16a16b abcd
1 0 s8 s8 32x1001x55x55 aBcd16b abcd
"""


def test_blocks_are_unpacked_in_long_runs_at_any_byte() -> None:
    for line in _UNPACKED.strip().splitlines():
        loops, align, one, other, sizes, *tags = line.split()
        dims = tuple(map(int, sizes.split("x")))
        src, dst = map(memory_desc, (dims, dims), (one, other), tags)
        (launch,) = check(planned(src, dst))
        body = launch.pattern.body
        assert isinstance(body, Staged), line
        assert body.dst.is_shifted, line
        assert (len(body.dst.run), body.dst.align) == (int(loops), int(align)), line


def test_elements_past_a_run_of_src_become_zero_only_if_dst_has_padding() -> None:
    for tag, masks in (("ba", 0), ("Ba4b", 1)):
        src, dst = memory_desc((301, 259), "u8", "ab"), memory_desc((301, 259), "u8", tag)
        (launch,) = check(planned(src, dst))
        assert ("= first_bits(" in kernel_source(launch.pattern)) == masks, tag


def test_halves_of_bytes_are_written_by_two_launches_one_after_the_other() -> None:
    for dims, count in (((5, 7), 2), ((6, 8), 1)):
        src, dst = memory_desc(dims, "s8", "ab"), memory_desc(dims, "s4", "ba")
        (transfer,) = planned(src, dst)
        assert len(transfer.launches) == count


@pytest.mark.parametrize(
    ("types", "attr", "floats", "reason"),
    [
        (("f64", "f32"), None, Floats(has_f64=False), "f64 to f32 is computed in f64, which"),
        (("f32", "f16"), Attr(src_scale=2), Floats(is_exact=False), "the device flushes denormals"),
        (("f32", "s8"), None, Floats(rounds=False), "the device does not round to nearest"),
        (("f32", "f8_e5m2"), None, Floats(rounds=False), "the device does not round to nearest"),
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


_JOINED = """
u8 nchw nhwc 2x255x9x9 255
f16 nchw nhwc 2x50x9x9 50
u8 nhwc nchw 2x64x13x13 169
u8 b_fs_yx_fsv16 nhwc 2x255x9x9 255
f32 nChw16c nhwc 2x20x9x9 20
"""


def test_short_rows_of_dst_at_any_byte_are_joined() -> None:
    for line in _JOINED.strip().splitlines():
        dtype, one, other, sizes, row = line.split()
        dims = tuple(map(int, sizes.split("x")))
        src, dst = (memory_desc(dims, dtype, tag) for tag in (one, other))
        device = DeviceTraits(256, min_tiled=0)
        (transfer,) = plan_transfers(OperandSpec(src), OperandSpec(dst), device)
        (launch,) = transfer.launches
        params = dict(zip(launch.pattern.params, launch.params, strict=True))
        assert params["row"] == int(row), line


def test_few_texts_serve_short_rows_of_all_lengths() -> None:
    texts = set()
    for length in range(33, 160, 3):
        src, dst = (memory_desc((64, 331, length), "u4", tag) for tag in ("acb", "abc"))
        (transfer,) = planned(src, dst)
        texts |= {kernel_source(launch.pattern) for launch in transfer.launches}
    assert len(texts) <= 12
