import tracemalloc
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc import MemdescError
from memdesc.record import Number, RecordDesc, known_records, record_desc
from reorder.records.repacking import target_desc
from tests.packings import FORMULAS
from tests.records import by_hand, dequantize_reference, number, plain_scales, random_record

RNG = np.random.default_rng(0)
INT4 = ("torch_int4_cpu", "torch_int4_cpu_avx2", "torch_int4_cpu_default")
FP8 = ("fp8_tensor", "fp8_channel", "fp8_block")
MXFP4 = ("ocp_mxfp4", "gguf_mxfp4", "modelopt_mxfp4", "compressed_mxfp4", "gpt_oss_mxfp4")
GROUPED = {"gptq", "awq", *INT4}


def made(name: str, dims: tuple[int, int] = (256, 256), **options: Any) -> reorder.records.Record:
    options = ({"group": 32} if name in GROUPED else {}) | options
    record = plain_scales(random_record(record_desc(dims, name, **options), RNG), RNG)
    if name == "gguf_mxfp4":
        set_field(record, "e", RNG.integers(120, 136, (256, 8)))
    return record


def set_field(record: reorder.records.Record, name: str, value: Any) -> None:
    """Fill a field with bits, or with numbers if they are floats."""
    part = record.desc.field(name)
    kind = part.desc.dtype.numpy
    if np.asarray(value).dtype.kind == "f":
        bits = np.asarray(value).astype(kind).view(part.desc.dtype.bits_dtype)
    else:
        bits = np.asarray(value).astype(part.desc.dtype.bits_dtype)
    record.set_field(name, np.broadcast_to(bits, part.layout.dims).view(kind))


def put(name: str, dims: tuple[int, int] = (256, 256), **fields: Any) -> reorder.records.Record:
    """Return a record whose fields have these values; `kind` is the type of its scales."""
    record = made(name, dims, **({"scales": fields.pop("kind")} if "kind" in fields else {}))
    for field, value in fields.items():
        set_field(record, field, value)
    return record


def assert_same(one: reorder.records.Record, other: reorder.records.Record) -> None:
    # compiled decoding equals this definition: another test's law
    x, y = (dequantize_reference(record) for record in (one, other))
    y = y if one.desc.letters == other.desc.letters else y.T
    assert np.array_equal(x, y, equal_nan=True)


# What becomes what without conditions; others depend on the numbers.
EXACT = {
    *product(("q4_0",), ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "gptq", "awq")),
    *product(("awq", "gptq"), ("q4_1", "q5_0", "q5_1", "q8_0")),
    *product(("q4_0", "awq", "gptq"), INT4),
    *product(INT4, INT4),
    *((name, name) for name in known_records() if "fp8" not in name),
    ("q4_1", "q5_1"),
    ("q4_k", "q5_k"),
    ("q5_0", "q8_0"),
    ("tq2_0", "q4_0"),
    *product(MXFP4, MXFP4),
    *product(MXFP4, ("modelopt_nvfp4",)),
    *product(("ocp_mxfp8", "mxfp8"), ("ocp_mxfp8", "mxfp8")),
    *product(("fp8_tensor",), FP8),
    *((name, name) for name in FP8),
}


@pytest.mark.parametrize("source", known_records())
def test_a_pair_of_records_is_exact_or_refused(source: str) -> None:
    record = made(source)
    for target in known_records():
        try:
            assert_same(record, reorder.records.repack(record, target))
        except MemdescError:
            assert (source, target) not in EXACT


def test_rows_of_more_dims_are_repacked_too() -> None:
    record = plain_scales(random_record(record_desc((2, 3, 256), "q4_0"), RNG), RNG)
    assert_same(record, reorder.records.repack(record, "q8_0", threads=1))
    empty = reorder.records.Record(record_desc((0, 256), "q4_0"))
    assert reorder.records.repack(empty, "q8_0").data.nbytes == 0


