from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc import MemdescError
from memdesc.record import Number, RecordDesc, known_records, record_desc
from reorder.records.numbers import code_range
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


def test_scales_that_both_formats_store_alike_keep_their_bits() -> None:
    record = made("q4_0")
    set_field(record, "d", 0x7D01)  # a signalling NaN, which any arithmetic would make quiet
    found = reorder.records.repack(record, "awq", group=32)
    assert (found.field("scales").view(np.uint16) == 0x7D01).all()


_NVFP4 = ("modelopt_nvfp4", "compressed_nvfp4")


@pytest.mark.parametrize(("source", "target"), [_NVFP4, _NVFP4[::-1]])
def test_a_factor_becomes_its_reciprocal_if_no_number_changes_or_the_caller_allows_it(
    source: str, target: str
) -> None:
    record = put(source, weight_scale=RNG.integers(1, 127, (256, 16)))
    old, new = (record_desc((256, 256), name).fields[2].name for name in (source, target))
    for value in (1.0, 2.0**-100, 2.0**20):
        set_field(record, old, value)
        found = reorder.records.repack(record, target)
        assert_same(record, found)
        assert found.field(new) == 1 / value
        assert_same(record, reorder.records.repack(found, source))
    set_field(record, old, 1.7)
    with pytest.raises(MemdescError) as caught:
        reorder.records.repack(record, target)
    assert "a factor becomes its reciprocal, and " in str(caught.value)
    assert "of 4096 scales change by up to " in str(caught.value)
    assert str(caught.value).endswith(" of their value; exact=False allows that")
    found = reorder.records.repack(record, target, exact=False)
    assert found.field(new) == np.float32(1) / np.float32(1.7)
    for one, other in list(zip(record.tensors.values(), found.tensors.values(), strict=True))[:2]:
        assert np.array_equal(one, other)
    x, y = (dequantize_reference(each) for each in (record, found))
    assert not np.array_equal(x, y)
    assert np.allclose(x, y, rtol=2.0**-22, atol=0)
    # the reciprocal has few bits
    set_field(record, old, 1.7 * 2.0**127)
    with pytest.raises(MemdescError, match="scales change by more than a rounding"):
        reorder.records.repack(record, target, exact=False)


def test_experts_are_turned_where_formats_order_their_dims_differently() -> None:
    desc = record_desc((3, 64, 48), "modelopt_nvfp4")
    record = plain_scales(random_record(desc, RNG), RNG)
    record.set_field("weight_scale_2", np.full((1, 1, 1), 0.25, np.float32))
    found = reorder.records.repack(record, "compressed_nvfp4")
    assert found.desc == record_desc((3, 48, 64), "compressed_nvfp4")
    x, y = (dequantize_reference(each) for each in (record, found))
    assert np.array_equal(x.swapaxes(1, 2), y)
    assert reorder.records.repack(found, "modelopt_nvfp4").desc == desc
    # each expert may have a scale of its own there
    found.set_field("weight_global_scale", np.array([[[1]], [[2]], [[4]]], np.float32))
    with pytest.raises(MemdescError, match="scales differ within 3 adjacent elements along dim 0"):
        reorder.records.repack(found, "modelopt_nvfp4")


def in_bytes(nibbles: Any) -> NDArray[np.uint8]:
    made: NDArray[np.uint8] = np.asarray(nibbles, np.uint8).reshape(-1)
    return np.asarray(made[::2] | made[1::2] << 4, np.uint8)


