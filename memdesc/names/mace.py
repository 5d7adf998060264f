"""MACE's names of host buffers: `NCHW`, `OIHW`, ...

Source: MACE at 0fc55a54. `images` has its image types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memdesc.errors import UnknownFormatError, UnsupportedFormatError, short_repr
from memdesc.names.images import is_image, refuse_winograd
from memdesc.names.vocabulary import Vocabulary
from memdesc.notation import parse_tag

if TYPE_CHECKING:
    from memdesc.tags import FormatTag


class _Buffer(NamedTuple):
    """What a buffer contains, and its tag."""

    domain: str
    tag: str


# HWOI and HWIM are the orders used in 2018.
BUFFERS = {
    "NCHW": _Buffer("data", "abcd"),
    "NHWC": _Buffer("data", "acdb"),
    "OIHW": _Buffer("weights", "abcd"),
    "HWOI": _Buffer("weights", "cdab"),
    "MIHW": _Buffer("depthwise weights", "abcd"),
    "HWIM": _Buffer("depthwise weights", "cdba"),
    "W": _Buffer("vector", "a"),
}


def domain(name: str) -> str:
    """Return what a buffer name describes: `data`, `weights`, ..."""
    return BUFFERS[name].domain


def letters(name: str) -> str:
    """Return what a buffer name calls the logical dims; empty for other strings."""
    if name not in BUFFERS:
        return ""
    # a name lists the dims in memory order, as the digits of its tag do
    by_axis = {
        digit.axis: letter for digit, letter in zip(parse(name).digits, name.lower(), strict=True)
    }
    return "".join(by_axis[axis] for axis in sorted(by_axis))


def parse(name: str) -> FormatTag:
    """Read the name of a host buffer.

    Raises
    ------
    UnsupportedFormatError
        If it is the name of an image type, which is not a linear buffer, or `winograd_filter`,
        whose pixels are computed values.
    UnknownFormatError
        If it is not a name of a buffer.
    """
    refuse_winograd(name)
    if is_image(name):
        msg = (
            f"{short_repr(name)} is an image type, not a linear buffer; "
            "use memdesc.image_desc(dims, dtype, name)"
        )
        raise UnsupportedFormatError(msg)
    if name not in BUFFERS:
        msg = f"{short_repr(name)}: not a host buffer; they are {', '.join(BUFFERS)}"
        raise UnknownFormatError(msg)
    return parse_tag(BUFFERS[name].tag)


def _is_spelled_like(name: str) -> bool:
    """Whether a name is capital letters only."""
    return name.isupper() and name.isalpha()


VOCABULARY = Vocabulary("mace", BUFFERS.keys, parse, domain, letters, _is_spelled_like)
