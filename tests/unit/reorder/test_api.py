"""reorder() as a caller meets it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import memdesc
import reorder
from memdesc import (
    MemdescError,
    UnsupportedFormatError,
    array_desc,
    image_desc,
    memory_desc,
)
from tests.programs import run_python


def cube(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape)).astype(dtype).reshape(shape)


def test_a_caller_who_asks_for_nothing_or_the_wrong_thing_is_told() -> None:
    with pytest.raises(
        MemdescError, match=r"pass dst, the layout to move into .'plain' is row-major., or out"
    ):
        reorder.reorder(cube(2, 3))
    for out, reason in (
        ([0.0], r"out must be a Memory, a writable array or buffer, .*, not \[0\.0\]"),
        (bytes(24), "out is a read-only bytes; pass a writable array"),
        (np.zeros((2, 3), ml_dtypes.int4), "one element per byte; pass a Memory, which holds two"),
        (np.ma.zeros((2, 3)), "out is a masked array"),
        (np.zeros((2, 3), ">f4"), "is not in native byte order"),
        (np.broadcast_to(np.zeros(3), (2, 3)), "out is a read-only ndarray"),
        (np.zeros((3, 2)), r"src has dims \(2, 3\), dst has dims \(3, 2\)"),
        (bytearray(24), r"src has dims \(2, 3\), dst has dims \(24,\)"),
    ):
        with pytest.raises(MemdescError, match=reason):
            reorder.reorder(cube(2, 3), out=out)  # type: ignore[type-var] # what a caller might pass
    with pytest.raises(MemdescError, match="a Memory already has a descriptor"):
        reorder.reorder(reorder.reorder(cube(2, 3), "ab"), "ba", src="ab")
    with pytest.raises(MemdescError, match=r"not list; pass np\.asarray\(x\)$"):
        reorder.reorder([1.0], "a")  # type: ignore[call-overload] # what a caller might pass
    with pytest.raises(MemdescError, match="0 sizes; a descriptor has 1 to 12"):
        reorder.reorder(np.zeros(()), "a")


def test_dims_of_both_sides_must_agree_and_dst_is_written_once() -> None:
    with pytest.raises(MemdescError, match=r"src has dims \(2, 3\), dst has dims \(3, 2\)"):
        reorder.plan_reorder(memory_desc((2, 3), "f32", "ab"), memory_desc((3, 2), "f32", "ab"))
    with pytest.raises(MemdescError, match="stride of 0"):
        reorder.reorder(cube(2, 3), memory_desc((2, 3), "f32", strides=(0, 1)))


def test_threads_are_a_count_of_one_or_more() -> None:
    for threads in (0, -1, 1.5, "2"):
        with pytest.raises(MemdescError, match="threads must be an integer of 1 or more"):
            reorder.reorder(cube(2, 3), "ba", threads=threads)  # type: ignore[arg-type] # what a caller might pass
        with pytest.raises(MemdescError, match="threads must be an integer of 1 or more"):
            reorder.use_threads(threads)  # type: ignore[arg-type] # likewise
    reorder.reorder(cube(2, 3), "ba", threads=1000)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float4_e2m1fn])
@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (0, 3), (2, 8)])
def test_unpacked_4_bit_arrays_are_packed_and_come_back(dtype: Any, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(0, 16, shape, np.uint8).view(dtype)
    memory = reorder.reorder(x, "BA4a2b")
    assert memory.nbytes == memory.desc.nbytes
    assert np.array_equal(memory.numpy().view(np.uint8) & 15, x.view(np.uint8) & 15)
    assert np.array_equal(
        reorder.reorder(x[::-1], "ab").numpy().view(np.uint8) & 15, x[::-1].view(np.uint8) & 15
    )


def test_arrays_that_no_descriptor_describes_are_refused_with_the_way_out() -> None:
    record = np.zeros(4, [("a", np.float32), ("b", np.int8)])
    with pytest.raises(
        MemdescError,
        match="stride of 5 bytes, not a multiple of the 4-byte element; copy the array",
    ):
        reorder.reorder(record["a"], "a")
    with pytest.raises(MemdescError, match="native byte order"):
        reorder.reorder(np.zeros(4, ">f4"), "a")
    with pytest.raises(MemdescError, match="unknown data type"):
        reorder.reorder(np.zeros(4, complex), "a")


def test_zero_sized_dims_succeed_and_do_nothing() -> None:
    out = reorder.Memory(memory_desc((2, 0, 3), "f32", "aBc8b"))
    assert reorder.reorder(np.zeros((2, 0, 3), np.float32), out=out) is out
    reorder.execute(reorder.plan_reorder(out.desc, out.desc), b"", bytearray())


def test_only_descriptors_have_a_plan() -> None:
    desc = memory_desc((1, 4, 3, 3), "f32", "abcd")
    for wrong in (3, None, [desc]):
        with pytest.raises(
            MemdescError, match=r"src must be a MemoryDesc, not .*; see memdesc\.memory_desc"
        ):
            reorder.plan_reorder(wrong, desc)  # type: ignore[arg-type] # callers without types
    with pytest.raises(
        MemdescError, match=r"dst must be a MemoryDesc, not image_desc\(.*\); its \.desc is one"
    ):
        reorder.plan_reorder(desc, memdesc.image_desc(desc.dims, "f32", "in_out_channel"))  # type: ignore[arg-type] # likewise
    with pytest.raises(
        MemdescError, match=r"dst must be a MemoryDesc, not Memory\(.*\); its \.desc is one"
    ):
        reorder.plan_reorder(desc, reorder.Memory(desc))  # type: ignore[arg-type] # likewise


def test_descriptors_that_differ_in_unit_strides_share_a_plan_and_move_the_same() -> None:
    for strides in ((4, 4, 1), (4, 77, 1)):
        desc = memory_desc((2, 1, 4), "f32", strides=strides)
        x = cube(8)
        out = reorder.reorder(x, "cba", src=desc)
        assert np.array_equal(out.numpy().ravel(), x)


def test_importing_loads_neither_numba_nor_pyopencl() -> None:
    heavy = ("numba", "llvmlite", "pyopencl")
    program = f"import sys, memdesc, reorder; print([m for m in {heavy} if m in sys.modules])"
    assert run_python("-c", program).stdout == "[]\n"


def test_a_source_is_described_where_it_is() -> None:
    x = cube(3, 4)[:, ::-1]
    assert array_desc(x).offset0 == 3


def test_a_data_type_alone_keeps_the_layout() -> None:
    m = reorder.reorder(cube(2, 17, 3), "aBc8b")
    half = reorder.reorder(m, dtype="f16")
    assert half.desc == m.desc.with_dtype("f16")
    assert np.array_equal(half.numpy(), m.numpy().astype(np.float16))
    turned = reorder.reorder(cube(2, 3).T, dtype=np.dtype(np.float64))
    assert turned.desc == memory_desc((3, 2), "f64", "ba")
    repeated = np.broadcast_to(cube(1, 3), (2, 3))
    assert reorder.reorder(repeated, dtype="s32").desc == memory_desc((2, 3), "s32")


def test_plain_is_row_major_for_any_number_of_dims() -> None:
    x = cube(2, 3, 4)
    for name in ("plain", "abx"):
        assert reorder.reorder(x, name).desc == memory_desc(x.shape, "f32", "abc")
        assert np.array_equal(reorder.reorder(x, "cba", src=name).numpy(), x)
    last = reorder.reorder(x, "axb")
    assert last.desc == memory_desc(x.shape, "f32", "acb")
    blocked = reorder.reorder(x, "aBx2b")
    assert blocked.desc == memory_desc(x.shape, "f32", "aBc2b")
    again = reorder.reorder(blocked.blocks(), "plain", src="aBx2b")
    assert np.array_equal(again.numpy()[:, :3], x)


def test_dims_in_another_order_lead_to_src() -> None:
    x = np.zeros((2, 5, 4, 17), np.float32)
    for dst in (
        memory_desc((2, 17, 5, 4), "f32", "nchw"),
        image_desc((2, 17, 5, 4), "f32", "in_out_channel"),
    ):
        with pytest.raises(
            MemdescError, match=r"if the axes are in memory order, give src=, such as src='nhwc'$"
        ):
            reorder.reorder(x, dst)
    with pytest.raises(MemdescError, match=r"\(see permute_axes, reshape, submemory\)$"):
        reorder.reorder(x, memory_desc((2, 17, 5, 5), "f32", "nchw"))


def test_the_name_of_an_image_makes_its_pixels() -> None:
    x = np.arange(24, dtype=np.float32).reshape(1, 6, 2, 2)
    image = image_desc(x.shape, "f32", "in_out_channel")
    assert np.array_equal(reorder.reorder(x, "in_out_channel"), reorder.reorder(x, image))
    pixels = np.asarray(reorder.reorder(x, "ac|Bd|4b", dtype=np.dtype(np.float16)))
    assert np.array_equal(pixels, reorder.reorder(x, image).astype(np.float16))
    with pytest.raises(MemdescError, match="is for 4 dims"):
        reorder.reorder(x[0], "in_out_channel")
    with pytest.raises(MemdescError, match="out cannot be an image in host memory"):
        reorder.reorder(x, "in_out_channel", out=reorder.Memory(image.desc))
    with pytest.raises(UnsupportedFormatError, match="cannot be described: it is a video surface"):
        reorder.reorder(np.zeros((1, 3, 2, 2), np.float32), "nv12")
