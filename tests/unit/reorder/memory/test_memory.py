"""The zero-padding contract, and the buffers that a Memory takes."""

from __future__ import annotations

import mmap

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import Extra, MemdescError, MemoryDesc, PaddingError, memory_desc

DTYPES = [
    "f64",
    "f32",
    "f16",
    "bf16",
    "f8_e5m2",
    "f8_e4m3",
    "e8m0",
    "f4_e2m1",
    "s64",
    "s32",
    "s8",
    "u8",
    "s4",
    "u4",
]
PADDED = memory_desc((2, 17, 3, 2), "f32", "nChw8c")


def test_a_memory_in_a_notebook_shows_the_picture_of_its_layout() -> None:
    assert reorder.Memory(PADDED)._repr_html_() == PADDED._repr_html_()


def test_new_memory_is_zeroed_and_starts_with_a_cache_line() -> None:
    memory = reorder.Memory(PADDED)
    assert memory.nbytes == PADDED.nbytes
    assert not memory.data.any()
    assert memory.data.ctypes.data % 64 == 0


def test_memory_that_is_too_large_to_be_reused_starts_with_a_huge_page() -> None:
    memory = reorder.Memory(memory_desc((9 << 20,), "f32", "a"))
    assert memory.data.ctypes.data % (2 << 20) == 0


# large enough that new memory for a result is not zeroed without need
LARGE = (3, 5, 199, 199)


@pytest.mark.parametrize(
    "dst",
    [
        memory_desc(LARGE, "f32", "nhwc"),
        memory_desc(LARGE, "f32", "aBcd8b"),
        memory_desc(LARGE, "s4", "nhwc"),
        memory_desc(LARGE, "f32", strides=(200_000, 39_700, 199, 1)),
        memory_desc(LARGE, "f32", strides=(198_005, 39_601, 199, 1), offset0=7),
        memory_desc(LARGE, "s8", "nhwc").with_extra(Extra(s8s8_mask=1)),
    ],
    ids=["dense", "padded", "half a byte", "gaps", "offset", "compensation"],
)
def test_new_results_do_not_depend_on_what_their_memory_held(dst: MemoryDesc) -> None:
    x = np.random.default_rng(1).integers(1, 8, dst.dims).astype(np.float32)
    wanted = reorder.reorder(x, out=reorder.Memory(dst)).data
    for _ in range(3):
        # the C library hands out blocks again that were freed
        held = [np.full(dst.nbytes + 64, 0xA5, np.uint8) for _ in range(3)]
        del held
        assert reorder.reorder(x, dst).data.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "tag", ["aBcd8b", "ABcd8b4a", "ABcd4a/1.8b8a/4.4b", "Abcd32a__b32", "b(CD)A2(cd)16a"]
)
def test_attaching_a_buffer_clears_its_padding_and_keeps_its_elements(dtype: str, tag: str) -> None:
    desc = memory_desc((3, 5, 3, 3), dtype, tag)
    buffer = np.random.default_rng(1).integers(1, 256, desc.nbytes, np.uint8)
    expected = reorder.Memory(desc, buffer.copy(), zero_pad=False).numpy().tobytes()
    memory = reorder.Memory(desc, buffer)
    assert np.shares_memory(memory.data, buffer)
    assert memory.numpy().tobytes() == expected
    memory.check_padding()


def test_zero_pad_false_leaves_the_buffer_alone() -> None:
    buffer = np.full(PADDED.nbytes, 7, np.uint8)
    reorder.Memory(PADDED, buffer, zero_pad=False)
    assert (buffer == 7).all()


def test_check_padding_names_the_lowest_wrong_byte_and_its_position() -> None:
    memory = reorder.Memory(PADDED)
    memory.elements[[97, 287]] = 5
    with pytest.raises(
        PaddingError, match=r"not zero at \(0, 17, 0, 0\), byte 388: found bits 0x5 beyond the dims"
    ):
        memory.check_padding()
    memory.elements[97] = 0
    with pytest.raises(PaddingError, match=r"not zero at \(1, 23, 2, 1\), byte 1148"):
        memory.check_padding()


