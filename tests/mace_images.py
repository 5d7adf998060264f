"""The mappings of MACE's kernels, copied by hand from their source: what every image must hold.

For each type a function of the dims that returns the image's size, the logical index of
a pixel's lane, and the pixel and lane of a logical index. Source: MACE at 0fc55a54,
`buffer_to_image.cl`.
"""

from __future__ import annotations

from typing import Any


def cd(count: int, block: int) -> int:
    return (count + block - 1) // block


def in_out_channel(n_: int, c_: int, h_: int, w_: int) -> tuple[tuple[int, int], Any, Any]:
    return (
        (w_ * cd(c_, 4), n_ * h_),
        lambda x, y, k: (y // h_, 4 * (x // w_) + k, y % h_, x % w_),
        lambda n, c, h, w: ((c // 4) * w_ + w, n * h_ + h, c % 4),
    )


def in_out_height(n_: int, c_: int, h_: int, w_: int) -> tuple[tuple[int, int], Any, Any]:
    hb = cd(h_, 4)
    return (
        (w_ * c_, n_ * hb),
        lambda x, y, k: (y // hb, x // w_, 4 * (y % hb) + k, x % w_),
        lambda n, c, h, w: (c * w_ + w, n * hb + h // 4, h % 4),
    )


def in_out_width(n_: int, c_: int, h_: int, w_: int) -> tuple[tuple[int, int], Any, Any]:
    wb = cd(w_, 4)
    return (
        (wb * c_, n_ * h_),
        lambda x, y, k: (y // h_, x // wb, y % h_, 4 * (x % wb) + k),
        lambda n, c, h, w: (c * wb + w // 4, n * h_ + h, w % 4),
    )


def conv2d_filter(o_: int, i_: int, h_: int, w_: int) -> tuple[tuple[int, int], Any, Any]:
    return (
        (i_, cd(o_, 4) * h_ * w_),
        lambda x, y, k: (4 * (y // (h_ * w_)) + k, x, y % (h_ * w_) // w_, y % (h_ * w_) % w_),
        lambda o, i, h, w: (i, ((o // 4) * h_ + h) * w_ + w, o % 4),
    )


def dw_conv2d_filter(m_: int, i_: int, h_: int, w_: int) -> tuple[tuple[int, int], Any, Any]:
    return (
        (m_ * h_ * w_, cd(i_, 4)),
        lambda x, y, k: (0, 4 * y + k, x // w_, x % w_),
        lambda m, i, h, w: (m + h * w_ + w, i // 4, i % 4),
    )


def argument(s_: int) -> tuple[tuple[int, int], Any, Any]:
    return (cd(s_, 4), 1), lambda x, y, k: (4 * x + k + y,), lambda s: (s // 4, 0, s % 4)


def weight_height(o_: int, i_: int, h_: int, w_: int) -> tuple[tuple[int, int], Any, Any]:
    return (
        (i_ * h_ * w_, cd(o_, 4)),
        lambda x, y, k: (4 * y + k, x % i_, x // i_ // w_, x // i_ % w_),
        lambda o, i, h, w: ((h * w_ + w) * i_ + i, o // 4, o % 4),
    )


def weight_width(o_: int, i_: int, h_: int, w_: int) -> tuple[tuple[int, int], Any, Any]:
    ib = cd(i_, 4)
    return (
        (ib * h_ * w_, o_),
        lambda x, y, k: (y, 4 * (x % ib) + k, x // ib // w_, x // ib % w_),
        lambda o, i, h, w: ((h * w_ + w) * ib + i // 4, o, i % 4),
    )


MACE: dict[str, Any] = {
    make.__name__: make
    for make in (
        in_out_channel,
        in_out_height,
        in_out_width,
        conv2d_filter,
        weight_height,
        weight_width,
    )
}
SHAPES: dict[str, list[tuple[int, ...]]] = {
    **{
        name: [(2, 5, 7, 3), (3, 3, 2, 5), (1, 4, 8, 4), (5, 1, 1, 1), (2, 6, 3, 1)]
        for name in MACE
    },
    "in_out_channel": [(1, 1, 2, 3), (1, 3, 2, 3), (3, 3, 2, 3), (3, 8, 13, 7)],
    "conv2d_filter": [(5, 3, 1, 1), (13, 17, 1, 1), (3, 5, 3, 3), (17, 13, 3, 3)],
    "weight_width": [(1, 3, 3, 3), (11, 13, 3, 7)],
    "weight_height": [(2, 1, 1, 1), (11, 13, 3, 7)],
    "dw_conv2d_filter": [(1, 5, 3, 4), (1, 1, 1, 1), (1, 8, 2, 3)],
    "argument": [(1,), (11,), (256,)],
}
MACE |= {"dw_conv2d_filter": dw_conv2d_filter, "argument": argument}
