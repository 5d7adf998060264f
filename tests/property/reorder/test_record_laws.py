"""Records: compiled code equals the definition, and every layout the row-major one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import reorder
from memdesc import RecordDesc, known_records, record_desc
from reorder.records.reference import dequantize_reference
from tests.records import bits_of, random_record

# sizes that suit each format; groups of 128 along one of them
_SIZES = st.sampled_from((128, 256, 384, 512, 1280))


@st.composite
def records(draw: st.DrawFn) -> reorder.Record:
    name = draw(st.sampled_from(known_records()))
    desc: RecordDesc = record_desc((draw(_SIZES), draw(_SIZES) // 128 * 256), name)
    return random_record(desc, np.random.default_rng(draw(st.integers(0, 99))))


@given(records(), st.sampled_from(("ab", "ba", "AB16a8b", "Ab3a")), st.sampled_from((1, 2)))
def test_a_record_becomes_what_its_rule_gives(
    record: reorder.Record, tag: str, threads: int
) -> None:
    found = reorder.dequantize(record, desc=tag, threads=threads)
    found.check_padding()
    assert (bits_of(found.numpy()) == bits_of(dequantize_reference(record))).all()
