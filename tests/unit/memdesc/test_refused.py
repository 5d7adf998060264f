"""Calls that are refused, a line each: the call, then part of what the error says.

An error that is not a plain `MemdescError` has the name of its class in front.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import memdesc
import reorder
from memdesc import MemdescError, errors, exchange, index, int64, layout, names, tags, verbose
from memdesc.desc import desc_of
from memdesc.overlap import check_overlap
from memdesc.record import RecordDesc, record_desc
from reorder.logs import VerbosePrimitive

_LINE = re.compile(r"(?P<call>.*)  # (?:(?P<kind>\w+Error): )?(?P<says>.*)")
_SECTIONS = {
    part.partition("\n")[0]: part.partition("\n")[2].split("\n")
    for part in Path(__file__).with_name("refused.txt").read_text(encoding="utf-8").split("## ")[1:]
}
_NAMES: dict[str, Any] = {
    **{
        name: value
        for module in (memdesc, errors, exchange, int64, index, layout, names, tags, verbose)
        for name, value in vars(module).items()
    },
    "memdesc": memdesc,
    "parse_layout": memdesc.parse_layout,
    "np": np,
    "ml_dtypes": ml_dtypes,
    "reorder": reorder,
    "verbose": verbose,
    "RecordDesc": RecordDesc,
    "record_desc": record_desc,
    "VerbosePrimitive": VerbosePrimitive,
    "desc_of": desc_of,
    "desc": lambda dims, tag: memdesc.memory_desc(dims, "f32", tag),
    "by_tag": lambda dims, tag: memdesc.memory_desc(dims, "u8", tag).layout,
    "overlap": lambda dims, strides: check_overlap(
        layout.layout_by_strides(dims, strides, offset0=10**6)
    ),
}


def _refusal(call: str) -> MemdescError | None:
    try:
        eval(call, dict(_NAMES))
    except MemdescError as error:
        return error
    return None


@pytest.mark.parametrize("section", _SECTIONS)
def test_a_call_is_refused_with_the_rule_and_the_numbers(section: str) -> None:
    for line in filter(None, _SECTIONS[section]):
        match = _LINE.fullmatch(line)
        assert match, line
        error = _refusal(match["call"])
        assert type(error).__name__ == (match["kind"] or "MemdescError"), line
        assert match["says"] in str(error), line
