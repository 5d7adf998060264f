"""Marlin against the formulas of vLLM 0.10, `marlin_utils.py`, written out here in numpy."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, data_type
from memdesc.record import record_desc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]

RNG = np.random.default_rng(0)
DIMS = (256, 192)
# scale_perm and scale_perm_single
GROUPED = [i + 8 * j for i in range(8) for j in range(8)]
SINGLE = [2 * i + j for i in range(4) for j in (0, 1, 8, 9, 16, 17, 24, 25)]
INTERLEAVED = {4: [0, 2, 4, 6, 1, 3, 5, 7], 8: [0, 2, 1, 3]}


def pack_columns(values: NDArray[Any], bits: int) -> NDArray[np.uint32]:
    """Join neighbours along the columns into words, the first in the low bits."""
    count = 32 // bits
    words = np.zeros((len(values), values.shape[1] // count), np.uint32)
    for k in range(count):
        words |= values[:, k::count].astype(np.uint32) << np.uint32(k * bits)
    return words


def marlin_zero_points(points: NDArray[Any], bits: int) -> NDArray[np.uint32]:
    columns = points.shape[1]
    ordered = points.reshape(-1, 64)[:, GROUPED]
    mixed = ordered.reshape(-1, len(INTERLEAVED[bits]))[:, INTERLEAVED[bits]]
    return pack_columns(mixed.ravel().reshape(-1, columns), bits)


def marlin_scales(scales: NDArray[Any]) -> NDArray[Any]:
    order = GROUPED if len(scales) > 1 else SINGLE
    return scales.reshape(-1, len(order))[:, order].reshape(scales.shape)


def marlin_codes(codes: NDArray[Any], bits: int) -> NDArray[np.uint32]:
    """Tiles of 16 x 16, each four of them in the order of the threads that multiply them."""
    order: list[int] = []
    for thread in range(32):
        column, first = thread // 4, 2 * (thread % 4)
        one = [
            16 * row + column + 8 * half
            for half in (0, 1)
            for row in (first, first + 1, first + 8, first + 9)
        ]
        order.extend(place + 256 * tile for tile in range(4) for place in one)
    mixed = np.array(order).reshape(-1, len(INTERLEAVED[bits]))[:, INTERLEAVED[bits]].ravel()
    rows, columns = codes.shape
    tiles = codes.reshape(rows // 16, 16, columns // 16, 16).transpose(0, 2, 1, 3)
    lines = tiles.reshape(rows // 16, columns * 16).reshape(-1, 1024)[:, mixed]
    return pack_columns(lines.reshape(rows // 16, -1), bits)


def numbers_of(bits: int, group: int, scales: str, points: tuple[int, int]) -> Numbers:
    """Return random codes, zero points and scales."""
    rows = 1 if group == -1 else DIMS[0] // group
    return (
        RNG.integers(0, 1 << bits, DIMS),
        RNG.integers(*points, (rows, DIMS[1])),
        (RNG.standard_normal((rows, DIMS[1])) / 9).astype(data_type(scales).numpy),
    )


def record_of(name: str, numbers: Numbers, **options: Any) -> reorder.records.Record:
    """Return a record by its fields; zero points of GPTQ v1 are stored minus 1."""
    record = reorder.records.Record(record_desc(DIMS, name, **options))
    codes, points, scales = numbers
    record.set_field("qweight", codes)
    record.set_field("scales", scales)
    if "qzeros" in record.tensors:
        record.set_field("qzeros", points - (options.get("zeros") == "v1"))
    return record


CASES = [
    pytest.param(*case, id="-".join(map(str, case)))
    for case in product((4, 8), (32, 64, 128, -1), ("f16", "bf16"))
]
FROM = [
    ("awq", {}),
    ("gptq", {"zeros": "v1"}),
    ("gptq", {"zeros": "v2"}),
]


@pytest.mark.parametrize(("bits", "group", "scales"), CASES)
def test_zero_points_reach_marlin_and_come_back(bits: int, group: int, scales: str) -> None:
    for name, options in FROM:
        if name == "awq" and bits == 8:
            continue
        least = 1 if options.get("zeros") == "v1" else 0
        numbers = numbers_of(bits, group, scales, (least, 1 << bits))
        codes, points, factors = numbers
        width = {} if name == "awq" else {"bits": bits}
        held = record_of(name, numbers, group=group, scales=scales, **width, **options)
        made = reorder.records.repack(held, "marlin", zeros=True)
        expected = {
            "qweight": marlin_codes(codes, bits),
            "qzeros": marlin_zero_points(points, bits),
            "scales": marlin_scales(factors),
        }
        assert {tensor: data.tobytes() for tensor, data in made.tensors.items()} == {
            tensor: array.tobytes() for tensor, array in expected.items()
        }
        steps = (codes - points.repeat(DIMS[0] // len(points), 0)).astype(np.float32)
        wide = factors.astype(np.float32).repeat(DIMS[0] // len(points), 0)
        assert np.array_equal(reorder.dequantize(made).numpy(), wide * steps)
        back = reorder.records.repack(made, held.desc)
        assert all((back.tensors[each] == held.tensors[each]).all() for each in held.tensors)


@pytest.mark.parametrize(("bits", "group", "scales"), CASES)
def test_without_zero_points_they_are_all_in_the_middle(bits: int, group: int, scales: str) -> None:
    middle = 1 << bits - 1
    numbers = numbers_of(bits, group, scales, (middle, middle + 1))
    held = record_of("gptq", numbers, group=group, scales=scales, bits=bits, zeros="v1")
    made = reorder.records.repack(held, "marlin")
    assert made.tensors.keys() == {"qweight", "scales"}
    assert made.tensors["qweight"].tobytes() == marlin_codes(numbers[0], bits).tobytes()
    assert made.tensors["scales"].tobytes() == marlin_scales(numbers[2]).tobytes()
    back = reorder.records.repack(made, held.desc)
    assert all((back.tensors[each] == held.tensors[each]).all() for each in held.tensors)
    # and with zero points of their own
    with_points = reorder.records.repack(made, "marlin", zeros=True)
    assert (with_points.field("qzeros").astype(int) == middle).all()
    assert with_points.tensors["qweight"].tobytes() == made.tensors["qweight"].tobytes()
    again = reorder.records.repack(with_points, made.desc)
    assert all((again.tensors[each] == made.tensors[each]).all() for each in made.tensors)


@pytest.mark.parametrize(
    ("source", "options", "zeros"),
    [
        ("awq", {}, True),
        ("gptq", {}, False),
        ("gptq", {"zeros": "v2"}, False),
        ("marlin", {}, False),
        ("marlin", {"zeros": True}, True),
        ("q4_0", {}, False),
        ("q4_1", {}, True),
        ("torch_int4_cpu", {"scales": "f16"}, True),
    ],
)
def test_formats_alone_decide_whether_zero_points_are_kept(
    source: str, options: dict[str, Any], zeros: bool
) -> None:
    group = {"group": 32} if source not in {"q4_0", "q4_1"} else {}
    record = reorder.records.Record(record_desc((256, 256), source, **group, **options))
    if source == "gptq":
        record.set_field("qzeros", np.full((8, 256), 7 + (options != {})))
    made = reorder.records.repack(record, "marlin")
    assert dict(made.desc.options)["zeros"] is zeros
    assert ("qzeros" in made.tensors) is zeros


@pytest.mark.parametrize("source", ["awq", "gptq"])
def test_zero_points_are_never_dropped_unless_they_are_in_the_middle(source: str) -> None:
    chosen: dict[str, Any] = {"zeros": False} if source == "awq" else {}
    codes, points, scales = numbers_of(4, 64, "f16", (8, 9))
    options: dict[str, Any] = {"group": 64} | ({"zeros": "v2"} if source == "gptq" else {})
    made = reorder.records.repack(
        record_of(source, (codes, points, scales), **options), "marlin", **chosen
    )
    assert made.tensors.keys() == {"qweight", "scales"}
    points[3, 5], codes[200, 5] = 7, 15
    with pytest.raises(
        MemdescError, match=r"becomes 16; .*; marlin\(zeros=true\) holds more zero p"
    ):
        reorder.records.repack(
            record_of(source, (codes, points, scales), **options), "marlin", **chosen
        )


def assert_refused(source: reorder.records.Record, message: str, **options: Any) -> None:
    with pytest.raises(MemdescError, match=message):
        reorder.records.repack(source, "marlin", **options)


def test_what_marlin_does_not_hold_is_refused_with_the_way_out() -> None:
    wide = record_of("awq", numbers_of(4, 64, "f32", (0, 16)), group=64, scales="f32")
    assert_refused(wide, "marlin: scales are f16, bf16, not f32; give scales=f16 if it holds them")
    assert_refused(wide, "scales: f16 of scales of marlin cannot hold", scales="f16")
    assert_refused(wide, "marlin: zeros must be True or False, not 1", zeros=1, scales="f16")
    wide.set_field("scales", np.full((4, 192), 0.25, np.float32))
    made = reorder.records.repack(wide, "marlin", scales="f16")
    assert np.array_equal(reorder.dequantize(made).numpy(), reorder.dequantize(wide).numpy())
    for dims, pad in (((256, 96), (256, 128)), ((24, 64), (32, 64)), ((256, 32), (256, 64))):
        small = reorder.records.Record(record_desc(dims, "awq", group=8))
        assert_refused(small, rf"out = {dims[1]}: .*pad the tensor to \({pad[0]}, {pad[1]}\)")
    # a symmetric source has no zero points to keep
    bytes_of = reorder.records.Record(record_desc((192, 256), "q8_0"))
    bytes_of.set_field("qs", np.full((192, 256), -100))
    with pytest.raises(MemdescError, match=r"do not fit$"):
        reorder.records.repack(bytes_of, "marlin")


def test_scales_and_zero_points_of_one_group_have_different_orders() -> None:
    desc = record_desc((128, 64), "marlin", group=-1, zeros=True)
    scales, points = (desc.field(name).desc for name in ("scales", "qzeros"))
    assert [scales.offset((0, column)) for column in SINGLE] == list(range(32))
    order = np.array(GROUPED).reshape(-1, 8)[:, INTERLEAVED[4]].ravel()
    assert [points.offset((0, int(column))) for column in order] == list(range(64))
