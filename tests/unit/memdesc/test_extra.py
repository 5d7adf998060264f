import pickle

import pytest

import memdesc
from memdesc import Extra, MemoryDesc, UnsupportedFormatError, memory_desc
from memdesc.extra import compensation_layout
from memdesc.verbose import from_verbose, to_verbose

WEIGHTS = memory_desc((3, 5, 2, 2), "s8", "ABcd4b16a4b")
BOTH = Extra(s8s8_mask=1, asymmetric_mask=1)


@pytest.mark.parametrize(
    ("extra", "flags", "text"),
    [
        (Extra(s8s8_mask=1), 1, "f1:s8m1"),
        (BOTH, 9, "f9:s8m1:zpm1"),
        (Extra(s8s8_mask=3, scale_adjust=0.5), 3, "f3:s8m3:sa0.5"),
        (Extra(asymmetric_mask=2), 8, "f8:zpm2"),
    ],
)
def test_flags_and_string_are_those_of_onednn_and_are_read_back(
    extra: Extra, flags: int, text: str
) -> None:
    assert (extra.flags, extra.to_verbose(), Extra.from_verbose(text)) == (flags, text, extra)
    desc = WEIGHTS.with_extra(extra)
    assert to_verbose(desc) == f"s8:p:blocked:ABcd4b16a4b::{text}"
    assert from_verbose(to_verbose(desc), desc.dims) == desc
    assert MemoryDesc.from_json(desc.to_json()) == desc
    assert eval(repr(desc), {"memory_desc": memory_desc, "Extra": Extra}) == desc
    assert pickle.loads(pickle.dumps(desc)) == desc
    assert len({desc, WEIGHTS, WEIGHTS.with_extra(extra)}) == 2
    assert desc.with_extra(None) == WEIGHTS


def test_strides_are_printed_if_compensation_starts_after_a_gap() -> None:
    desc = memory_desc((3, 5, 1), "s8", "cba").with_extra(Extra(s8s8_mask=1))
    assert to_verbose(desc) == "s8::blocked:cba:1x3x15:f1:s8m1"


@pytest.mark.parametrize(
    ("flags", "way_out"),
    [
        (1, "f1:s8m1"),
        (3, "f3:s8m1:sa0.5"),
        (8, "f8:zpm1"),
        (9, "f9:s8m1:zpm1"),
        (11, "f11:s8m1:zpm1:sa0.5"),
    ],
)
def test_compensation_without_masks_is_refused_with_a_string_that_is_read(
    flags: int, way_out: str
) -> None:
    """As oneDNN 2.0 to 2.2 print it."""
    text = "s8:p:blocked:ABcd4b16a4b:f{}"
    with pytest.raises(UnsupportedFormatError, match=r"oneDNN 2\.0 to 2\.2") as info:
        from_verbose(text.format(flags), (3, 5, 2, 2))
    assert repr(way_out) in str(info.value)
    desc = from_verbose(text.format(way_out[1:]), (3, 5, 2, 2))
    assert isinstance(desc, MemoryDesc)
    assert desc.extra is not None
    assert desc.extra.flags == flags


def test_a_scale_adjustment_of_1_is_flagged_and_not_printed() -> None:
    assert Extra.from_verbose("f3:s8m1") == Extra(s8s8_mask=1)
    assert Extra.from_verbose("f2") is None


def test_sums_lie_as_the_layout_trimmed_to_the_dims_of_the_mask() -> None:
    blocked = memdesc.memory_desc((19, 5, 6), "s8", "Abc16a").layout
    assert compensation_layout(blocked, 3).blocks == (
        memdesc.Block(0, 16, 2, 80),
        memdesc.Block(0, 1, 16, 1),
        memdesc.Block(1, 1, 5, 16),
    )
    view = memdesc.memory_desc((8, 20), "s8", "aB16b").submemory((8, 3), (0, 0)).layout
    assert compensation_layout(view, 3).strides() == (3, 1)
