"""Arrays and buffers that a caller gives reorder() to write."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import memory_desc
from memdesc.errors import OverlapError
from tests.unit.reorder.test_api import cube


def test_src_names_the_order_of_the_axes_of_an_array() -> None:
    nhwc = cube(2, 5, 4, 17)
    memory = reorder.reorder(nhwc, "nChw16c", src="nhwc")
    assert memory.desc.dims == (2, 17, 5, 4)
    assert np.array_equal(memory.numpy(), nhwc.transpose(0, 3, 1, 2))


def test_src_names_the_blocks_of_a_physical_array() -> None:
    x = cube(2, 32, 3, 5)
    physical = reorder.reorder(x, "nChw16c").blocks()
    assert np.array_equal(reorder.reorder(physical, "nchw", src="nChw16c").numpy(), x)


def test_src_may_describe_a_raw_buffer() -> None:
    desc = memory_desc((1, 3, 2, 2), "f32", "nChw8c")
    x = cube(1, 3, 2, 2)
    raw = reorder.reorder(x, desc).data.tobytes()
    assert np.array_equal(reorder.reorder(raw, "nchw", src=desc).numpy(), x)  # type: ignore[call-overload] # bytes are a buffer


def test_a_result_goes_into_out_which_is_returned() -> None:
    out = reorder.Memory(memory_desc((2, 3), "f32", "ba"))
    assert reorder.reorder(cube(2, 3), out=out) is out
    assert np.array_equal(out.numpy(), cube(2, 3))


@pytest.mark.parametrize(
    "view",
    [lambda x: x[:2, :3], lambda x: x[:2, 2::-1], lambda x: x[1::-1, :6:2], lambda x: x.T[:2, :3]],
)
@pytest.mark.parametrize("dtype", ["f4", "i1", ml_dtypes.bfloat16])
def test_a_result_goes_into_an_array_of_any_strides_and_nothing_else(view: Any, dtype: Any) -> None:
    whole = np.full((7, 7), 9, dtype)
    wanted = whole.copy()
    view(wanted)[...] = cube(2, 3)
    out = view(whole)
    assert reorder.reorder(cube(2, 3).astype(dtype), out=out) is out
    assert whole.tobytes() == wanted.tobytes()
    assert reorder.reorder(cube(2, 3), out=out) is out  # and converts
    assert whole.tobytes() == wanted.tobytes()


def test_a_result_goes_into_a_buffer_that_dst_describes() -> None:
    desc = memory_desc((2, 3), "f32", "Ab4a")
    wanted = reorder.reorder(cube(2, 3), desc).data.tobytes()
    for out in (bytearray(48), memoryview(bytearray(48)), np.ones(12, np.float32)):
        assert reorder.reorder(cube(2, 3), desc, out=out) is out
        assert bytes(memoryview(out)) == wanted  # type: ignore[arg-type] # arrays are buffers
    half = np.ones((2, 3), np.float16)
    assert reorder.reorder(cube(2, 3), desc, dtype="f16", out=(raw := bytearray(24))) is raw
    assert reorder.reorder(cube(2, 3), "ab", out=half) is half
    assert np.array_equal(half, cube(2, 3))


def test_an_array_out_is_not_overwritten_while_it_is_read() -> None:
    x = cube(3, 3)
    with pytest.raises(OverlapError, match="share memory"):
        reorder.reorder(x.T, out=x)
    assert np.array_equal(x, cube(3, 3))
