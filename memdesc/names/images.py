"""Types of OpenCL 2-D images, MACE's and clDNN's, as `rows|columns|lane`.

`Acd|b|4a` has a row for each (a / 4, c, d), a column for each b, and four values of a in
a pixel; each part is a piece of the canonical notation. Sources: MACE at 0fc55a54,
`buffer_to_image.cl` and `CalImage2DShape`, and where its layout pages and the kernels differ
(height- and width-major activations), the kernels; `format.hpp` of OpenVINO 2025.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from memdesc.errors import MemdescError, UnknownFormatError, short_repr
from memdesc.names.vocabulary import refuse
from memdesc.tags import count_digits, parse_tag

if TYPE_CHECKING:
    from memdesc.tags import FormatTag


class _ImageType(NamedTuple):
    """The letters of the logical dims, and rows|columns|lane over dims a, b, c, ..."""

    letters: str
    parts: str


IMAGES = MappingProxyType(
    {
        "in_out_channel": _ImageType("nchw", "ac|Bd|4b"),
        "in_out_height": _ImageType("nchw", "aC|bd|4c"),
        "in_out_width": _ImageType("nchw", "ac|bD|4d"),
        "conv2d_filter": _ImageType("oihw", "Acd|b|4a"),
        "dw_conv2d_filter": _ImageType("mihw", "B|acd|4b"),
        "weight_height": _ImageType("oihw", "A|cdb|4a"),
        "weight_width": _ImageType("oihw", "a|cdB|4b"),
        "argument": _ImageType("a", "|A|4a"),
        "image_2d_weights_c4_fyx_b": _ImageType("oiyx", "a|(BCD)|4(bcd)"),
        "image_2d_weights_c1_b_fyx": _ImageType("oiyx", "bcd|a|"),
        "image_2d_rgba": _ImageType("bfyx", "Bac|d|4b"),
    }
)


# MACE's name that is neither a buffer nor an image of elements -> the reason
REFUSED = MappingProxyType(
    {"winograd_filter": "it holds G g G^T of each 3x3 filter, which a reorder cannot make"}
)


class ParsedImage(NamedTuple):
    """The digits of rows, columns and lane in this order, and how many the first two have."""

    tag: FormatTag
    n_rows: int
    n_columns: int


def is_image(name: str) -> bool:
    """Whether a name is that of an image type, not of a linear buffer."""
    return name in IMAGES or "|" in name


def parse_image(name: str) -> ParsedImage:
    """Read an image type, or `rows|columns|lane`."""
    refuse(name, REFUSED)
    written = IMAGES[name].parts if name in IMAGES else name
    if written.count("|") != 2:  # noqa: PLR2004 - two bars between three parts
        known = ", ".join(IMAGES)
        msg = (
            f"{short_repr(name)} is not an image type; they are {known}, "
            "or rows|columns|lane such as 'ac|Bd|4b'"
        )
        raise UnknownFormatError(msg)
    rows, columns, lane = written.split("|")
    n_rows, n_columns = count_digits(rows), count_digits(columns)
    if n_rows is None or n_columns is None:
        msg = (
            f"{short_repr(name)}: rows {short_repr(rows)} and columns {short_repr(columns)} "
            "must be letters and blocks; alignments go at the end"
        )
        raise UnknownFormatError(msg)
    # `.` separates the step at the end of a part from the number that starts the next part
    joined = "".join(part + "." if part[-1:].isdigit() else part for part in (rows, columns)) + lane
    try:
        tag = parse_tag(joined)
    except UnknownFormatError as error:
        msg = f"{short_repr(name)}, which reads as {error}"
        raise UnknownFormatError(msg) from None
    lanes = tag.digits[n_rows + n_columns :]
    if len(lanes) > 1 or any(digit.extent != 4 for digit in lanes):  # noqa: PLR2004 - RGBA
        msg = (
            f"{short_repr(name)}: the lane part {short_repr(lane)} must be empty (one channel) "
            "or one block of 4, such as '4b' (RGBA)"
        )
        raise UnknownFormatError(msg)
    return ParsedImage(tag, n_rows, n_columns)


def check_image_dims(name: str, dims: tuple[int, ...]) -> None:
    """Refuse sizes that an image type does not support."""
    if name == "dw_conv2d_filter" and dims[0] != 1:
        msg = (
            f"dw_conv2d_filter has multiplier m = {dims[0]}: the kernels fill the image only for 1"
        )
        raise MemdescError(msg)
    if name == "image_2d_rgba" and (dims[0] != 1 or dims[1] not in (3, 4)):
        msg = (
            f"image_2d_rgba has b = {dims[0]}, f = {dims[1]}: "
            "the image holds a batch of 1 with 3 or 4 features"
        )
        raise MemdescError(msg)
