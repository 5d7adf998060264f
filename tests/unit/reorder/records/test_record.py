from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, PaddingError, memory_desc
from memdesc.record import Field, Number, RecordDesc, Rule, known_records, record_desc
from tests.records import random_record

RNG = np.random.default_rng(0)


def test_buffers_are_used_without_a_copy_whatever_their_type() -> None:
    buffers: dict[str, Any] = {
        "qweight": np.zeros((8, 128), np.int32),
        "qzeros": np.zeros((1, 16), np.int32),
        "scales": np.zeros((1, 128), np.float16),
    }
    record = reorder.records.Record(record_desc((64, 128), "gptq", group=64), buffers)
    buffers["scales"][0, 3] = 2
    assert record.field("scales")[0, 3] == 2
    assert buffers.keys() == record.tensors.keys()


def test_a_record_without_buffers_is_zeroed() -> None:
    record = reorder.records.Record(record_desc((2, 64), "q8_0"))
    assert record.data.nbytes == 136
    assert not record.data.any()
    assert repr(record) == "Record(record_desc((2, 64), 'q8_0'))"


@pytest.mark.parametrize("name", known_records())
def test_a_field_that_is_written_is_read_again_and_no_other_changes(name: str) -> None:
    desc = record_desc((128, 256), name)
    record = random_record(desc, RNG)
    for part in desc.fields:
        before = {other.name: record.field(other.name) for other in desc.fields}
        old = before[part.name]
        bits = RNG.integers(0, 256, old.nbytes, np.uint8).view(f"u{old.itemsize}")
        new = (bits & bits.dtype.type((1 << part.bits) - 1)).view(old.dtype).reshape(old.shape)
        record.set_field(part.name, new)
        assert record.field(part.name).tobytes() == new.tobytes()
        for other in desc.fields:
            if other is not part:
                assert record.field(other.name).tobytes() == before[other.name].tobytes()


DATA = np.zeros(34, np.uint8)


@pytest.mark.parametrize(
    ("name", "buffers", "message"),
    [
        ("q8_0", DATA[:20], "data has 20 bytes"),
        (
            "q8_0",
            np.zeros(68, np.uint8)[::2],
            "data of .* is an array with strides .* C-contiguous",
        ),
        ("q8_0", 7, "data: int is not a contiguous buffer"),
        ("q8_0", np.zeros(34, object), "the array is of object"),
        ("q8_0", {"codes": DATA}, "has the tensors data, not codes"),
        ("awq", DATA, "has several tensors; pass a dict of qweight, qzeros, scales, not"),
    ],
)
def test_buffers_that_do_not_fit_are_refused(name: str, buffers: Any, message: str) -> None:
    dims = (1, 32) if name == "q8_0" else (128, 32)
    with pytest.raises(MemdescError, match=message):
        reorder.records.Record(record_desc(dims, name), buffers)


def test_other_descriptors_are_refused() -> None:
    with pytest.raises(MemdescError, match="desc must be a RecordDesc, see record_desc"):
        reorder.records.Record("q8_0", DATA)  # type: ignore[arg-type] # what is refused


def test_bytes_of_several_tensors_are_asked_for_by_name() -> None:
    with pytest.raises(MemdescError, match="has several tensors, qweight, qzeros, scales; see"):
        _ = reorder.records.Record(record_desc((128, 32), "awq")).data


def test_padding_of_a_field_is_checked_with_its_name() -> None:
    record = reorder.records.Record(record_desc((130, 96), "ocp_mxfp4"))
    record.check_padding()
    record.tensors["scales"][-1] = 1
    with pytest.raises(PaddingError, match=r"field scales of .*ocp_mxfp4.*padding of .* at \(255"):
        record.check_padding()


