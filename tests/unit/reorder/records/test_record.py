from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, PaddingError
from memdesc.record import known_records, record_desc
from tests.records import by_hand, random_record

RNG = np.random.default_rng(0)


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


def test_padding_of_a_field_is_checked_with_its_name() -> None:
    record = reorder.records.Record(record_desc((130, 96), "ocp_mxfp4"))
    record.check_padding()
    record.tensors["scales"][-1] = 1
    with pytest.raises(PaddingError, match=r"field scales of .*ocp_mxfp4.*padding of .* at \(255"):
        record.check_padding()


def test_padding_of_planes_of_bits_is_checked() -> None:
    record = reorder.records.Record(by_hand((3, 8), "q u2 Ab4a; d f32 /3x8"))
    record.tensors["q"][2] = 0x3F
    record.check_padding()
    record.tensors["q"][2] = 0x40
    with pytest.raises(PaddingError, match=r"field q .*: padding of 2 bits is not zero at byte 2"):
        record.check_padding()


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
