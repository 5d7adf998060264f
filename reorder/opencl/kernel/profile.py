"""Shapes of work-groups and of tiles in local memory, as data.

`GPU` holds the best values of sweeps on an NVIDIA H200; docs/opencl_measurements.md has the
bandwidths that they reach. All devices use it; families of kernels get it with the device.
"""

from __future__ import annotations

from typing import NamedTuple

# The role of a loop: it runs along columns or rows of the image, or the buffer's smallest stride.
COLUMN, ROW, BUFFER = "column", "row", "buffer"


class Share(NamedTuple):
    """log2 of the work items along the loop of a role, and the iterations of each work item."""

    role: str
    shift: int
    steps: int = 1


class ImageGroups(NamedTuple):
    """Work-groups between an image and a buffer: shares, innermost work items first.

    The loop of the smallest stride in the buffer runs along the columns of the image, along the
    rows, or is separate from both (blocks of channels of NHWC); if it is too short to fill a cache
    line, it is short. With `vector_` the lanes of a pixel are contiguous in the buffer.
    """

    columns: tuple[Share, ...]
    rows: tuple[Share, ...]
    separate: tuple[Share, ...]
    short: tuple[Share, ...]
    vector_columns: tuple[Share, ...]
    vector_separate: tuple[Share, ...]
    vector_short: tuple[Share, ...]


class CopyShape(NamedTuple):
    """The most work items of a group that copies elements, and the elements of each work item."""

    work_items: int
    steps: int


class TileShape(NamedTuple):
    """Bytes of a run of src and of dst, and of a tile; the most work items of a group."""

    src_run: int
    dst_run: int
    nbytes: int
    work_items: int


class SkewedShape(NamedTuple):
    """A tile that transposes rows which start anywhere: its steps along src and along dst.

    Its rows in dst end at multiples of `align` bytes. A tile is taken only if its bytes along dst
    are a multiple of that.
    """

    width: int
    height: int
    work_items: int
    align: int


class PixelShape(NamedTuple):
    """A tile between a buffer and an image: bytes of a run of the buffer, of the tile.

    Adjacent work items take a rectangle of `columns` and `rows` of the image.
    """

    run: int
    columns: int
    rows: int
    nbytes: int
    work_items: int


class Profile(NamedTuple):
    """Sizes that suit a device.

    `tiles` are for elements of 1, 2, 4 and 8 bytes, `copies` also for those of 16. A nest that
    writes fewer than `min_tiled` bytes takes no tiles: kernels of tiles are built for each layout,
    others once for all sizes. For rows that start anywhere, `skewed` are tiles for elements of 1, 2
    and 4 bytes, and `rows` copies vectors. `pack` and `unpack` are for elements of 32 bits, the
    `narrow` ones for fewer.
    """

    tiles: tuple[TileShape, TileShape, TileShape, TileShape]
    copies: tuple[CopyShape, CopyShape, CopyShape, CopyShape, CopyShape]
    pack: ImageGroups
    unpack: ImageGroups
    unpack_narrow: ImageGroups
    pack_pixels: PixelShape
    unpack_pixels: PixelShape
    skewed: tuple[SkewedShape, SkewedShape, SkewedShape]
    rows: CopyShape
    min_tiled: int = 1 << 16

    def tile(self, nbytes: int) -> TileShape:
        """Return the shape of tiles for elements of some bytes."""
        return self.tiles[nbytes.bit_length() - 1]

    def copy(self, nbytes: int) -> CopyShape:
        """Return the shape of copies for elements of some bytes."""
        return self.copies[nbytes.bit_length() - 1]

    def image_groups(self, *, is_narrow: bool, packs: bool) -> ImageGroups:
        """Return the groups that pack images, or unpack them into elements of some width."""
        if packs:
            return self.pack
        return self.unpack_narrow if is_narrow else self.unpack


_PACK = ImageGroups(
    columns=(Share(ROW, 1, 2), Share(COLUMN, 6)),
    rows=(Share(COLUMN, 3, 2), Share(ROW, 4)),
    separate=(Share(COLUMN, 1), Share(ROW, 1), Share(BUFFER, 5, 2)),
    short=(Share(COLUMN, 2, 2), Share(ROW, 1), Share(BUFFER, 4)),
    vector_columns=(Share(COLUMN, 4, 4), Share(ROW, 4)),
    vector_separate=(Share(COLUMN, 1), Share(ROW, 1), Share(BUFFER, 5, 2)),
    vector_short=(Share(COLUMN, 3), Share(BUFFER, 1, 2), Share(ROW, 3)),
)
_UNPACK = ImageGroups(
    columns=(Share(COLUMN, 6), Share(ROW, 2, 2)),
    rows=(Share(ROW, 4), Share(COLUMN, 3, 2)),
    separate=(Share(COLUMN, 1), Share(BUFFER, 5, 2), Share(ROW, 2)),
    short=(Share(COLUMN, 1, 2), Share(BUFFER, 4), Share(ROW, 2)),
    vector_columns=(Share(COLUMN, 4, 2), Share(ROW, 4)),
    vector_separate=(Share(COLUMN, 2), Share(BUFFER, 3), Share(ROW, 2)),
    vector_short=(Share(COLUMN, 3, 2), Share(BUFFER, 2), Share(ROW, 2)),
)

GPU = Profile(
    tiles=(
        TileShape(128, 64, 8192, 128),
        TileShape(128, 128, 16384, 256),
        TileShape(256, 256, 16384, 256),
        TileShape(256, 256, 8192, 128),
    ),
    copies=(
        CopyShape(256, 8),
        CopyShape(256, 8),
        CopyShape(256, 8),
        CopyShape(256, 4),
        CopyShape(256, 2),
    ),
    pack=_PACK,
    unpack=_UNPACK,
    unpack_narrow=_UNPACK._replace(
        columns=(Share(COLUMN, 6), Share(ROW, 2, 4)),
        vector_separate=(Share(COLUMN, 2), Share(BUFFER, 4), Share(ROW, 1)),
    ),
    pack_pixels=PixelShape(128, 4, 2, 4608, 128),
    unpack_pixels=PixelShape(256, 4, 2, 9216, 256),
    # sectors of memory have 32 bytes there; a work item loads rows that it transposes
    skewed=(
        SkewedShape(128, 96, 256, 32),
        SkewedShape(128, 48, 256, 32),
        SkewedShape(64, 32, 256, 32),
    ),
    rows=CopyShape(128, 2),
)
