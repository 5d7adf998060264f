from itertools import product

import pytest

from memdesc import image_desc
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
