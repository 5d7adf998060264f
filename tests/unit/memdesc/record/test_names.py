from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memdesc import MemdescError, UnknownFormatError, UnsupportedFormatError, memory_desc
from memdesc.names.resolve import RECORDS
from memdesc.record import known_records, record_desc

DIMS = (256, 512)


@pytest.mark.parametrize("name", known_records())
def test_every_known_name_makes_a_record_that_prints_as_its_call(name: str) -> None:
    desc = record_desc(DIMS, name)
    made = eval(repr(desc), {"record_desc": record_desc})
    assert made == desc
    assert hash(made) == hash(desc)
    assert record_desc(DIMS, name.upper()) == desc
    assert desc.nbytes == sum(desc.tensors.values())
    constants = {each.tensor for each in desc.constants}
    assert {part.tensor for part in desc.fields} | constants == set(desc.tensors)


def test_swizzled_scales_are_padded_to_whole_tiles() -> None:
    scales = record_desc((130, 96), "ocp_mxfp4").field("scales").desc
    assert (scales.dims, scales.padded_dims) == ((130, 3), (256, 4))
    plain = record_desc((130, 96), "ocp_mxfp4", swizzled=False).field("scales").desc
    assert plain == memory_desc((130, 3), "e8m0", "ab")


def test_options_choose_groups_types_and_zero_points() -> None:
    kind = memory_desc((1,), "bf16").dtype
    desc = record_desc(DIMS, "gptq", group=np.int64(-1), zeros="v2", bits=8, scales=kind)
    assert repr(desc) == (
        "record_desc((256, 512), 'gptq', group=-1, zeros='v2', bits=8, scales='bf16', g_idx=False)"
    )
    assert str(desc.rule) == "scales * (qweight - qzeros)"
    assert desc.field("scales").desc == memory_desc((1, 512), "bf16", "ab")
    assert desc.field("qweight").desc == memory_desc(DIMS, "u8", "Ab4a")
    assert str(record_desc(DIMS, "gptq").rule) == "scales * (qweight - (qzeros + 1))"


def test_hqq_stores_the_group_with_its_codes() -> None:
    constants = {each.tensor: each.values for each in record_desc(DIMS, "hqq", group=32).constants}
    assert (constants["group_size"], constants["shape"]) == ((32,), DIMS)


def test_packed_codes_have_a_fixed_zero_or_zero_points() -> None:
    rules = [str(record_desc(DIMS, "pack_quantized", zeros=zeros).rule) for zeros in (False, True)]
    assert rules[0] == "weight_scale * (weight_packed - 8)"
    assert rules[1] == "weight_scale * (weight_packed - weight_zero_point)"


def test_a_pair_of_scales_and_zeros_shares_a_tensor() -> None:
    desc = record_desc((64, 256), "torch_int4_cpu", group=32)
    assert desc.tensors == {"weight": 8192, "scales_and_zeros": 8 * 64 * 2 * 2}
    # row-major over groups, outputs, and the pair
    assert desc.field("zeros").desc.offset((3, 5)) == (5 * 64 + 3) * 2 + 1


