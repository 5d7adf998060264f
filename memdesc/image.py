"""ImageDesc: a dense layout as rows of pixels, for OpenCL images of two and three dimensions."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Self

from memdesc.checked import SCHEMA, Written, check_schema, check_types
from memdesc.desc import MemoryDesc, desc_of, letters_of
from memdesc.dtypes import DataType, data_type
from memdesc.errors import MemdescError, counted, short_repr
from memdesc.immutable import field, part, value_class
from memdesc.index import Index
from memdesc.int64 import checked_int, checked_ints
from memdesc.layout import check_dims, dim_name, layout_by_tag
from memdesc.names import Name, dim_letters, known_images, resolve_image

if TYPE_CHECKING:
    from memdesc.picture import Picture

_CHANNELS = (1, 2, 4)  # R, RG, RGBA
_KINDS = ("2d", "3d", "array")
_SIDES = ("width", "height", "channels", "depth")


@value_class
class ImageDesc(Written):
    """The place of each element of a tensor in an image: column x, row y, lane.

    A 3-D image or an array of 2-D images also has a slice z.

    Parameters
    ----------
    desc : MemoryDesc
        The same pixels as a dense linear buffer, slice by slice and row by row.
    width, height : int
        Size in pixels.
    channels : int
        Lanes of a pixel: 4 (RGBA), 2 (RG) or 1 (R).
    name : str
        The image type that it was made from; ignored by equality.
    depth : int
        Slices; 1 for a 2-D image.
    kind : str
        ``"2d"``, ``"3d"``, or ``"array"`` for an array of 2-D images.

    Raises
    ------
    MemdescError
        If the buffer does not hold exactly these pixels.

    Examples
    --------
    >>> i = memdesc.image_desc((1, 64, 56, 56), "f16", "in_out_channel")
    >>> i.width, i.height, i.channels, i.pixel((0, 5, 2, 3))
    (896, 56, 4, (59, 2, 1))
    """

    desc: MemoryDesc
    width: int
    height: int
    channels: int
    name: str = field(compare=False)
    depth: int = 1
    kind: str = "2d"
    _another: ClassVar[str] = "image_desc(dims, dtype, name) makes another"

    def __post_init__(self) -> None:
        for side in _SIDES:
            object.__setattr__(self, side, checked_int(side, getattr(self, side)))
        check_types(self, "; see image_desc")
        if self.kind not in _KINDS or (self.kind == "2d" and self.depth != 1):
            raise MemdescError(
                f"an image of kind {short_repr(self.kind)} and depth {self.depth} does not exist; "
                "kinds are '3d', 'array', and '2d', of depth 1"
            )
        if min(*self._size, self.channels) < 1 or self.channels not in _CHANNELS:
            raise MemdescError(
                f"an image of {self._spelled} of {self.channels} lanes does not exist; its sides "
                "are 1 or more, lanes 1, 2 or 4"
            )
        desc = self.desc
        if desc.dtype.is_packed:
            raise MemdescError(
                f"images have no lanes of {desc.dtype.bits} bits, which {desc.dtype} needs"
            )
        is_whole = desc.is_dense and not desc.offset0 and desc.extra is None
        needed = prod((*self._size, self.channels))
        if not is_whole or desc.padded_nelems != needed:
            raise MemdescError(
                f"{desc!r} is not {self._spelled} of {self.channels} lanes: "
                f"it has {desc.padded_nelems} elements with padding, and must have {needed}, "
                "without gaps, starting at offset 0"
            )

    def _fields(self) -> dict[str, Any]:
        sides = {side: getattr(self, side) for side in _SIDES}
        names = {"schema": SCHEMA, "image": self.name, "kind": self.kind}
        return {**names, **sides, "desc": self.desc._fields()}

    @classmethod
    def _of_fields(cls, fields: Any) -> Self:
        check_schema(fields)
        desc = MemoryDesc._of_fields(fields["desc"])  # noqa: SLF001 - likewise
        width, height, channels, depth = (fields[side] for side in _SIDES)
        return cls(desc, width, height, channels, fields["image"], depth, fields["kind"])

    @property
    def _size(self) -> tuple[int, ...]:
        """Width and height, and for a 3-D image or an array the depth."""
        flat = (self.width, self.height)
        return flat if self.kind == "2d" else (*flat, self.depth)

    @property
    def _spelled(self) -> str:
        return f"{' x '.join(map(str, self._size))} pixels"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the pixels as an array: ([depth,] height, width, channels).

        >>> memdesc.image_desc((2, 6, 5, 7), "f16", "tvm_texture").shape
        (4, 5, 7, 4)
        """
        return (*self._size[::-1], self.channels)

    dims: ClassVar[tuple[int, ...]] = part("desc.dims", "Logical sizes.")
    padded_dims: ClassVar[tuple[int, ...]] = part(
        "desc.padded_dims", "Sizes with the padding to whole pixels and alignments."
    )
    dtype: ClassVar[DataType] = part("desc.dtype", "Type of a lane.")
    nbytes: ClassVar[int] = part("desc.nbytes", "Bytes of all pixels, without row padding.")

    def pixel(self, index: Iterable[int]) -> tuple[int, ...]:
        """Return column, row, slice (not for a 2-D image) and lane of a logical index.

        For an offset in `desc`, use ``pixel(desc.index(offset))``.

        >>> memdesc.image_desc((1, 8, 5, 4), "f32", "in_out_channel").pixel((0, 6, 2, 3))
        (7, 2, 2)
        """
        at, lane = divmod(self.desc.offset(index), self.channels)
        coordinates = []
        for side in self._size[:-1]:
            at, step = divmod(at, side)
            coordinates.append(step)
        return (*coordinates, at, lane)

    def index(self, *pixel: int) -> Index:
        """Return the logical index of a lane, given what `pixel` returns.

        >>> i = memdesc.image_desc((1, 6, 5, 4), "f32", "in_out_channel")
        >>> i.index(7, 2, 1), i.index(7, 2, 2)
        ((0, 5, 2, 3), Index((0, 6, 2, 3), is_padding=True))
        """
        sides = {**dict(zip("xyz", self._size, strict=False)), "lane": self.channels}
        if len(pixel) != len(sides):
            raise MemdescError(
                f"a place in {self!r} is ({', '.join(sides)}), not {short_repr(pixel)}"
            )
        at, unit = 0, 1
        for name, given in (("lane", pixel[-1]), *zip("xyz", pixel[:-1], strict=False)):
            step = checked_int(name, given)
            if not 0 <= step < sides[name]:
                raise MemdescError(
                    f"{name} = {step} is not in {self!r}, whose {name} is 0 to {sides[name] - 1}"
                )
            at, unit = at + step * unit, unit * sides[name]
        return self.desc.index(at)

    def names(self) -> tuple[Name, ...]:
        """Return every image type with these pixels, arrays and 3-D images alike.

        >>> i = memdesc.image_desc((1, 6, 5, 4), "f16", "ac|Bd|4b")
        >>> [name.text for name in i.names()]
        ['in_out_channel', 'mnn_image', 'paddle_image_default']
        """
        names = []
        for name in known_images():
            with suppress(MemdescError):
                named = image_desc(self.dims, self.dtype, name.text)
                if named.shape == self.shape and named.desc == self.desc:
                    names.append(name)
        return tuple(names)

    def fits(self, max_width: int, max_height: int, max_depth: int | None = None) -> bool:
        """Whether the image is within a device's limits.

        Parameters
        ----------
        max_width, max_height : int
            In pixels; OpenCL's ``CL_DEVICE_IMAGE2D_MAX_WIDTH`` and ``_HEIGHT``, or those of 3-D.
        max_depth : int, optional
            In slices; ``CL_DEVICE_IMAGE3D_MAX_DEPTH``, or ``CL_DEVICE_IMAGE_MAX_ARRAY_SIZE``.

        Examples
        --------
        >>> memdesc.image_desc((1, 512, 7, 145), "f16", "in_out_channel").fits(16384, 16384)
        False
        >>> memdesc.image_desc((2, 6, 5, 7), "f16", "tvm_texture").fits(2048, 2048, 2048)
        True
        """
        limits = {"width": max_width, "height": max_height, "depth": max_depth}
        return all(
            most is None or getattr(self, side) <= checked_int(f"max_{side}", most)
            for side, most in limits.items()
        )

    def source(self, lang: str, name: str = "image", letters: str | None = None) -> str:
        """Write functions that return the place of an element, x, y, z and lane, as source code.

        The arguments are those of `MemoryDesc.source`.

        >>> i = memdesc.image_desc((1, 6, 5, 4), "f16", "in_out_channel")
        >>> "return c // 4 * 4 + w" in i.source("python")
        True
        """
        from memdesc.source import image_source  # only code needs it

        names = name, letters_of(self.desc, letters)
        return image_source(self.desc.layout, self.shape, lang, names, repr(self))

    def show(
        self, letters: str | None = None, *, highlight: Iterable[Iterable[int]] = ()
    ) -> Picture:
        """Draw the logical grid beside the pixels, like `MemoryDesc.show`."""
        from memdesc.picture.cells import Pixels  # only pictures need them
        from memdesc.picture.draw import checked_cells, draw_cells

        called = letters_of(self.desc, letters)
        pixels = Pixels(self.width, self.channels, 0 if self.kind == "2d" else self.height)
        cells = checked_cells(self.desc, called, highlight, pixels=pixels)
        size = f"{self._spelled} of {counted(self.channels, 'channel')}"
        what = "image: each lane shows the offset and the index"
        return draw_cells(cells, repr(self), size, what)

    def _repr_html_(self) -> str:
        return self.show().fragment

    def __repr__(self) -> str:
        return f"image_desc({self.dims}, '{self.dtype}', {self.name!r})"