def test_padding_of_planes_of_bits_is_checked() -> None:
    layout = memory_desc((3, 8), "u8", "Ab4a").layout
    scales = memory_desc((1, 1), "f32").layout
    fields = (Field("q", "u2", layout, (1, 1), "q"), Field("d", "f32", scales, (3, 8), "d"))
    rule = Rule(Number((("q", 0),)), (Number((("d", 0),)),))
    record = reorder.records.Record(RecordDesc((3, 8), fields, rule))
    record.tensors["q"][2] = 0x3F
    record.check_padding()
    record.tensors["q"][2] = 0x40
    with pytest.raises(PaddingError, match=r"field q .*: padding of 2 bits is not zero at byte 2"):
        record.check_padding()


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        (np.zeros(128, np.float32), "scales of .* holds f16, but the array is of float32"),
        (np.zeros(128, ">f2"), "the array is of >f2"),
        (np.zeros(128, ">i2"), "the array is of >i2"),
        (np.zeros(128, complex), "the array is of complex128"),
        (np.zeros(128, [("a", "f2")]), "holds f16, but the array is of .*'a'"),
        (np.zeros(256, np.float16)[::2], r"scales of .* is an array with strides \(4,\)"),
        (np.ma.masked_array(np.zeros(128, np.float16), mask=True), "scales is a masked array"),
        (np.zeros(127, np.float16), "scales has 254 bytes"),
        (None, "scales: NoneType is not a contiguous buffer"),
    ],
)
def test_arrays_of_other_numbers_than_the_fields_are_refused(scales: Any, message: str) -> None:
    desc = record_desc((64, 128), "gptq", group=64)
    given = {name: np.zeros(nbytes, np.uint8) for name, nbytes in desc.tensors.items()}
    with pytest.raises(MemdescError, match=message):
        reorder.records.Record(desc, given | {"scales": scales})


class Exported:
    """An array that only exports itself, as tensors do."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_tensors_of_other_libraries_and_void_elements_are_used_without_a_copy() -> None:
    desc = record_desc((64, 128), "gptq", group=64)
    scales = np.ones((1, 128), np.float16)
    for given in (Exported(scales), scales.view("V2")):
        zeros = {name: np.zeros(nbytes, np.uint8) for name, nbytes in desc.tensors.items()}
        record = reorder.records.Record(desc, zeros | {"scales": given})
        assert np.shares_memory(record.tensors["scales"], scales)


def test_elements_of_4_bits_that_take_a_byte_are_refused() -> None:
    desc = record_desc((128, 64), "awq")
    with pytest.raises(MemdescError, match=r"qweight of .* holds u4, but the array is of uint4"):
        reorder.records.Record(
            desc,
            {name: np.zeros(n, np.uint8) for name, n in desc.tensors.items()}
            | {"qweight": np.zeros((128, 64), memory_desc((1,), "u4").dtype.numpy)},
        )


def test_integers_of_any_width_are_set_as_bits() -> None:
    made = reorder.records.Record(record_desc((4, 32), "int_quantized"))
    codes = np.arange(128).reshape(4, 32) % 16 - 8
    made.set_field("weight", codes)
    assert (made.field("weight").astype(int) == codes).all()
    made.set_field("weight", -codes[::-1, ::-1].clip(-7))
    assert (made.field("weight").astype(int) == -codes[::-1, ::-1].clip(-7)).all()


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("x", np.zeros((2, 256), np.uint8), "no field"),
        ("qh", np.zeros((2, 255), np.uint8), r"has dims \(2, 256\), not \(2, 255\)"),
        ("qh", np.full((2, 256), 4), r"qh holds u2, 0 to 3, but at \(0, 0\) is 4"),
        ("sc", np.full((2, 16), -129), "sc holds s8, -128 to 127"),
        ("ql", np.zeros((2, 256)), "ql holds u4, not float64"),
        ("d", np.zeros((2, 1), np.float32), "d holds f16, not float32"),
        ("d", np.zeros((2, 1), np.int16), "d holds f16, not int16"),
    ],
)
def test_values_that_a_field_does_not_hold_are_refused(name: str, values: Any, reason: str) -> None:
    record = random_record(record_desc((2, 256), "q6_k"), RNG)
    before = record.data.tobytes()
    with pytest.raises(MemdescError, match=reason):
        record.set_field(name, values)
    assert record.data.tobytes() == before


def test_a_record_over_memory_that_is_read_only_is_not_set() -> None:
    record = reorder.records.Record(record_desc((2, 32), "q8_0"), bytes(68))
    with pytest.raises(MemdescError, match=r"data of .* is read-only; pass a copy"):
        record.set_field("d", np.zeros((2, 1), np.float16))


def test_constants_are_written_and_checked() -> None:
    desc = record_desc((30, 40), "pack_quantized", group=8)
    record = reorder.records.Record(desc)
    assert record.tensors["weight_shape"].view(np.int64).tolist() == [30, 40]
    assert reorder.records.Record(desc, record.tensors).tensors.keys() == record.tensors.keys()
    wrong = record.tensors | {"weight_shape": np.array([40, 30])}
    with pytest.raises(
        MemdescError, match=r"weight_shape of .* must hold \[30, 40\], not \[40, 30\]"
    ):
        reorder.records.Record(desc, wrong)
