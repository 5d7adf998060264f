"""Names of TensorRT, ACL, Ascend, ncnn, MNN and TFLite against the formulas of their sources."""

from collections.abc import Callable, Iterator
from itertools import product

import pytest

from memdesc import MemoryDesc, known_names, memory_desc, parse_layout

Index = tuple[int, ...]
Formula = Callable[[Index, Index], int]


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _flat(index: Index, sizes: Index) -> int:
    """Return the row-major offset."""
    at = 0
    for i, size in zip(index, sizes, strict=True):
        at = at * size + i
    return at


def _vector_major(v: int) -> Formula:
    def at(index: Index, dims: Index) -> int:
        n, c, *rest = index
        _, size, *sizes = dims
        return _flat((n, c // v, *rest, c % v), (dims[0], -(-size // v), *sizes, v))

    return at


def _vector_minor(v: int) -> Formula:
    def at(index: Index, dims: Index) -> int:
        n, c, *rest = index
        return _flat((n, *rest, c), (dims[0], *dims[2:], _up(dims[1], v)))

    return at


def _dla_linear(size: int) -> Formula:
    return lambda index, dims: _flat(index, (*dims[:3], _up(dims[3], 64 // size)))


def _dla_image(size: int) -> Formula:
    def at(index: Index, dims: Index) -> int:
        n, c, h, w = index
        return _flat((n, h, w, c), (dims[0], dims[2], _up(dims[3], 64 // 4 // size), 4))

    return at


def _acl(interleave: int, block: int) -> Formula:
    def at(index: Index, dims: Index) -> int:
        o, i, h, w = index
        inner = _up(dims[1], block)
        row = inner * interleave
        return (
            o // interleave * dims[2] * dims[3] * row
            + h * dims[3] * row
            + w * row
            + i // block * interleave * block
            + o % interleave * block
            + i % block
        )

    return at


def _fractal_z(c0: int) -> Formula:
    def at(index: Index, dims: Index) -> int:
        n, c, *rest = index
        n1n0 = _up(dims[0], 16)
        if len(rest) == 3:
            d, *rest = rest
            plane = dims[3] * dims[4] * n1n0 * c0
            start = d * -(-dims[1] // c0) * plane + c // c0 * plane
        else:
            start = c // c0 * dims[2] * dims[3] * n1n0 * c0
        h, w = rest
        return start + (h * dims[-1] + w) * n1n0 * c0 + n * c0 + c % c0

    return at


def _fractal_nz(c0: int) -> Formula:
    def at(index: Index, dims: Index) -> int:
        h, w = index
        return w // c0 * _up(dims[0], 16) * c0 + h * c0 + w % c0

    return at


def _fractal_zz(c0: int) -> Formula:
    def at(index: Index, dims: Index) -> int:
        h, w = index
        return _flat(
            (h // c0, w // c0, h % c0, w % c0), (-(-dims[0] // c0), -(-dims[1] // c0), c0, c0)
        )

    return at


def _ndc1hwc0(c0: int) -> Formula:
    def at(index: Index, dims: Index) -> int:
        n, c, d, h, w = index
        sizes = (dims[0], dims[2], -(-dims[1] // c0), dims[3], dims[4], c0)
        return _flat((n, d, c // c0, h, w, c % c0), sizes)

    return at


def _ncnn(pack: int, size: int) -> Formula:
    def at(index: Index, dims: Index) -> int:
        c, h, w = index
        cstep = _up(dims[1] * dims[2] * size * pack, 16) // (size * pack)
        return (c // pack * cstep + h * dims[2] + w) * pack + c % pack

    return at


def _tflite_buffer(index: Index, dims: Index) -> int:
    b, h, w, c = index
    sizes = (-(-dims[3] // 4), dims[1], dims[2], dims[0], 4)
    return _flat((c // 4, h, w, b, c % 4), sizes)


def _tflite_texture(index: Index, dims: Index) -> int:
    b, h, w, c = index
    slices = -(-dims[3] // 4)
    x, y = w * dims[0] + b, h * slices + c // 4
    return (y * dims[2] * dims[0] + x) * 4 + c % 4


def _tflite_weights(kind: str, group: int) -> Formula:
    """Return the positions that the loops of the source count, one by one."""

    def at(index: Index, dims: Index) -> int:
        for counter, found in enumerate(_steps(kind, group, dims)):
            if found == index:
                return counter
        raise AssertionError

    return at


def _steps(kind: str, group: int, dims: Index) -> Iterator[Index]:
    o, h, w, i = dims
    groups, slices = _up(o, 4 * group) // (4 * group), -(-i // 4)
    if kind == "2D":
        for j, y, x, s, d, k, lane in product(*map(range, (4, h, w, slices, groups, group, 4))):
            yield (d * group + k) * 4 + lane, y, x, s * 4 + j
        return
    for d, y, x, s, k, first, second in product(*map(range, (groups, h, w, slices, group, 4, 4))):
        j, lane = (first, second) if kind == "I4O4" else (second, first)
        yield (d * group + k) * 4 + lane, y, x, s * 4 + j


_4D, _5D, _2D = (2, 35, 3, 5), (2, 35, 2, 3, 2), (35, 50)
_WEIGHTS = (9, 2, 3, 6)
_CASES: list[tuple[str, str, Index, Formula]] = [
    ("kLINEAR", "f32", _4D, _flat),
    ("kCHW2", "f16", _4D, _vector_major(2)),
    ("kCHW4", "s8", _4D, _vector_major(4)),
    ("kCHW16", "f16", _4D, _vector_major(16)),
    ("kCHW32", "f32", _4D, _vector_major(32)),
    ("kCDHW32", "s8", _5D, _vector_major(32)),
    ("kHWC", "f32", _4D, _vector_minor(1)),
    ("kDHWC", "f32", _5D, _vector_minor(1)),
    ("kHWC8", "bf16", _4D, _vector_minor(8)),
    ("kHWC16", "f16", _4D, _vector_minor(16)),
    ("kDHWC8", "f16", _5D, _vector_minor(8)),
    ("kDLA_LINEAR", "f16", _4D, _dla_linear(2)),
    ("kDLA_LINEAR", "s8", _4D, _dla_linear(1)),
    ("kDLA_HWC4", "f16", (2, 3, 5, 7), _dla_image(2)),
    ("kDLA_HWC4", "s8", (2, 4, 5, 17), _dla_image(1)),
    ("OHWI", "f32", _4D, _acl(1, 1)),
    ("OHWIo4", "f32", _4D, _acl(4, 1)),
    ("OHWIo8i4", "s8", (9, 6, 3, 2), _acl(8, 4)),
    ("OHWIo16i2_bf16", "bf16", (17, 3, 2, 2), _acl(16, 2)),
    ("OHWIo2i8", "s8", (5, 9, 2, 2), _acl(2, 8)),
    ("NC1HWC0", "f16", _4D, _vector_major(16)),
    ("NC1HWC0", "s8", _4D, _vector_major(32)),
    ("NDC1HWC0", "f32", _5D, _ndc1hwc0(16)),
    ("FRACTAL_Z", "f16", (17, 35, 2, 3), _fractal_z(16)),
    ("FRACTAL_Z", "u8", (17, 35, 2, 3), _fractal_z(32)),
    ("FRACTAL_Z_3D", "f16", (17, 35, 2, 2, 3), _fractal_z(16)),
    ("FRACTAL_NZ", "f16", _2D, _fractal_nz(16)),
    ("FRACTAL_NZ", "s8", _2D, _fractal_nz(32)),
    ("FRACTAL_ZZ", "s8", _2D, _fractal_zz(32)),
    ("elempack1", "f32", (3, 3, 5), _ncnn(1, 4)),
    ("elempack1", "s8", (3, 3, 5), _ncnn(1, 1)),
    ("elempack4", "f32", (8, 3, 5), _ncnn(4, 4)),
    ("elempack4", "f16", (8, 3, 5), _ncnn(4, 2)),
    ("elempack8", "s8", (8, 3, 5), _ncnn(8, 1)),
    ("elempack16", "f32", (16, 3, 5), _ncnn(16, 4)),
    ("NC4HW4", "f32", _4D, _vector_major(4)),
    ("TensorStorageType::BUFFER", "f16", (2, 3, 5, 7), _tflite_buffer),
    ("TensorStorageType::TEXTURE_ARRAY", "f16", (2, 3, 5, 7), _tflite_buffer),
    ("TensorStorageType::TEXTURE_2D", "f32", (2, 3, 5, 7), _tflite_texture),
    ("kOSpatialIOGroupI4O4_1", "f16", _WEIGHTS, _tflite_weights("I4O4", 1)),
    ("kOSpatialIOGroupI4O4_2", "f16", _WEIGHTS, _tflite_weights("I4O4", 2)),
    ("kOSpatialIOGroupO4I4_2", "f32", _WEIGHTS, _tflite_weights("O4I4", 2)),
    ("k2DX4I4YIsSpatialIAndXIsOOGroupO4_1", "f16", _WEIGHTS, _tflite_weights("2D", 1)),
    ("k2DX4I4YIsSpatialIAndXIsOOGroupO4_4", "f16", _WEIGHTS, _tflite_weights("2D", 4)),
]


def _indices(desc: MemoryDesc) -> Iterator[Index]:
    return product(*map(range, desc.dims))


@pytest.mark.parametrize(("name", "dtype", "dims", "formula"), _CASES)
def test_a_name_is_the_formula_of_its_source(
    name: str, dtype: str, dims: Index, formula: Formula
) -> None:
    desc = memory_desc(dims, dtype, name)
    for index in _indices(desc):
        assert desc.offset(index) == formula(index, dims)
    assert name in [found.text for found in desc.names()]
    assert len(desc.letters or "") == desc.ndims


def test_spellings_of_tensorrt_are_not_further_names() -> None:
    desc = memory_desc((2, 3, 5, 7), "f32", "trt.TensorFormat.CHW32")
    listed = {each.text for each in (*desc.names(), *known_names())}
    assert "kCHW32" in listed
    assert not {"CHW32", "trt.TensorFormat.CHW32"} & listed


def test_letters_alone_are_still_a_layout_of_tvm() -> None:
    assert parse_layout("HWC", (3, 4, 5), letters="chw") == memory_desc((3, 4, 5), "f32", "bca")
