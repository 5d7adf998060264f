from __future__ import annotations

import copy
import pickle
from itertools import product
from typing import Any

import pytest

from memdesc import MemdescError, UnknownFormatError, image_desc
from tests.images import IMAGES, SHAPES


@pytest.mark.parametrize(
    ("name", "dims"), [(name, dims) for name in IMAGES for dims in SHAPES[name]]
)
def test_every_pixel_of_an_image_holds_what_the_kernels_put_there(
    name: str, dims: tuple[int, ...]
) -> None:
    size, to_index = IMAGES[name](*dims)
    width, height, lanes = size
    image = image_desc(dims, "f16", name)
    assert (image.width, image.height, image.channels) == size
    assert image.nbytes == width * height * lanes * 2
    met = set()
    for y, x, k in product(range(height), range(width), range(lanes)):
        index = to_index(x, y, k)
        if all(i < size for i, size in zip(index, dims, strict=True)):
            assert image.pixel(index) == (x, y, k)
            assert image.desc.offset(index) == (y * width + x) * lanes + k
            met.add(index)
    assert len(met) == image.desc.nelems


def test_an_image_is_described_by_rows_columns_and_lane_too() -> None:
    image = image_desc((1, 64, 56, 56), "f16", "ac|Bd|4b")
    assert image == image_desc((1, 64, 56, 56), "f16", "in_out_channel")
    assert hash(image) == hash(image_desc((1, 64, 56, 56), "f16", "in_out_channel"))
    assert (image.dims, image.dtype.name, image.name) == ((1, 64, 56, 56), "f16", "ac|Bd|4b")


def test_the_shape_of_an_image_counts_in_equality() -> None:
    assert image_desc((4, 8, 4, 4), "f32", "ac|Bd|4b") != image_desc(
        (4, 8, 4, 4), "f32", "acB|d|4b"
    )
    assert image_desc((4, 4, 4, 4), "f32", "|acBd|4b").height == 1
    assert image_desc((4, 4), "f32", "ab||").width == 1


def test_an_alignment_makes_an_image_larger() -> None:
    assert image_desc((1, 5, 2, 3), "f32", "ac|Bd|4b__d8").width == 16


def test_an_image_survives_repr_pickle_and_copy() -> None:
    image = image_desc((1, 5, 3, 2), "bf16", "in_out_width")
    assert repr(image) == "image_desc((1, 5, 3, 2), 'bf16', 'in_out_width')"
    for copied in (eval(repr(image)), pickle.loads(pickle.dumps(image)), copy.deepcopy(image)):
        assert copied == image
        assert copied.name == image.name


@pytest.mark.parametrize(
    ("dims", "dtype", "name", "reason"),
    [
        ((1, 4, 4, 4), "s4", "in_out_channel", "images have no lanes of 4 bits, which s4 needs"),
        ((1, 4, 4, 4), "f32", None, "an image type is a name, not None"),
        ((1, 4, 4, 4), "f32", 3, "an image type is a name, not 3"),
        (
            (1, 0, 4, 4),
            "f32",
            "in_out_channel",
            r"c \(dim 1\) has size 0; the image would have no pixels, which OpenCL does not allow",
        ),
        ((1, -1, 4, 4), "f32", "in_out_channel", r"dim c \(dim 1\) has size -1; sizes are 0 to"),
        (
            (1, 4, 4),
            "f32",
            "in_out_channel",
            r"dims \(1, 4, 4\) have 3 sizes, but 'in_out_channel' is for 4",
        ),
        ((2, 3), "f32", "argument", r"dims \(2, 3\) have 2 sizes, but 'argument' is for 1"),
        ((), "f32", "argument", r"dims \(\) have 0 sizes; a descriptor has 1 to 12"),
        (4, "f32", "argument", "dims must be a sequence of integers, not 4"),
        ((4,), "f33", "argument", "unknown data type 'f33'"),
        ((2**62, 2**62, 1, 1), "f32", "in_out_channel", "more than int64 holds"),
        ((2**63 - 1,), "f32", "argument", "more than int64 holds"),
    ],
)
def test_arguments_that_do_not_make_an_image_are_refused_with_the_reason(
    dims: Any, dtype: str, name: Any, reason: str
) -> None:
    with pytest.raises(MemdescError, match=reason):
        image_desc(dims, dtype, name)


def test_a_tag_of_a_buffer_is_not_an_image_type() -> None:
    with pytest.raises(
        UnknownFormatError, match="'nChw16c' is not an image type; they are in_out_channel"
    ):
        image_desc((1, 4, 4, 4), "f32", "nChw16c")


def test_a_pixel_is_asked_for_an_index_within_the_dims() -> None:
    with pytest.raises(MemdescError, match=r"index 5 of c \(dim 1\) is not in 0 to 4"):
        image_desc((1, 5, 3, 2), "f32", "in_out_channel").pixel((0, 5, 0, 0))


def test_an_image_is_compared_with_limits_without_a_device() -> None:
    image = image_desc((1, 64, 56, 56), "f32", "in_out_channel")
    assert (image.width, image.height) == (896, 56)
    assert image.fits(896, 56)
    assert not image.fits(895, 56)
    assert not image.fits(896, 55)
    image.check_size(896, 56)
    for limits, reason in (
        ((512, 512, "on mine"), "width 896 is more than the 512 pixels allowed on mine; split a"),
        ((1024, 32), "is 896 x 56 pixels: height 56 is more than the 32 pixels allowed; split a"),
        ((8, 9), "width 896 is more than the 8 pixels allowed and height 56 is more than the 9 pi"),
    ):
        with pytest.raises(MemdescError, match=reason):
            image.check_size(*limits)
    with pytest.raises(MemdescError, match="max_width must be an integer"):
        image.fits("wide", 1)  # type: ignore[arg-type] # the mistake