def test_padding_is_checked_along_every_padded_dim() -> None:
    memory = reorder.reorder(np.ones((3, 5), np.uint8), "AB4a4b")
    memory.blocks()[0, 1, 0, 3] = 5  # padding along b only
    with pytest.raises(PaddingError, match=r"not zero at \(0, 7\)"):
        memory.check_padding()


@pytest.mark.parametrize("dtype", ["s4", "u4", "f4_e2m1"])
def test_a_wrong_half_byte_is_found_and_its_byte_named(dtype: str) -> None:
    memory = reorder.Memory(memory_desc((1, 3), dtype, "aB8b"))
    memory.data[1] = 0xF0
    with pytest.raises(PaddingError, match=r"not zero at \(0, 3\), byte 1: found bits 0xf"):
        memory.check_padding()


def test_an_odd_end_of_4_bit_elements_leaves_the_half_behind_it() -> None:
    desc = memory_desc((3,), "u4", "a")
    buffer = np.array([0x21, 0xF3, 0xAA], np.uint8)
    memory = reorder.Memory(desc, buffer)
    assert memory.nbytes == 2
    memory.apply(lambda x: x)
    reorder.reorder(np.array([5, 6, 7], ml_dtypes.uint4), out=memory)
    assert buffer.tolist() == [0x65, 0xF7, 0xAA]


def test_a_read_only_buffer_with_padding_is_refused_with_advice() -> None:
    buffer = bytes(PADDED.nbytes)
    with pytest.raises(
        MemdescError,
        match="read-only, but its padding must be set to zero; pass a copy, or zero_pad=False",
    ):
        reorder.Memory(PADDED, buffer)
    assert reorder.Memory(PADDED, buffer, zero_pad=False).numpy().sum() == 0
    reorder.Memory(memory_desc((2, 3), "s8", "ab"), bytes(6))


def test_padding_that_lies_on_data_is_refused() -> None:
    desc = memory_desc((1, 3), "f32", strides=(0, 0), padded_dims=(1, 4))
    with pytest.raises(MemdescError, match="stride of 0"):
        reorder.Memory(desc, np.zeros(4, np.float32))


def test_padding_that_two_strides_of_zero_repeat_is_checked_once() -> None:
    # a million times a million padded positions, all at byte 0
    desc = memory_desc((3, 3, 2), "f32", strides=(0, 0, 1), padded_dims=(10**6, 10**6, 3))
    memory = reorder.Memory(desc, np.zeros(desc.nbytes, np.uint8), zero_pad=False)
    memory.check_padding()
    memory.data[9] = 1
    with pytest.raises(PaddingError, match=r"byte 8: found bits 0x100 beyond the dims \(3, 3, 2\)"):
        memory.check_padding()


def test_bytes_that_no_machine_has_are_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        reorder.Memory(memory_desc((2**62,), "u8", "a"))


def test_something_else_than_a_descriptor_is_refused() -> None:
    with pytest.raises(MemdescError, match="desc must be a MemoryDesc, not 3"):
        reorder.Memory(3)  # type: ignore[arg-type] # what a caller might pass


def test_buffers_of_every_kind_are_attached_without_a_copy() -> None:
    desc = memory_desc((2, 3), "f32", "ab")
    for buffer in (
        bytearray(24),
        memoryview(bytearray(24)),
        mmap.mmap(-1, 24),
        np.zeros(6, np.float32),
        np.zeros((2, 3), np.uint32),
    ):
        memory = reorder.Memory(desc, buffer)
        memory.data[0] = 9
        assert bytes(buffer)[0] == 9


