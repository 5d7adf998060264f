"""Pictures of layouts: the value that `show()` returns, and the files that it is written to."""

from __future__ import annotations

import os
from html import escape
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from memdesc.errors import MemdescError, short_repr
from memdesc.immutable import field, value_class
from memdesc.picture.svg import document, label

__all__ = ["Picture"]


@value_class
class Picture:
    """A picture as SVG, HTML, PNG and text; notebooks show it, terminals print it.

    Parameters
    ----------
    svg : str
        The picture as one `<svg>` element, with the same bytes every time.
    text : str
        The picture for a terminal, which `str(picture)` returns.
    fragment : str, optional
        The picture as HTML without scripts, which puts its halves below each other on a narrow
        page; by default the SVG.
    coloured : str, optional
        The text with escape sequences for a terminal's colours: those of the SVG.

    Examples
    --------
    >>> memdesc.memory_desc((2, 2), "u8", "ba").show().text.splitlines()[-1]
    '     0 |0,0 1,0 0,1 1,1'
    """

    svg: str
    text: str
    fragment: str = field(default="", repr=False)
    coloured: str = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.fragment or self.svg

    def html(self) -> str:
        """Return a complete page: pointing at a cell marks its element in both halves.

        The page zooms, follows the reader's colour scheme, and loads nothing.

        >>> memdesc.memory_desc((3, 4), "u8", "ba").show().html()[:15]
        '<!doctype html>'
        """
        page = (files("memdesc.picture") / "page.html").read_text(encoding="utf-8")
        title = escape(self.text.partition("\n")[0])
        return page.replace("{title}", title, 1).replace("{picture}", self._repr_html_(), 1)

    def encoded(self, ending: str) -> bytes:
        """Return the bytes of a file whose name has this ending, as `save` writes them.

        >>> memdesc.memory_desc((3, 4), "u8", "ba").show().encoded(".svg")[:4]
        b'<svg'
        """
        match ending.lower() if isinstance(ending, str) else None:
            case "" | ".svg":
                return f"{self.svg}\n".encode()
            case ".png":
                return png_of(self.svg)
            case ".html":
                return self.html().encode()
            case ".txt":
                return f"{self.text}\n".encode()
        raise MemdescError(
            f"a picture is written as .svg, .png, .html or .txt, not as {short_repr(ending)}"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file, replacing one of that name.

        The ending of the path chooses the form: ``.svg``, ``.png`` (needs the package `resvg_py`),
        ``.html`` (see `html`) or ``.txt``. Without an ending the file is an SVG.
        """
        if not isinstance(path, str | os.PathLike) or str(path) in {"", "-"}:
            raise MemdescError(f"a picture is written to a named file, not to {short_repr(path)}")
        target = Path(path)
        data = self.encoded(target.suffix)
        try:
            target.write_bytes(data)
        except (OSError, ValueError) as error:  # a ValueError for what no path can contain
            reason = getattr(error, "strerror", None) or error
            raise MemdescError(f"{short_repr(str(target))} cannot be written: {reason}") from None


# pixels of the PNG per pixel of the SVG, so that numbers are sharp on a slide
_ZOOM = 2


def png_of(svg: str) -> bytes:
    """Return the PNG of an SVG, in the light colour scheme; needs `resvg_py` and a font."""
    try:
        resvg = import_module("resvg_py")
    except ImportError:
        raise MemdescError(
            "a PNG needs the package resvg_py, which is not installed: pip install resvg_py, "
            "or memdesc[png]; .svg, .html and .txt need no package"
        ) from None
    check_font(resvg)
    return bytes(
        resvg.svg_to_bytes(svg_string=svg, zoom=_ZOOM, monospace_family="DejaVu Sans Mono")
    )


def check_font(resvg: Any, **options: bool) -> None:
    """Refuse to draw without a font, because resvg would silently leave out the text."""
    blank, written = (
        bytes(resvg.svg_to_bytes(svg_string=document((0, 0), (20, 20), "", text), **options))
        for text in ("", label(2, 16, "0"))
    )
    if blank == written:
        raise MemdescError(
            "no font was found for the text of a PNG; install one (Debian: fonts-dejavu-core), "
            "or save the picture as .svg"
        )
