from typing import Any

import numpy as np
import pytest

from memdesc import MemdescError, image_desc, memory_desc
from reorder import Attr, Memory, reorder
from tests.unit.reorder.memory.producers import Exported

T = np.arange(2 * 4 * 4 * 4, dtype=np.float32).reshape(2, 4, 4, 4)
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


def _channels_last(x: Any) -> Any:
    """Return an array with the dims of x and the strides of a channels_last tensor."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


@pytest.mark.parametrize(
    ("x", "src"),
    [
        (_channels_last(T), "nhwc"),  # equal sizes: only the values would be wrong
        (_channels_last(X), "nhwc"),
        (_channels_last(X)[:, :, :1], "nhwc"),
        (_channels_last(X)[::-1, :, ::-1], "nhwc"),
        (np.asfortranarray(X), "nchw"),
        (np.asfortranarray(X)[:, ::2], "acdb"),
        (X.T, "abcd"),
        (np.broadcast_to(X[:1], X.shape).transpose(0, 2, 3, 1), "nhwc"),
        (Memory(memory_desc(X.shape, "f32", "nChw8c")).blocks().transpose(0, 1, 4, 2, 3), "aBcd2b"),
        (X.astype(np.int64)[:1].T, "abcd"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("given", [np.asarray, Exported])
def test_axes_whose_strides_are_not_in_memory_order_contradict_a_name(
    given: Any, x: Any, src: str
) -> None:
    with pytest.raises(MemdescError, match=r"If the axes of x are the dims, leave src out") as info:
        reorder(given(x), "abcd", src=src)
    assert f"src '{src}'" in str(info.value)
    # both ways out work
    assert (reorder(given(x), "plain").numpy() == x).all()
    again = reorder(given(np.ascontiguousarray(x)), "plain", src=src)
    assert again.desc.nelems == x.size


@pytest.mark.parametrize(
    "x",
    [
        X,
        X[:, ::2],
        X[::-1, :, ::-1],
        np.broadcast_to(X[:, :1], X.shape),
        np.broadcast_to(np.float32(3), (2, 3, 4, 5)),
        np.zeros((0, 3, 4, 5), np.float32),
        np.zeros((3, 4, 0, 5), np.float32, order="F"),
        np.lib.stride_tricks.as_strided(X, (2, 1, 3, 1), (120, 4, 8, 4000)),
        _channels_last(X[:, :1]),  # one channel: its memory is that of both orders
        np.asfortranarray(X[:1, :1, :1]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("src", ["nhwc", "nchw", "dcba"])
def test_axes_in_memory_order_have_any_gaps_signs_and_repetitions(x: Any, src: str) -> None:
    found = reorder(x, "plain", src=src).numpy()
    letters = "nhwc" if "n" in src else "abcd"
    names = sorted(src, key=("nchw" if letters == "nhwc" else letters).index)
    assert (found == x.transpose([src.index(name) for name in names])).all()


def test_pixels_lead_back_whatever_their_tails_and_pitch() -> None:
    pixels = reorder(X, IMAGE)
    larger = np.full((9, 7, 4), np.nan, np.float32)
    larger[:6, :4] = np.where(pixels == 0, np.nan, pixels)
    for given in (pixels, larger, larger.view(np.uint32), larger[::-1].copy()[::-1]):
        back = reorder(given, "nChw8c", src=IMAGE)
        assert (back.numpy() == X).all()
        back.check_padding()
    other, half = (
        image_desc(X.shape, "f32", "in_out_height"),
        image_desc(X.shape, "f16", IMAGE.name),
    )
    assert reorder(pixels, other, src=IMAGE).tobytes() == reorder(X, other).tobytes()
    # they are converted as elements are
    half, halves = image_desc(X.shape, "f16", IMAGE.name), pixels.astype(np.float16)
    for converted in (reorder(X, half), reorder(X, IMAGE, dtype="f16")):
        assert (converted.dtype, converted.tobytes()) == (halves.dtype, halves.tobytes())
    assert (reorder(halves, "nhwc", src=half, dtype="f32").numpy() == X).all()
    assert (reorder(X, IMAGE, attr=Attr(dst_scale=2.0)) == pixels / 2).all()
