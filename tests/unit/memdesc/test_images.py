"""Images against the kernels that fill them, or against pixels worked out by hand."""

import itertools
import math
import pickle
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import ImageDesc, image_desc, memory_desc
from memdesc.names import known_images
from memdesc.names.images import IMAGES
from tests.images import IMAGES as KERNELS
from tests.images import SHAPES, small_dims

_ACTIVATIONS = ((0, 5, 2, 3), (1, 0, 0, 0), (1, 5, 4, 6))  # of (2, 6, 5, 7), n c h w
_SLICES = ((0, 2, 3, 5), (1, 0, 0, 0), (1, 4, 6, 5))  # of (2, 5, 7, 6), b h w c
_FILTER = ((0, 4, 1, 1), (5, 0, 0, 1), (5, 4, 2, 1))  # of (6, 5, 3, 2), o i h w
# name, dims, the shape of the pixels, indices and their pixels
_PIXELS = """
executorch_channels_packed 2,6,5,7 4,5,7,4 A 3,2,1,1 0,0,2,0 6,4,3,1
executorch_height_packed 2,6,5,7 12,2,7,4 A 3,0,5,2 0,0,6,0 6,1,11,0
executorch_width_packed 2,6,5,7 12,5,2,4 A 0,2,5,3 0,0,6,0 1,4,11,2
executorch_conv2d_weight 6,5,3,2 6,16,4 F 12,1,0 4,3,1 12,5,1
executorch_dw_conv2d_weight 6,1,3,2 2,6,4 5,0,2,1 5,1,1
tflite_gpu_texture_2d 2,5,7,6 10,14,4 S 6,5,1 1,0,0 13,9,1
tflite_gpu_texture_3d 2,5,7,6 2,5,14,4 S 6,2,1,1 1,0,0,0 13,4,1,1
tflite_gpu_texture_array 2,5,7,6 2,5,14,4 S 6,2,1,1 1,0,0,0 13,4,1,1
tflite_gpu_image_buffer 2,5,7,6 1,140,4 S 104,0,1 1,0,0 139,0,1
tflite_gpu_single_texture_2d 2,5,7,2 5,14,2 0,2,3,1 6,2,1
mnn_conv2d_filter 6,5,3,2 12,5,4 F 4,3,0 0,7,1 4,11,1
mnn_conv2d_1x1_filter 6,5,1,1 6,2,4 5,3,0,0 0,5,3
paddle_image_folder 3,10 3,3,4 0,5 1,0,1
paddle_image_folder 3,10 3,3,4 2,9 2,2,1
paddle_image_nw 6,5,3,2 15,4,4 0,4,1,1 1,13,0
paddle_image_nw 6,5,3,2 15,4,4 5,4,2,1 3,14,1
paddle_conv2d_filter 6,5,3,2 12,8,4 0,4,1,1 4,3,0
paddle_conv2d_filter_n2 10,5,3,2 12,16,4 0,4,1,1 8,3,0
paddle_conv2d_filter_n2 10,5,3,2 12,16,4 5,0,0,1 4,1,1
paddle_conv2d_filter_n2 10,5,3,2 12,16,4 9,4,2,1 8,11,1
tvm_texture 2,6,5,7 4,5,7,4 A 3,2,1,1 0,0,2,0 6,4,3,1
tvm_texture_nhwc 2,6,5,7 2,5,14,4 0,5,2,3 7,2,0,1
tvm_texture_nhwc 2,6,5,7 2,5,14,4 1,5,4,6 13,4,1,1
tvm_texture_weight 6,5,3,2 2,30,4 0,4,1,1 27,0,0
tvm_texture_weight 6,5,3,2 2,30,4 5,4,2,1 29,1,1
ncnn_image_elempack8 16,5,7 2,5,14,4 5,2,3 7,2,0,1
"""
_NAMED = {"A": _ACTIVATIONS, "S": _SLICES, "F": _FILTER}


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


@pytest.mark.parametrize("name", KERNELS)
def test_every_pixel_of_an_image_holds_what_the_kernels_put_there(name: str) -> None:
    for dims in SHAPES[name]:
        size, to_index = KERNELS[name](*dims)
        image = image_desc(dims, "f16", name)
        assert (image.width, image.height, image.channels) == size
        assert image.nbytes == math.prod(size) * 2
        met = set()
        for x, y, k in itertools.product(*map(range, size)):
            index = to_index(x, y, k)
            if all(i < size for i, size in zip(index, dims, strict=True)):
                assert image.pixel(index) == (x, y, k)
                assert image.desc.offset(index) == (y * size[0] + x) * size[2] + k
                met.add(index)
        assert len(met) == image.desc.nelems


