"""ImageDesc: a dense layout as rows of pixels, for OpenCL 2-D images."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, ClassVar

from memdesc.checked import Checked
from memdesc.desc import MemoryDesc, desc_of
from memdesc.dtypes import DataType, data_type
from memdesc.errors import MemdescError, short_repr
from memdesc.immutable import immutable
from memdesc.int64 import checked_int, checked_ints
from memdesc.layout import check_dims, dim_name, layout_by_tag
from memdesc.names import dim_letters, resolve_image
from memdesc.tags import LETTERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memdesc.picture import Picture
    from memdesc.picture.draw import Look

_CHANNELS = (1, 4)  # R, RGBA


@immutable
@dataclass(frozen=True, slots=True)
class ImageDesc(Checked):
    """The place of each element of a tensor in a 2-D image: column x, row y, lane.

    Parameters
    ----------
    desc : MemoryDesc
        The same pixels as a dense linear buffer, row by row.
    width, height : int
        Size in pixels.
    channels : int
        Lanes of a pixel: 4 (RGBA) or 1 (R).
    name : str
        The image type that it was made from; ignored by equality.

    Raises
    ------
    MemdescError
        If the buffer does not hold exactly these pixels.

    Examples
    --------
    >>> import memdesc
    >>> i = memdesc.image_desc((1, 64, 56, 56), "f16", "in_out_channel")
    >>> i.width, i.height, i.channels, i.pixel((0, 5, 2, 3))
    (896, 56, 4, (59, 2, 1))
    """

    desc: MemoryDesc
    width: int
    height: int
    channels: int
    name: str = field(compare=False)
    _another: ClassVar[str] = "image_desc(dims, dtype, name) makes another"

    def __post_init__(self) -> None:
        if not isinstance(self.desc, MemoryDesc) or not isinstance(self.name, str):
            msg = (  # type: ignore[unreachable] # callers without types
                f"an ImageDesc needs a MemoryDesc and the name of an image type, not "
                f"{short_repr(self.desc)} and {short_repr(self.name)}; see image_desc"
            )
            raise MemdescError(msg)
        for side in ("width", "height", "channels"):
            object.__setattr__(self, side, checked_int(side, getattr(self, side)))
        size = (self.width, self.height, self.channels)
        if min(size) < 1 or self.channels not in _CHANNELS:
            msg = (
                f"an image of {self.width} x {self.height} pixels of {self.channels} lanes does "
                "not exist; width and height are 1 or more, lanes 1 or 4"
            )
            raise MemdescError(msg)
        desc = self.desc
        _check_lanes(desc.dtype)
        is_whole = desc.is_dense and not desc.offset0 and desc.extra is None
        if not is_whole or desc.padded_nelems != prod(size):
            msg = (
                f"{desc!r} is not {self.width} x {self.height} pixels of {self.channels} lanes: "
                f"it has {desc.padded_nelems} elements with padding, and must have {prod(size)}, "
                "without gaps, starting at offset 0"
            )
            raise MemdescError(msg)

    @property
    def dims(self) -> tuple[int, ...]:
        """Logical sizes."""
        return self.desc.dims

    @property
    def dtype(self) -> DataType:
        """Type of a lane."""
        return self.desc.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of all pixels, without row padding."""
        return self.desc.nbytes

    def pixel(self, index: Iterable[int]) -> tuple[int, int, int]:
        """Return column, row and lane of a logical index; raises as `MemoryDesc.offset` does.

        Examples
        --------
        >>> import memdesc
        >>> memdesc.image_desc((1, 8, 5, 4), "f32", "in_out_channel").pixel((0, 6, 2, 3))
        (7, 2, 2)
        """
        pixel, lane = divmod(self.desc.offset(index), self.channels)
        y, x = divmod(pixel, self.width)
        return x, y, lane

    def fits(self, max_width: int, max_height: int) -> bool:
        """Whether the image is within a device's limits for width and height.

        Examples
        --------
        >>> import memdesc
        >>> memdesc.image_desc((1, 512, 7, 145), "f16", "in_out_channel").fits(16384, 16384)
        False
        """
        return self.width <= checked_int("max_width", max_width) and self.height <= checked_int(
            "max_height", max_height
        )

    def check_size(self, max_width: int, max_height: int, where: str = "") -> None:
        """Refuse an image that is too large for a device.

        Parameters
        ----------
        max_width, max_height : int
            In pixels; OpenCL's ``CL_DEVICE_IMAGE2D_MAX_WIDTH`` and ``_HEIGHT``.
        where : str
            What the message says about the device, such as ``on cl:0``.

        Raises
        ------
        MemdescError
            With the width or the height that is too large, and the limit.
        """
        if self.fits(max_width, max_height):
            return
        over = [
            f"{name} {size} is more than the {most} pixels allowed"
            for name, size, most in (
                ("width", self.width, max_width),
                ("height", self.height, max_height),
            )
            if size > most
        ]
        size = f"{self.width} x {self.height} pixels"
        msg = (
            f"{self!r} is {size}: {' and '.join(over)}{where and f' {where}'}; split a dim, "
            "or use a buffer of .desc"
        )
        raise MemdescError(msg)

    def show(
        self, letters: str | None = None, *, highlight: Iterable[Iterable[int]] = ()
    ) -> Picture:
        """Draw the logical grid beside the pixels, like `MemoryDesc.show`."""
        from memdesc.picture.draw import Look  # only pictures need it

        look = Look(self.desc.letters or LETTERS if letters is None else letters, highlight)
        return self._drawn(look)

    def _repr_html_(self) -> str:
        from memdesc.picture.draw import Look  # only pictures need it
        from memdesc.picture.grid import COMPACT

        return self._drawn(Look(self.desc.letters or LETTERS, limits=COMPACT)).fragment

    def _drawn(self, look: Look) -> Picture:
        from memdesc.picture.draw import draw_image  # only pictures need it

        size = self.width, self.channels
        return draw_image(self.desc.layout, self.dtype, repr(self), size, look)

    def __repr__(self) -> str:
        return f"image_desc({self.dims}, '{self.dtype}', {self.name!r})"


