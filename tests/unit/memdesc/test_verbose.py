"""oneDNN's verbose strings: descriptors, those of runtime dims, and compensation."""

import pickle
from typing import Any

import numpy as np
import pytest

import memdesc
from memdesc import (
    RUNTIME,
    Extra,
    MemoryDesc,
    RuntimeDesc,
    UnsupportedFormatError,
    memory_desc,
    runtime_desc,
)
from memdesc.verbose import from_verbose, to_verbose

_R = RUNTIME
_WIDE = (9, 8, 13, 11, 40, 9, 33, 17)
_PARENT = (12, 9, 13, 11, 48, 9, 33, 17)
# as libdnnl prints them
_PRINTED = {
    "f32::blocked:abcd::f0": memory_desc((2, 16, 5, 4), "f32", "abcd"),
    "f32:p:blocked:aBcd16b::f0": memory_desc((2, 17, 5, 4), "f32", "aBcd16b"),
    "f32::blocked:bacd:48x100x8x3:f0": memory_desc((2, 3, 6, 2), "f32", strides=(48, 100, 8, 3)),
    "f32:0:blocked:abcdefhg:311907024x34656336x2665872x242352x5049x561x1x33:f0": memory_desc(
        _PARENT, "f32", "abcdefhg"
    ).submemory(_WIDE, (1, 1, 0, 0, 8, 0, 0, 0)),
    "s8:p:blocked:ABcd4b16a4b::f0": memory_desc((3, 5, 2, 2), "s8", "ABcd4b16a4b"),
    "s8::blocked:cba::f0": memory_desc((3, 5, 1), "s8", "cba"),
    # with compensation it counts as not dense
    "s8::blocked:cba:1x3x15:f1:s8m1": memory_desc((3, 5, 1), "s8", "cba").with_extra(
        Extra(s8s8_mask=1)
    ),
    "s8::blocked:cba:1x3x6:f1:s8m1": memory_desc((3, 2, 1), "s8", "cba").with_extra(
        Extra(s8s8_mask=1)
    ),
    "f32:0:blocked:aB8b:24x8:f0": memory_desc((2, 17), "f32", "aB8b").submemory((2, 3), (0, 8)),
    # a stride of 0 counts as the largest; ties go to more outer blocks, then to the letter
    "f32::blocked:bac:12x0x1:f0": memory_desc((2, 3, 4), "f32", strides=(12, 0, 1)),
    "f32::blocked:ba:0x0:f0": memory_desc((2, 3), "f32", strides=(0, 0)),
    "f32::blocked:bac::f0": memory_desc((1, 5, 1), "f32", strides=(1, 1, 1)),
    # a negative stride is a huge unsigned one
    "f32:0:blocked:ba:9x-1:f0": memory_desc((2, 3), "f32", strides=(9, -1), offset0=2),
    # a dense layout at an offset has the strides of its tag
    "f32:0:blocked:ba::f0": memory_desc((2, 3), "f32", strides=(1, 2), offset0=6),
}


@pytest.mark.parametrize("text", _PRINTED)
def test_a_descriptor_prints_as_onednn_prints_it_and_reads_back(text: str) -> None:
    desc = _PRINTED[text]
    assert to_verbose(desc) == text
    assert from_verbose(text, desc.dims, offset0=desc.offset0) == desc


def test_the_name_before_a_descriptor_and_the_flag_a_are_skipped() -> None:
    desc = memory_desc((2, 17, 5, 4), "f32", "aBcd16b")
    for prefix in ("", "src:", "dst:", "wei:", "bia:", "src0:", "src_", "wei1_"):
        assert from_verbose(f"{prefix}f32:ap:blocked:aBcd16b::f0", desc.dims) == desc


def test_padding_beyond_whole_blocks_is_printed_but_not_read_back() -> None:
    desc = memory_desc((2, 3, 4, 5), "f32", "byxf_af32")
    assert to_verbose(desc) == "f32:p:blocked:acdb::f0"


# dims, the tag, and how libdnnl 3.13 prints it
_RUNTIME: list[tuple[Any, str, str]] = [
    ((_R, 20, 4), "abc", "f32::blocked:abc::f0"),
    ((_R, 20, 4), "aBc8b", "f32:p:blocked:aBc8b::f0"),
    ((_R, 20, 4), "Abc8a", "f32::blocked:Abc8a::f0"),
    ((2, 3, 4), "abc", "f32::blocked:abc::f0"),
    ((2, _R, 4), "abc", "f32::blocked:*::f0"),
    ((_R, 3, 4), "cba", "f32::blocked:*::f0"),
    ((2, _R, 4), "aBc8b", "f32::blocked:*::f0"),
    ((2, 20, _R), "aBc8b", "f32:p:blocked:*::f0"),
]


def test_runtime_dims_print_as_onednn_prints_them() -> None:
    for dims, tag, text in _RUNTIME:
        desc = runtime_desc(dims, "f32", tag)
        assert to_verbose(desc) == text
        # the string says nothing of the order where it has a *
        known = "*" if "*" in text else tag
        is_runtime = "*" in text or _R in dims
        wanted = runtime_desc(dims, "f32", known) if is_runtime else desc.resolve(dims)
        shown = "x".join("*" if size == _R else str(size) for size in dims)
        assert from_verbose(text, dims) == from_verbose(f"src:{text}", shown) == wanted
        assert from_verbose(text, np.array(dims)) == wanted


