"""The comparisons themselves: each must notice one wrong number, or one wrong byte."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from memdesc import memory_desc

from .cases import Recipe, Start, Step, follow_ours, make_rng
from .compare import differing_fields, is_padding, offsets_of, where_bytes_differ
from .known import StartAnswer, counts_no_bytes_of_what_is_read
from .libdnnl import Fields
from .libdnnl_reorder import Executor
from .pairs import Side
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


def _ours(start: Start = _START) -> Side:
    return Side("tag", Recipe(start), follow_ours(Recipe(start)))


@pytest.mark.parametrize("name", [field.name for field in fields(Fields)])
def test_one_wrong_number_of_libdnnl_is_noticed_in_every_field(name: str) -> None:
    value = getattr(_FIELDS, name)
    wrong: Any = value + 1 if isinstance(value, int) else (*value[:-1], value[-1] + 1)
    assert list(differing_fields(_ours().desc, replace(_FIELDS, **{name: wrong}))) == [name]
    assert differing_fields(_ours().desc, _FIELDS) == {}


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
        StartAnswer(_VERSION, _ours().desc, wrong, _START),
        [counts_no_bytes_of_what_is_read],
        _START,
    )
    with pytest.raises(
        AssertionError,
        match=r"MEMDESC_SEED=.* 1 differ, such as\n"
        r".*strides: ours \(72, 24, 8\), theirs \(72, 24, 9\)",
    ):
        tally.check()
    REPORT.pop()


def test_a_reorder_with_one_wrong_number_on_either_side_is_noticed(dnnl_3_2: Executor) -> None:
    dtype = "bf16"
    plain = _ours(Start((2, 17, 3), dtype, strides=(53, 3, 1)))
    blocked = _ours(Start((2, 17, 3), dtype, "aBc8b"))
    view = Recipe(Start((2, 20, 3), dtype, "abc"), (Step("submemory", ((2, 17, 3), (0, 2, 0))),))
    part = Side("view", view, follow_ours(view))
    mutants = [
        (plain, plain._replace(desc=memory_desc((2, 17, 3), dtype, strides=(52, 3, 1))), blocked),
        (plain, plain._replace(desc=memory_desc((2, 17, 3), dtype, strides=(51, 1, 17))), blocked),
        (blocked, blocked._replace(desc=memory_desc((2, 17, 3), dtype, "aBc4b")), plain),
        (
            part,
            part._replace(desc=memory_desc((2, 17, 3), dtype, strides=(60, 3, 1), offset0=5)),
            plain,
        ),
    ]
    for right, wrong, other in mutants:
        for src, dst, differ in (
            (right, other, 0),
            (wrong, other, 1),
            (other, right, 0),
            (other, wrong, 1),
        ):
            tally = Tally("mutated", dnnl_3_2.version)
            compare(dnnl_3_2, tally, make_rng("mutated", 0), src, dst)
            assert (tally.compared, len(tally.differences)) == (1, differ), (src.desc, dst.desc)