@pytest.mark.parametrize("zeros", ["v1", "v2"])
def test_gptq_and_awq_are_what_their_scripts_pack(zeros: str) -> None:
    codes = RNG.integers(0, 16, (256, 64), np.uint8)
    points = RNG.integers(1, 15, (2, 64), np.uint8)
    scales = RNG.integers(1, 99, (2, 64)).astype(np.float16)
    qweight, qzeros = FORMULAS["gptq", 4](codes), points - (zeros == "v1")
    gptq: dict[str, NDArray[Any]] = {
        "qweight": in_bytes(qweight),
        "qzeros": in_bytes(qzeros),
        "scales": scales,
    }
    packed = {name: FORMULAS["awq", 4](x) for name, x in (("qweight", codes), ("qzeros", points))}
    awq: dict[str, NDArray[Any]] = {
        **{name: in_bytes(x) for name, x in packed.items()},
        "scales": scales,
    }
    record = reorder.records.Record(record_desc((256, 64), "gptq", zeros=zeros), gptq)
    found = reorder.records.repack(record, "awq")
    back = reorder.records.repack(found, record.desc)
    for made, layer in ((found, awq), (back, gptq)):
        assert all(made.tensors[name].tobytes() == x.tobytes() for name, x in layer.items())
    moved = codes.astype(np.float32) - points.astype(np.float32).repeat(128, 0)
    assert (
        reorder.dequantize(record).numpy() == scales.astype(np.float32).repeat(128, 0) * moved
    ).all()


def test_the_group_and_the_type_of_scales_are_those_of_the_source() -> None:
    desc = reorder.records.repack(made("awq", group=-1, scales="bf16"), "gptq", zeros="v2").desc
    assert repr(desc) == (
        "record_desc((256, 256), 'gptq', group=-1, zeros='v2', bits=4, scales='bf16', g_idx=False)"
    )
    assert reorder.records.repack(made("q4_0", (64, 128)), "awq", group=32).desc.dims == (128, 64)


def test_a_target_takes_only_what_it_has_too() -> None:
    # exponents stay exponents in the same format alone
    exponents = reorder.records.Record(record_desc((256, 128), "fp8_block", scales="e8m0")).desc
    for name, scales in (("int_quantized", "bf16"), ("fp8_block", "e8m0")):
        assert dict(target_desc(exponents, name, {}).options)["scales"] == scales
    # one row has a scale of its own; a scale of all of several rows stays one of all
    for outputs, rows, wanted in ((1, 1, 1), (2, 1, 1), (2, 2, -1), (4, 2, 2)):
        source = record_desc((outputs, 128), "int_quantized", rows=rows)
        assert dict(target_desc(source, "pack_quantized", {}).options)["rows"] == wanted


def test_an_offset_becomes_a_zero_point_and_back() -> None:
    record = made("q4_1")
    d, zero = record.field("d").astype(np.float32), RNG.integers(0, 16, (256, 8))
    set_field(record, "m", -d * zero)
    packed = reorder.records.repack(record, "awq")
    assert (packed.field("qzeros").astype(np.uint8) == zero.T).all()
    assert_same(record, packed)
    assert_same(record, reorder.records.repack(packed, "q4_1"))


@pytest.mark.parametrize("target", ["q8_0", "q4_0"])
def test_an_offset_of_very_many_scales_is_refused(target: str) -> None:
    minus = record_desc((2, 32), target).rule.code.minus
    for steps, sign in product((1 << 16, 1 << 20, 1 << 30), (1, -1)):
        record = put("q4_1", (2, 32), d=64 / steps, m=64.0 * sign, qs=0)
        message = f"the code at .* becomes {sign * steps + minus}; 64 do not fit"
        if steps > 1 << 16:
            message = f"the offset of group .*, {sign * 64.0}, is not a multiple of the scale "
        with pytest.raises(MemdescError, match=message):
            reorder.records.repack(record, target)


def test_rows_of_more_dims_are_repacked_too() -> None:
    record = plain_scales(random_record(record_desc((2, 3, 256), "q4_0"), RNG), RNG)
    assert_same(record, reorder.records.repack(record, "q8_0", threads=1))
    empty = reorder.records.Record(record_desc((0, 256), "q4_0"))
    assert reorder.records.repack(empty, "q8_0").data.nbytes == 0


