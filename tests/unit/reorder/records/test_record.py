"""Buffers and fields of records, and calls about records that are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, PaddingError, memory_desc
from memdesc.record import known_records, record_desc
from reorder.records import Record
from tests import refused
from tests.records import by_hand, random_record
from tests.unit.reorder.memory.producers import Exported
from tests.unit.reorder.records import test_repack
from tests.unit.reorder.records.test_gguf import BLOCK, KIND

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("name", known_records())
def test_a_field_that_is_written_is_read_again_and_no_other_changes(name: str) -> None:
    desc = record_desc((128, 256), name)
    record = random_record(desc, RNG)
    held = {part.name: record.field(part.name) for part in desc.fields}
    for part in desc.fields:
        old = held[part.name]
        bits = RNG.integers(0, 256, old.nbytes, np.uint8).view(f"u{old.itemsize}")
        new = (bits & bits.dtype.type((1 << part.bits) - 1)).view(old.dtype).reshape(old.shape)
        record.set_field(part.name, new)
        held[part.name] = new
        assert all(record.field(name).tobytes() == each.tobytes() for name, each in held.items())


def test_padding_of_a_field_is_checked_with_its_name() -> None:
    record = Record(record_desc((130, 96), "ocp_mxfp4"))
    record.check_padding()
    record.tensors["scales"][-1] = 1
    with pytest.raises(PaddingError, match=r"field scales of .*ocp_mxfp4.*padding of .* at \(255"):
        record.check_padding()


def test_padding_of_planes_of_bits_is_checked() -> None:
    record = Record(by_hand((3, 8), "q u2 Ab4a; d f32 /3x8"))
    record.tensors["q"][2] = 0x3F
    record.check_padding()
    record.tensors["q"][2] = 0x40
    with pytest.raises(PaddingError, match=r"field q .*: padding of 2 bits is not zero at byte 2"):
        record.check_padding()


def test_tensors_of_other_libraries_and_void_elements_are_used_without_a_copy() -> None:
    desc = record_desc((64, 128), "gptq", group=64)
    scales = np.ones((1, 128), np.float16)
    for given in (Exported(scales), scales.view("V2")):
        zeros = {name: np.zeros(nbytes, np.uint8) for name, nbytes in desc.tensors.items()}
        record = Record(desc, zeros | {"scales": given})
        assert np.shares_memory(record.tensors["scales"], scales)


def test_constants_are_written_and_checked() -> None:
    desc = record_desc((30, 40), "pack_quantized", group=8)
    record = Record(desc)
    assert record.tensors["weight_shape"].view(np.int64).tolist() == [30, 40]
    assert Record(desc, record.tensors).tensors.keys() == record.tensors.keys()
    wrong = record.tensors | {"weight_shape": np.array([40, 30])}
    with pytest.raises(
        MemdescError, match=r"weight_shape of .* must hold \[30, 40\], not \[40, 30\]"
    ):
        Record(desc, wrong)


# Calls that are refused: `refused.txt` has a line for each

_SECTIONS = refused.sections(Path(__file__).with_name("refused.txt"))
_GPTQ, _Q8_0 = record_desc((64, 128), "gptq", group=64), record_desc((1, 32), "q8_0")


def _gptq(**tensors: Any) -> Record:
    zeros = {name: np.zeros(nbytes, np.uint8) for name, nbytes in _GPTQ.tensors.items()}
    return Record(_GPTQ, zeros | tensors)


def _set_field(name: str, values: Any) -> None:
    """Set a field; what is refused changes nothing."""
    record = random_record(record_desc((2, 256), "q6_k"), np.random.default_rng(0))
    before = record.data.tobytes()
    try:
        record.set_field(name, values)
    finally:
        assert record.data.tobytes() == before


def _repack(source: str | Record, to: Any, **options: Any) -> None:
    record = test_repack.made(source) if isinstance(source, str) else source
    reorder.records.repack(record, to, **options)


_NAMES: dict[str, Any] = {
    "BLOCK": BLOCK,
    "DATA": np.zeros(34, np.uint8),
    "GPTQ": _GPTQ,
    "INT4": memory_desc((1,), "u4").dtype.numpy,
    "KIND": KIND,
    "MEMORY": np.zeros(128, np.uint8),
    "Q8_0": _Q8_0,
    "Record": Record,
    "decode": reorder.records.dequantize_gguf,
    "dequantize": lambda **options: reorder.dequantize(Record(_Q8_0), **options),
    "gptq": _gptq,
    "memory_desc": memory_desc,
    "np": np,
    "record_desc": record_desc,
    "records": reorder.records,
    "repack": _repack,
    "set_field": _set_field,
    **{
        name: getattr(test_repack, name)
        for name in ("codes_of", "float_scales", "float_zeros", "halved", "of_a_table", "put")
    },
}


@pytest.mark.parametrize("section", _SECTIONS)
def test_a_call_is_refused_with_what_was_given_and_the_rule(section: str) -> None:
    refused.check(_SECTIONS[section], _NAMES)
