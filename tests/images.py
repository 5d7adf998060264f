"""Mappings of images, copied by hand from their sources: what every pixel must hold.

For each type width, height and lanes of the image, and the logical index of a pixel's lane.
Sources: MACE at 0fc55a54, `buffer_to_image.cl`; for the names that start with image_2d, the table
of clDNN's formats.
"""

from typing import Any

from memdesc.names.images import IMAGES as IMAGE_TYPES

__all__ = ["IMAGES", "SHAPES", "small_dims"]

# A type and its dims: width, height and lanes -> the index of lane k of the pixel (x, y).
_ROWS = """
in_out_channel n c h w: w * cd(c, 4), n * h, 4 -> y // h, 4 * (x // w) + k, y % h, x % w
in_out_height n c h w: w * c, n * cd(h, 4), 4 -> y // cd(h, 4), x // w, y % cd(h, 4) * 4 + k, x % w
in_out_width n c h w: cd(w, 4) * c, n * h, 4 -> y // h, x // cd(w, 4), y % h, x % cd(w, 4) * 4 + k
conv2d_filter o i h w: i, cd(o, 4) * h * w, 4 -> y // (h * w) * 4 + k, x, *rest(y, h, w)
weight_height o i h w: i * h * w, cd(o, 4), 4 -> 4 * y + k, x % i, *rest(x // i, h, w)
weight_width o i h w: cd(i, 4) * h * w, o, 4 -> y, x % cd(i, 4) * 4 + k, *rest(x // cd(i, 4), h, w)
dw_conv2d_filter m i h w: m * h * w, cd(i, 4), 4 -> 0, 4 * y + k, x // w, x % w
argument s: cd(s, 4), 1, 4 -> 4 * x + k + y,
image_2d_weights_c4_fyx_b o i h w: cd(i * h * w, 4), o, 4 -> y, *whole(4 * x + k, h, w)
image_2d_weights_c1_b_fyx o i h w: o, i * h * w, 1 -> x, *whole(y, h, w)
image_2d_rgba n c h w: w, h, 4 -> 0, k, y, x
"""


def cd(count: int, block: int) -> int:
    return (count + block - 1) // block


def rest(flat: int, h: int, w: int) -> tuple[int, int]:
    """Return row and column of a position in a plane, or in one of several."""
    return flat % (h * w) // w, flat % w


def whole(flat: int, h: int, w: int) -> tuple[int, int, int]:
    return flat // (h * w), *rest(flat, h, w)


def _images() -> dict[str, Any]:
    found = {}
    for row in _ROWS.strip().splitlines():
        head, _, formulas = row.partition(": ")
        name, *letters = head.split()
        size, _, index = formulas.partition(" -> ")
        made = f"lambda {', '.join(letters)}: (({size}), lambda x, y, k: ({index}))"
        found[name] = eval(made, {"cd": cd, "rest": rest, "whole": whole})
    return found


IMAGES = _images()
_USUAL = [(2, 5, 7, 3), (3, 3, 2, 5), (1, 4, 8, 4), (5, 1, 1, 1), (2, 6, 3, 1)]
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "in_out_height": [*_USUAL],
    "in_out_width": [*_USUAL],
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
