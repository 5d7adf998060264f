"""MACE's names of host buffers: `NCHW`, `OIHW`, ...

Source: MACE at 0fc55a54. `images` has its image types.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memdesc.errors import UnknownFormatError, UnsupportedFormatError, short_repr
from memdesc.names.images import REFUSED, is_image
from memdesc.names.vocabulary import ANY_WIDTH, Row, Table, refuse

if TYPE_CHECKING:
    from memdesc.tags import FormatTag


# HWOI and HWIM are the orders used in 2018.
_TABLE = Table(
    "host buffer of MACE",
    {
        "NCHW": Row("nchw", "data", {ANY_WIDTH: "abcd"}),
        "NHWC": Row("nchw", "data", {ANY_WIDTH: "acdb"}),
        "OIHW": Row("oihw", "weights", {ANY_WIDTH: "abcd"}),
        "HWOI": Row("oihw", "weights", {ANY_WIDTH: "cdab"}),
        "MIHW": Row("mihw", "depthwise weights", {ANY_WIDTH: "abcd"}),
        "HWIM": Row("mihw", "depthwise weights", {ANY_WIDTH: "cdba"}),
        "W": Row("w", "vector", {ANY_WIDTH: "a"}),
    },
)


def parse(name: str) -> FormatTag:
    """Read the name of a host buffer."""
    refuse(name, REFUSED)
    if is_image(name):
        msg = (
            f"{short_repr(name)} is an image type, not a linear buffer; "
            "use memdesc.image_desc(dims, dtype, name)"
        )
        raise UnsupportedFormatError(msg)
    if name not in _TABLE.rows:
        msg = f"{short_repr(name)}: not a host buffer; they are {', '.join(_TABLE.rows)}"
        raise UnknownFormatError(msg)
    return _TABLE.parse(name)


def _is_spelled_like(name: str) -> bool:
    """Whether a name is capital letters only."""
    return name.isupper() and name.isalpha()


VOCABULARY = replace(_TABLE.vocabulary("mace", _is_spelled_like), parse=parse)
