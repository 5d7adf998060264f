"""reorder() as a caller meets it."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import memory_desc
from memdesc.errors import OverlapError
from tests.programs import run_python


def cube(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape)).astype(dtype).reshape(shape)


def test_importing_loads_neither_numba_nor_pyopencl() -> None:
    heavy = ("numba", "llvmlite", "pyopencl")
    program = f"import sys, memdesc, reorder; print([m for m in {heavy} if m in sys.modules])"
    assert run_python("-c", program).stdout == "[]\n"


def test_a_data_type_alone_keeps_the_layout() -> None:
    m = reorder.reorder(cube(2, 17, 3), "aBc8b")
    half = reorder.reorder(m, dtype="f16")
    assert half.desc == m.desc.with_dtype("f16")
    assert np.array_equal(half.numpy(), m.numpy().astype(np.float16))
    turned = reorder.reorder(cube(2, 3).T, dtype=np.dtype(np.float64))
    assert turned.desc == memory_desc((3, 2), "f64", "ba")
    repeated = np.broadcast_to(cube(1, 3), (2, 3))
    assert reorder.reorder(repeated, dtype="s32").desc == memory_desc((2, 3), "s32")


# Arrays and buffers that a caller gives to be written.


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