def image_desc(dims: Iterable[int], dtype: object, name: str) -> ImageDesc:
    """Describe a 2-D image by its type.

    Parameters
    ----------
    dims : iterable of int
        Logical sizes: n, c, h, w for activations, o, i, h, w for filters.
    dtype : DataType, str or numpy dtype
        Type of a lane; 4-bit types have no image.
    name : str
        A MACE type (``"in_out_channel"``), a clDNN image (``"image_2d_weights_c4_fyx_b"``)
        or ``rows|columns|lane`` (``"ac|Bd|4b"``).

    Raises
    ------
    MemdescError
        If the name is unknown or unsupported, a size is 0, or the number of dims is wrong.

    Examples
    --------
    >>> import memdesc
    >>> i = memdesc.image_desc((1, 64, 56, 56), "f16", "in_out_channel")
    >>> i.width, i.height, i.nbytes
    (896, 56, 401408)
    """
    sizes = checked_ints("dims", dims)
    dtype = data_type(dtype)
    _check_lanes(dtype)
    if not isinstance(name, str):
        msg = f"an image type is a name, not {short_repr(name)}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    tag, n_rows, n_columns = resolve_image(name, sizes)
    letters = dim_letters(name)
    check_dims(sizes, letters)
    for dim, size in enumerate(sizes):
        if size == 0:
            msg = (
                f"{dim_name(dim, letters)} has size 0; the image would have no pixels, "
                "which OpenCL does not allow"
            )
            raise MemdescError(msg)
    desc = desc_of(dtype, layout_by_tag(tag, sizes, name), letters=letters)
    extents = [digit.extent or desc.axes[digit.axis].padded // digit.step for digit in tag.digits]
    rows, columns_and_lane = extents[:n_rows], extents[n_rows:]
    columns, lane = columns_and_lane[:n_columns], columns_and_lane[n_columns:]
    return ImageDesc(desc, prod(columns), prod(rows), prod(lane), name)


def _check_lanes(dtype: DataType) -> None:
    if dtype.is_packed:
        msg = f"images have no lanes of {dtype.bits} bits, which {dtype} needs"
        raise MemdescError(msg)
