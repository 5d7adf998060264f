"""A picture as PNG, by resvg."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from memdesc.errors import MemdescError
from memdesc.picture.svg import document, label

__all__ = ["check_font", "png_of"]

# pixels of the PNG for one of the SVG: numbers stay sharp on a slide
_ZOOM = 2


def png_of(svg: str) -> bytes:
    """Return the PNG of an SVG, in the light colours.

    Raises
    ------
    MemdescError
        If the package `resvg_py` or a font is missing; with how to get it.
    """
    try:
        resvg = import_module("resvg_py")
    except ImportError:
        msg = (
            "a PNG is made by the package resvg_py, which is not installed: pip install resvg_py, "
            "or memdesc[png]; .svg, .html and .txt need no package"
        )
        raise MemdescError(msg) from None
    check_font(resvg)
    return bytes(
        resvg.svg_to_bytes(svg_string=svg, zoom=_ZOOM, monospace_family="DejaVu Sans Mono")
    )


def check_font(resvg: Any, **options: bool) -> None:
    """Refuse to draw without a font: resvg then leaves text out, and says nothing."""
    blank, written = (
        bytes(resvg.svg_to_bytes(svg_string=document((0, 0), (20, 20), "", text), **options))
        for text in ("", label(2, 16, "0"))
    )
    if blank == written:
        msg = (
            "no font was found for the text of a PNG; install one (Debian: fonts-dejavu-core), "
            "or save the picture as .svg"
        )
        raise MemdescError(msg)