def test_numbers_that_other_options_hold_are_written() -> None:
    zeros, (least, _) = plain_scales(random_record(float_zeros(), RNG), RNG), halved()
    rule = least.desc.rule._replace(code=Number((("q", 0),)))
    rows: list[tuple[reorder.records.Record, Any, dict[str, Any]]] = [
        (put("awq", qzeros=0), "gptq", {"zeros": "v2"}),
        (put("ocp_mxfp4", scales=0), "gguf_mxfp4", {}),
        (put("awq", scales=1.001), "torch_int4_cpu", {"scales": "f32"}),
        (zeros, float_zeros(), {}),
        (least, replace(least.desc, rule=rule), {}),
    ]
    for record, target, options in rows:
        assert_same(record, reorder.records.repack(record, target, **options))


def codes_of(kind: str, more: str = "", **rule: Any) -> RecordDesc:
    return by_hand((8, 32), f"q {kind}; d f32 /1x32{more}", "mine", **rule)


def test_formulas_of_another_sign_or_type_keep_the_numbers_or_are_refused() -> None:
    desc = codes_of("s8", "; m f32 /1x32", offset=(number("m"),))
    rule = desc.rule
    record = random_record(desc, RNG)
    record.set_field("d", np.ones((8, 1), np.float32))
    record.set_field("m", RNG.integers(-9, 9, (8, 1)).astype(np.float32))
    found = reorder.records.repack(record, replace(desc, rule=rule._replace(sign=-1)))
    assert_same(record, found)
    assert (found.field("m") == -record.field("m")).all()
    record.set_field("q", RNG.integers(-99, 99, (8, 32)))
    narrow = replace(desc, rule=rule._replace(kind="bf16"))
    assert_same(record, reorder.records.repack(record, narrow))
    record.set_field("d", np.full((8, 1), 1.001, np.float32))
    with pytest.raises(MemdescError, match="rounding differs between their formulas"):
        reorder.records.repack(record, narrow)


def halved() -> tuple[reorder.records.Record, RecordDesc]:
    """Return a record of the least scale, and one whose table has twice the numbers."""
    record = plain_scales(random_record(codes_of("f4_e2m1"), RNG), RNG)
    set_field(record, "d", 2.0**-149)
    doubled = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
    return record, codes_of("u4", code=number("q", 0, doubled))


def float_zeros(minus: int = 0, *, has_offset: bool = False) -> RecordDesc:
    """Return a record whose zero points are floats."""
    offset = (number("m"),) if has_offset else ()
    fields = "q u8; d f32 /1x16; z f32 /1x16" + "; m f32 /1x16" * has_offset
    rule: dict[str, Any] = {"code": number("q", minus), "zero": number("z"), "offset": offset}
    return by_hand((4, 64), fields, **rule)


# how a record may store codes of -8 to 7, zero points of 5 to 7 and scales of 16 to 240: kinds and
# lowest bits of fields, and what is subtracted from the joined integer
_CODES: dict[str, tuple[list[tuple[str, int]], int]] = {
    "u4": ([("u4", 0)], 8),
    "s4": ([("s4", 0)], 0),
    "u8": ([("u8", 0)], 8),
    "s8": ([("s8", 0)], 0),
    "s8 - 3": ([("s8", 0)], 3),
    "s8 + 5": ([("s8", 0)], -5),
    "planes": ([("u2", 0), ("u2", 2)], 8),
    "planes turned": ([("u2", 2), ("u2", 0)], 8),
}
_ZEROS = {"none": None, "u4": 0, "s4": 0, "u8": -5, "s8": 9, "u16": 0, "s16": 3}
_SCALES = {"f16": 0, "bf16": 0, "f32": 0, "u8": 0, "u8 - 8": 8, "u8 + 8": -8, "u8 << 4": 0}
_SCALES |= {"u8 table": 0}


