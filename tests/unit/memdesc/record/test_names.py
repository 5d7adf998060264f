import numpy as np
import pytest

from memdesc import MemdescError, memory_desc
from memdesc.record import known_records, record_desc
from memdesc.record.gguf import GGUF_TYPES

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


# fields as their systems' writers lay them out
_FIELDS = """
record_desc((130, 96), "ocp_mxfp4").field("scales").desc.padded_dims == (256, 4)
record_desc((64, 256), "torch_int4_cpu").field("zeros").desc.offset((3, 1)) == (1 * 64 + 3) * 2 + 1
record_desc((300, 130), "fp8_block").field("weight_scale").desc == memory_desc((3, 2), "f32")
record_desc((1, 7), "fp8_channel").field("weight_scale").desc == memory_desc((1, 1), "f32")
record_desc((0, 64), "fp8_tensor").field("weight_scale").desc == memory_desc((0, 1), "f32")
[*record_desc((8, 8), "fp8_block", scale_inv=True).tensors] == ["weight", "weight_scale_inv"]
record_desc((8, 8), "fp8_tensor", codes="f8_e5m2").field("weight").desc.dtype.name == "f8_e5m2"
[record_desc((2, 3, 32), "q4_0").letters, record_desc((256, 8), "awq").letters] == ["abc", "io"]
"""


def test_fields_are_those_of_their_systems() -> None:
    for fact in _FIELDS.strip().splitlines():
        assert eval(fact), fact


def test_options_choose_groups_types_and_zero_points() -> None:
    kind = memory_desc((1,), "bf16").dtype
    desc = record_desc(DIMS, "gptq", group=np.int64(-1), zeros="v2", bits=8, scales=kind)
    assert repr(desc) == (
        "record_desc((256, 512), 'gptq', group=-1, zeros='v2', bits=8, scales='bf16', g_idx=False)"
    )
    assert record_desc(DIMS, "gptq", group=np.array(64)) == record_desc(DIMS, "gptq", group=64)
    assert record_desc(DIMS, "fp8_block", block=np.array(64)).codes.layout.dims == DIMS
    assert dict(record_desc(DIMS, "pack_quantized", shape=np.int32).options)["shape"] == "s32"
    assert str(desc.rule) == "scales * (qweight - qzeros)"
    assert desc.field("scales").desc == memory_desc((1, 512), "bf16", "ab")
    assert desc.field("qweight").desc == memory_desc(DIMS, "u8", "Ab4a")
    assert str(record_desc(DIMS, "gptq").rule) == "scales * (qweight - (qzeros + 1))"
    for zeros, rule in ((False, "8"), (True, "weight_zero_point")):
        desc = record_desc(DIMS, "pack_quantized", zeros=zeros)
        assert str(desc.rule) == f"weight_scale * (weight_packed - {rule})"


def test_a_wrong_type_of_a_shape_has_no_hint_about_bits() -> None:
    with pytest.raises(MemdescError, match=r"shape must be s64 or s32, not 's16'$"):
        record_desc(DIMS, "pack_quantized", shape="s16")


def test_constants_hold_the_groups() -> None:
    for group, wanted in ((32, [k // 32 for k in range(128)]), (-1, [0] * 128)):
        (constant,) = record_desc((128, 64), "gptq", group=group, g_idx=True).constants
        assert [*constant.values] == wanted
    constants = {each.tensor: each.values for each in record_desc(DIMS, "hqq", group=32).constants}
    assert (constants["group_size"], constants["shape"]) == ((32,), DIMS)


def test_hqq_has_one_row_in_each_part_of_its_bytes() -> None:
    for bits, rows in ((4, 2), (2, 4), (1, 8)):
        codes = record_desc((rows, 64), "hqq", bits=bits).codes.layout
        # the first row is in the highest bits
        assert codes.offsets()[:, :2].tolist() == [[row, row + rows] for row in range(rows)][::-1]


@pytest.mark.parametrize("name", GGUF_TYPES)
def test_every_bit_of_a_block_belongs_to_one_element_of_one_field(name: str) -> None:
    for dims in ((512,), (3, 256), (2, 1, 768)):
        desc = record_desc(dims, name)
        used = [
            (part.layout.offsets()[..., None] * part.bits + np.arange(part.bits)).reshape(-1)
            for part in desc.fields
        ]
        assert sorted(np.concatenate(used).tolist()) == list(range(8 * desc.nbytes))


def test_rows_are_whole_blocks_and_sizes_of_zero_have_no_bytes() -> None:
    message = r"q4_k has blocks of 256 elements, which do not divide b \(dim 1\) of size 4000"
    with pytest.raises(MemdescError, match=message):
        record_desc((4, 4000), "q4_k")
    for dims in ((0, 256), (4, 0), (0,)):
        assert record_desc(dims, "q6_k").tensors == {"data": 0}
