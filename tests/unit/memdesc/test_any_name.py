"""A layout's name, in any vocabulary or notation, is read by every function that takes one."""

import numpy as np
import pytest

import reorder
from memdesc import RUNTIME, image_desc, memory_desc, parse_layout, runtime_desc
from memdesc.tags import parse_tag
from memdesc.verbose import from_verbose

DIMS = (2, 17, 5, 4)
X = np.arange(2 * 17 * 5 * 4, dtype=np.float32).reshape(DIMS)


def test_other_functions_take_every_name() -> None:
    plain = memory_desc(DIMS, "f32")
    for text in ("channels_last", "dnnl_nhwc", "NCHW16c"):
        desc = memory_desc(DIMS, "f32", text)
        assert reorder.reorder(X, text).desc == desc
        assert reorder.plan_reorder(plain, text).dst == desc
        assert reorder.plan_reorder(text, plain).src == desc
        quantized = reorder.quantize(X, "s8", dst=text)
        assert quantized.memory.desc == memory_desc(DIMS, "s8", text)
        assert reorder.dequantize(quantized, dst=text).desc == desc
        assert reorder.compare_layouts(plain, text) == reorder.compare_layouts(plain, desc)
        assert reorder.compare_layouts(text, plain) == reorder.compare_layouts(desc, plain)
        assert plain.show(beside=text).svg == plain.show(beside=desc).svg
    for name, axes in (("channels_last", (0, 2, 3, 1)), ("HWIO", (2, 3, 1, 0))):
        stored = np.ascontiguousarray(X.transpose(axes))
        assert (reorder.reorder(stored, "plain", src=name).numpy() == X).all()


def test_spaces_around_a_name_are_not_part_of_it() -> None:
    assert memory_desc(DIMS, "f32", " nhwc\n") == memory_desc(DIMS, "f32", "nhwc")
    assert memory_desc(DIMS, "f32", "\tonednn: nhwc") == memory_desc(DIMS, "f32", "nhwc")
    assert runtime_desc((RUNTIME, 3), "f32", " nc ").letters == "nc"
    assert runtime_desc((RUNTIME, 3), "f32", "* ").tag is None
    assert reorder.reorder(X, " nhwc").desc == memory_desc(DIMS, "f32", "nhwc")
    assert parse_layout("openvino: f32:bfyx:2x17x5x4") == memory_desc(DIMS, "f32", "bfyx")
    assert from_verbose(" f32::blocked:ab::f0 ", (2, 3)) == memory_desc((2, 3), "f32")
    for name in ("in_out_channel", "ac|Bd|4b"):
        assert repr(image_desc(DIMS, "f32", f" {name} ")) == repr(image_desc(DIMS, "f32", name))


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
