import pytest

from memdesc import memory_desc, parse_layout
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
        assert parse_layout(f"pytorch:{text}", _NHWC.dims, "bf16") == _NHWC
    assert parse_layout(f"pytorch:{texts[2]}", dtype="bf16") == _NHWC
    assert parse_layout(f"pytorch:{texts[3]}") == _NHWC


def test_strides_with_gaps_and_an_offset_have_no_memory_format() -> None:
    desc = memory_desc((3, 4), "f32", strides=(9, 2), offset0=5)
    texts = written(desc, "pytorch")
    assert texts == (
        "size=(3, 4), stride=(9, 2), storage_offset=5",
        "FixedLayout('cpu', torch.float32, size=[3, 4], stride=[9, 2], offset=5)",
    )
    for text in texts:
        assert parse_layout(f"pytorch:{text}") == desc


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
    assert parse_layout(f"pytorch:{text}", dims) == memory_desc(dims, "f32", tag)
