"""The text of sources: how they read, what is left out of them, and why."""

from pathlib import Path

from memdesc import memory_desc
from tests.compiled import compile_library, run_python

_BLOCKED = memory_desc((2, 17, 5, 4), "f32", "nChw16c")
_ONE = memory_desc((1, 1), "f32", "ab")
_EMPTY = memory_desc((2, 0), "f32", "ab")
_BACKWARDS = memory_desc((0, 3), "f32", strides=(1, -2))
# a descriptor, a language, and parts of its source
_PARTS = (
    (
        *(_BLOCKED, "c"),
        "int64_t tensor_offset(int64_t n, int64_t c, int64_t h, int64_t w)\n{\n",
        "    return n * 640 + c / 16 * 320 + c % 16 + h * 64 + w * 16;\n}\n",
        # the inverse divides by the strides
        "    const int64_t c = offset / 320 % 2 * 16 + offset % 16;\n",
        "    return c < 17;\n",
    ),
    # devices divide the outermost loop of a kernel
    (
        *(_BLOCKED, "opencl"),
        "__kernel void tensor_fill(__global const uint *src, __global uint *dst)",
        "for (long n = get_global_id(0); n < 2; n += get_global_size(0)) {",
    ),
    (_BLOCKED, "cuda", "__global__ void tensor_fill(const float *src, float *dst)"),
    # one work item fills elements that share bytes, and layouts without loops
    (memory_desc((3, 5), "u4", "ba"), "opencl", "for (long item = get_global_id(0); item < 1;"),
    (_ONE, "opencl", "for (long item = get_global_id(0); item < 1;"),
    # constants of a single element have a scope
    (memory_desc((1, 1), "s4"), "c", "{\n    {\n        const int64_t at_src = 0;\n"),
    # a missing function is explained
    (
        *(memory_desc((2, 3), "f32", strides=(0, 1)), "c"),
        "No tensor_index: a stride is 0, so one offset has several indices.",
        "No tensor_fill: a stride is 0, so several indices would write one",
    ),
    (
        *(memory_desc((2, 3), "f32", strides=(3, 2)), "c"),
        "No tensor_index: strides do not nest: 3 is at most 4, where others end.",
        "void tensor_fill(",
    ),
    (
        *(memory_desc((4, 4), "f16", "SharedLinearLayout([[0, 1], [0, 3], [1, 2], [3, 0]])"), "c"),
        "No tensor_index: XOR by ((1, 7), (2, 3), (3, 1)) twice is not the base again.",
    ),
    # parameters without an effect are marked for compilers
    (memory_desc((2, 1), "f32", "ab"), "c++", "    (void)b;\n"),
    (_EMPTY, "c", "    (void)offset;\n    (void)index;\n    return -1;\n"),
    (_BACKWARDS, "c", "return 0 - b * 2;"),
)


def test_a_source_reads_like_the_formula_and_says_what_it_lacks() -> None:
    for desc, language, *parts in _PARTS:
        source = desc.source(language)
        assert [part for part in parts if part not in source] == []
    assert _BLOCKED.source("cuda").count("blockIdx.x") == 1
    for desc in (memory_desc((3, 5), "u4", "ba"), _ONE):
        assert "item" not in desc.source("c") + desc.source("python")


def test_an_inverse_shifts_no_number_that_is_negative_or_large(tmp_path: Path) -> None:
    source = memory_desc((8, 32), "f16", "Sw<2,3,-3> o 0 o (8,32):(32,1)").source("c++")
    # constants of C++ are evaluated without undefined behaviour, or refused
    source += "constexpr int at(std::int64_t k) { std::int64_t i[2] = {}; "
    source += "return tensor_index(k, i); }\nstatic_assert(at(72) == 1);\n"
    source += "static_assert(at(-1) == -1);\nstatic_assert(at(INT64_MAX) == -1);\n"
    compile_library(source, tmp_path, ("gcc", "c++"))


def test_constants_say_the_sizes() -> None:
    names = run_python(memory_desc((2, 17), "f16", "aB8b").source("python", "w"))
    keys = "NDIMS", "DIMS", "PADDED_DIMS", "NELEMS", "PADDED_NELEMS", "OFFSET0", "NBYTES"
    assert [names[f"w_{key}"] for key in keys] == [2, (2, 17), (2, 24), 34, 48, 0, 96]


def test_python_clears_the_half_byte_of_a_padding_element() -> None:
    dst = [0xFF, 0xFF]
    run_python(memory_desc((1, 3), "u4", "aB4b").source("python"))["tensor_fill"]([0x21, 0xF3], dst)
    assert dst == [0x21, 0x03]


def test_a_tensor_without_elements_has_no_index() -> None:
    assert run_python(_EMPTY.source("python"))["tensor_index"](0) is None
