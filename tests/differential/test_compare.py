"""The comparisons themselves: each must notice one wrong number, or one wrong byte."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from memdesc import MemoryDesc, memory_desc

from .cases import Start, make_rng
from .compare import differing_fields, is_padding, offsets_of, where_bytes_differ
from .known import StartAnswer, counts_no_bytes_of_what_is_read
from .libdnnl import Fields, Library
from .tally import REPORT, Tally
from .test_reorder import compare

_START = Start((2, 17, 3), "f32", "aBc8b")
_FIELDS = Fields(
    ndims=3,
    dims=(2, 17, 3),
    data_type=3,
    padded_dims=(2, 24, 3),
    padded_offsets=(0, 0, 0),
    offset0=0,
    strides=(72, 24, 8),
    inner_blks=(8,),
    inner_idxs=(1,),
    size=576,
    format_kind=2,
)
_VERSION = (3, 13, 2)
_OURS = memory_desc((2, 17, 3), "f32", "aBc8b")


@pytest.mark.parametrize("name", [field.name for field in fields(Fields)])
def test_one_wrong_number_of_libdnnl_is_noticed_in_every_field(name: str) -> None:
    value = getattr(_FIELDS, name)
    wrong: Any = value + 1 if isinstance(value, int) else (*value[:-1], value[-1] + 1)
    assert list(differing_fields(_OURS, replace(_FIELDS, **{name: wrong}))) == [name]
    assert differing_fields(_OURS, _FIELDS) == {}


@pytest.mark.parametrize("part", ["data", "padding", "gaps"])
def test_every_single_flipped_byte_of_a_buffer_is_noticed_and_placed(part: str) -> None:
    strided = replace(_FIELDS, strides=(80, 24, 8))
    padded = offsets_of(strided, strided.padded_dims)
    elements = {
        "data": padded[~is_padding(strided)],
        "padding": padded[is_padding(strided)],
        "gaps": np.setdiff1d(np.arange(160), padded),
    }
    ours = np.zeros(4 * 160, np.uint8)
    for byte in (elements[part][:, None] * 4 + np.arange(4)).ravel():
        theirs = ours.copy()
        theirs[byte] ^= 1
        assert where_bytes_differ(strided, ours, theirs, 4) == {part: 1}
    assert sum(map(len, elements.values())) == 160


def test_a_difference_without_a_name_fails_the_tally() -> None:
    tally = Tally("mutated", _VERSION)
    wrong = replace(_FIELDS, strides=(72, 24, 9))
    assert not tally.judge(
        StartAnswer(_VERSION, _OURS, wrong, _START), [counts_no_bytes_of_what_is_read], _START
    )
    with pytest.raises(
        AssertionError,
        match=r"MEMDESC_SEED=.* 1 differ, such as\n"
        r".*strides: ours \(72, 24, 8\), theirs \(72, 24, 9\)",
    ):
        tally.check()
    REPORT.pop()


def test_a_reorder_with_one_wrong_number_on_either_side_is_noticed(dnnl_3_2: Library) -> None:
    def desc(*tag: str, dims: tuple[int, ...] = (2, 17, 3), **strides: Any) -> MemoryDesc:
        return memory_desc(dims, "bf16", *tag, **strides)

    plain, blocked = desc(strides=(53, 3, 1)), desc("aBc8b")
    part = desc("abc", dims=(2, 20, 3)).submemory((2, 17, 3), (0, 2, 0))
    mutants = [
        (plain, desc(strides=(52, 3, 1)), blocked),
        (plain, desc(strides=(51, 1, 17)), blocked),
        (blocked, desc("aBc4b"), plain),
        (part, desc(strides=(60, 3, 1), offset0=5), plain),
    ]
    for right, wrong, other in mutants:
        for ours, theirs, differ in (
            ((right, other), (right, other), 0),
            ((wrong, other), (right, other), 1),
            ((other, right), (other, right), 0),
            ((other, wrong), (other, right), 1),
        ):
            tally = Tally("mutated", dnnl_3_2.version)
            compare(dnnl_3_2, tally, make_rng("mutated", 0), ours, theirs)
            assert (tally.compared, len(tally.differences)) == (1, differ), (ours, theirs)