def test_a_tag_of_runtime_dims_has_the_runtime_dim_outermost() -> None:
    # dims of one block have the stride of the runtime dim, and are printed in front of it
    desc = runtime_desc((1, 2, _R), "f32", "cab")
    assert to_verbose(desc) == "f32::blocked:acb::f0"
    assert from_verbose(to_verbose(desc), desc.dims) == desc
    # oneDNN prints no such string, as the stride of a is not known
    desc = runtime_desc((3, 2, _R), "f32", "acb")
    assert to_verbose(desc) == "f32::blocked:*::f0"
    assert from_verbose("f32::blocked:acb::f0", desc.dims) == desc


def test_an_order_that_is_known_only_at_execution_is_a_star() -> None:
    desc = from_verbose("f32::blocked:*::f0", "2x*x4")
    assert isinstance(desc, RuntimeDesc)
    assert (desc.tag, desc.dims, desc.ndims, desc.nbytes) == (None, (2, _R, 4), 3, None)
    assert desc.strides == desc.padded_dims == (_R, _R, _R)
    assert repr(desc) == "runtime_desc((2, memdesc.RUNTIME, 4), 'f32', '*')"
    assert desc == runtime_desc((2, _R, 4), "f32", "*")


# dims, the tag, padded dims and strides, as oneDNN 3.13 answers
_ANSWERS: list[tuple[Any, str, Any, Any]] = [
    ((_R, 3, 4), "abc", (_R, 3, 4), (12, 4, 1)),
    ((2, 3, _R), "abc", (2, 3, _R), (_R, _R, 1)),
    ((2, 3, _R), "aBc8b", (2, 8, _R), (_R, _R, 8)),
    ((_R, _R), "ba", (_R, _R), (1, _R)),
    ((2, 0, _R), "cba", (2, 0, _R), (1, 2, 2)),
    ((_R,), "a", (_R,), (1,)),
]


def test_strides_inside_an_unknown_dim_are_known() -> None:
    for dims, tag, padded, strides in _ANSWERS:
        desc = runtime_desc(dims, "f32", tag)
        assert (desc.ndims, desc.padded_dims, desc.strides) == (len(dims), padded, strides)
        assert desc.nbytes is None
        assert eval(repr(desc), {"runtime_desc": runtime_desc, "memdesc": memdesc}) == desc
        assert pickle.loads(pickle.dumps(desc)) == desc
        assert hash(desc) == hash(runtime_desc(dims, "f32", desc.tag))


def test_the_layout_of_runtime_dims_is_any_name_row_major_or_not_known() -> None:
    dims = (_R, 17, 5, 4)
    for name, same in (("NCHW16c", "nChw16c"), ("torch.channels_last", "nhwc")):
        assert runtime_desc(dims, "f32", name) == runtime_desc(dims, "f32", same)
    assert runtime_desc(dims, "f32") == runtime_desc(dims, "f32", "abcd")
    assert runtime_desc(dims, "f32", "*").tag is None


_WEIGHTS = memory_desc((3, 5, 2, 2), "s8", "ABcd4b16a4b")
_OF_NUMPY: dict[str, Any] = {"s8s8_mask": np.int8(3), "scale_adjust": np.float32(0.5)}


@pytest.mark.parametrize(
    ("extra", "flags", "text"),
    [
        (Extra(s8s8_mask=1), 1, "f1:s8m1"),
        (Extra(s8s8_mask=1, asymmetric_mask=1), 9, "f9:s8m1:zpm1"),
        (Extra(s8s8_mask=3, scale_adjust=0.5), 3, "f3:s8m3:sa0.5"),
        (Extra(**_OF_NUMPY), 3, "f3:s8m3:sa0.5"),
        (Extra(asymmetric_mask=2), 8, "f8:zpm2"),
    ],
)
def test_compensation_is_written_as_onednn_does_and_read_back(
    extra: Extra, flags: int, text: str
) -> None:
    assert (extra.flags, extra.to_verbose(), Extra.from_verbose(text)) == (flags, text, extra)
    desc = _WEIGHTS.with_extra(extra)
    assert to_verbose(desc) == f"s8:p:blocked:ABcd4b16a4b::{text}"
    assert from_verbose(to_verbose(desc), desc.dims) == desc
    assert MemoryDesc.from_json(desc.to_json()) == desc
    assert eval(repr(desc), {"memory_desc": memory_desc, "Extra": Extra}) == desc
    assert pickle.loads(pickle.dumps(desc)) == desc
    assert len({desc, _WEIGHTS, _WEIGHTS.with_extra(extra)}) == 2
    assert desc.with_extra(None) == _WEIGHTS


def test_compensation_without_masks_is_refused_with_a_string_that_is_read() -> None:
    """As oneDNN 2.0 to 2.2 print it."""
    text = "s8:p:blocked:ABcd4b16a4b:f{}"
    ways = ("1:s8m1", "3:s8m1:sa0.5", "8:zpm1", "9:s8m1:zpm1", "11:s8m1:zpm1:sa0.5")
    for way_out in ways:
        flags = way_out.partition(":")[0]
        with pytest.raises(UnsupportedFormatError, match=r"oneDNN 2\.0 to 2\.2") as info:
            from_verbose(text.format(flags), (3, 5, 2, 2))
        assert repr(f"f{way_out}") in str(info.value)
        desc = from_verbose(text.format(way_out), (3, 5, 2, 2))
        assert isinstance(desc, MemoryDesc)
        assert desc.extra is not None
        assert desc.extra.flags == int(flags)


def test_a_scale_adjustment_of_1_is_flagged_and_not_printed() -> None:
    assert Extra.from_verbose("f3:s8m1") == Extra(s8s8_mask=1)
    assert Extra.from_verbose("f2") is None