@pytest.mark.parametrize("dims", [(256, 512), (300, 130), (1, 7), (129, 1), (0, 64), (64, 0)])
def test_fp8_has_a_scale_for_each_block_that_is_begun(dims: tuple[int, int]) -> None:
    rows, columns = dims
    wanted = {
        "fp8_tensor": (min(rows, 1), min(columns, 1)),
        "fp8_channel": (rows, min(columns, 1)),
        "fp8_block": (-(-rows // 128), -(-columns // 128)),
    }
    for name, shape in wanted.items():
        desc = record_desc(dims, name, scales="bf16", codes="f8_e5m2")
        assert desc.field("weight").desc == memory_desc(dims, "f8_e5m2")
        assert desc.field("weight_scale").desc == memory_desc(shape, "bf16")
        assert str(desc.rule) == "weight_scale * weight"
    assert record_desc(dims, "fp8_block", block=1).field("weight_scale").layout.dims == dims
    inverse = record_desc(dims, "fp8_block", scale_inv=True)
    assert [*inverse.tensors] == ["weight", "weight_scale_inv"]


@pytest.mark.parametrize(
    ("name", "dims", "options", "error", "message"),
    [
        ("q4_2", DIMS, {}, UnknownFormatError, "unknown record 'q4_2'; the records are q4_0, q4_1"),
        (7, DIMS, {}, UnknownFormatError, "a record is named by a string such as 'q4_0', not 7"),
        (
            "gptq_act_order",
            DIMS,
            {},
            UnsupportedFormatError,
            "g_idx, which is data, gives the group",
        ),
        ("nvfp4", DIMS, {}, UnsupportedFormatError, "use gguf_nvfp4 .* or compressed_nvfp4"),
        ("FP8", DIMS, {}, UnsupportedFormatError, "use fp8_tensor, fp8_channel or fp8_block"),
        ("fp8_block", DIMS, {"block": 0}, MemdescError, "an integer of 1 or more, .*, not 0"),
        ("fp8_block", DIMS, {"block": -1}, MemdescError, "an integer of 1 or more, .*, not -1"),
        ("fp8_block", DIMS, {"block": "128x"}, MemdescError, "or two such as '128x64', not '128x'"),
        ("fp8_block", DIMS, {"block": [128, 128]}, MemdescError, "options must be numbers or st"),
        ("fp8_channel", DIMS, {"block": 128}, MemdescError, "has no option 'block'; it takes co"),
        ("fp8_tensor", DIMS, {"codes": "s8"}, MemdescError, "codes are f8_e4m3, f8_e5m2, not s8"),
        ("fp8_tensor", DIMS, {"codes": 7}, MemdescError, "7"),
        ("fp8_tensor", DIMS, {"scales": "u8"}, MemdescError, "bf16, f16, e8m0, not u8"),
        ("fp8_tensor", DIMS, {"scale_inv": 1}, MemdescError, "must be True or False, not 1"),
        (
            "fp8_tensor",
            (8, 8, 8, 8),
            {},
            MemdescError,
            r"fp8_tensor is for 2 dims, \(o, i\) or 3 dims, \(e, o, i\); not for \(8, 8, 8, 8\)",
        ),
        ("modelopt_nvfp4", (8, 24), {}, MemdescError, r"needs a multiple of 16 along b \(dim 1\)"),
        ("gpt_oss_mxfp4", (2, 8, 48), {}, MemdescError, r"a multiple of 32 along c \(dim 2\)"),
        ("mxfp8", DIMS, {"swizzled": True}, MemdescError, "no option 'swizzled'; it takes none"),
        ("mxfp4", DIMS, {}, UnsupportedFormatError, "gpt_oss_mxfp4 .* compressed_mxfp4 .*model"),
        ("q4_0", DIMS, {"group": 32}, MemdescError, "q4_0 has no option 'group'; it takes none"),
        ("awq", DIMS, {"bits": 4}, MemdescError, "no option 'bits'; it takes group, scales"),
        ("awq", (8, 8, 8), {}, MemdescError, r"awq is for 2 dims, \(i, o\); not for \(8, 8, 8\)"),
        ("awq", (256, 12), {}, MemdescError, r"awq needs a multiple of 8 along b \(dim 1\)"),
        ("awq", DIMS, {"group": 100}, MemdescError, "a group of 100 does not divide a .dim 0. of"),
        ("awq", DIMS, {"group": 0}, MemdescError, "group must be at least 1, or -1 for all, not 0"),
        ("awq", DIMS, {"group": [128]}, MemdescError, "options must be numbers or strings"),
        ("awq", DIMS, {"scales": "s8"}, MemdescError, "awq: scales are f16, bf16, f32, not s8"),
        ("awq", DIMS, {"group": 2.5}, MemdescError, "awq: group must be an integer"),
        ("gptq", DIMS, {"bits": 3}, MemdescError, "gptq: bits must be 4 or 8, not 3"),
        ("gptq", DIMS, {"bits": 4.0}, MemdescError, "gptq: bits must be 4 or 8, not 4.0"),
        ("gptq", DIMS, {"bits": None}, MemdescError, "gptq: bits must be 4 or 8, not None"),
        ("int_quantized", DIMS, {"zeros": "v1"}, MemdescError, "must be True or False, not 'v1'"),
        ("bnb_nf4", DIMS, {"block": 0}, MemdescError, "bnb_nf4: block must be at least 1, not 0"),
        ("gptq", (256, 12), {}, MemdescError, r"gptq needs a multiple of 8 along b \(dim 1\)"),
        ("gptq", DIMS, {"zeros": "v3"}, MemdescError, "zeros must be 'v1' .* or 'v2' .*, not 'v3'"),
        ("ocp_mxfp4", DIMS, {"swizzled": 1}, MemdescError, "swizzled must be True or False, not 1"),
        ("Q8_0_R4", DIMS, {}, UnsupportedFormatError, "only ik_llama.cpp interleaves rows"),
        ("iq3_xxs_r4", DIMS, {}, UnsupportedFormatError, "only ik_llama.cpp interleaves rows"),
        ("BF16_R16", DIMS, {}, UnsupportedFormatError, "a layout of 16-bit floats: memory_desc"),
        ("q4_0_r2", DIMS, {}, UnknownFormatError, "unknown record 'q4_0_r2'"),
    ],
)
def test_records_that_cannot_be_made_are_refused_with_the_reason(
    name: Any, dims: tuple[int, ...], options: dict[str, Any], error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        record_desc(dims, name, **options)


@pytest.mark.parametrize("dims", [(), (1,) * 12 + (32,)])
def test_too_few_or_too_many_dims_are_refused(dims: tuple[int, ...]) -> None:
    for name in known_records():
        with pytest.raises(MemdescError, match=f"have {len(dims)} sizes; a descriptor has 1 to 12"):
            record_desc(dims, name)


@pytest.mark.parametrize(("name", "letters"), [("Q4_0", "oi"), ("awq", "io"), ("ocp_mxfp4", "oi")])
def test_the_letters_of_a_record_are_those_of_its_matrices(name: str, letters: str) -> None:
    assert record_desc(DIMS, name).letters == letters


def test_records_that_are_not_matrices_have_the_default_letters() -> None:
    assert record_desc((32,), "q4_0").letters == "a"
    assert record_desc((2, 3, 32), "q4_0").letters == "abc"


def test_every_record_is_known_as_one_where_layouts_are_named() -> None:
    assert {*known_records()} == RECORDS
