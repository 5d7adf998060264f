from __future__ import annotations

import pytest

from memdesc import UnknownFormatError, UnsupportedFormatError, from_notation, memory_desc
from memdesc.exchange import written

_NHWC = memory_desc((2, 17, 5, 4), "bf16", "nhwc")


def test_every_notation_of_a_layout_is_written_and_read() -> None:
    texts = written(_NHWC, "pytorch")
    assert texts == (
        "torch.channels_last",
        "dim_order=(0, 2, 3, 1)",
        "size=(2, 17, 5, 4), stride=(340, 1, 68, 17)",
        "FixedLayout('cpu', torch.bfloat16, size=[2, 17, 5, 4], stride=[340, 1, 68, 17])",
    )
    for text in texts:
        assert from_notation(text, "pytorch", _NHWC.dims, "bf16") == _NHWC
    assert from_notation(texts[2], "pytorch", dtype="bf16") == _NHWC
    assert from_notation(texts[3], "pytorch") == _NHWC


def test_strides_with_gaps_and_an_offset_have_no_memory_format() -> None:
    desc = memory_desc((3, 4), "f32", strides=(9, 2), offset0=5)
    texts = written(desc, "pytorch")
    assert texts == (
        "size=(3, 4), stride=(9, 2), storage_offset=5",
        "FixedLayout('cpu', torch.float32, size=[3, 4], stride=[9, 2], offset=5)",
    )
    for text in texts:
        assert from_notation(text, "pytorch") == desc


def test_tensors_without_elements_are_not_channels_last_there() -> None:
    assert "torch.channels_last" not in written(memory_desc((2, 0, 5, 1), "f32", "nhwc"), "pytorch")
    assert written(memory_desc((2, 0), "f32", "ab"), "pytorch")[0] == "torch.contiguous_format"


@pytest.mark.parametrize(
    ("dims", "text", "tag"),
    [
        ((2, 3, 4), "contiguous_format", "abc"),
        ((2, 3, 4), "torch.contiguous_format", "abc"),
        ((2, 3, 4, 5, 6), "torch.channels_last_3d", "acdeb"),
        ((2, 3, 4), "dim_order=[2, 0, 1]", "cab"),
        ((2, 3), "size=(2, 3)", "ab"),
        ((2, 3), "FixedLayout('cuda:0', torch.float32, size=[2, 3], stride=[1, 2])", "ba"),
    ],
)
def test_other_spellings_are_read(dims: tuple[int, ...], text: str, tag: str) -> None:
    assert from_notation(text, "pytorch", dims) == memory_desc(dims, "f32", tag)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("torch.channels_last", "for 4 dims, not 2"),
        ("torch.blocked", "it is one of torch.contiguous_format"),
        ("stride=(3", "not a Python expression"),
        ("size=(2, 3), width=3", "each at most once, and not width"),
        ("size=(2, s0)", "'\\(2, s0\\)' is not a list of integers"),
        ("size=(2, 3), stride=(1, 2.0)", "is not a list of integers"),
        ("size=(2, 4)", "not the given \\(2, 3\\)"),
        ("dim_order=(0, 0)", "every dim of 0 to 1 once"),
        ("dim_order=(0, 1), stride=(3, 1)", "without strides"),
        (
            "FlexibleLayout('cpu', torch.float32, size=[2, 3], stride=[3, 1])",
            "a layout with known strides is",
        ),
        ("FixedLayout('cpu', size=[2, 3], stride=[3, 1])", "a layout with known strides is"),
    ],
)
def test_other_strings_are_refused_with_the_rule(text: str, reason: str) -> None:
    with pytest.raises(UnknownFormatError, match=reason):
        from_notation(text, "pytorch", (2, 3))


def test_layouts_that_no_descriptor_can_describe_are_refused() -> None:
    with pytest.raises(UnsupportedFormatError, match="the layout of some other tensor"):
        from_notation("torch.preserve_format", "pytorch", (2, 3))
    with pytest.raises(UnsupportedFormatError, match=r"has the type torch\.complex64"):
        from_notation("FixedLayout('cpu', torch.complex64, size=[2], stride=[1])", "pytorch")


@pytest.mark.parametrize(
    ("desc", "reason"),
    [
        (memory_desc((2, 17), "f32", "aB8b"), "b \\(dim 1\\) is blocked, by 8, and"),
        (memory_desc((2, 17), "f32", "ab__b8"), "b \\(dim 1\\) of size 17 is padded to 24"),
        (memory_desc((2, 17), "f32", "(ab)"), "dims a \\(dim 0\\), b \\(dim 1\\) are fused"),
        (memory_desc((2, 17), "s4", "ab"), "no tensors of s4 with two elements in a byte"),
        (memory_desc((2, 17), "f32", strides=(17, -1), offset0=16), "must not be negative"),
    ],
)
def test_layouts_that_pytorch_cannot_express_are_refused(desc: object, reason: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=reason):
        written(desc, "pytorch")  # type: ignore[arg-type] # pytest's parameters have no type
