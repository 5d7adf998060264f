from memdesc import MemoryDesc, memory_desc
from tests.compiled import run_python

_BLOCKED = memory_desc((2, 17, 5, 4), "f32", "nChw16c")


def test_the_offset_in_c_reads_like_the_formula() -> None:
    assert (
        "int64_t tensor_offset(int64_t n, int64_t c, int64_t h, int64_t w)\n{\n"
        "    return n * 640 + c / 16 * 320 + c % 16 + h * 64 + w * 16;\n}\n"
    ) in _BLOCKED.source("c")


def test_the_inverse_in_c_divides_by_the_strides() -> None:
    source = _BLOCKED.source("c", letters="nchw")
    assert "    const int64_t c = offset / 320 % 2 * 16 + offset % 16;\n" in source
    assert "    return c < 17;\n" in source


def test_devices_divide_the_outermost_loop_of_a_kernel() -> None:
    opencl = _BLOCKED.source("opencl")
    assert "__kernel void tensor_fill(__global const uint *src, __global uint *dst)" in opencl
    assert "for (long n = get_global_id(0); n < 2; n += get_global_size(0)) {" in opencl
    cuda = _BLOCKED.source("cuda")
    assert "__global__ void tensor_fill(const float *src, float *dst)" in cuda
    assert cuda.count("blockIdx.x") == 1


def test_one_work_item_fills_elements_that_share_bytes_and_layouts_without_loops() -> None:
    for desc in (memory_desc((3, 5), "u4", "ba"), memory_desc((1, 1), "f32", "ab")):
        assert "for (long item = get_global_id(0); item < 1;" in desc.source("opencl")
        assert "item" not in desc.source("c")
        assert "item" not in desc.source("python")


def test_constants_of_a_single_element_have_a_scope() -> None:
    source = memory_desc((1, 1), "s4", "ab").source("c")
    assert "{\n    {\n        const int64_t at_src = 0;\n" in source


def test_constants_say_the_sizes() -> None:
    names = run_python(memory_desc((2, 17), "f16", "aB8b").source("python", "w"))
    assert (names["w_NDIMS"], names["w_DIMS"], names["w_PADDED_DIMS"]) == (2, (2, 17), (2, 24))
    assert (names["w_NELEMS"], names["w_PADDED_NELEMS"], names["w_OFFSET0"]) == (34, 48, 0)
    assert names["w_NBYTES"] == 96


def _index(desc: MemoryDesc, offset: int) -> tuple[int, ...] | None:
    found: tuple[int, ...] | None = run_python(desc.source("python"))["tensor_index"](offset)
    return found


def test_python_clears_the_half_byte_of_a_padding_element() -> None:
    fill = run_python(memory_desc((1, 3), "u4", "aB4b").source("python"))["tensor_fill"]
    dst = [0xFF, 0xFF]
    fill([0x21, 0xF3], dst)
    assert dst == [0x21, 0x03]


def test_a_missing_function_is_explained() -> None:
    broadcast = memory_desc((2, 3), "f32", strides=(0, 1)).source("c")
    assert "No tensor_index: a stride is 0, so one offset has several indices." in broadcast
    assert "No tensor_fill: a stride is 0, so several indices would write one" in broadcast
    mixed = memory_desc((2, 3), "f32", strides=(3, 2)).source("c")
    assert "No tensor_index: strides do not nest: 3 is at most 4, where others end." in mixed
    assert "void tensor_fill(" in mixed


def test_a_tensor_without_elements_has_no_index() -> None:
    desc = memory_desc((2, 0), "f32", "ab")
    assert _index(desc, 0) is None
    backwards = memory_desc((0, 3), "f32", strides=(1, -2))
    assert "return 0 - b * 2;" in backwards.source("c")
    assert "    (void)offset;\n    (void)index;\n    return -1;\n" in desc.source("c")


def test_parameters_without_an_effect_are_marked_for_compilers() -> None:
    assert "    (void)b;\n" in memory_desc((2, 1), "f32", "ab").source("c++")
