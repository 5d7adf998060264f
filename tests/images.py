"""Mappings of images, copied by hand from their sources: what every pixel must hold.

For each type a function of the dims that returns width, height and lanes of the image, and the
logical index of a pixel's lane. Sources: MACE at 0fc55a54, `buffer_to_image.cl`; for the names that
start with image_2d, the table of clDNN's formats.
"""

from typing import Any

from memdesc.names.images import IMAGES as IMAGE_TYPES

__all__ = ["IMAGES", "SHAPES", "small_dims"]

Mapping = tuple[tuple[int, int, int], Any]


def cd(count: int, block: int) -> int:
    return (count + block - 1) // block


def in_out_channel(n_: int, c_: int, h_: int, w_: int) -> Mapping:
    size = w_ * cd(c_, 4), n_ * h_, 4
    return size, lambda x, y, k: (y // h_, 4 * (x // w_) + k, y % h_, x % w_)


def in_out_height(n_: int, c_: int, h_: int, w_: int) -> Mapping:
    hb = cd(h_, 4)
    return (w_ * c_, n_ * hb, 4), lambda x, y, k: (y // hb, x // w_, 4 * (y % hb) + k, x % w_)


def in_out_width(n_: int, c_: int, h_: int, w_: int) -> Mapping:
    wb = cd(w_, 4)
    return (wb * c_, n_ * h_, 4), lambda x, y, k: (y // h_, x // wb, y % h_, 4 * (x % wb) + k)


def conv2d_filter(o_: int, i_: int, h_: int, w_: int) -> Mapping:
    plane = h_ * w_
    size = i_, cd(o_, 4) * plane, 4
    return size, lambda x, y, k: (4 * (y // plane) + k, x, y % plane // w_, y % plane % w_)


def dw_conv2d_filter(m_: int, i_: int, h_: int, w_: int) -> Mapping:
    return (m_ * h_ * w_, cd(i_, 4), 4), lambda x, y, k: (0, 4 * y + k, x // w_, x % w_)


def argument(s_: int) -> Mapping:
    return (cd(s_, 4), 1, 4), lambda x, y, k: (4 * x + k + y,)


def weight_height(o_: int, i_: int, h_: int, w_: int) -> Mapping:
    size = i_ * h_ * w_, cd(o_, 4), 4
    return size, lambda x, y, k: (4 * y + k, x % i_, x // i_ // w_, x // i_ % w_)


def weight_width(o_: int, i_: int, h_: int, w_: int) -> Mapping:
    ib = cd(i_, 4)
    size = ib * h_ * w_, o_, 4
    return size, lambda x, y, k: (y, 4 * (x % ib) + k, x // ib // w_, x // ib % w_)


def image_2d_weights_c4_fyx_b(o_: int, i_: int, y_: int, x_: int) -> Mapping:
    size = cd(i_ * y_ * x_, 4), o_, 4
    return size, lambda p, q, k: (q, *_unravel(4 * p + k, y_, x_))


def image_2d_weights_c1_b_fyx(o_: int, i_: int, y_: int, x_: int) -> Mapping:
    return (o_, i_ * y_ * x_, 1), lambda p, q, _k: (p, *_unravel(q, y_, x_))


def image_2d_rgba(_b: int, _f: int, y_: int, x_: int) -> Mapping:
    return (x_, y_, 4), lambda p, q, k: (0, k, q, p)


def _unravel(flat: int, y: int, x: int) -> tuple[int, ...]:
    return flat // (y * x), flat // x % y, flat % x


_BLOCKS = in_out_channel, in_out_height, in_out_width, conv2d_filter, weight_height, weight_width
_OTHERS = (
    *(dw_conv2d_filter, argument),
    *(image_2d_weights_c4_fyx_b, image_2d_weights_c1_b_fyx, image_2d_rgba),
)
IMAGES: dict[str, Any] = {make.__name__: make for make in (*_BLOCKS, *_OTHERS)}
SHAPES: dict[str, list[tuple[int, ...]]] = {
    **{
        make.__name__: [(2, 5, 7, 3), (3, 3, 2, 5), (1, 4, 8, 4), (5, 1, 1, 1), (2, 6, 3, 1)]
        for make in _BLOCKS
    },
    "in_out_channel": [(1, 1, 2, 3), (1, 3, 2, 3), (3, 3, 2, 3), (3, 8, 13, 7)],
    "conv2d_filter": [(5, 3, 1, 1), (13, 17, 1, 1), (3, 5, 3, 3), (17, 13, 3, 3)],
    "weight_width": [(1, 3, 3, 3), (11, 13, 3, 7)],
    "weight_height": [(2, 1, 1, 1), (11, 13, 3, 7)],
    "dw_conv2d_filter": [(1, 5, 3, 4), (1, 1, 1, 1), (1, 8, 2, 3)],
    "argument": [(1,), (11,), (256,)],
    "image_2d_weights_c4_fyx_b": [(3, 2, 3, 5), (5, 1, 1, 1), (2, 4, 2, 2)],
    "image_2d_weights_c1_b_fyx": [(3, 2, 3, 5), (5, 1, 1, 1)],
    "image_2d_rgba": [(1, 3, 5, 7), (1, 4, 5, 7)],
}


def small_dims(name: str) -> tuple[int, ...]:
    """Return ragged sizes that an image type can have."""
    row = IMAGE_TYPES[name]
    sizes = dict(zip(row.letters, (3, 2, 5, 6), strict=False))
    if name == "tflite_gpu_single_texture_2d":
        sizes["c"] = 2
    if name == "image_2d_rgba":
        sizes["f"] = 3
    return tuple(
        1 if letter in row.ones else 16 if letter in row.whole else size
        for letter, size in sizes.items()
    )
