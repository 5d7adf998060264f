"""The fixed list of reorders that `memdesc bench --device` measures."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from memdesc import ImageDesc, MemoryDesc, data_type, image_desc, memory_desc
from memdesc.names import is_image
from reorder.values.attr import Attr


class DeviceCase(NamedTuple):
    """A reorder by names: types, layouts of src and dst, dims, and the scale of src."""

    dtype: str
    src: str
    dst: str
    dims: tuple[int, ...]
    to_dtype: str = ""
    scale: float | None = None

    @property
    def descs(self) -> tuple[MemoryDesc | ImageDesc, MemoryDesc | ImageDesc]:
        """Descriptors of src and dst."""
        types = self.dtype, self.to_dtype or self.dtype
        src, dst = (
            (image_desc if is_image(name) else memory_desc)(self.dims, dtype, name)
            for dtype, name in zip(types, (self.src, self.dst), strict=True)
        )
        return src, dst

    @property
    def attr(self) -> Attr | None:
        """The attributes: a scale of src."""
        return None if self.scale is None else Attr(src_scale=self.scale)

    @property
    def nbytes(self) -> int:
        """The mean of the bytes of the elements of src and of dst."""
        bits = data_type(self.dtype).bits + data_type(self.to_dtype or self.dtype).bits
        return prod(self.dims) * bits // 16


_N8, _N16, _N32 = ((32, c, 112, 112) for c in (1024, 512, 256))
_ODD = (16, 255, 111, 111)
_WEIGHTS = (8192, 4096, 3, 3)

TRANSPOSES = (
    DeviceCase("u8", "ab", "ba", (16384, 16384)),
    DeviceCase("u8", "nchw", "nhwc", _N8),
    DeviceCase("u8", "nhwc", "nchw", _N8),
    DeviceCase("u8", "nchw", "b_fs_yx_fsv16", _N8),
    DeviceCase("u8", "nchw", "bs_fs_yx_bsv32_fsv16", _N8),
    DeviceCase("s8", "ab", "BA16a64b4a", (16384, 16384)),
    DeviceCase("s8", "oihw", "OIhw4i16o4i", _WEIGHTS),
    DeviceCase("u8", "ab", "ba", (16385, 16383)),
    DeviceCase("f16", "ab", "ba", (16384, 8192)),
    DeviceCase("f16", "nchw", "nhwc", _N16),
    DeviceCase("f16", "nhwc", "nchw", _N16),
    DeviceCase("f16", "nchw", "nChw16c", _N16),
    DeviceCase("f16", "ab", "ba", (16385, 8191)),
    DeviceCase("f16", "ab", "BA8b16a2b", (16384, 8192)),
    DeviceCase("f32", "ab", "ba", (16384, 8192)),
    DeviceCase("f32", "nchw", "nhwc", _N32),
    DeviceCase("f32", "nhwc", "nchw", _N32),
    DeviceCase("f32", "nchw", "nChw16c", _N32),
    DeviceCase("f32", "ab", "ba", (16385, 8191)),
    DeviceCase("f32", "nchw", "nhwc", _ODD),
    DeviceCase("f32", "nhwc", "nchw", _ODD),
    DeviceCase("f64", "ab", "ba", (16384, 8192)),
)
# with rows that pack into elements of 1, 2, 4, 8 and 16 bytes
_COPIES = (
    DeviceCase("u8", "abcd", "acbd", (32, 2048, 32, 111)),
    DeviceCase("f16", "abcd", "acbd", (32, 2048, 16, 111)),
    DeviceCase("f32", "abcd", "acbd", (32, 2048, 16, 111)),
    DeviceCase("f64", "abcd", "acbd", (16, 2048, 16, 111)),
    DeviceCase("f16", "abcd", "acbd", (32, 2048, 16, 128)),
    DeviceCase("u8", "abcd", "acbd", (32, 2048, 32, 64)),
    DeviceCase("f16", "nChw16c", "nhwc", _N16),
)
_PAIRS: tuple[tuple[str, str, float | None], ...] = (
    ("f32", "s8", 0.5),
    ("s8", "f32", None),
    ("f32", "bf16", None),
)
# into a plain layout, a blocked one, and one whose channels are innermost
_CONVERSIONS = tuple(
    DeviceCase(src, "nchw", layout, _N32, dst, scale)
    for src, dst, scale in _PAIRS
    for layout in ("nchw", "nChw16c", "nhwc")
)
_FOUR_BITS = (
    DeviceCase("u4", "ab", "ba", (16384, 32768)),
    DeviceCase("u4", "ab", "ab", (16384, 16384), "f16"),
    DeviceCase("u4", "ab", "ba", (16384, 16384), "f16"),
    DeviceCase("f16", "ab", "ab", (16384, 16384), "u4"),
    DeviceCase("f16", "ab", "ba", (16384, 16384), "u4"),
)


def _images() -> Iterator[DeviceCase]:
    for dtype, more in (("f32", 1), ("f16", 2)):
        large, deep, small = (
            (32, 256 * more, 112, 112),
            (64, 2048 * more, 28, 28),
            (128, 128 * more, 56, 56),
        )
        weights = (4096 * more, 2048, 3, 3)
        pairs = [
            ("nhwc", "in_out_channel", large),
            ("nhwc", "in_out_channel", deep),
            ("nchw", "in_out_channel", large),
            ("nChw16c", "in_out_channel", large),
            ("nhwc", "in_out_height", small),
            ("nhwc", "in_out_width", small),
            ("oihw", "conv2d_filter", weights),
            ("oihw", "weight_height", weights),
            ("oihw", "weight_width", weights),
        ]
        for buffer, image, dims in pairs:
            yield DeviceCase(dtype, buffer, image, dims)
        for buffer, image, dims in pairs:
            yield DeviceCase(dtype, image, buffer, dims)


IMAGES = tuple(_images())
# 1, 4 and 16 MB
SMALL = tuple(
    DeviceCase(dtype, "ab", "ba", (rows, rows // by))
    for rows in (1024, 2048, 4096)
    for dtype, by in (("u8", 1), ("f16", 2), ("f32", 4))
)
ALL = (*TRANSPOSES, *_COPIES, *_CONVERSIONS, *_FOUR_BITS, *IMAGES, *SMALL)


def resized(case: DeviceCase, nbytes: int) -> DeviceCase:
    """Return a case of at most `nbytes`: the first two dims are halved, odd ones stay odd."""
    dims = list(case.dims)
    k = 0
    while case._replace(dims=tuple(dims)).nbytes > nbytes and max(dims) > 1:
        dims[k % 2] = max(dims[k % 2] // 2, 1) | dims[k % 2] & 1
        k += 1
        if max(dims[:2]) == 1:
            break
    return case._replace(dims=tuple(dims))
