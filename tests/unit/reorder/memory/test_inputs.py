from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from memdesc import MemdescError, image_desc, memory_desc
from reorder import Attr, Memory, reorder

X = np.arange(2 * 5 * 3 * 2, dtype=np.float32).reshape(2, 5, 3, 2) + 1
IMAGE = image_desc(X.shape, "f32", "in_out_channel")


def test_an_image_in_host_memory_is_an_array_of_its_pixels() -> None:
    pixels = reorder(X, IMAGE)
    assert pixels.shape == (IMAGE.height, IMAGE.width, IMAGE.channels) == (6, 4, 4)
    assert pixels.dtype == np.float32
    for index in np.ndindex(X.shape):
        x, y, lane = IMAGE.pixel(index)
        assert pixels[y, x, lane] == X[index]
    assert np.count_nonzero(pixels) == X.size
    memory_order = np.ascontiguousarray(X.transpose(0, 2, 3, 1))
    assert reorder(memory_order, IMAGE, src="nhwc").tobytes() == pixels.tobytes()
    assert reorder(reorder(X, "nChw8c"), IMAGE).tobytes() == pixels.tobytes()


def test_an_image_of_one_channel_has_its_axis_too() -> None:
    image = image_desc((3, 2, 2, 2), "f16", "image_2d_weights_c1_b_fyx")
    assert reorder(np.zeros((3, 2, 2, 2), np.float16), image).shape == (8, 3, 1)


def test_pixels_lead_back_whatever_their_tails_and_pitch() -> None:
    pixels = reorder(X, IMAGE)
    assert (reorder(pixels, "nchw", src=IMAGE).numpy() == X).all()
    larger = np.full((9, 7, 4), np.nan, np.float32)
    larger[:6, :4] = np.where(pixels == 0, np.nan, pixels)
    for given in (larger, larger.view(np.uint32), larger[::-1].copy()[::-1]):
        back = reorder(given, "nChw8c", src=IMAGE)
        assert (back.numpy() == X).all()
        back.check_padding()
    other = image_desc(X.shape, "f32", "in_out_height")
    assert reorder(pixels, other, src=IMAGE).tobytes() == reorder(X, other).tobytes()


def test_pixels_are_converted_as_elements_are() -> None:
    half = image_desc(X.shape, "f16", "in_out_channel")
    pixels = reorder(X, half)
    assert pixels.dtype == np.float16
    assert (
        pixels.tobytes()
        == reorder(X, IMAGE).astype(np.float16).tobytes()
        == reorder(X, IMAGE, dtype="f16").tobytes()
    )
    assert (reorder(pixels, "nhwc", src=half, dtype="f32").numpy() == X).all()
    assert (reorder(X, IMAGE, attr=Attr(dst_scale=2.0)) == reorder(X, IMAGE) / 2).all()


def test_arrays_that_are_not_pixels_of_the_image_are_refused() -> None:
    def refused(message: str) -> Any:
        return pytest.raises(MemdescError, match=re.escape(message))

    with refused(
        "x has shape (6, 4, 3), but image_desc((2, 5, 3, 2), 'f32', 'in_out_channel') has pixels of"
    ):
        reorder(np.zeros((6, 4, 3), np.float32), "nchw", src=IMAGE)
    with refused("x has shape (5, 4, 4)"):
        reorder(np.zeros((5, 4, 4), np.float32), "nchw", src=IMAGE)
    with refused("x is an array of int16, but"):
        reorder(np.zeros((6, 4, 4), np.int16), "nchw", src=IMAGE)
    with refused("x is bytes, but"):
        reorder(b"", "nchw", src=IMAGE)  # type: ignore[call-overload] # the mistake
    with refused("out cannot be an image in host memory"):
        reorder(X, IMAGE, out=Memory(memory_desc(X.shape, "f32")))  # type: ignore[call-overload] # likewise
    with refused("src has dims (2, 5, 3, 2), dst has dims (2, 5, 2, 3)"):
        reorder(X, image_desc((2, 5, 2, 3), "f32", "in_out_channel"))