def test_a_view_of_a_parent_clears_only_its_own_padding() -> None:
    parent = memory_desc((2, 20, 2, 2), "f32", "aBcd8b")
    buffer = np.full(parent.nbytes // 4, 7, np.float32)
    view = parent.submemory((2, 4, 2, 2), (0, 16, 0, 0))
    reorder.Memory(view, buffer)
    reference = np.full(parent.nbytes // 4, 7, np.float32)
    for n in range(2):
        for pixel in range(4):
            start = n * 96 + 64 + pixel * 8
            reference[start + 4 : start + 8] = 0
    assert np.array_equal(buffer, reference)


@pytest.mark.parametrize("dtype", DTYPES)
def test_apply_keeps_the_padding_zero_where_the_function_does_not(dtype: str) -> None:
    desc = memory_desc((2, 5, 3), dtype, "aBc4b")
    memory = reorder.Memory(desc)
    memory.apply(np.ones_like)
    assert (memory.numpy().astype(np.float64) == 1).all()
    memory.check_padding()


def test_apply_refuses_other_shapes_and_types_and_read_only_memory() -> None:
    memory = reorder.Memory(memory_desc((2, 3), "f32", "aB4b"))
    with pytest.raises(MemdescError, match="float64"):
        memory.apply(lambda x: x.astype(np.float64))
    with pytest.raises(MemdescError, match=r"shape \(2, 2\)"):
        memory.apply(lambda x: x[:, :2])
    frozen = reorder.Memory(memory_desc((2, 3), "f32", "ab"), bytes(24))
    with pytest.raises(MemdescError, match="read-only"):
        frozen.apply(np.exp)
    with pytest.raises(MemdescError, match="stride of 0"):
        reorder.Memory(memory_desc((2, 3), "f32", strides=(0, 1)), np.zeros(3, np.float32)).apply(
            np.exp
        )


def test_memory_without_elements_has_no_bytes_and_an_empty_array() -> None:
    memory = reorder.Memory(memory_desc((2, 0, 3), "f32", "aBc8b"))
    assert memory.nbytes == 0
    assert memory.numpy().shape == (2, 0, 3)
    memory.check_padding()
    memory.apply(np.exp)


def test_a_memory_prints_its_descriptor() -> None:
    assert repr(reorder.Memory(PADDED)) == "Memory(memory_desc((2, 17, 3, 2), 'f32', 'aBcd8b'))"


def test_a_memory_keeps_its_descriptor_and_its_buffer() -> None:
    memory = reorder.Memory(PADDED)
    for name, value in (("desc", memory_desc((2**40,), "f32")), ("data", np.zeros(1, np.uint8))):
        with pytest.raises(AttributeError):
            setattr(memory, name, value)


def test_apply_takes_a_function() -> None:
    with pytest.raises(
        MemdescError, match=r"apply\(\) takes a function of the logical array, not 3"
    ):
        reorder.Memory(memory_desc((2, 3), "f32", "ab")).apply(3)  # type: ignore[arg-type] # callers without types


def test_an_array_in_the_place_of_the_descriptor_is_named_by_shape_and_dtype() -> None:
    described = (
        r"desc must be a MemoryDesc, not an ndarray of shape \(2, 17, 5, 4\) and dtype float32"
    )
    with pytest.raises(MemdescError, match=described):
        reorder.Memory(np.zeros((2, 17, 5, 4), np.float32))  # type: ignore[arg-type] # callers without types


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8", "u4"])
def test_numpy_makes_an_array_like_a_memory(dtype: str) -> None:
    memory = reorder.Memory(memory_desc((2, 17), dtype, "aB8b"))
    assert (memory.dims, memory.ndims) == (memory.shape, memory.ndim) == ((2, 17), 2)
    array = np.zeros(memory.shape, memory.dtype)
    assert (array.shape, array.dtype) == ((2, 17), memory.numpy().dtype)


def test_a_text_with_sizes_and_type_is_a_descriptor() -> None:
    x = np.arange(6, dtype=np.float32)
    assert (reorder.Memory("f32[2,3]{0,1}", x).numpy() == x.reshape(3, 2).T).all()
    with pytest.raises(MemdescError, match="does not contain the sizes"):
        reorder.Memory("nchw", x)
    with pytest.raises(MemdescError, match="it is an image, not a linear buffer"):
        reorder.Memory("f32:image_2d_rgba:1x4x2x3", x)
