from __future__ import annotations

import pickle
from typing import Any

import pytest

import memdesc
from memdesc import Extra, MemdescError, MemoryDesc, UnsupportedFormatError, memory_desc
from memdesc.errors import NotBlockedError
from memdesc.extra import compensation_layout
from memdesc.verbose import from_verbose, to_verbose

WEIGHTS = memory_desc((3, 5, 2, 2), "s8", "ABcd4b16a4b")
BOTH = Extra(s8s8_mask=1, asymmetric_mask=1)


def test_sizes_and_spans_are_those_of_onednn() -> None:
    assert (
        WEIGHTS.nbytes,
        WEIGHTS.with_extra(Extra(s8s8_mask=1)).nbytes,
        WEIGHTS.with_extra(BOTH).nbytes,
    ) == (1024, 1088, 1152)
    assert WEIGHTS.with_extra(BOTH).compensation_spans == {
        "s8s8": (1024, (16,)),
        "asymmetric": (1088, (16,)),
    }
    assert WEIGHTS.with_extra(BOTH).min_nbytes == 1152
    odd = memory_desc((3, 5, 1), "s8", "cba")
    assert odd.with_extra(Extra(s8s8_mask=1)).nbytes == 28
    assert odd.with_extra(Extra(asymmetric_mask=3)).compensation_spans == {
        "asymmetric": (16, (3, 5))
    }
    assert odd.with_extra(Extra(scale_adjust=0.5)).nbytes == 15
    assert (
        odd.compensation_spans,
        memory_desc((0, 5), "s8").with_extra(BOTH).compensation_spans,
    ) == ({}, {})
    assert memory_desc((0, 5), "s8").with_extra(BOTH).nbytes == 0


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
    ("given", "message"),
    [
        ({}, "an Extra needs a mask or scale_adjust; use None for no compensation"),
        (
            {"s8s8_mask": 0},
            "s8s8_mask must be an integer of 1 to 4095, with bit d set for dim d, not 0",
        ),
        ({"asymmetric_mask": True}, "asymmetric_mask must be an integer"),
        ({"asymmetric_mask": 1 << 12}, "not 4096"),
        ({"scale_adjust": 0}, "scale_adjust must be a positive number, not 0"),
        ({"scale_adjust": "x"}, "scale_adjust must be a positive number, not 'x'"),
        ({"scale_adjust": float("inf")}, "not inf"),
    ],
)
def test_illegal_compensation_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(MemdescError, match=message):
        Extra(**given)


@pytest.mark.parametrize("text", ["f16", "f0:s8m1", "f4:s8m1", "f1:s8mx", "f1:gpu1", "f9:s8m1"])
def test_a_string_with_other_flags_is_refused(text: str) -> None:
    with pytest.raises(MemdescError, match=text):
        Extra.from_verbose(text)
    assert Extra.from_verbose("f0") is None


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
    with pytest.raises(MemdescError, match="the flags do not match"):
        Extra.from_verbose("f8:sa0.5")


def test_compensation_belongs_to_whole_s8_tensors_in_layouts_of_onednn() -> None:
    with pytest.raises(
        MemdescError, match=r"is for s8 weights, not for f32; leave it out: with_extra\(None\)"
    ):
        WEIGHTS.with_extra(BOTH).with_dtype("f32")
    with pytest.raises(MemdescError, match=r"names e \(dim 4\), but the dims are \(3, 5, 2, 2\)"):
        WEIGHTS.with_extra(Extra(s8s8_mask=17))
    with pytest.raises(NotBlockedError):
        memory_desc((2, 3, 4, 4), "s8", "bf8_xy16").with_extra(BOTH)
    whole = memory_desc((3, 5, 2, 2), "s8").with_extra(BOTH)
    with pytest.raises(
        MemdescError, match="has compensation, which was computed from all of its elements"
    ):
        whole.reshape((15, 2, 2))
    with pytest.raises(MemdescError, match="has compensation"):
        whole.permute_axes((1, 0, 2, 3))
    with pytest.raises(MemdescError, match="has compensation"):
        whole.submemory((3, 5, 1, 2), (0, 0, 0, 0))


def test_sums_lie_as_the_layout_trimmed_to_the_dims_of_the_mask() -> None:
    blocked = memdesc.memory_desc((19, 5, 6), "s8", "Abc16a").layout
    assert compensation_layout(blocked, 3).blocks == (
        memdesc.Block(0, 16, 2, 80),
        memdesc.Block(0, 1, 16, 1),
        memdesc.Block(1, 1, 5, 16),
    )
    view = memdesc.memory_desc((8, 20), "s8", "aB16b").submemory((8, 3), (0, 0)).layout
    assert compensation_layout(view, 3).strides() == (3, 1)
