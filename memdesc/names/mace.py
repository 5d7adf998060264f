"""MACE's names of host buffers: `NCHW`, `OIHW`, ...

Source: MACE at 0fc55a54. `images` has its image types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc.errors import UnknownFormatError, UnsupportedFormatError, short_repr
from memdesc.names.images import REFUSED, is_image
from memdesc.names.vocabulary import ANY_WIDTH, Row, Vocabulary, refuse

if TYPE_CHECKING:
    from memdesc.tags import FormatTag


# HWOI and HWIM are the orders used in 2018.
_ROWS = {
    "NCHW": Row("nchw", "data", {ANY_WIDTH: "abcd"}),
    "NHWC": Row("nchw", "data", {ANY_WIDTH: "acdb"}),
    "OIHW": Row("oihw", "weights", {ANY_WIDTH: "abcd"}),
    "HWOI": Row("oihw", "weights", {ANY_WIDTH: "cdab"}),
    "MIHW": Row("mihw", "depthwise weights", {ANY_WIDTH: "abcd"}),
    "HWIM": Row("mihw", "depthwise weights", {ANY_WIDTH: "cdba"}),
    "W": Row("w", "vector", {ANY_WIDTH: "a"}),
}


class _Mace(Vocabulary):
    def parse(self, name: str) -> FormatTag:
        """Read the name of a host buffer."""
        refuse(name, REFUSED)
        if is_image(name):
            raise UnsupportedFormatError(
                f"{short_repr(name)} is an image type, not a linear buffer; "
                "use memdesc.image_desc(dims, dtype, name)"
            )
        if name not in self.rows:
            raise UnknownFormatError(
                f"{short_repr(name)}: not a host buffer; they are {', '.join(self.rows)}"
            )
        return super().parse(name)


VOCABULARY = _Mace("mace", "host buffer of MACE", _ROWS, "[A-Z]+$")
