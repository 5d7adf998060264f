from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdesc import MemdescError, image_desc
from reorder import Attr, reorder
from tests.unit.reorder.memory.producers import Exported

X = np.arange(2 * 5 * 3 * 2, dtype=np.float32).reshape(2, 5, 3, 2) + 1
IMAGE = image_desc(X.shape, "f32", "in_out_channel")


@st.composite
def _arrays(draw: st.DrawFn) -> Any:
    """Draw an array of 4 axes in any order, with gaps, negative steps and repetitions."""
    x = np.arange(1, 257, dtype=draw(st.sampled_from(["f4", "i8"]))).reshape(4, 4, 4, 4)
    x = x.transpose(draw(st.one_of(st.just(range(4)), st.permutations(range(4)))))
    parts = [slice(None), slice(0), slice(1), slice(2, 4), slice(None, None, 2), slice(3, None, -1)]
    x = x[tuple(draw(st.sampled_from(parts)) for _ in x.shape)]
    axis = draw(st.integers(0, 7))
    if axis < 4 and x.size:
        x = np.broadcast_to(x.take([0], axis), x.shape)
    return x


@given(
    _arrays(), st.sampled_from(["nhwc", "nchw", "dcba"]), st.sampled_from([np.asarray, Exported])
)
def test_a_name_spells_the_axes_unless_their_strides_are_not_in_memory_order(
    x: Any, src: str, kind: Any
) -> None:
    steps = [abs(step) for size, step in zip(x.shape, x.strides, strict=True) if size > 1 and step]
    letters = "nchw" if "n" in src else "abcd"
    axes = [src.index(letter) for letter in letters]
    if not x.size or steps == sorted(steps, reverse=True):
        assert (reorder(kind(x), "plain", src=src).numpy() == x.transpose(axes)).all()
        return
    with pytest.raises(MemdescError, match=r"If the axes of x are the dims, leave src out") as info:
        reorder(kind(x), "abcd", src=src)
    assert f"src '{src}'" in str(info.value)
    # both ways out work
    assert (reorder(kind(x), "plain").numpy() == x).all()
    copied = reorder(kind(np.ascontiguousarray(x)), "plain", src=src)
    assert (copied.numpy() == x.transpose(axes)).all()


def test_pixels_lead_back_whatever_their_tails_and_pitch() -> None:
    pixels = reorder(X, IMAGE)
    wanted = np.zeros((IMAGE.height, IMAGE.width, IMAGE.channels), np.float32)
    for index in np.ndindex(X.shape):
        x, y, lane = IMAGE.pixel(index)
        wanted[y, x, lane] = X[index]
    assert np.array_equal(pixels, wanted)
    larger = np.full((9, 7, 4), np.nan, np.float32)
    larger[:6, :4] = np.where(pixels == 0, np.nan, pixels)
    exact = larger[:6, :4].copy()
    for held in (pixels, larger, exact, larger.view(np.uint32), larger[::-1].copy()[::-1]):
        before = held.tobytes()
        back = reorder(held, "nChw8c", src=IMAGE)
        assert held.tobytes() == before
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
