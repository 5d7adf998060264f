"""A name to a tag, for given sizes and a given width of elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc.errors import MemdescError, UnknownFormatError, short_repr
from memdesc.names import cldnn
from memdesc.names.images import IMAGES, check_image_dims, parse_image
from memdesc.names.registry import dim_letters, parse_name
from memdesc.names.suggest import did_you_mean, meanings, nearest, suggest

if TYPE_CHECKING:
    from memdesc.names.images import ParsedImage
    from memdesc.tags import FormatTag

__all__ = ["resolve", "resolve_image"]


def resolve(name: str, dims: tuple[int, ...], bits: int) -> FormatTag:
    """Find the tag of a name in any vocabulary.

    Parameters
    ----------
    name : str
        A name of oneDNN, clDNN / OpenVINO or MACE, or the canonical notation.
    dims : tuple of int
        Logical sizes; a few names exist for some sizes only. `()` checks no sizes.
    bits : int
        Width of an element; packings of weights exist for some widths only, and a few names
        lay 4-bit elements out in another way.

    Raises
    ------
    UnknownFormatError
        If no vocabulary has the name; with the nearest names.
    UnsupportedFormatError
        If the name is known, but no layout of elements; with the reason.
    """
    if not isinstance(name, str):
        msg = f"a tag is a name or a FormatTag, not {short_repr(name)}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    try:
        tag, vocabulary = parse_name(name, bits)
    except UnknownFormatError as error:
        if meant := meanings(name, len(dims) or None) or meanings(name):
            msg = f"unknown format {name!r}: {_spelled(meant)}"
            raise UnknownFormatError(msg) from None
        msg = f"{error}{did_you_mean(suggest(name, len(dims) or None))}"
        raise UnknownFormatError(msg) from None
    # another number of dims is an error that the caller reports
    if vocabulary.check_dims is not None and len(dims) == tag.ndims:
        vocabulary.check_dims(name, dims, tag)
    return tag


def _spelled(names: tuple[str, ...]) -> str:
    """Return what a layout is called here, and the order of its logical dims."""
    named = {name: dim_letters(name) for name in names}
    return "it is " + " or ".join(
        f"{name!r} here" + (f", for logical dims {', '.join(letters)}" if letters else "")
        for name, letters in named.items()
    )


def resolve_image(name: str, dims: tuple[int, ...]) -> ParsedImage:
    """Find the tag of an image type, and how many digits make its row and column.

    Raises
    ------
    UnknownFormatError, UnsupportedFormatError, MemdescError
        As `resolve`; and where the image type does not have these dims.
    """
    try:
        image = parse_image(name)
    except UnknownFormatError as error:
        cldnn.refuse(name)  # it knows images that cannot be described, with the reason
        msg = f"{error}{did_you_mean(nearest(name, IMAGES, len(dims)))}"
        raise UnknownFormatError(msg) from None
    if len(dims) == image.tag.ndims:
        check_image_dims(name, dims)
    return image
