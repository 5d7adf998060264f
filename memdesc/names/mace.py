"""MACE's names: host buffers (`NCHW`, `OIHW`, ...) and OpenCL image types.

An image type is written `rows|columns|lane`. Source: MACE at 0fc55a54,
`buffer_to_image.cl` and `CalImage2DShape`; where the layout pages and the kernels
differ (height- and width-major activations), the kernels. clDNN's own images
(`format.hpp`, OpenVINO 2025) stand in the same table.
"""

from __future__ import annotations

from memdesc.errors import MemdescError, UnknownFormatError, UnsupportedFormatError, short_repr
from memdesc.tags import FormatTag, count_digits, parse_tag

__all__ = [
    "BUFFERS",
    "IMAGES",
    "VOCABULARY",
    "check_image_dims",
    "domain",
    "letters",
    "parse",
    "parse_image",
]

VOCABULARY = "mace"

# name -> (letters of the logical dims, tag). HWOI and HWIM are the orders of 2018.
BUFFERS = {
    "NCHW": ("data", "abcd"),
    "NHWC": ("data", "acdb"),
    "OIHW": ("weights", "abcd"),
    "HWOI": ("weights", "cdab"),
    "MIHW": ("depthwise weights", "abcd"),
    "HWIM": ("depthwise weights", "cdba"),
    "W": ("vector", "a"),
}

# name -> (letters of the logical dims, rows|columns|lane)
IMAGES = {
    "in_out_channel": ("nchw", "ac|Bd|4b"),
    "in_out_height": ("nchw", "aC|bd|4c"),
    "in_out_width": ("nchw", "ac|bD|4d"),
    "conv2d_filter": ("oihw", "Acd|b|4a"),
    "dw_conv2d_filter": ("mihw", "B|acd|4b"),
    "weight_height": ("oihw", "A|cdb|4a"),
    "weight_width": ("oihw", "a|cdB|4b"),
    "argument": ("a", "|A|4a"),
    "image_2d_weights_c4_fyx_b": ("oiyx", "a|(BCD)|4(bcd)"),
    "image_2d_weights_c1_b_fyx": ("oiyx", "bcd|a|"),
    "image_2d_rgba": ("bfyx", "Bac|d|4b"),
}


def domain(text: str) -> str:
    """Return what a buffer name speaks of: `data`, `weights`, ..."""
    return BUFFERS[text][0]


def letters(text: str) -> str:
    """Return the logical dims as a buffer or image name calls them; nothing for other texts."""
    if text in IMAGES:
        return IMAGES[text][0]
    if text not in BUFFERS:
        return ""
    own = {
        digit.axis: letter for digit, letter in zip(parse(text).digits, text.lower(), strict=True)
    }
    return "".join(own[axis] for axis in sorted(own))


def parse(text: str) -> FormatTag:
    """Read the name of a host buffer.

    Raises
    ------
    UnsupportedFormatError
        If the text names an image type: an image is no linear buffer. For
        `winograd_filter`, whose pixels are computed values.
    UnknownFormatError
        If the text is no name.
    """
    _refuse_winograd(text)
    if text in IMAGES or "|" in text:
        msg = f"{short_repr(text)} is an image type, not a linear buffer; use memdesc.image_desc(dims, dtype, name)"
        raise UnsupportedFormatError(msg)
    if text not in BUFFERS:
        msg = f"{short_repr(text)}: no host buffer; they are {', '.join(BUFFERS)}"
        raise UnknownFormatError(msg)
    return parse_tag(BUFFERS[text][1])


def parse_image(text: str) -> tuple[FormatTag, int, int]:
    """Read an image type, or `rows|columns|lane` text.

    Returns
    -------
    tag : FormatTag
        The digits of rows, columns and lane, in this order.
    rows, columns : int
        How many of the digits make the row and the column.

    Raises
    ------
    UnsupportedFormatError
        For `winograd_filter`, whose pixels are computed values.
    UnknownFormatError
        If the text is no image type and not of three parts.
    """
    _refuse_winograd(text)
    written = IMAGES[text][1] if text in IMAGES else text
    if written.count("|") != 2:  # noqa: PLR2004 - two bars part three parts
        msg = f"{short_repr(text)} is no image type; they are {', '.join(IMAGES)}, or rows|columns|lane such as 'ac|Bd|4b'"
        raise UnknownFormatError(msg)
    rows, columns, lane = written.split("|")
    n_rows, n_columns = count_digits(rows), count_digits(columns)
    if n_rows is None or n_columns is None:
        msg = f"{short_repr(text)}: rows {short_repr(rows)} and columns {short_repr(columns)} must be letters and blocks; alignments stand at the end"
        raise UnknownFormatError(msg)
    # a step that ends a part is kept apart from a number that starts the next
    joined = "".join(part + "." if part[-1:].isdigit() else part for part in (rows, columns)) + lane
    try:
        tag = parse_tag(joined)
    except UnknownFormatError as error:
        msg = f"{short_repr(text)}, which reads as {error}"
        raise UnknownFormatError(msg) from None
    lanes = tag.digits[n_rows + n_columns :]
    if len(lanes) > 1 or any(digit.extent != 4 for digit in lanes):  # noqa: PLR2004 - RGBA
        msg = f"{short_repr(text)}: the lane part {short_repr(lane)} must be empty (one channel) or one block of 4, such as '4b' (RGBA)"
        raise UnknownFormatError(msg)
    return tag, n_rows, n_columns


def check_image_dims(text: str, dims: tuple[int, ...]) -> None:
    """Refuse the sizes that an image type does not have.

    Raises
    ------
    MemdescError
        For a depthwise multiplier other than 1; for `image_2d_rgba` with a batch,
        or with other than 3 or 4 features.
    """
    if text == "dw_conv2d_filter" and dims[0] != 1:
        msg = (
            f"dw_conv2d_filter has multiplier m = {dims[0]}: the kernels fill the image only for 1"
        )
        raise MemdescError(msg)
    if text == "image_2d_rgba" and (dims[0] != 1 or dims[1] not in (3, 4)):
        msg = f"image_2d_rgba has b = {dims[0]}, f = {dims[1]}: the image holds a batch of 1 with 3 or 4 features"
        raise MemdescError(msg)


def _refuse_winograd(text: str) -> None:
    if text == "winograd_filter":
        msg = "'winograd_filter' cannot be described: it holds G g G^T of each 3x3 filter, which no reorder can make"
        raise UnsupportedFormatError(msg)
