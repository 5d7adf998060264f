"""Pictures of layouts: the value that `show()` returns, and how its parts are put together.

Halves are side by side in an SVG, or below each other on a narrow HTML page. The HTML has no
script, so notebooks and pages show it as it is. What does not fit scrolls, and a shadow marks the
edge that hides something.
"""

from __future__ import annotations

import os
from dataclasses import field
from functools import cache
from html import escape
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from memdesc.errors import MemdescError, short_repr
from memdesc.immutable import value_class
from memdesc.picture.cells import CACHE_LINE, Cell
from memdesc.picture.svg import (
    ACCENT,
    FONT,
    document,
    edge,
    element,
    label,
    paint_cell,
    text_width,
)
from memdesc.tuples import NamedTuple

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

    def _repr_svg_(self) -> str:
        return self.svg

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
        match ending.lower():
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
        """Write the picture to a file, and over the one of that name.

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


# Pixels: around the picture and between its halves; height of a line of the head, of a caption, of
# the legend.
_MARGIN, _BETWEEN, _HEAD_LINE, _CAPTION, _LEGEND = 16, 36, 18, 28, 22
# Pixels left of a half, right of it and above it, if it is a picture of its own.
_LEFT, _RIGHT, _ABOVE = 6, 22, 4
# characters; longer lines are cut
_MAX_TITLE = 100
# Pixels: size of a symbol in the legend.
_SYMBOL = (28, 18)

# symbol of the legend -> what it means
MEANINGS = MappingProxyType(
    {
        "run": "one colour: one run of memory",
        "banks": "one colour: four of the 32 banks of shared memory",
        "field": "one colour: one field",
        "padding": "padding, holds zeros",
        "block": "block",
        "pixel": "pixel",
        "gap": "no element",
        "highlight": "highlighted",
        "line": f"cache line of {CACHE_LINE} bytes starts",
    }
)


@cache
def _style() -> str:
    """Return the style of a fragment, in which an `::after` covers the shadow of the last edge."""
    css = (files("memdesc.picture") / "figure.css").read_text(encoding="utf-8")
    return css.replace("\n", "").replace("{font}", FONT)


class Drawing(NamedTuple):
    """SVG elements that start at (0, 0), and how many pixels they need."""

    caption: str
    width: int
    height: int
    parts: list[str]


def svg_of(head: list[str], halves: list[Drawing], symbols: list[str]) -> str:
    """Return the halves side by side under the head lines, the legend below them."""
    head = [_cut(line) for line in head]
    lines = [label(_MARGIN, _MARGIN + 14, head[0], size=14, style="bold")]
    lines += [
        label(_MARGIN, _MARGIN + 14 + _HEAD_LINE * k, line) for k, line in enumerate(head) if k
    ]
    left, top = _MARGIN, _MARGIN + _HEAD_LINE * len(head)
    right = left + max(text_width(head[0], 14), *map(text_width, head))
    bottom = top
    for half in halves:
        place = f"translate({left} {top + _CAPTION})"
        lines.append(label(left, top + _CAPTION - 10, half.caption, style="faint"))
        lines.append(element("g", *half.parts, transform=place))
        end = left + max(half.width, text_width(half.caption))
        left, right = end + _BETWEEN, max(right, end)
        bottom = max(bottom, top + _CAPTION + half.height)
    if symbols:
        x, y = _MARGIN, bottom + _HEAD_LINE
        for symbol in symbols:
            meaning = MEANINGS[symbol]
            lines += [_symbol(symbol, x, y), label(x + 34, y + 13, meaning, style="faint")]
            x += 58 + text_width(meaning)
        right = max(right, x)
        bottom += _HEAD_LINE + _LEGEND
    return document((0, 0), (right + _MARGIN, bottom + _MARGIN), head[0], *lines)


def fragment_of(head: list[str], halves: list[Drawing], symbols: list[str]) -> str:
    """Return the halves as HTML, below each other on a narrow page."""
    title, *more = (escape(line, quote=False) for line in head)
    caption = "<br>".join([f"<strong>{title}</strong>", *more])
    legend = "".join(
        f"<span>{document((0, 0), _SYMBOL, MEANINGS[symbol], _symbol(symbol, 0, 0))}"
        f"{escape(MEANINGS[symbol], quote=False)}</span>"
        for symbol in symbols
    )
    return (
        f'<figure class="memdesc-figure"><style>{_style()}</style><figcaption>{caption}'
        f'</figcaption><div class="memdesc-halves">{"".join(map(_half_html, halves))}</div>'
        f'<div class="memdesc-legend">{legend}</div></figure>'
    )


def _half_html(half: Drawing) -> str:
    size = half.width + _LEFT + _RIGHT, half.height + _ABOVE + _LEFT
    return (
        f'<div class="memdesc-half">{escape(half.caption, quote=False)}<div class="memdesc-scroll">'
        f'<div class="memdesc-sheet" style="flex:0 0 {size[0]}px">'
        f"{document((-_LEFT, -_ABOVE), size, half.caption, *half.parts)}</div></div></div>"
    )


def _cut(line: str) -> str:
    return line if len(line) <= _MAX_TITLE else f"{line[: _MAX_TITLE - 1]}…"


def _symbol(symbol: str, x: int, y: int) -> str:
    """Return a symbol for the legend: a mark, an outline or a cell."""
    width, height = _SYMBOL
    if symbol == "line":
        return element("path", d=f"M{x + width // 2} {y}v{height}", stroke=ACCENT, stroke_width=3.5)
    if symbol in {"block", "pixel"}:
        return edge("rect", x=x + 1, y=y + 1, width=width - 2, height=height - 2)
    run = None if symbol == "gap" else 0
    cell = Cell("", "", MEANINGS[symbol], run, None, symbol == "padding", symbol == "highlight")
    return paint_cell(cell, x, y, _SYMBOL)