def stored(code: str, zero: str, scale: str, group: int) -> RecordDesc:
    """Return a record with these forms of its numbers."""
    parts, minus = _CODES[code]
    fields = [f"q{k} {kind}" for k, (kind, _) in enumerate(parts)]
    fields.append(f"d {scale.split(maxsplit=1)[0]} /1x{group}")
    fields += [] if zero == "none" else [f"z {zero} /1x{group}"]
    table = tuple(map(float, range(256))) if scale.endswith("table") else ()
    return by_hand(
        (4, 64),
        "; ".join(fields),
        code=Number(tuple((f"q{k}", shift) for k, (_, shift) in enumerate(parts)), minus),
        scale=(Number((("d", 4 if scale.endswith("4") else 0),), _SCALES[scale], table),),
        zero=None if zero == "none" else number("z", _ZEROS[zero] or 0),
    )


@pytest.mark.parametrize("seed", range(60))
def test_numbers_stay_the_same_however_they_are_stored(seed: int) -> None:
    """*Law*: numbers that a target can hold are stored, whatever holds them."""
    rng = np.random.default_rng(seed)
    code, other = rng.choice([*_CODES], 2)
    zero, point = rng.choice([*_ZEROS], 2)
    if point == "none" != zero:
        other = "s8"  # which holds codes minus zero points
    source = stored(code, zero, str(rng.choice([*_SCALES])), 16)
    scale, group = str(rng.choice([*_SCALES])), int(rng.choice((8, 16, 32)))
    target = stored(other, point, scale, group)
    record = reorder.records.Record(source)
    values = {"d": rng.integers(1, 15, (4, 2)).repeat(2, 1) * 16}
    values["z"] = rng.integers(5, 8, (4, 2)).repeat(2, 1)
    values["q"] = rng.integers(-8, 8, (4, 64))
    for each in source.rule.numbers:
        for name, shift in each.parts:
            field = source.field(name)
            bits = (values[name[0]] + each.minus) >> shift & (1 << min(field.bits, 31)) - 1
            kind = np.uint8 if field.bits < 8 else f"u{field.bits // 8}"
            if field.kind[0] == "f" or field.kind == "bf16":
                record.set_field(name, values["d"].astype(field.desc.dtype.numpy))
            elif field.kind in {"u1", "u2"}:
                record.set_field(name, bits.astype(kind))
            else:
                record.set_field(name, bits.astype(kind).view(field.desc.dtype.numpy))
    try:
        assert_same(record, reorder.records.repack(record, target))
    except MemdescError:  # codes are counted from the lowest, and zero points move with it
        assert point != "none"
        assert code_range(source, source.rule.code) != code_range(target, target.rule.code) or (
            source.rule.code.minus != target.rule.code.minus
        )


@pytest.mark.parametrize("n_factors", [1, 2])
def test_tables_of_any_ratio_keep_numbers_or_are_refused(n_factors: int) -> None:
    refused = 0
    for _ in range(100):
        # 12 bits of a ratio and of a scale are exact in f32; with those of others, not always
        sizes = [4096, *RNG.choice((16, 4096), n_factors)]
        ratio, *scales = (np.float32(RNG.integers(size // 2, size) | 1) for size in sizes)
        value = np.float32(RNG.integers(2**23, 2**24) | 1 if RNG.integers(2) else 1)
        record = reorder.records.Record(of_a_table((float(value * ratio), 0.0), n_factors))
        for k, scale in enumerate(scales):
            record.set_field(f"d{k}", np.full((1, 1), scale))
        try:
            assert_same(
                record, reorder.records.repack(record, of_a_table((float(value), 0.0), n_factors))
            )
        except MemdescError:
            refused += 1
    assert 0 < refused < 100


def of_a_table(table: tuple[float, ...], n_factors: int = 1) -> RecordDesc:
    fields = "; ".join(["q u1", *(f"d{k} f32 /1x8" for k in range(n_factors))])
    scales = tuple(number(f"d{k}") for k in range(n_factors))
    return by_hand((1, 8), fields, code=number("q", 0, table), scale=scales)


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