def test_groups_that_do_not_divide_each_other_take_no_memory_for_each_number() -> None:
    record = made("fp8_block", (1024, 1024), block=127)
    set_field(record, "weight_scale", 0.5)
    tracemalloc.start()
    try:
        found = reorder.records.repack(record, "fp8_block", block=128, threads=1)
        assert tracemalloc.get_traced_memory()[1] < 2 * 1024 * 1024
    finally:
        tracemalloc.stop()
    assert_same(record, found)
    set_field(record, "weight_scale", np.arange(81.0).reshape(9, 9))
    with pytest.raises(MemdescError, match="scales differ within 128 adjacent elements along dim"):
        reorder.records.repack(record, "fp8_block", block=128)


_NVFP4 = ("modelopt_nvfp4", "compressed_nvfp4")


@pytest.mark.parametrize(("source", "target"), [_NVFP4, _NVFP4[::-1]])
def test_a_factor_becomes_its_reciprocal_if_no_number_changes_or_the_caller_allows_it(
    source: str, target: str
) -> None:
    scales = RNG.integers(1, 127, (256, 16))
    old, new = (record_desc((256, 256), name).fields[2].name for name in (source, target))

    def moved(value: float, *, exact: bool = True) -> reorder.records.Record:
        record = put(source, (256, 256), weight_scale=scales, **{old: value})
        found = reorder.records.repack(record, target, exact=exact)
        x, y = (dequantize_reference(each) for each in (record, found))
        assert np.array_equal(x, y) == exact
        assert np.allclose(x, y, rtol=2.0**-22, atol=0)
        return found

    for value in (1.0, 2.0**-100, 2.0**20):
        assert moved(value).field(new) == 1 / value
    with pytest.raises(MemdescError, match=r"and \d+ of 4096 scales change .*exact=False allows"):
        moved(1.7)
    assert moved(1.7, exact=False).field(new) == np.float32(1) / np.float32(1.7)
    with pytest.raises(MemdescError, match=r"scales change by up to 2\.?4?e-0[67] of their value$"):
        moved(1.7 * 2.0**127, exact=False)  # the reciprocal has few bits


def test_experts_are_turned_where_formats_order_their_dims_differently() -> None:
    record = plain_scales(random_record(record_desc((3, 64, 48), "modelopt_nvfp4"), RNG), RNG)
    record.set_field("weight_scale_2", np.full((1, 1, 1), 0.25, np.float32))
    found = reorder.records.repack(record, "compressed_nvfp4")
    x, y = (dequantize_reference(each) for each in (record, found))
    assert np.array_equal(x.swapaxes(1, 2), y)
    # each expert may have a scale of its own there
    found.set_field("weight_global_scale", np.array([[[1]], [[2]], [[4]]], np.float32))
    with pytest.raises(MemdescError, match="scales differ within 3 adjacent elements along dim 0"):
        reorder.records.repack(found, "modelopt_nvfp4")


def in_bytes(nibbles: Any) -> NDArray[np.uint8]:
    made: NDArray[np.uint8] = np.asarray(nibbles, np.uint8).reshape(-1)
    return np.asarray(made[::2] | made[1::2] << 4, np.uint8)


