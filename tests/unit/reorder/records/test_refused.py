"""Calls about records that are refused: `refused.txt` has a line for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc.record import record_desc
from tests import refused
from tests.unit.reorder.records.test_gguf import BLOCK, KIND
from tests.unit.reorder.records.test_repack import made

_SECTIONS = refused.sections(Path(__file__).with_name("refused.txt"))
_NAMES: dict[str, Any] = {
    "BLOCK": BLOCK,
    "KIND": KIND,
    "decode": reorder.records.dequantize_gguf,
    "np": np,
    "record_desc": record_desc,
    "repack": lambda name, to, **options: reorder.records.repack(made(name), to, **options),
}


@pytest.mark.parametrize("section", _SECTIONS)
def test_a_call_is_refused_with_what_was_given_and_the_rule(section: str) -> None:
    refused.check(_SECTIONS[section], _NAMES)
