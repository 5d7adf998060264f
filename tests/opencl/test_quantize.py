"""quantize and dequantize on devices give what they give on the CPU."""

from typing import Any

import numpy as np
import pyopencl.array as cl_array
import pytest

from memdesc import image_desc, memory_desc
from reorder import Quantized, dequantize, quantize, reorder
from reorder.opencl import DeviceMemory
from tests.opencl.runtimes import Runtime, refused

X = np.random.default_rng(0).normal(size=(3, 16, 5, 4)).astype(np.float32)
W = X.reshape(12, 80)


def same(found: Any, wanted: Quantized) -> None:
    """Compare what a device made with what the CPU made."""
    assert isinstance(found.memory, DeviceMemory)
    assert found.memory.desc == wanted.memory.desc
    assert (found.memory.get().data == wanted.memory.data).all()
    assert found.scales.tobytes() == wanted.scales.tobytes()
    assert (found.zero_points == wanted.zero_points).all()
    assert (found.axis, found.groups) == (wanted.axis, wanted.groups)


@pytest.mark.parametrize(
    ("tag", "kind", "dtype", "given"),
    [
        ("nChw8c", np.float32, "u8", {"axis": 1}),
        pytest.param("nhwc", np.float16, "s8", {"axis": (0, 1)}, marks=pytest.mark.campaign),
        pytest.param("nchw", np.float32, "f8_e4m3", {}, marks=pytest.mark.campaign),
    ],
)
def test_what_lies_on_a_device_is_quantised_there(
    tag: str, kind: Any, dtype: str, given: dict[str, Any], runtime: Runtime
) -> None:
    x = X.astype(kind)
    memory = reorder(x, tag, queue=runtime.queue)
    wanted = quantize(x, dtype, dst="nChw16c", **given)
    found = quantize(memory, dtype, dst="nChw16c", **given)
    same(found, wanted)
    back: Any = dequantize(found, dst="nhwc")
    assert (back.get().data == dequantize(wanted, dst="nhwc").data).all()


@pytest.mark.campaign
def test_groups_of_four_bits_and_host_arrays_are_quantised_on_a_queue(runtime: Runtime) -> None:
    given: dict[str, Any] = {"axis": (0, 1), "groups": (1, 20)}
    wanted = quantize(W, "u4", **given)
    same(quantize(W, "u4", **given, queue=runtime.queue), wanted)
    found = quantize(cl_array.to_device(runtime.queue, W), "u4", **given)
    same(found, wanted)
    back: Any = dequantize(wanted, queue=runtime.queue)
    assert (back.get().numpy() == dequantize(wanted).numpy()).all()


@pytest.mark.campaign
def test_an_image_is_quantised_and_what_is_not_finite_is_refused(first: Runtime) -> None:
    image = image_desc(X.shape, "f32", "in_out_channel")
    found = quantize(reorder(X, image, queue=first.queue), "s8", axis=1)
    same(found, quantize(X, "s8", axis=1))
    bad = X.copy()
    bad[2, 7, 1, 0] = np.nan
    with refused("x[2, 7, 1, 0] is nan; only finite values can be quantised"):
        quantize(reorder(bad, "nhwc", queue=first.queue), "s8", axis=1)
    with refused("x is pyopencl._cl.Buffer, whose layout is not known"):
        quantize(first.buffer(X), "s8")
    empty = reorder(X[:0], memory_desc((0, 16, 5, 4), "f32"), queue=first.queue)
    assert quantize(empty, "s8").memory.desc.nelems == 0