def test_numbers_that_other_formulas_and_options_hold_are_written() -> None:
    zeros, (least, _) = plain_scales(random_record(float_zeros(), RNG), RNG), halved()
    shifted = plain_scales(random_record(float_zeros(5, kind="u4"), RNG), RNG)
    rule = least.desc.rule._replace(code=Number((("q", 0),)))
    offsets = made("q4_1")
    steps = RNG.integers(0, 16, (256, 8))
    set_field(offsets, "m", -offsets.field("d").astype(np.float32) * steps)
    signed = float_scales(1.0)
    rows: list[tuple[reorder.records.Record, Any, dict[str, Any]]] = [
        (put("awq", qzeros=0), "gptq", {"zeros": "v2"}),
        (put("ocp_mxfp4", scales=0), "gguf_mxfp4", {}),
        (put("awq", scales=1.001), "torch_int4_cpu", {"scales": "f32"}),
        (zeros, float_zeros(), {}),
        (shifted, float_zeros(kind="u8"), {}),
        (least, replace(least.desc, rule=rule), {}),
        (offsets, "awq", {}),
        (reorder.records.repack(offsets, "awq"), "q4_1", {}),
        (signed, float_scales(sign=-1).desc, {}),
        (signed, float_scales(kind="bf16").desc, {}),
    ]
    for record, target, options in rows:
        assert_same(record, reorder.records.repack(record, target, **options))
    # options that are not said are those of the source
    desc = reorder.records.repack(made("awq", group=-1, scales="bf16"), "gptq", zeros="v2").desc
    assert dict(desc.options) | {"group": -1, "scales": "bf16", "zeros": "v2"} == dict(desc.options)
    for outputs, rows_of, wanted in ((1, 1, 1), (2, 1, 1), (2, 2, -1), (4, 2, 2)):
        desc = record_desc((outputs, 128), "int_quantized", rows=rows_of)
        assert dict(target_desc(desc, "pack_quantized", {}).options)["rows"] == wanted


def float_scales(scale: float = 1.0, **rule: Any) -> reorder.records.Record:
    """Return codes with offsets, which are computed as a rule says."""
    desc = codes_of("s8", "; m f32 /1x32", offset=(number("m"),))
    desc = replace(desc, rule=desc.rule._replace(**rule))
    record = random_record(desc, np.random.default_rng(0))
    for name, values in (("q", RNG.integers(-99, 99, (8, 32))), ("m", RNG.integers(-9, 9, (8, 1)))):
        record.set_field(name, values.astype("f4" if name == "m" else "i1"))
    record.set_field("d", np.full((8, 1), scale, np.float32))
    return record


def codes_of(kind: str, more: str = "", **rule: Any) -> RecordDesc:
    return by_hand((8, 32), f"q {kind}; d f32 /1x32{more}", "mine", **rule)


def halved() -> tuple[reorder.records.Record, RecordDesc]:
    """Return a record of the least scale, and one whose table has twice the numbers."""
    record = plain_scales(random_record(codes_of("f4_e2m1"), RNG), RNG)
    set_field(record, "d", 2.0**-149)
    doubled = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
    return record, codes_of("u4", code=number("q", 0, doubled))


def float_zeros(minus: int = 0, *, has_offset: bool = False, kind: str = "f32") -> RecordDesc:
    """Return a record whose zero points are floats, or of another kind."""
    offset = (number("m"),) if has_offset else ()
    fields = f"q u8; d f32 /1x16; z {kind} /1x16" + "; m f32 /1x16" * has_offset
    rule: dict[str, Any] = {"code": number("q", minus), "zero": number("z"), "offset": offset}
    return by_hand((4, 64), fields, **rule)


def of_a_table(table: tuple[float, ...]) -> RecordDesc:
    return by_hand((1, 8), "q u1; d f32 /1x8", code=number("q", 0, table))


@pytest.mark.parametrize(
    ("name", "dims"),
    [("ggml_soa", (8, 96)), ("adreno_noshuffle", (12, 64)), ("adreno_trans4_ns", (2, 8, 64))],
)
def test_blocks_become_the_two_arrays_of_an_adreno_as_llama_cpp_has_them_and_come_back(
    name: str, dims: tuple[int, ...]
) -> None:
    record = plain_scales(random_record(record_desc(dims, "q4_0"), RNG), RNG)
    made = reorder.records.repack(record, name)
    codes = in_bytes(FORMULAS[name, 4](record.field("qs").astype(np.uint8)))
    assert np.array_equal(made.tensors["adreno_q"], codes)
    scales = record.field("d")
    turned = scales if name == "ggml_soa" else scales.swapaxes(-1, -2)
    assert made.tensors["adreno_d"].tobytes() == turned.tobytes()
    assert (reorder.records.repack(made, "q4_0").data == record.data).all()
    assert (reorder.dequantize(made).numpy() == reorder.dequantize(record).numpy()).all()