@pytest.mark.parametrize("line", _PIXELS.strip().splitlines())
def test_pixels_are_where_the_system_puts_them(line: str) -> None:
    name, dims, shape, first, *rest = line.split()
    indices = _NAMED[first] if first in _NAMED else [_numbers(first)]
    image = image_desc(_numbers(dims), "f16", name)
    assert image.shape == _numbers(shape)
    for index, pixel in zip(indices, map(_numbers, rest), strict=True):
        assert image.pixel(index) == pixel
        assert image.index(*pixel) == index


@pytest.mark.parametrize("name", IMAGES)
def test_every_lane_has_an_index_and_moves_copies_and_sources_agree(name: str) -> None:
    dims = small_dims(name)
    image = image_desc(dims, "f32", name)
    assert name in [known.text for known in image.names()]
    assert image.padded_dims == image.desc.padded_dims
    *sides, lanes = image.shape
    places = itertools.product(*map(range, sides[::-1]), range(lanes))
    met = [(place, index) for place in places if not (index := image.index(*place)).is_padding]
    assert all(image.pixel(index) == place for place, index in met)
    assert len(met) == image.desc.nelems
    x = np.arange(image.desc.nelems, dtype=np.float32).reshape(dims) + 1
    pixels = reorder.reorder(x, image)
    assert pixels.shape == image.shape
    assert (reorder.reorder(pixels, "plain", src=image).numpy() == x).all()
    written = ImageDesc.from_json(image.to_json())
    for copied in (eval(repr(image)), pickle.loads(pickle.dumps(image)), written):
        assert (copied, copied.kind, copied.name) == (image, image.kind, name)
    # its source computes its pixels
    made: dict[str, Any] = {}
    exec(image.source("python", "t"), made)
    is_flat = image.kind == "2d"
    functions = [made[f"t_{side}"] for side in ("x", "y", *(() if is_flat else "z"), "lane")]
    for at in itertools.product(*map(range, image.dims)):
        assert tuple(function(*at) for function in functions) == image.pixel(at)
    c = image.source("c", "t")
    assert ("t_DEPTH" in c) != is_flat
    assert "The lane of an index." in c
    assert "The x of the pixel of an index." in c


def test_an_image_is_a_tag_cut_into_rows_columns_and_lane() -> None:
    for text, tag, size in (
        ("|abc|", "abc", (24 * 35, 1, 1)),
        ("abc||", "abc", (1, 24 * 35, 1)),
        ("A4a/1|bc2a/4|", "A4a/1bc2a/4", (70, 12, 1)),
        ("A4a/1|2a/4bc|", "A4a/1.2a/4bc", (70, 12, 1)),
        ("ac|B1b|4b__c8", "acB4b__c8", (2, 24 * 8, 4)),
    ):
        image = image_desc((24, 5, 7), "f32", text)
        assert (image.width, image.height, image.channels) == size
        assert image.desc == memory_desc((24, 5, 7), "f32", tag)


def test_an_image_is_equal_to_that_of_another_name_of_its_tag_and_shape() -> None:
    image = image_desc((1, 64, 56, 56), "f16", "ac|Bd|4b")
    named = image_desc((1, 64, 56, 56), "f16", "in_out_channel")
    assert (image, hash(image)) == (named, hash(named))
    assert (image.dims, image.dtype.name, image.name) == ((1, 64, 56, 56), "f16", "ac|Bd|4b")
    cuts = [image_desc((4, 8, 4, 4), "f32", cut) for cut in ("ac|Bd|4b", "acB|d|4b", "|acBd|4b")]
    assert len({*cuts}) == 3
    assert "def t_lane(a, b, c, d):" in cuts[0].source("python", "t")
    assert cuts[2].height == 1


def test_a_depth_is_an_axis_even_if_it_is_one() -> None:
    flat = image_desc((1, 3, 5, 7), "f16", "in_out_channel")
    deep = image_desc((1, 3, 5, 7), "f16", "executorch_channels_packed")
    assert flat != deep
    assert (flat.pixel((0, 1, 2, 3)), deep.pixel((0, 1, 2, 3))) == ((3, 2, 1), (3, 2, 0, 1))
    assert reorder.reorder(np.ones((1, 3, 5, 7), np.float16), deep).shape == (1, 5, 7, 4)
    assert deep.fits(7, 5, 1)
    assert not any(deep.fits(*limits) for limits in ((7, 5, 0), (7, 4, 1), (6, 5, 1)))


def test_names_of_images_say_which_system_has_them() -> None:
    systems = {name.vocabulary for name in known_images()}
    assert systems == {"mace", "cldnn", "executorch", "tflite_gpu", "mnn", "paddle", "tvm", "ncnn"}
