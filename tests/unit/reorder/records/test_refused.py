"""Calls about records that are refused: `refused.txt` has a line for each."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import memory_desc
from memdesc.record import record_desc
from reorder.records import Record
from tests import refused
from tests.records import random_record
from tests.unit.reorder.records import test_repack
from tests.unit.reorder.records.test_gguf import BLOCK, KIND

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
        for name in ("codes_of", "float_zeros", "halved", "of_a_table", "put")
    },
}


@pytest.mark.parametrize("section", _SECTIONS)
def test_a_call_is_refused_with_what_was_given_and_the_rule(section: str) -> None:
    refused.check(_SECTIONS[section], _NAMES)
