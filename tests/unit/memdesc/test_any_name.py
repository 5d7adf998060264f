"""A layout's name, in any vocabulary or notation, is read by every function that takes one."""

import numpy as np
import pytest

import reorder
from memdesc import memory_desc, parse_layout, runtime_desc
from memdesc.tags import parse_tag

DIMS = (2, 17, 5, 4)
# texts, and the tag of the layout that they stand for
_TEXTS = {
    "channels_last": "acdb",
    "channels_first": "abcd",
    "row_major": "abcd",
    "NCHW16c": "aBcd16b",
    "HWIO": "cdba",
    "dnnl_nchw": "abcd",
    "dnnl_nChw16c": "aBcd16b",
    "dnnl::memory::format_tag::nhwc": "acdb",
    "format_tag::nChw8c": "aBcd8b",
    "cldnn::format::b_fs_yx_fsv16": "aBcd16b",
    "format::byxf": "acdb",
    "340x20x4x1": "abcd",
    "strides:340x1x68x17": "acdb",
    "(2,17,5,4):(340,1,68,17)": "acdb",
    "f32[2,17,5,4]{1,3,2,0}": "acdb",
    "memref<2x17x5x4xf32, strided<[340, 1, 68, 17]>>": "acdb",
    "affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>": "acdb",
    "f32:p:blocked:aBcd16b::f0": "aBcd16b",
    "f32:b_fs_yx_fsv16:2x17x5x4": "aBcd16b",
    "size=(2, 17, 5, 4), stride=(340, 1, 68, 17)": "acdb",
    "lambda n, c, h, w: [n, h, w, c]": "acdb",
}
X = np.arange(2 * 17 * 5 * 4, dtype=np.float32).reshape(DIMS)


@pytest.mark.parametrize(("text", "tag"), _TEXTS.items(), ids=_TEXTS)
def test_every_notation_names_the_same_layout_everywhere(text: str, tag: str) -> None:
    wanted = memory_desc(DIMS, "f32", parse_tag(tag))
    assert memory_desc(DIMS, "f32", text) == parse_layout(text, DIMS, "f32") == wanted
    moved = reorder.reorder(X, text)
    assert moved.desc == wanted
    assert (moved.numpy() == X).all()
    plain = memory_desc(DIMS, "f32")
    assert reorder.plan_reorder(plain, text).boxes == reorder.plan_reorder(plain, wanted).boxes
    assert reorder.plan_reorder(text, plain).src == wanted


def test_other_functions_take_every_name() -> None:
    plain = memory_desc(DIMS, "f32")
    for text in ("channels_last", "dnnl_nhwc", "NCHW16c"):
        desc = memory_desc(DIMS, "f32", text)
        quantized = reorder.quantize(X, "s8", dst=text)
        assert quantized.memory.desc == memory_desc(DIMS, "s8", text)
        assert reorder.dequantize(quantized, dst=text).desc == desc
        assert reorder.compare_layouts(plain, text) == reorder.compare_layouts(plain, desc)
        assert reorder.compare_layouts(text, plain) == reorder.compare_layouts(desc, plain)
        assert plain.show(beside=text).svg == plain.show(beside=desc).svg
    for name, axes in (("channels_last", (0, 2, 3, 1)), ("HWIO", (2, 3, 1, 0))):
        stored = np.ascontiguousarray(X.transpose(axes))
        assert (reorder.reorder(stored, "plain", src=name).numpy() == X).all()


def test_names_of_other_systems_keep_what_they_say() -> None:
    for dims, tag in (((2, 3, 4), "acb"), ((2, 3, 4, 5), "acdb"), ((2, 3, 4, 5, 6), "acdeb")):
        assert memory_desc(dims, "f32", "channels_last") == memory_desc(dims, "f32", tag)
    for name in ("dnnl_nhwc", "channels_last"):
        assert memory_desc(DIMS, "f32", name).letters == "nchw"
    assert runtime_desc(DIMS, "f32", "dnnl_nhwc").tag == parse_tag("acdb")


@pytest.mark.peers
def test_a_memory_format_of_torch_is_a_name() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).float()
    wanted = memory_desc((2, 3, 4, 5), "f32", "nhwc")
    assert memory_desc((2, 3, 4, 5), "f32", torch.channels_last) == wanted
    assert reorder.reorder(x, torch.channels_last).desc == wanted
