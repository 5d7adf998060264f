"""Calls of memdesc that are refused: `refused.txt` has a line for each."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import memdesc
import reorder
from memdesc import errors, exchange, index, int64, layout, names, tags, verbose
from memdesc.desc import desc_of
from memdesc.overlap import check_overlap
from memdesc.record import RecordDesc, record_desc
from reorder.logs import VerbosePrimitive
from tests import refused
from tests.unit.memdesc.test_text import BLOCKED, FUSED

_SECTIONS = refused.sections(Path(__file__).with_name("refused.txt"))
_MODULES = (memdesc, errors, exchange, int64, index, layout, names, tags, verbose)
_MADE = {
    "dims": (4,),
    "axes": (memdesc.Axis((0,), 4),),
    "blocks": (memdesc.Block(0, 1, 4, 1),),
}
_NAMES: dict[str, Any] = {
    **{name: value for module in _MODULES for name, value in vars(module).items()},
    **{value.__name__: value for value in (memdesc, ml_dtypes, reorder, memdesc.parse_layout)},
    **{value.__name__: value for value in (RecordDesc, record_desc, VerbosePrimitive, desc_of)},
    "np": np,
    "verbose": verbose,
    "BLOCKED": BLOCKED,
    "FUSED": FUSED,
    "made": lambda **fields: memdesc.Layout(**(_MADE | fields)),
    "read_json": lambda base, **changes: memdesc.MemoryDesc.from_json(json.dumps(base | changes)),
    "read_image": lambda old, new: memdesc.ImageDesc.from_json(
        memdesc.image_desc((2, 6, 5, 7), "f16", "tvm_texture").to_json().replace(old, new, 1)
    ),
    "desc": lambda dims, tag: memdesc.memory_desc(dims, "f32", tag),
    "by_tag": lambda dims, tag: memdesc.memory_desc(dims, "u8", tag).layout,
    "overlap": lambda dims, strides: check_overlap(
        layout.layout_by_strides(dims, strides, offset0=10**6)
    ),
}


@pytest.mark.parametrize("section", _SECTIONS)
def test_a_call_is_refused_with_the_rule_and_the_numbers(section: str) -> None:
    refused.check(_SECTIONS[section], _NAMES)