def image_desc(dims: Iterable[int], dtype: object, name: str) -> ImageDesc:
    """Describe an image by its type.

    Parameters
    ----------
    dims : iterable of int
        Logical sizes: n, c, h, w for activations, o, i, h, w for filters.
    dtype : DataType, str or numpy dtype
        Type of a lane; 4-bit types have no image.
    name : str
        A type of MACE (``"in_out_channel"``), clDNN, ExecuTorch, TFLite, MNN, Paddle-Lite, TVM
        or ncnn, or ``rows|columns|lane`` (``"ac|Bd|4b"``), or with a depth before the rows
        (``"aB|c|d|4b"``).

    Raises
    ------
    MemdescError
        If the name is unknown or unsupported, a size is 0, or the number of dims is wrong.

    Examples
    --------
    >>> i = memdesc.image_desc((1, 64, 56, 56), "f16", "in_out_channel")
    >>> i.width, i.height, i.nbytes
    (896, 56, 401408)
    """
    sizes = checked_ints("dims", dims)
    dtype = data_type(dtype)
    if not isinstance(name, str):
        raise MemdescError(f"an image type is a name, not {short_repr(name)}")
    name = name.strip()
    parsed = resolve_image(name, sizes)
    letters = dim_letters(name)
    check_dims(sizes, letters)
    if 0 in sizes:
        raise MemdescError(
            f"{dim_name(sizes.index(0), letters)} has size 0; the image would have no pixels, "
            "which OpenCL does not allow"
        )
    desc = desc_of(dtype, layout_by_tag(parsed.tag, sizes, name), letters=letters)
    extents = iter(
        [digit.extent or desc.axes[digit.axis].padded // digit.step for digit in parsed.tag.digits]
    )
    depth, height, width = (prod(islice(extents, count)) for count in parsed.counts)
    return ImageDesc(desc, width, height, prod(extents), name, depth, parsed.kind)
